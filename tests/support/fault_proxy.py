"""A proxy before the API server that disturbs calls as a `FaultPlan` says; clients reach it by a kubeconfig.

It speaks TLS on loopback, as API servers do, with a certificate of its own, and passes on the credentials of the
client: a token with each call, or the certificate of the kubeconfig.
"""

import base64
import json
import math
import queue
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

import urllib3
import yaml
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from berth_sandbox.configuration import write_kubeconfig
from berth_sandbox.ports import LOOPBACK
from berth_service.certificates import KeyPair, key_to_pem, make_authority, sign_server, to_pem
from faults import Call, Fault, FaultKind, FaultPlan, NoFaults

_READ_BYTES: Final = 64 * 1024
_REMEMBERED_CALLS: Final = 5000
_HELLO_SECONDS: Final = 5.0
_CERTIFICATE_LIFE: Final = timedelta(days=1)
# Headers that a proxy must not pass on, as they are about one connection, and those that each side sets by itself.
_OF_ONE_CONNECTION: Final = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "date",
    "server",
    "host",
}
_STATUSES: Final = {
    FaultKind.TOO_MANY: (429, "TooManyRequests"),
    FaultKind.SERVER_ERROR: (500, "InternalError"),
    FaultKind.UNAVAILABLE: (503, "ServiceUnavailable"),
    FaultKind.CONFLICT: (409, "Conflict"),
    FaultKind.GONE: (410, "Expired"),
}


