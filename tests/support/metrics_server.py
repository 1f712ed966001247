"""A server of `metrics.k8s.io/v1beta1` as metrics-server is one, behind the API server's aggregator."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from berth_core.clock import SystemClock, format_timestamp
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import Resource
from berth_service.certificates import key_to_pem, make_authority, sign_server, to_pem

API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
SERVICES: Final = Resource("", "v1", "services", "Service", namespaced=True)
NAME: Final = "v1beta1.metrics.k8s.io"
_NAMESPACE: Final = "kube-system"
_SERVICE: Final = "metrics-server"
_LIFE: Final = timedelta(days=1)
_VERBS: Final = ["get", "list"]


def node_metrics(name: str, cpu: str, memory: str, **rest: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of the object
    return {"metadata": {"name": name}, **_measured_now(), "usage": {"cpu": cpu, "memory": memory}, **rest}


def pod_metrics(name: str, cpu: str, memory: str, namespace: str = "default", **rest: Any) -> dict[str, Any]:  # noqa: ANN401
    containers = [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}]
    return {"metadata": {"name": name, "namespace": namespace}, **_measured_now(), "containers": containers, **rest}


def _measured_now() -> dict[str, str]:
    return {"timestamp": format_timestamp(SystemClock().now()), "window": "15.1s"}


@dataclass
class MetricsServer:
    """What is served; a test changes it while the server runs."""

    nodes: list[Mapping[str, Any]] = field(default_factory=list)
    pods: list[Mapping[str, Any]] = field(default_factory=list)

    def answer(self, path: str) -> Mapping[str, Any] | None:
        """Return the body for a path, None for one that there is not."""
        group = {"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"}
        match path.partition("?")[0].rstrip("/"):
            case "/apis/metrics.k8s.io":
                return {
                    "kind": "APIGroup",
                    "apiVersion": "v1",
                    "name": "metrics.k8s.io",
                    "versions": [group],
                    "preferredVersion": group,
                }
            case "/apis/metrics.k8s.io/v1beta1":
                kinds = [("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True)]
                resources = [
                    {"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": _VERBS}
                    for name, kind, namespaced in kinds
                ]
                return {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": "metrics.k8s.io/v1beta1",
                    "resources": resources,
                }
            case "/apis/metrics.k8s.io/v1beta1/nodes":
                return self._listed("NodeMetricsList", self.nodes)
            case "/apis/metrics.k8s.io/v1beta1/pods":
                return self._listed("PodMetricsList", self.pods)
            case _:
                return None

    @staticmethod
    def _listed(kind: str, items: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        return {"kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}


class _Handler(BaseHTTPRequestHandler):
    metrics: MetricsServer

    def do_GET(self) -> None:
        body = self.metrics.answer(self.path)
        raw = json.dumps(body or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}).encode()
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(metrics: MetricsServer, folder: Path) -> Iterator[tuple[int, bytes]]:
    """Serve on a port of the loopback address, and yield it with the authority that signed the certificate."""
    now = SystemClock().now()
    authority = make_authority("metrics", now=now - timedelta(hours=1), life=_LIFE)
    hosts = ["localhost", f"{_SERVICE}.{_NAMESPACE}.svc"]
    leaf = sign_server(authority, _SERVICE, hosts, now=now - timedelta(hours=1), life=_LIFE)
    chain = folder / "metrics-server.pem"
    chain.write_bytes(to_pem(leaf.certificate) + key_to_pem(leaf.key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    handler = type("Handler", (_Handler,), {"metrics": metrics})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1], to_pem(authority.certificate)
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def registered(client: KubeClient, port: int, authority: bytes) -> Iterator[None]:
    """Register a server on this machine with the aggregator.

    A Service of the type ExternalName leads it to a loopback address, which EndpointSlices may not have.
    """
    service = {"metadata": {"name": _SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "service": {"namespace": _NAMESPACE, "name": _SERVICE, "port": port},
        "caBundle": base64.b64encode(authority).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **service}, namespace=_NAMESPACE)
    try:
        client.create(
            API_SERVICES,
            {
                "apiVersion": API_SERVICES.api_version,
                "kind": "APIService",
                "metadata": {"name": NAME},
                "spec": spec,
            },
        )
        yield
    finally:
        for kind, name, namespace in ((API_SERVICES, NAME, None), (SERVICES, _SERVICE, _NAMESPACE)):
            with suppress(NotFoundError):
                client.delete(kind, name, namespace=namespace)


def availability(client: KubeClient) -> str:
    """Return the status of the condition Available of the registration, "" while there is none."""
    conditions = client.get(API_SERVICES, NAME).get("status", {}).get("conditions", [])
    return next((str(condition["status"]) for condition in conditions if condition["type"] == "Available"), "")
