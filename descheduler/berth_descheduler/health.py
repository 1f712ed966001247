"""The small server of `/healthz`, `/readyz` and `/metrics`."""

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from berth_core import InputError

Readiness = Callable[[], Mapping[str, object]]
"""Returns what `/readyz` says; `ready` decides about the answer's status."""


class HealthServer:
    """Answers on an address until it is left; use as a context manager."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, readiness: Readiness) -> None:
        handler = _handler(registry, readiness)
        try:
            self._server = _Server((host, port), handler)
        except OSError as error:
            raise InputError(
                "--health-address", f"{host}:{port}", f"a free local address ({error.strerror})"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """Return `HOST:PORT` as it is listened on."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"


class _Server(ThreadingTCPServer):
    """Listens; unlike http.server's own it asks no name server for the name of its address, which may take long."""

    allow_reuse_address = True
    daemon_threads = True


def _handler(registry: CollectorRegistry, readiness: Readiness) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET requests."""

        def do_GET(self) -> None:
            """Answer by path."""
            match self.path.partition("?")[0]:
                case "/healthz":
                    self._answer(HTTPStatus.OK, "text/plain", b"ok\n")
                case "/readyz":
                    state = readiness()
                    status = HTTPStatus.OK if state["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
                    self._answer(status, "application/json", json.dumps(state).encode())
                case "/metrics":
                    self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log no requests."""

    return Handler
