"""Probes and scrapes are answered at once, whatever other clients do, and the port ends without a wait."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from http import HTTPStatus

import pytest
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter

from berth_core.errors import InputError
from berth_service import health
from berth_service.health import Answer, HealthServer
from health_port import PATIENCE_SECONDS, ask
from waiting import soon

LOOPBACK = "127.0.0.1"
FOREVER_SECONDS = 600
READY = Answer.from_state({"ready": True}, good=True)


class Gate:
    """A state that is not known until the gate is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.asked = 0
        self._lock = threading.Lock()

    def is_asked(self, times: int) -> bool:
        return self.asked == times

    def answer(self) -> Answer:
        with self._lock:
            self.asked += 1
        assert self.opened.wait(FOREVER_SECONDS)
        return READY


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def connect(server: HealthServer, sends: bytes = b"") -> socket.socket:
    host, _, port = server.address.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    client.sendall(sends)
    return client


def test_each_path_has_its_answer() -> None:
    registry, state = CollectorRegistry(), {"ready": True, "waitsFor": ["ä"]}
    Counter("berth_moves", "Moves", registry=registry).inc(3)
    with HealthServer(
        LOOPBACK, 0, registry, readyz=lambda: Answer.from_state(state, good=bool(state["ready"]))
    ) as server:
        assert ask(server.address, "/healthz") == (200, "text/plain", "ok\n")
        assert ask(server.address, "/readyz?verbose") == (200, "application/json", json.dumps(state))
        state["ready"] = False
        assert ask(server.address, "/readyz") == (503, "application/json", json.dumps(state))
        status, content_type, body = ask(server.address, "/metrics")
        assert (status, content_type) == (200, CONTENT_TYPE_LATEST)
        assert "berth_moves_total 3.0" in body
        assert ask(server.address, "/secrets") == (404, "text/plain", "not found\n")


def test_a_program_says_itself_whether_it_is_healthy() -> None:
    ill = Answer.from_state({"healthy": False}, good=False)
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), healthz=lambda: ill, readyz=lambda: READY) as server:
        assert ask(server.address, "/healthz") == (503, "application/json", '{"healthy": false}')


def test_a_head_is_answered_without_a_body_and_a_change_is_refused() -> None:
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), readyz=lambda: READY) as server:
        assert ask(server.address, "/healthz", "HEAD") == (200, "text/plain", "")
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert ask(server.address, "/healthz", method)[0] == HTTPStatus.METHOD_NOT_ALLOWED


def test_no_name_server_is_asked_for_the_name_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("getfqdn", "gethostbyaddr"):
        monkeypatch.setattr(socket, name, lambda *_: pytest.fail("a name server is asked"))
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), readyz=lambda: READY) as server:
        assert ask(server.address, "/healthz")[0] == 200


def test_of_a_name_the_ipv4_address_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET6, 1, 6, "", ("::1", 0, 0, 0)), (socket.AF_INET, 1, 6, "", (LOOPBACK, 0))]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", lambda *_, **__: list(found))
        server = HealthServer("localhost", 0, CollectorRegistry(), readyz=lambda: READY)
        server.start()
    try:
        assert ask(f"{LOOPBACK}:{server.address.removeprefix('localhost:')}", "/healthz")[0] == 200
    finally:
        server.stop()


def test_an_address_that_is_taken_is_said() -> None:
    with closing(socket.create_server((LOOPBACK, 0))) as other:
        port = other.getsockname()[1]
        server = HealthServer(LOOPBACK, port, CollectorRegistry(), readyz=lambda: READY)
        with pytest.raises(InputError, match=rf"--health-address is '127.0.0.1:{port}'; expected a free local address"):
            server.start()
        server.stop()


def test_the_newest_client_is_answered_beside_many_that_send_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_MOST_CLIENTS", 5)
    monkeypatch.setattr(health, "_DROP_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(health._Handler, "timeout", FOREVER_SECONDS)
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), readyz=lambda: READY) as server, ExitStack() as clients:
        silent = [clients.enter_context(connect(server)) for _ in range(15)]
        assert ask(server.address, "/healthz")[0] == 200
        assert silent[0].recv(1) == b"", "the first is dropped"


def test_no_more_clients_than_the_bound_are_answered_at_once(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_MOST_CLIENTS", 3)
    monkeypatch.setattr(health, "_DROP_SECONDS", 0.01)
    monkeypatch.setattr(health._Handler, "timeout", FOREVER_SECONDS)
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), readyz=gate.answer) as server, ExitStack() as clients:
        for number in range(3):
            clients.enter_context(connect(server, b"GET /readyz HTTP/1.1\r\n\r\n"))
            soon("it is being answered", partial(gate.is_asked, number + 1))
        assert clients.enter_context(connect(server)).recv(1) == b"", "there is no room for it"
        gate.opened.set()
        assert ask_until_answered(server) == 200
    assert gate.asked == 3


def ask_until_answered(server: HealthServer) -> int:
    """Return the status of an answer as soon as there is room for a client again."""
    statuses: list[int] = []

    def try_once() -> bool:
        try:
            statuses.append(ask(server.address, "/healthz")[0])
        except OSError:
            return False
        return True

    soon("there is room again", try_once)
    return statuses[0]


def test_a_client_that_sends_nothing_is_let_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    assert health._Handler.timeout == 10
    monkeypatch.setattr(health._Handler, "timeout", 0.01)
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), readyz=lambda: READY) as server, connect(server) as client:
        assert client.recv(1) == b""


def test_the_port_ends_though_clients_are_not_answered_yet(gate: Gate) -> None:
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), readyz=gate.answer) as server:
        listener = server._listener
        assert listener is not None
        with connect(server), connect(server, b"GET /readyz HTTP/1.1\r\n\r\n"):
            soon("it is being answered", lambda: gate.asked == 1)
            server.stop()
        assert listener.socket.fileno() == -1, "nothing listens any more"


def test_a_client_that_goes_away_is_not_worth_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    with HealthServer(LOOPBACK, 0, CollectorRegistry(), readyz=lambda: READY) as server:
        listener = server._listener
        assert listener is not None
        for error in (ConnectionResetError("gone"), ValueError("wrong")):
            try:
                raise error
            except (OSError, ValueError):
                listener.handle_error(None, (LOOPBACK, 1))
    said = capfd.readouterr().err
    assert "wrong" in said
    assert "gone" not in said
