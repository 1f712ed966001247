"""Limits the connections, bodies, idle time and search time that callers of the webhook may use.

Anyone who reaches the port can connect, since the API server shows no client certificate by default.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from berth_service.listening import listen

# The API server takes 3 MiB (`MaxRequestBodyBytes` in apiserver's pkg/server/config.go), and a review may have an
# object twice: as it is and as it was.
LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024

_MAX_CONNECTIONS: Final = 256
"""The API server keeps a few open; each costs some 50 KiB."""
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

IDLE_SECONDS: Final = 120.0
"""Longer than the 90 s after which the API server closes an idle connection itself (`SetOldTransportDefaults` in
apimachinery's `pkg/util/net/http.go` takes over `IdleConnTimeout` of Go's default transport). If the webhook closed it
first, that could cross with a call, and Go sends no POST a second time (`shouldRetryRequest` in `net/http`)."""
_FIRST_REQUEST_SECONDS: Final = IDLE_SECONDS
"""As long: the API server also keeps connections that it opened and has not needed yet."""
_GONE_SECONDS: Final = 10.0
"""How long after the handshake a connection that ended without a request is remembered, at most."""
LINGERING_SECONDS: Final = 2.0
"""How long the rest of a refused body is read, so that the caller sees the answer and not a reset connection."""


class BodyRefusedError(Exception):
    """A refused body, with the status of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class BodyReader:
    """Reads bodies, as many at once as fit into a fixed amount of memory."""

    def __init__(self) -> None:
        self._reading_bytes = 0

    async def read(self, request: web.Request) -> bytes:
        """Return the body of a request; raises `BodyRefusedError` if it is too long, too slow or one too many."""
        # A chunked body states no length, so the longest that is allowed is reserved for it.
        body_bytes = LARGEST_BODY_BYTES if request.content_length is None else request.content_length
        # Refused by its stated length, before a byte of it is in memory.
        if body_bytes > LARGEST_BODY_BYTES:
            raise BodyRefusedError(413, f"a body may have {LARGEST_BODY_BYTES} bytes")
        if self._reading_bytes + body_bytes > _MAX_BODY_BYTES:
            raise BodyRefusedError(503, "too many bodies at once")
        self._reading_bytes += body_bytes
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await request.read()
        except TimeoutError:
            raise BodyRefusedError(408, f"a body may take {_BODY_SECONDS:g} s") from None
        except web.HTTPRequestEntityTooLarge:
            raise BodyRefusedError(413, f"a body may have {LARGEST_BODY_BYTES} bytes") from None
        finally:
            self._reading_bytes -= body_bytes


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

    At the limit, the oldest connection without a request makes room for the next. Those of the API server have had
    requests, so connections that others open and leave idle cannot displace them.
    """

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._silent: set[RequestHandler] = set()

    async def listen(self, host: str, port: int, context: ssl.SSLContext) -> asyncio.Server:
        """Return the listening server; raises OSError."""
        return await asyncio.get_running_loop().create_server(
            self._new_connection,
            sock=listen(host, port, backlog=_BACKLOG),
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_HANDSHAKE_SECONDS,
        )

    def has_asked(self, request: web.Request) -> None:
        """Record that a connection has sent the whole head of a request."""
        self._silent.discard(request.protocol)

    def _new_connection(self) -> asyncio.Protocol:
        connections = self._server.connections  # in the order in which they were opened
        if len(connections) >= _MAX_CONNECTIONS:
            oldest = next((connection for connection in connections if connection in self._silent), None)
            if oldest is None:
                return _Refusal()
            if oldest.transport is not None:
                oldest.transport.abort()  # a caller that does not answer would keep its place
            self._end_if_silent(oldest)
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
