"""Programs listen on IPv4 and IPv6 by one address, also where a machine has one of the two."""
# ruff: noqa: ANN401 - as socket has it

import errno
import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from berth_core.errors import InputError
from berth_service import listening
from berth_service.health import Answer, HealthServer
from berth_service.listening import HandshakeLimit, join_address, listen, plain_host
from berth_service.process import parse_address
from health_port import ask

READY = Answer.from_state({"ready": True}, good=True)
IPV4, IPV6 = "127.0.0.1", "::1"
PATIENCE_SECONDS = 60


def is_reached(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=PATIENCE_SECONDS):
            return True
    except ConnectionRefusedError:
        return False


REACHED = {
    "both families": ("::", (True, True)),
    "all of IPv4": ("0.0.0.0", (True, False)),  # noqa: S104 - what the case is about
    "an address of IPv4": (IPV4, (True, False)),
    "an address of IPv6": (IPV6, (False, True)),
}


@pytest.mark.parametrize(("host", "want"), REACHED.values(), ids=REACHED.keys())
def test_listening_on(host: str, want: tuple[bool, bool]) -> None:
    with closing(listen(host, 0, backlog=8)) as listener:
        port = listener.getsockname()[1]
        assert (is_reached(IPV4, port), is_reached(IPV6, port)) == want


def test_of_too_many_handshakes_the_oldest_of_the_busiest_address_makes_room() -> None:
    done: set[int] = set()
    busy, other, third = "127.0.0.2", "127.0.0.1", "127.0.0.3"
    with ExitStack() as stack:
        listener = stack.enter_context(HandshakeLimit(listen("0.0.0.0", 0, backlog=8), 4, lambda: done))  # noqa: S104 - peers of several addresses
        _, accepted = stack.enter_context(connection_to(listener, busy))
        done.add(accepted.fileno())
        addresses = (other, busy, busy, busy, third)
        peers = [stack.enter_context(connection_to(listener, address))[0] for address in addresses]
        assert peers[1].recv(1) == b"", "it is ended"
        assert not any(is_ended(peer) for peer in peers if peer is not peers[1])


def test_handshakes_go_on_between_a_few_connections_and_the_next_few() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(HandshakeLimit(listen(IPV4, 0, backlog=64), 256, frozenset))
        listener.settimeout(0)
        address = (IPV4, listener.getsockname()[1])
        for _ in range(40):
            stack.enter_context(socket.create_connection(address, timeout=PATIENCE_SECONDS))
        turns = [accepted_in_a_turn(listener, stack) for _ in range(4)]
    assert turns == [16, 16, 8, 0]


def accepted_in_a_turn(listener: socket.socket, stack: ExitStack) -> int:
    """Accept as an event loop does, until there seems to be no more; return how many connections there were."""
    for count in itertools.count():
        try:
            stack.enter_context(listener.accept()[0])
        except BlockingIOError:
            return count
    raise AssertionError


@contextmanager
def connection_to(listener: socket.socket, address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection from an address."""
    port = listener.getsockname()[1]
    with socket.create_connection((IPV4, port), source_address=(address, 0), timeout=PATIENCE_SECONDS) as peer:
        accepted, _ = listener.accept()
        with accepted:
            yield peer, accepted


def is_ended(peer: socket.socket) -> bool:
    peer.settimeout(0)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False


class WithoutIPv6(socket.socket):
    """A socket of a kernel without IPv6."""

    def __init__(self, family: int = socket.AF_INET, *rest: Any, **more: Any) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        super().__init__(family, *rest, **more)


class WithoutAddress(socket.socket):
    """A socket of a machine whose IPv6 is turned off."""

    def bind(self, address: Any, /) -> None:
        if self.family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        super().bind(address)


@pytest.mark.parametrize("made", [WithoutIPv6, WithoutAddress])
def test_a_machine_without_ipv6_listens_on_all_of_ipv4(
    made: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(listening.socket, "socket", made)
        listener = listen("::", 0, backlog=8)
    with closing(listener):
        assert listener.family == socket.AF_INET
        assert is_reached(IPV4, listener.getsockname()[1])


def test_a_port_of_another_is_not_taken_whatever_its_family() -> None:
    with closing(socket.create_server((IPV4, 0))) as other, pytest.raises(OSError, match="in use"):
        listen("::", other.getsockname()[1], backlog=8)


def test_the_health_port_answers_both_families() -> None:
    with HealthServer("::", 0, CollectorRegistry(), readyz=lambda: READY) as server:
        assert server.address.startswith("[::]:")
        port = server.address.removeprefix("[::]:")
        assert [ask(f"{host}:{port}", "/readyz")[0] for host in (IPV4, f"[{IPV6}]")] == [200, 200]


@pytest.mark.parametrize(
    ("host", "want"), {"::ffff:10.0.0.7": "10.0.0.7", "10.0.0.7": "10.0.0.7", "fd00::7": "fd00::7", "": ""}.items()
)
def test_a_peer_of_ipv4_is_named_by_its_own_address(host: str, want: str) -> None:
    assert plain_host(host) == want


ADDRESSES = {"[::]:8080": ("::", 8080), "[::1]:0": ("::1", 0), "[fd00::7]:443": ("fd00::7", 443), "h:1": ("h", 1)}


@pytest.mark.parametrize(("text", "want"), ADDRESSES.items())
def test_an_address_is_read_and_written(text: str, want: tuple[str, int]) -> None:
    assert parse_address("--at", text) == want
    assert join_address(*want) == text


@pytest.mark.parametrize(
    "text", [":::8080", "::1:8080", "[::]", "[::]8080", "[::1:80", "::1]:80", "[host]:80", "[]:80"]
)
def test_an_ipv6_address_needs_its_brackets(text: str) -> None:
    with pytest.raises(InputError, match=r"expected HOST:PORT, for example 0\.0\.0\.0:8080 or \[::\]:8080"):
        parse_address("--at", text)
