"""Owns the patience with single connections: how slowly a request may come, and an answer be read.

It does not own HTTP: that is uvicorn's and h11's, from whose protocol this one differs in time limits, in their number
and in that what is no HTTP is answered with a problem as well.
"""

import asyncio
from collections import Counter
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from berth_descheduler.api.problems import MEDIA_TYPE, ProblemError, ProblemKind, overloaded
from berth_descheduler.api.settings import RestSettings, RestTimes

_GOODBYE_SECONDS: Final = 1.0


def patient_protocol(settings: RestSettings) -> type[asyncio.Protocol]:
    """Return the protocol of a server with these settings."""

    class Protocol(PatientProtocol):
        limits = settings.limits
        times = settings.times

    return Protocol


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers give a TLS handshake as long as a request's headers, and not a minute."""

    def __init__(self, times: RestTimes) -> None:
        super().__init__()
        self._handshake_seconds = times.header_seconds

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:  # noqa: ANN401 - the base has overloads
        """Return a server, as the base class does."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self._handshake_seconds
        return await super().create_server(*args, **options)


class PatientProtocol(H11Protocol):
    """One connection whose peer has to be quick enough."""

    limits = RestSettings().limits
    times = RestSettings().times

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._ending = False
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; a connection too many is told so."""
        super().connection_made(transport)
        self._expect_request()
        crowd, text = self._crowd()
        if crowd:
            waiting = [one for one in crowd if one is not self and not one.is_working]
            yielding = min(waiting, key=lambda one: one.idle_since, default=self)
            yielding.make_room(text)

    @property
    def idle_since(self) -> float:
        """Return when the peer was last given something, by the loop's clock."""
        return self._idle_since

    @property
    def is_working(self) -> bool:
        """Return whether a request is being worked on."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def make_room(self, text: str) -> None:
        """End the connection, because there are too many."""
        self._refuse(overloaded(text))

    def _crowd(self) -> tuple[list["PatientProtocol"], str]:
        """Return the connections that are too many together, and a sentence; those of one peer come first."""
        others = [
            one for one in self.connections if isinstance(one, PatientProtocol) and not one.transport.is_closing()
        ]
        peers = Counter(one.peer for one in others)
        if peers[self.peer] > self.limits.connections_per_peer:
            text = f"{self.limits.connections_per_peer} connections of {self.peer} are open, which is the most"
            return [one for one in others if one.peer == self.peer], text
        if len(others) <= self.limits.connections:
            return [], ""
        (most, _), *_ = peers.most_common(1)
        text = f"{self.limits.connections} connections are open, which is the most"
        of_most = [one for one in others if one.peer == most]
        # The newcomer asks nothing yet; where all of the most work, any other that asks nothing makes room.
        return (of_most if any(not one.is_working for one in of_most if one is not self) else others), text

    @property
    def peer(self) -> str:
        """Return the address at the other end."""
        return self.client[0] if self.client else ""

    def data_received(self, data: bytes) -> None:
        """Take what came; once the headers are complete, the rest of the request has its own time."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, or the rest of this one."""
        super().on_response_complete()
        self._idle_since = self.loop.time()
        self._look()
        if self._ending:
            self._hurry()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_asking()
        self._stop_reading()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for the peer to read."""
        super().pause_writing()
        self._reading = self._reading or self.loop.call_later(self.times.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting: the peer has read."""
        self._stop_reading()
        super().resume_writing()

    def shutdown(self) -> None:
        """End an idle connection; one that is being worked on ends with its answer."""
        super().shutdown()
        self._ending = True
        self._hurry()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(ProblemError(ProblemKind.MALFORMED, f"{msg.rstrip('.')}: it does not follow HTTP/1.1"))

    def _look(self) -> None:
        """Wait for a request, if none is being worked on; idle connections are uvicorn's to end."""
        between = self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE and not self._has_begun
        if self.is_working or between or self.transport.is_closing():
            self._stop_asking()
        else:
            self._expect_request()

    @property
    def _has_begun(self) -> bool:
        """Tell whether a part of the next request has come."""
        return bool(self.conn.trailing_data[0])

    def _expect_request(self) -> None:
        self._asking = self._asking or self.loop.call_later(self.times.header_seconds, self._give_up)

    def _give_up(self) -> None:
        text = f"the request was not complete within {self.times.header_seconds:g} s"
        self._refuse(ProblemError(ProblemKind.TOO_SLOW, text))

    def _refuse(self, problem: ProblemError) -> None:
        """Answer with a problem, if that is possible yet, and end the connection."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = problem.body()
            headers = {"Content-Type": MEDIA_TYPE, "Content-Length": str(len(body)), "Connection": "close"}
            lines = [
                f"HTTP/1.1 {problem.status} {problem.kind}",
                *map(": ".join, {**headers, **problem.headers}.items()),
            ]
            self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self._close()

    def _close(self) -> None:
        """End the connection."""
        self.transport.close()
        self._hurry()

    def _hurry(self) -> None:
        """Wait for no peer that does not say goodbye, as TLS would for half a minute."""
        if self.transport.is_closing():
            self.loop.call_later(_GOODBYE_SECONDS, self.transport.abort)

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
