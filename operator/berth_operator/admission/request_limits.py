"""Limits the connections, bodies, idle time and search time that callers of the webhook and the extender may use.

Anyone who reaches the ports can connect: the API server shows no client certificate by default, Volcano none at all.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import ClientError, web
from aiohttp.http import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from berth_service.listening import HandshakeLimit, file_descriptors, listen

# The API server takes 3 MiB (`MaxRequestBodyBytes` in apiserver's pkg/server/config.go), and a review may have an
# object twice: as it is and as it was.
LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024

_MAX_CONNECTIONS: Final = 256
"""The API server keeps a few open; each costs some 50 KiB."""
_MAX_HANDSHAKES: Final = 256
"""The same for connections whose TLS handshake is not over. An API server may begin some 200 at once: it takes so many
changes at a time (`--max-mutating-requests-inflight`), and keeps 25 connections for later ones."""
_MAX_BODY_BYTES: Final = 8 * LARGEST_BODY_BYTES
"""Limit for all bodies that are being read together; the review of a pod has 5 to 20 KiB."""
_REVIEW_SECONDS: Final = 0.05
"""Processor time for which one review may search."""
_BURST_SECONDS: Final = 0.2
"""Processor time that a namespace may use at once."""
_SHARE: Final = 0.1
"""Fraction of a processor that a namespace may use in the long run."""
_HANDSHAKE_SECONDS: Final = 5.0
_BODY_SECONDS: Final = 5.0
_BACKLOG: Final = 512

_IDLE_SECONDS: Final = 120.0
"""Longer than the 90 s after which the API server closes an idle connection itself (`SetOldTransportDefaults` in
apimachinery's `pkg/util/net/http.go` takes over `IdleConnTimeout` of Go's default transport). If the webhook closed it
first, that could cross with a call, and Go sends no POST a second time (`shouldRetryRequest` in `net/http`)."""
_FIRST_REQUEST_SECONDS: Final = _IDLE_SECONDS
"""As long: the API server also keeps connections that it opened and has not needed yet."""
_GONE_SECONDS: Final = 10.0
"""How long after the handshake a connection that ended without a request is remembered, at most."""
_LINGERING_SECONDS: Final = 2.0
"""How long the rest of a refused body is read, so that the caller sees the answer and not a reset connection."""
_STOP_SECONDS: Final = 2.0


def _is_own_fault(record: logging.LogRecord) -> bool:
    # aiohttp logs an error with a traceback for whatever is no HTTP, so any caller could fill the log.
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_HTTP_LOG: Final = logging.getLogger(__name__)
_HTTP_LOG.addFilter(_is_own_fault)


class BodyRefusedError(Exception):
    """A refused body, with the status of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(slots=True, eq=False)
class _Body:
    """A body that is being read."""

    timeout: asyncio.Timeout
    """Ends the read; it is brought forward for a body that makes room."""
    arrived: bytearray = field(default_factory=bytearray)
    made_room: bool = False
    """Whether it is refused so that others can be read."""


