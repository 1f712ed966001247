"""Owns how much the webhook's server takes at once: connections, bodies, and how slow a caller may be.

It does not own what is answered: `webhook.server` does.
"""

import asyncio
import ssl
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024

_MOST_CONNECTIONS: Final = 256
"""The API server keeps a few open; each costs some 50 KiB."""
_MOST_BODY_BYTES: Final = 8 * LARGEST_BODY_BYTES
"""Of all bodies that are being read; a pod's review has 5 to 20 KiB."""
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