class FaultProxy:
    """A proxy before a kubeconfig's API server, whose `plan` may be replaced at any time."""

    def __init__(self, kubeconfig: Path) -> None:
        self.plan: FaultPlan = NoFaults()
        self.journal: deque[tuple[Call, Fault]] = deque(maxlen=_REMEMBERED_CALLS)
        """The last calls and their faults."""
        self._config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        self._streams: set[BaseHTTPResponse] = set()
        self._lock = threading.Lock()
        self._no_backend_until = -math.inf
        self.rotate_authority()
        cluster, user = self._config["clusters"][0]["cluster"], self._config["users"][0]["user"]
        self._upstream = urllib3.PoolManager(
            ca_certs=cluster.get("certificate-authority"),
            cert_file=user.get("client-certificate"),
            key_file=user.get("client-key"),
            # A second try of urllib3 would hide from the client what a fault or the API server did to its call.
            retries=False,
            maxsize=64,
            timeout=urllib3.Timeout(connect=5),
        )
        self._server_url = cluster["server"]
        self._server = _Server((LOOPBACK, 0), _RelayHandler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut_watches()
        self._upstream.clear()
        self._thread.join(5)

    def rotate_authority(self) -> None:
        """Use a certificate of a new authority from the next connection on; only a new kubeconfig trusts it."""
        now = datetime.now(UTC)
        authority = make_authority("berth-fault-proxy", now=now, life=_CERTIFICATE_LIFE)
        self._authority_pem = to_pem(authority.certificate)
        self.tls = _server_context(
            sign_server(authority, "berth-fault-proxy", [LOOPBACK], now=now, life=_CERTIFICATE_LIFE)
        )

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the same client's kubeconfig for the proxy; return its path."""
        (cluster,) = self._config["clusters"]
        own_cluster = {
            "server": f"https://{LOOPBACK}:{self._server.server_address[1]}",
            "certificate-authority-data": base64.b64encode(self._authority_pem).decode("ascii"),
        }
        through = {**cluster, "cluster": own_cluster}
        write_kubeconfig(path, {**self._config, "clusters": [through]})
        return path

    @property
    def has_backend(self) -> bool:
        """Return whether connections lead to an API server."""
        return time.monotonic() >= self._no_backend_until

    def lose_backend(self, seconds: float) -> None:
        """For the next seconds close each connection that a client opens or sends a call on."""
        self._no_backend_until = time.monotonic() + seconds

    @property
    def open_watches(self) -> int:
        """Return how many streams are open now."""
        with self._lock:
            return len(self._streams)

    def cut_watches(self) -> int:
        """Cut every open stream; return how many there were."""
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            with suppress(OSError, RuntimeError, ValueError):  # ended by itself meanwhile
                stream.shutdown()
        return len(streams)

    def forward(self, call: Call, headers: dict[str, str]) -> BaseHTTPResponse:
        """Pass a call on and return the answer with its body unread."""
        address = f"{self._server_url}{call.path}" + (f"?{call.query}" if call.query else "")
        answer = self._upstream.request(
            call.method, address, body=call.body or None, headers=headers, preload_content=False, redirect=False
        )
        if call.is_watch:
            with self._lock:
                self._streams.add(answer)
        return answer

    def forget(self, answer: BaseHTTPResponse) -> None:
        with self._lock:
            self._streams.discard(answer)
        answer.close()


def _chunks(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the parts of a stream as they come."""
    while chunk := answer.read1(_READ_BYTES, decode_content=False):
        yield chunk


def _late(chunks: Iterator[bytes], lag_seconds: float) -> Iterator[bytes]:
    """Yield each part of a stream some seconds after it came."""
    arrived: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def read() -> None:
        with suppress(HTTPError, OSError, ValueError, AttributeError):  # cut, which may leave nothing to read from
            for chunk in chunks:
                arrived.put((time.monotonic(), chunk))
        arrived.put((time.monotonic(), b""))

    threading.Thread(target=read, daemon=True).start()
    while True:
        arrived_at, chunk = arrived.get()
        time.sleep(max(0.0, arrived_at + lag_seconds - time.monotonic()))
        if not chunk:
            return
        yield chunk


def _status(code: int, reason: str) -> dict[str, Any]:
    """Return a Status of a failure."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return {**body, "message": f"{reason}: a fault on purpose"}


def _server_context(pair: KeyPair) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory(prefix="berth-fault-proxy-") as folder:
        path = Path(folder) / "tls.pem"
        path.touch(mode=0o600)
        path.write_bytes(to_pem(pair.certificate) + key_to_pem(pair.key))
        context.load_cert_chain(path)
    return context


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    # By default five connections wait to be accepted; a client that reconnects all its watches at once has more.
    request_queue_size = 128
    proxy: FaultProxy

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Serve one connection in its own thread, from the TLS handshake on."""
        if self.proxy.has_backend:
            with self.proxy.tls.wrap_socket(request, server_side=True) as connection:
                super().finish_request(connection, client_address)
            return
        # Closing a socket with unread data, here the ClientHello, would send a RST.
        request.settimeout(_HELLO_SECONDS)
        request.recv(_READ_BYTES)

    def handle_error(self, *_: object) -> None:
        """Print nothing: clients that disconnect are expected."""


class _RelayHandler(BaseHTTPRequestHandler):
    """Relays one connection's calls."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits up to 40 ms for the delayed ACK of its headers
    server: _Server

    def log_message(self, *_: object) -> None:
        """Print nothing: the proxy has a journal."""

    def _relay(self) -> None:
        """Read a call, ask the plan, and do what it says."""
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = Call(self.command, path, query, body)
        if not self.server.proxy.has_backend:
            self.close_connection = True
            return
        fault = self.server.proxy.plan.decide(call)
        self.server.proxy.journal.append((call, fault))
        try:
            self._carry_out(call, fault)
        except (HTTPError, OSError):
            self.close_connection = True

    def _carry_out(self, call: Call, fault: Fault) -> None:
        plan = self.server.proxy.plan
        match fault.kind:
            case FaultKind.NONE:
                self._pass_on(call)
            case FaultKind.DELAY:
                time.sleep(fault.seconds)
                self._pass_on(call)
            case FaultKind.PAUSE:
                plan.hold(call)
                self._pass_on(call)
            case FaultKind.CUT:
                self._pass_on(call, cut_after_seconds=fault.seconds)
            case FaultKind.LAG:
                self._pass_on(call, lag_seconds=fault.seconds)
            case FaultKind.RESET:
                self._reset()
            case FaultKind.STALL:
                time.sleep(fault.seconds)
                self._reset()
            case FaultKind.NO_BACKEND:
                self.server.proxy.lose_backend(fault.seconds)
                self.close_connection = True
            case FaultKind.HOLD_BEFORE:
                plan.hold(call)
                self._reset()
            case FaultKind.LOST_ANSWER | FaultKind.HOLD_AFTER:
                answer = self.server.proxy.forward(call, self._headers())
                answer.read()
                self.server.proxy.forget(answer)
                plan.hold(call)
                self._reset()
            case FaultKind.GONE if call.is_watch:
                self._end_as_forgotten()
            case _:
                self._refuse(*_STATUSES[fault.kind])

    def _headers(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_CONNECTION}

    def _pass_on(self, call: Call, *, cut_after_seconds: float | None = None, lag_seconds: float = 0.0) -> None:
        """Let the API server answer; a watch is relayed as it comes."""
        answer = self.server.proxy.forward(call, self._headers())
        try:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _OF_ONE_CONNECTION:
                    self.send_header(name, value)
            if call.is_watch:
                self._stream(answer, cut_after_seconds, lag_seconds)
            else:
                # As it came: the client asked for the compression, and the header that names it is passed on.
                self._send_whole(answer.read(decode_content=False))
        finally:
            self.server.proxy.forget(answer)

    def _send_whole(self, body: bytes) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: BaseHTTPResponse, cut_after_seconds: float | None, lag_seconds: float) -> None:
        """Relay a stream in chunks; a stream that is cut ends without the last chunk."""
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        if cut_after_seconds is not None:
            timer = threading.Timer(cut_after_seconds, self._reset)
            timer.daemon = True
            timer.start()
        for chunk in _late(_chunks(answer), lag_seconds) if lag_seconds else _chunks(answer):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def _reset(self) -> None:
        """Reset the connection: a linger time of zero turns the close into a RST."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RDWR)

    def _end_as_forgotten(self) -> None:
        """Answer a watch as after compaction: a stream of one error."""
        # The API server has sent 200 before it looks into the history, so it says 410 in an ERROR event
        # (kubernetes/kubernetes#25151, #35068). A client that looks only at the status of the answer never lists again.
        line = json.dumps({"type": "ERROR", "object": _status(*_STATUSES[FaultKind.GONE])}).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self._send_whole(line)

    def _refuse(self, status: int, reason: str) -> None:
        """Answer with a Status as the API server writes it."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status == _STATUSES[FaultKind.TOO_MANY][0]:
            self.send_header("Retry-After", "1")
        self._send_whole(json.dumps(_status(status, reason)).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _relay  # noqa: N815 - names that http.server looks for