class BodyReader:
    """Reads bodies, as many at once as fit into a fixed amount of memory.

    The bytes that have arrived count, not those that callers state: a few callers that state much and send little would
    keep out all others.
    """

    def __init__(self) -> None:
        self._bodies: dict[_Body, None] = {}
        """Bodies that are being read, oldest first."""

    async def read(self, request: web.Request) -> bytes:
        """Return the body of a request; raises `BodyRefusedError` if it is too long, too slow or not whole.

        Where memory is short, the oldest body is refused: API servers and schedulers send theirs within milliseconds.
        """
        # Refused by its stated length, before a byte of it is in memory; a chunked body states none.
        if (request.content_length or 0) > LARGEST_BODY_BYTES:
            raise _too_long()
        timeout = asyncio.timeout(_BODY_SECONDS)
        body = _Body(timeout)
        self._bodies[body] = None
        try:
            async with timeout:
                while chunk := await request.content.readany():
                    self._take(body, chunk)
            if body.made_room:  # as its end came
                raise _made_room()
            return bytes(body.arrived)
        except TimeoutError:  # before OSError, which it is, too
            slow = BodyRefusedError(408, f"a body may take {_BODY_SECONDS:g} s")
            raise (_made_room() if body.made_room else slow) from None
        except (OSError, RuntimeError, ClientError, web.RequestPayloadError):
            # aiohttp raises a bare RuntimeError where the connection has ended meanwhile (`StreamReader._wait`).
            raise BodyRefusedError(400, "the body is not whole") from None
        finally:
            self._bodies.pop(body, None)

    def _take(self, body: _Body, chunk: bytes) -> None:
        """Add a chunk to a body; raises `BodyRefusedError` if it is too long, or makes room for others."""
        if not body.made_room:
            body.arrived += chunk
        if len(body.arrived) > LARGEST_BODY_BYTES:
            raise _too_long()
        while sum(len(other.arrived) for other in self._bodies) > _MAX_BODY_BYTES:
            oldest = next(iter(self._bodies))
            del self._bodies[oldest]
            oldest.arrived.clear()
            oldest.made_room = True
            if not oldest.timeout.expired():
                oldest.timeout.reschedule(asyncio.get_running_loop().time())  # ends its wait for the next chunk
        if body.made_room:
            raise _made_room()


def _too_long() -> BodyRefusedError:
    return BodyRefusedError(413, f"a body may have {LARGEST_BODY_BYTES} bytes")


def _made_room() -> BodyRefusedError:
    return BodyRefusedError(503, "too many bodies at once")


class SearchBudget:
    """Gives each namespace its own processor time for searches, as a leaky bucket; not thread-safe.

    All reviews share one thread, so a namespace with thousands of Reservations must not use up the time of the others.
    It may search for 0.2 s at once and for a tenth of the time in the long run, a single review for 0.05 s, which is
    enough for a thousand ordinary templates. On a busy machine a review takes several times as long by the clock.
    """

    def __init__(self, busy: Callable[[], float] = time.thread_time, now: Callable[[], float] = time.monotonic) -> None:
        """`busy` returns this thread's processor seconds, in which waiting for a busy machine does not count."""
        self._busy = busy
        self._now = now
        self._spent: dict[str, tuple[float, float]] = {}
        """Namespace to the seconds that counted against it, and the monotonic time at which they did."""

    def begin(self, namespace: str) -> Callable[[], bool]:
        """Begin a search, and return a function that reports whether its time is over."""
        ends = self._busy() + min(_REVIEW_SECONDS, _BURST_SECONDS - self._counted(namespace))
        return lambda: self._busy() >= ends

    def spend(self, namespace: str, seconds: float) -> None:
        """Count processor seconds of a search against its namespace."""
        self._spent[namespace] = (self._counted(namespace) + seconds, self._now())

    def busy_seconds(self) -> float:
        return self._busy()

    def _counted(self, namespace: str) -> float:
        """Return the seconds that count against a namespace now."""
        seconds, counted_at = self._spent.pop(namespace, (0.0, 0.0))
        seconds_left = max(0.0, seconds - _SHARE * (self._now() - counted_at))
        if seconds_left:
            self._spent[namespace] = (seconds, counted_at)
        return seconds_left


