"""A small HTTP server on loopback that answers as a test scripts it, faults included."""

import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, Protocol, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: float
    user: str = ""
    """Whom a client's certificate names."""

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever was sent
        """Return the body, decoded."""
        return json.loads(self.body)


class Reply(Protocol):
    """What the server does with a request; False ends the connection."""

    def send(self, handler: "_Handler") -> bool:
        """Answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, handler: "_Handler") -> bool:
        handler.send_response(self.status)
        for key, value in {"Content-Type": "application/json", **self.headers}.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(self.body)))
        handler.end_headers()
        handler.wfile.write(self.body)
        return True


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before any answer."""

    def send(self, handler: "_Handler") -> bool:
        # Lingering for no time at all makes the close a reset.
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(handler.connection.detach())
        return False


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer for some seconds (or until the server stops), then another reply."""

    seconds: float
    then: Reply

    def send(self, handler: "_Handler") -> bool:
        handler.script.stopping.wait(self.seconds)
        return self.then.send(handler)


@dataclass(frozen=True, slots=True)
class Truncated:
    """An answer that ends before its announced length."""

    body: bytes

    def send(self, handler: "_Handler") -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(self.body) + 100))
        handler.end_headers()
        handler.wfile.write(self.body)
        return False


@dataclass(frozen=True, slots=True)
class Stream:
    """A chunked answer of lines that then ends well, is cut off, or is held open in silence."""

    lines: Sequence[bytes] = ()
    end: str = "hold"  # "well", "cut" or "hold"

    def send(self, handler: "_Handler") -> bool:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for line in self.lines:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        if self.end == "hold":
            handler.script.stopping.wait(60)
        if self.end == "well":
            handler.wfile.write(b"0\r\n\r\n")
            return True
        return False


def answer(body: object, status: int = 200, **headers: str) -> Answer:
    """Return an answer with a JSON body; header names are written with underscores."""
    raw = json.dumps(body).encode()
    return Answer(raw, status, {key.replace("_", "-"): value for key, value in headers.items()})


def refusal(
    status: int, reason: str, message: str, *, details: Mapping[str, Any] | None = None, **headers: str
) -> Answer:
    """Return a Status that is no success, as the API server writes it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return answer({**body, "message": message, "details": details or {}}, status, **headers)


def page(*items: Mapping[str, Any], resource_version: str = "10", continue_token: str = "") -> Answer:
    """Return one page of a list."""
    metadata = {"resourceVersion": resource_version} | ({"continue": continue_token} if continue_token else {})
    return answer({"metadata": metadata, "items": items})


def event(type_: str, body: Mapping[str, Any]) -> bytes:
    """Return one line of a watch."""
    return json.dumps({"type": type_, "object": body}).encode() + b"\n"


class ScriptedServer:
    """Answers each path by its list of replies in turn; the last one goes on for ever. Use it with `with`."""

    def __init__(self, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        """With `tls` it speaks TLS; whether it wants a client's certificate is the context's."""
        self.tls = tls
        self._host = host
        self.stopping = threading.Event()
        self.seen: list[Seen] = []
        self.connections = 0
        self._replies: dict[tuple[str, str], list[Reply]] = {}
        self._lock = threading.Lock()
        server = _ServerOfSix if ":" in host else _Server
        self._server = server((host, 0), _Handler)
        self._server.script = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    @property
    def url(self) -> str:
        """Return the server's address."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def on(self, method: str, path: str, *replies: Reply) -> Self:
        """Script the replies of one path; a watch has the method WATCH."""
        self._replies[method, path] = list(replies)
        return self

    def requests(self, method: str, path: str) -> list[Seen]:
        """Return the requests to one path so far."""
        return [seen for seen in list(self.seen) if (seen.method, seen.path) == (method, path)]

    def take(self, seen: Seen) -> Reply:
        """Return the reply to a request and remember it."""
        with self._lock:
            self.seen.append(seen)
            replies = self._replies.get((seen.method, seen.path), [refusal(404, "NotFound", "not in the script")])
            return replies.pop(0) if len(replies) > 1 else replies[0]

    def kubeconfig(self, folder: Path) -> str:
        """Return the path of a kubeconfig that leads here."""
        return write_kubeconfig(folder, self.url)


def write_kubeconfig(folder: Path, server: str, *, user: Mapping[str, Any] | None = None) -> str:
    """Return the path of a kubeconfig with one context, `scripted`."""
    path = folder / "kubeconfig.json"  # JSON is YAML
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "scripted",
        "clusters": [{"name": "scripted", "cluster": {"server": server}}],
        "users": [{"name": "scripted", "user": user or {"token": "secret"}}],
        "contexts": [{"name": "scripted", "context": {"cluster": "scripted", "user": "scripted"}}],
    }
    path.write_text(json.dumps(document))
    return str(path)


@contextmanager
def nobody_listening() -> Iterator[str]:
    """Yield the address of a port that is ours, so that nobody else takes it, and on which nobody listens."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{kept.getsockname()[1]}"


class _Server(ThreadingTCPServer):
    """Unlike http.server's own it asks no name server for the name of this machine."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    script: ScriptedServer

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        self.script.connections += 1
        return super().get_request()

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Serve one connection in its own thread, from the TLS handshake on."""
        if self.script.tls is None:
            super().finish_request(request, client_address)
            return
        with self.script.tls.wrap_socket(request, server_side=True) as connection:
            super().finish_request(connection, client_address)

    def handle_error(self, *_: object) -> None:
        """Keep quiet: clients that go away are part of the tests."""


class _ServerOfSix(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body of its own would wait 40 ms for the acknowledgement of the headers
    seen: Seen
    """The request that is being answered; others may have come in since."""

    @property
    def script(self) -> ScriptedServer:
        server = self.server
        assert isinstance(server, _Server)
        return server.script

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def _answer(self) -> None:
        address = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(address.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        method = "WATCH" if query.get("watch") else self.command
        certificate = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
        user = dict(part for (part,) in certificate["subject"])["commonName"] if certificate else ""
        self.seen = Seen(method, address.path, query, dict(self.headers), body, time.monotonic(), str(user))
        if not self.script.take(self.seen).send(self):
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - names that http.server looks for
