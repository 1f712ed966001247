"""Owns how much the webhook takes: connections, bodies, how slow a caller may be, how long searches may take.

It does not own what is answered: `webhook.server` does.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024

_MOST_CONNECTIONS: Final = 256
"""The API server keeps a few open; each costs some 50 KiB."""
_MOST_BODY_BYTES: Final = 8 * LARGEST_BODY_BYTES
"""Of all bodies that are being read; a pod's review has 5 to 20 KiB."""
_REVIEW_SECONDS: Final = 0.05
_BURST_SECONDS: Final = 0.2
_SHARE: Final = 0.1
_HANDSHAKE_SECONDS: Final = 5.0
_FIRST_REQUEST_SECONDS: Final = 10.0
_BODY_SECONDS: Final = 5.0
_BACKLOG: Final = 512

IDLE_SECONDS: Final = 120.0
"""Longer than the 90 s after which the API server closes an idle connection itself: of two ends that close one, the
server's would meet a call that was just sent, which then fails."""
LINGERING_SECONDS: Final = 2.0


class BodyRefusedError(Exception):
    """A body that is not read to its end; `status` is the answer's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class BodyReader:
    """Reads bodies, no more of them at once than fit the memory set aside for them."""

    def __init__(self) -> None:
        self._reading_bytes = 0

    async def read(self, request: web.Request) -> bytes:
        """Return a body; raises BodyRefusedError where it is too long, too slow, or one too many."""
        expected = LARGEST_BODY_BYTES if request.content_length is None else request.content_length
        if expected > LARGEST_BODY_BYTES:
            raise BodyRefusedError(413, f"a body may have {LARGEST_BODY_BYTES} bytes")
        if self._reading_bytes + expected > _MOST_BODY_BYTES:
            raise BodyRefusedError(503, "too many bodies at once")
        self._reading_bytes += expected
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await request.read()
        except TimeoutError:
            raise BodyRefusedError(408, f"a body may take {_BODY_SECONDS:g} s") from None
        except web.HTTPRequestEntityTooLarge:
            raise BodyRefusedError(413, f"a body may have {LARGEST_BODY_BYTES} bytes") from None
        finally:
            self._reading_bytes -= expected


class SearchTime:
    """Gives each namespace its own processor time for searches, so that none uses up another's.

    A namespace may search for a fifth of a second at once and for a tenth of the time in the long run; one review for a
    twentieth of a second, which is enough for a thousand ordinary templates. On a busy machine that lasts several times
    as long, and everybody's reviews wait meanwhile. Not thread-safe.
    """

    def __init__(self, busy: Callable[[], float] = time.thread_time, now: Callable[[], float] = time.monotonic) -> None:
        """`busy` are the seconds that this thread has computed, so that a busy machine costs no namespace anything."""
        self._busy = busy
        self._now = now
        self._spent: dict[str, tuple[float, float]] = {}
        """Namespace to the seconds that count against it, and when that was."""

    def begin(self, namespace: str) -> Callable[[], bool]:
        """Return what says whether a search that begins now is over."""
        ends = self._busy() + min(_REVIEW_SECONDS, _BURST_SECONDS - self._counted(namespace))
        return lambda: self._busy() >= ends

    def spend(self, namespace: str, seconds: float) -> None:
        """Count the seconds of a search against its namespace."""
        self._spent[namespace] = (self._counted(namespace) + seconds, self._now())

    def busy_seconds(self) -> float:
        """Return the seconds that this thread has computed."""
        return self._busy()

    def _counted(self, namespace: str) -> float:
        """Return the seconds that count against a namespace now."""
        seconds, since = self._spent.pop(namespace, (0.0, 0.0))
        left = max(0.0, seconds - _SHARE * (self._now() - since))
        if left:
            self._spent[namespace] = (seconds, since)
        return left


class _Refusal(asyncio.Protocol):
    """Ends a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        transport.abort()


class ConnectionLimit:
    """Makes the protocol of each new connection; ends those that are too many or never ask anything."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._silent: set[RequestHandler] = set()

    async def listen(self, host: str, port: int, context: ssl.SSLContext) -> asyncio.Server:
        """Listen; raises OSError."""
        return await asyncio.get_running_loop().create_server(
            self._new_connection,
            host,
            port,
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_HANDSHAKE_SECONDS,
        )

    def has_asked(self, request: web.Request) -> None:
        """Remember that a connection has sent a whole request's head."""
        self._silent.discard(request.protocol)

    def _new_connection(self) -> asyncio.Protocol:
        if len(self._server.connections) >= _MOST_CONNECTIONS:
            return _Refusal()
        handler = self._server()
        self._silent.add(handler)
        loop = asyncio.get_running_loop()
        loop.call_later(_HANDSHAKE_SECONDS + _FIRST_REQUEST_SECONDS, self._end_if_silent, handler)
        return handler

    def _end_if_silent(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            handler.force_close()