class _Refusal(asyncio.Protocol):
    """Aborts a connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        transport.abort()


class ConnectionLimit:
    """Creates the protocol of each connection, and ends surplus and silent ones.

    At the limit, the oldest connection without a whole request makes room for the next. Those of the API server have
    had requests, so connections that others open and leave idle cannot displace them. Where any caller may ask, the
    connection that has waited longest for its next request makes room after these.
    """

    def __init__(self, server: web.Server, *, any_caller_may_ask: bool = False) -> None:
        self._server = server
        self._any_caller_may_ask = any_caller_may_ask
        self._silent: set[RequestHandler] = set()
        self._waiting: dict[RequestHandler, None] = {}
        """Connections that have been answered, in the order of their last answers; some may have ended since."""

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None = None) -> asyncio.Server:
        """Return the listening server, which speaks TLS with a context; raises OSError."""
        seconds = None if context is None else _HANDSHAKE_SECONDS
        listener = listen(host, port, backlog=_BACKLOG)
        return await asyncio.get_running_loop().create_server(
            self._new_connection,
            sock=listener if context is None else HandshakeLimit(listener, _MAX_HANDSHAKES, self._established),
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=seconds,
        )

    def _established(self) -> frozenset[int]:
        """Return the file descriptors of the connections whose handshakes are over."""
        return file_descriptors(connection.transport for connection in self._server.connections)

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """Keep the connection of a request whose body has arrived from making room, until the request is answered."""
        self._silent.discard(request.protocol)
        self._waiting.pop(request.protocol, None)
        try:
            yield
        finally:
            self._waiting[request.protocol] = None

    def _new_connection(self) -> asyncio.Protocol:
        connections = dict.fromkeys(self._server.connections)  # in the order in which they were opened
        self._waiting = {connection: None for connection in self._waiting if connection in connections}
        if len(connections) >= _MAX_CONNECTIONS:
            silent = (connection for connection in connections if connection in self._silent)
            making_room = next(silent, None)
            if making_room is None and self._any_caller_may_ask:
                making_room = next(iter(self._waiting), None)
            if making_room is None:
                return _Refusal()
            if making_room.transport is not None:
                making_room.transport.abort()  # a caller that does not answer would keep its place
            self._waiting.pop(making_room, None)
            self._end_if_silent(making_room)
        handler = self._server()
        self._silent.add(handler)
        # A failed TLS handshake never connects the handler, which aiohttp then does not report either.
        loop = asyncio.get_running_loop()
        loop.call_later(_HANDSHAKE_SECONDS + _GONE_SECONDS, self._forget_if_gone, handler)
        return handler

    def _forget_if_gone(self, handler: RequestHandler) -> None:
        """Forget a connection that has ended or was never made; give one that is open time for its first request."""
        if handler not in self._server.connections:
            self._silent.discard(handler)
        elif handler in self._silent:
            loop = asyncio.get_running_loop()
            loop.call_later(_FIRST_REQUEST_SECONDS, self._end_if_silent, handler)

    def _end_if_silent(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            handler.force_close()


class LimitedServer:
    """Serves an application whose callers keep their connections open, within the limits on connections and bodies."""

    def __init__(self, *, any_caller_may_ask: bool = False) -> None:
        """`any_caller_may_ask` is as in `ConnectionLimit`."""
        self.bodies = BodyReader()
        self._any_caller_may_ask = any_caller_may_ask
        self._runner: web.AppRunner | None = None
        self._limit: ConnectionLimit | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, app: web.Application, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Listen, with a context for TLS; raises OSError."""
        self._runner = web.AppRunner(
            app,
            logger=_HTTP_LOG,
            access_log=None,
            shutdown_timeout=_STOP_SECONDS,
            # Callers send many requests over each connection; without a limit those to a replica that has gone would
            # stay.
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
            auto_decompress=False,  # unpacked, a body would take more memory than `BodyReader` counts
        )
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - set up above
        self._limit = ConnectionLimit(self._runner.server, any_caller_may_ask=self._any_caller_may_ask)
        self._listener = await self._limit.listen(host, port, context)

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def port(self) -> int | None:
        """Return the port that it listens on, None while it does not."""
        sockets = self._listener.sockets if self._listener else ()
        return sockets[0].getsockname()[1] if sockets else None

    @property
    def is_serving(self) -> bool:
        return self._listener is not None and self._listener.is_serving()

    def answering(self, request: web.Request) -> AbstractContextManager[None]:
        """Keep the connection of a request whose body has arrived from making room, until the request is answered."""
        assert self._limit is not None  # noqa: S101 - made before the first connection
        return self._limit.answering(request)
