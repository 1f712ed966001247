"""The port of `/healthz`, `/readyz` and `/metrics`, which both programs serve.

Its threads do nothing else, so a program that is busy or stuck still answers scrapes, and reports that it is stuck.
"""

import json
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Final, Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from berth_core import InputError
from berth_service.listening import join_address, listen

_MOST_CLIENTS: Final = 64
"""A probe or a scrape takes milliseconds: if so many are open at once, most of them are slow clients."""
_DROP_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 10.0
_STOP_CHECK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a path of the port."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain"

    @classmethod
    def from_state(cls, state: Mapping[str, object], *, good: bool) -> "Answer":
        """Return a state as JSON, with 200 if good, else 503."""
        status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        return cls(status, json.dumps(state).encode(), "application/json")


_OK: Final = Answer(HTTPStatus.OK, b"ok\n")
_NOT_FOUND: Final = Answer(HTTPStatus.NOT_FOUND, b"not found\n")
_ONLY_READS: Final = Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")


class HealthServer:
    """Answers on an address from `start` to `stop`; a context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        *,
        readyz: Callable[[], Answer],
        healthz: Callable[[], Answer] = lambda: _OK,
    ) -> None:
        """Make a server that does not listen yet.

        `readyz` and `healthz` are called in threads of the server, several at once.
        """
        self._host = host
        self._port = port
        metrics = partial(_render_metrics, registry)
        self._handler = partial(_Handler, {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics})
        self._listener: _Listener | None = None

    def start(self) -> None:
        """Listen; raises `InputError` if the address is not a free one of this machine."""
        try:
            listener = _Listener(self._host, self._port, self._handler)
        except OSError as error:
            address, expected = join_address(self._host, self._port), f"a free local address ({error.strerror})"
            raise InputError("--health-address", address, expected) from error
        threading.Thread(target=listener.serve_forever, args=(_STOP_CHECK_SECONDS,), name="health", daemon=True).start()
        self._listener = listener

    def stop(self) -> None:
        """Stop listening, without waiting for unfinished answers; does nothing if the server does not listen."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown()
            listener.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Return `HOST:PORT` with the real port in place of 0."""
        port = self._port if self._listener is None else self._listener.server_address[1]
        return join_address(self._host, port)


def _render_metrics(registry: CollectorRegistry) -> Answer:
    return Answer(HTTPStatus.OK, generate_latest(registry), CONTENT_TYPE_LATEST)


class _Listener(ThreadingTCPServer):
    """Answers each client in a thread; with too many clients, drops the one that came first.

    Unlike http.server's own it does not look up the name of its address, which may take long.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._clients: OrderedDict[Any, None] = OrderedDict()
        self._left = threading.Condition()
        """Guards `_clients`; notified when a client has left."""
        # socketserver makes its socket for one family of addresses before it can be told another, so it is replaced.
        super().__init__((host, port), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listen(host, port, backlog=self.request_queue_size)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """Answer in a thread of its own."""
        if self._admit(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _admit(self, request: Any) -> bool:  # noqa: ANN401 - as socketserver has it
        """Count a client; return whether there was room, or dropping the first client made room."""
        with self._left:
            if len(self._clients) >= _MOST_CLIENTS:
                # Not the newest: slow clients would then keep the kubelet's probes out, and it would restart the
                # container.
                oldest = next(iter(self._clients))
                self._clients.move_to_end(oldest)  # its thread may not end at once: the next client to drop is another
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            has_room = self._left.wait_for(lambda: len(self._clients) < _MOST_CLIENTS, _DROP_SECONDS)
            if has_room:
                self._clients[request] = None
            return has_room

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """Close the connection of a client, which counts no more."""
        with self._left:
            self._clients.pop(request, None)
            self._left.notify()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """Print what went wrong, unless a client went away."""
        # A probe that times out closes its connection in the middle of an answer.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of a client, which has some seconds to send it."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def __init__(self, routes: Mapping[str, Callable[[], Answer]], *rest: Any) -> None:  # noqa: ANN401 - socketserver's
        self._routes = routes
        super().__init__(*rest)

    def do_GET(self) -> None:
        route = self._routes.get(self.path.partition("?")[0])
        self._send(_NOT_FOUND if route is None else route())

    def do_HEAD(self) -> None:
        """Answer as to a GET, without the body."""
        self.do_GET()

    def do_POST(self) -> None:
        """Refuse to change anything."""
        self._send(_ONLY_READS)

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST  # noqa: N815 - http.server's names

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        # The kubelet opens a connection for every probe; one that stayed open would keep a thread.
        self.send_header("Connection", "close")
        if answer is _ONLY_READS:
            self.send_header("Allow", "GET,HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log no requests."""
