import socket
import sys

import pytest

from berth_sandbox.ports import LOOPBACK, PortReservation


def listen(port: int) -> socket.socket:
    """Listen as Go does: with SO_REUSEADDR, naming the port."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((LOOPBACK, port))
    bound.listen()
    return bound


def test_sandboxes_chosen_at_the_same_time_never_share_a_port() -> None:
    reservations = [PortReservation.make() for _ in range(30)]
    try:
        ports = [port for reservation in reservations for port in reservation.ports.as_dict().values()]
        assert len(set(ports)) == len(ports) == 30 * 7
    finally:
        for reservation in reservations:
            reservation.release()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a reserved port is let go before it is used")
def test_a_component_can_listen_while_its_port_is_still_reserved() -> None:
    reservation = PortReservation.make()
    with listen(reservation.ports.api_server) as listening, socket.socket() as client:
        reservation.release()
        client.connect((LOOPBACK, reservation.ports.api_server))
        accepted, _ = listening.accept()
        accepted.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a reserved port is let go before it is used")
def test_nobody_who_asks_for_any_free_port_gets_a_reserved_one() -> None:
    reservation = PortReservation.make()
    reserved = set(reservation.ports.as_dict().values())
    others = [listen(0) for _ in range(300)]
    try:
        assert not reserved & {other.getsockname()[1] for other in others}
    finally:
        reservation.release()
        for other in others:
            other.close()
