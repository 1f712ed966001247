import random
import socket
import sys
from dataclasses import asdict, fields

import pytest

from berth_sandbox import ports
from berth_sandbox.errors import SandboxError
from berth_sandbox.ports import LOOPBACK, PortReservation, Ports, free_port


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
        chosen = [port for reservation in reservations for port in asdict(reservation.ports).values()]
        assert len(set(chosen)) == len(chosen) == 30 * len(fields(Ports))
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
        assert accepted.getsockname() == (LOOPBACK, reservation.ports.api_server)
        accepted.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a reserved port is let go before it is used")
def test_no_outgoing_connection_gets_the_port_of_a_component_that_is_down() -> None:
    """Such connections get ports from 32768 on, as Linux comes."""
    reservation = PortReservation.make()
    reservation.release()
    assert all(port < 32_768 for port in asdict(reservation.ports).values())


def test_who_comes_back_to_a_port_finds_it_free_whatever_the_seed_of_chance() -> None:
    chosen = []
    for _ in range(200):
        random.seed(1)
        chosen.append(free_port())
    assert len(set(chosen)) == len(chosen)


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen(0) as used:
        port = used.getsockname()[1]
        monkeypatch.setattr(ports, "_RANGE", range(port, port + 1))
        with pytest.raises(SandboxError, match=f"no free loopback port among {port} to {port}"):
            PortReservation.make()
