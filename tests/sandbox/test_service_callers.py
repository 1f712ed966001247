"""A client of a Service: whom it asks, and what it counts."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

from berth_sandbox.real_nodes.callers import Endpoint, ServiceCaller, ready_endpoints
from waiting import soon

LOOPBACK = "127.0.0.1"


def endpoint_slice(port: int, *endpoints: dict[str, Any]) -> dict[str, Any]:
    return {"ports": [{"port": port}], "endpoints": list(endpoints)}


def endpoint(address: str, pod: str, *, ready: bool | None = True) -> dict[str, Any]:
    conditions = {} if ready is None else {"ready": ready, "terminating": not ready}
    return {"addresses": [address], "conditions": conditions, "targetRef": {"name": pod}}


def test_only_ready_endpoints_are_asked() -> None:
    slices = [
        endpoint_slice(80, endpoint("198.18.1.3", "b"), endpoint("198.18.1.2", "going", ready=False)),
        endpoint_slice(80, endpoint("198.18.1.4", "c", ready=None)),
        {"ports": None, "endpoints": None},
    ]
    assert ready_endpoints(slices) == (Endpoint("198.18.1.3", 80, "b"), Endpoint("198.18.1.4", 80, "c"))


class Answering(BaseHTTPRequestHandler):
    """Answers 200, but 500 while it is told so."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def serving() -> Iterator[int]:
    with ThreadingHTTPServer((LOOPBACK, 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Cluster:
    """Has the EndpointSlices of one Service, and opens connections on loopback."""

    def __init__(self, *ports: int) -> None:
        self.items = [endpoint_slice(port, endpoint(LOOPBACK, f"pod-{port}")) for port in ports]

    def list(self, *_: object, **__: object) -> Self:
        return self

    def connect(self, address: str, port: int, *, timeout_seconds: float) -> socket.socket:
        return socket.create_connection((address, port), timeout_seconds)


def call(cluster: Cluster) -> ServiceCaller:
    return ServiceCaller(cluster, cluster, namespace="shop", service="shop")  # type: ignore[arg-type]


def test_every_endpoint_is_asked_and_nothing_fails_while_all_answer() -> None:
    with serving() as first, serving() as second, call(Cluster(first, second)) as caller:
        soon("both were asked", lambda: caller.report().requests >= 20)
    report = caller.report()
    assert report.failures == ()
    assert report.fewest_endpoints == 2


def test_an_endpoint_that_does_not_answer_counts_as_failed() -> None:
    with serving() as gone:
        pass
    with serving() as there, call(Cluster(there, gone)) as caller:
        soon("both were asked", lambda: caller.report().requests >= 4)
    failures = set(caller.report().failures)
    assert len(failures) == 1
    assert next(iter(failures)).startswith(f"pod-{gone} at {LOOPBACK}: ConnectionRefusedError")


def test_an_answer_other_than_200_counts_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as port, call(Cluster(port)) as caller:
        monkeypatch.setattr(Answering, "status", 500)
        soon("one has failed", lambda: bool(caller.report().failures))
    assert f"pod-{port} at {LOOPBACK}: status 500" in caller.report().failures


def test_a_moment_without_a_ready_endpoint_counts_as_failed() -> None:
    cluster = Cluster()
    with call(cluster) as caller:
        soon("it has failed", lambda: bool(caller.report().failures))
    assert set(caller.report().failures) == {"shop has no ready endpoint"}
    assert caller.report().fewest_endpoints == 0
