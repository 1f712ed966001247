"""A client of a Service on real nodes, which sends requests to every ready endpoint all the time and counts failures.

It stands where a load balancer would: it reads endpoints from EndpointSlices, follows a change within a fraction of a
second, and uses those that are ready. No request is repeated, and each that is not answered with 200 counts as failed.
"""

import http.client
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from berth_kube import ENDPOINT_SLICES, KubeClient, KubeError
from berth_sandbox.real_nodes.nodes import RealNodes

_LOOK_EVERY_SECONDS: Final = 0.2
_PAUSE_SECONDS: Final = 0.02
_ANSWER_SECONDS: Final = 5.0
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_OK: Final = 200
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """Where one pod of a Service answers."""

    address: str
    port: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerReport:
    """Requests, failures and endpoints that a caller has seen."""

    requests: int
    failures: tuple[str, ...]
    """A sentence for each failed request."""
    fewest_endpoints: int
    """The least number of ready endpoints at any look."""


def ready_endpoints(slices: Iterable[dict[str, Any]]) -> tuple[Endpoint, ...]:
    """Return the ready endpoints of a Service's EndpointSlices; a pod that is terminating is not ready there."""
    return tuple(
        sorted(
            Endpoint(address, port["port"], (endpoint.get("targetRef") or {}).get("name", ""))
            for endpoint_slice in slices
            for endpoint in endpoint_slice.get("endpoints") or ()
            if _is_ready(endpoint)
            for address in endpoint["addresses"]
            for port in endpoint_slice.get("ports") or ()
        )
    )


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    """Return whether an endpoint is ready; by the API an absent condition is true."""
    return (endpoint.get("conditions") or {}).get("ready") is not False


class ServiceCaller:
    """Sends requests to a Service from its start until it is stopped; a context manager."""

    def __init__(self, client: KubeClient, nodes: RealNodes, *, namespace: str, service: str) -> None:
        self._client = client
        self._nodes = nodes
        self._namespace = namespace
        self._service = service
        self._endpoints: tuple[Endpoint, ...] = ()
        self._fewest: int | None = None
        self._requests = 0
        self._failures: list[str] = []
        self._stop = threading.Event()
        self._threads = tuple(threading.Thread(target=target, daemon=True) for target in (self._look_on, self._ask_on))

    def __enter__(self) -> Self:
        self._look()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def report(self) -> CallerReport:
        """Return what was seen until now."""
        return CallerReport(requests=self._requests, failures=tuple(self._failures), fewest_endpoints=self._fewest or 0)

    def _look_on(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_SECONDS):
            try:
                self._look()
            except KubeError:  # a balancer keeps what it knows while the API server is away
                continue

    def _look(self) -> None:
        label = f"{_SERVICE_LABEL}={self._service}"
        slices = self._client.list(ENDPOINT_SLICES, namespace=self._namespace, label_selector=label).items
        self._endpoints = ready_endpoints(slices)
        self._fewest = min(len(self._endpoints), len(self._endpoints) if self._fewest is None else self._fewest)

    def _ask_on(self) -> None:
        while not self._stop.wait(_PAUSE_SECONDS):
            endpoints = self._endpoints
            if not endpoints:
                self._count(f"{self._service} has no ready endpoint")
            for endpoint in endpoints:
                # It may have gone while the ones before it were asked; a balancer would not choose it any more.
                if endpoint in self._endpoints and not self._stop.is_set():
                    self._count(self._ask(endpoint))

    def _count(self, failure: str) -> None:
        self._requests += 1
        if failure:
            self._failures.append(failure)

    def _ask(self, endpoint: Endpoint) -> str:
        """Send one request over a connection of its own; return what went wrong, "" if it was answered."""
        connection = http.client.HTTPConnection(endpoint.address, endpoint.port)
        try:
            connection.sock = self._nodes.connect(endpoint.address, endpoint.port, timeout_seconds=_ANSWER_SECONDS)
            connection.request("GET", "/")
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            return f"{endpoint.pod} at {endpoint.address}: {error!r}"
        finally:
            connection.close()
        return "" if answer.status == _OK else f"{endpoint.pod} at {endpoint.address}: status {answer.status}"
