"""Limits on single connections: how slowly a peer may send and read, and how many there may be.

uvicorn's h11 protocol speaks HTTP; the one here adds the limits, and answers malformed requests with a problem as well.
"""

import asyncio
from collections import Counter
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from berth_descheduler.api.context import RequestContext
from berth_descheduler.api.problems import MEDIA_TYPE, ProblemError, ProblemKind, overloaded
from berth_descheduler.api.request_guard import GONE
from berth_descheduler.api.request_heads import fault_in_head
from berth_descheduler.api.settings import RestSettings, RestTimes
from berth_service.listening import plain_host

CLOSE_SECONDS: Final = 1.0


def timeout_protocol(settings: RestSettings) -> type[asyncio.Protocol]:
    """Return the protocol class of a server with these settings."""

    class Protocol(TimeoutProtocol):
        limits = settings.limits
        times = settings.times

    return Protocol


class TimeoutLoop(asyncio.SelectorEventLoop):
    """An event loop that limits TLS handshakes like request headers."""

    def __init__(self, times: RestTimes) -> None:
        super().__init__()
        self._handshake_seconds = times.header_seconds

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:  # noqa: ANN401 - the base has overloads
        if options.get("ssl") is not None:
            # uvicorn has no setting for it, and asyncio gives a handshake a minute.
            options["ssl_handshake_timeout"] = self._handshake_seconds
        return await super().create_server(*args, **options)


class TimeoutProtocol(H11Protocol):
    """One connection whose peer must send and read in time."""

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
        self._request_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._ending = False
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the request timer; beyond a limit, refuse the connection that has been idle for longest."""
        super().connection_made(transport)
        if self.client is not None:
            host, port = self.client
            self.client = plain_host(host), port
        self._start_request_timer()
        surplus, text = self._surplus()
        if surplus:
            # One whose caller is not known yet counts as idle, or callers without a token could shut out newcomers.
            waiting_connections = [
                connection for connection in surplus if connection is not self and not connection.is_at_work
            ]
            refused_connection = min(waiting_connections, key=lambda connection: connection.idle_since, default=self)
            refused_connection.refuse(text)

    @property
    def idle_since(self) -> float:
        """Return when the last response ended, by the loop's clock."""
        return self._idle_since

    @property
    def is_at_work(self) -> bool:
        """Return whether a request of a known caller is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not self.is_working:
            return False
        context: RequestContext | None = cycle.scope["state"].get("context")
        return context is not None and context.subject is not None

    @property
    def is_working(self) -> bool:
        """Return whether a request is being answered or waits to be."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def refuse(self, text: str) -> None:
        """Refuse the connection because there are too many."""
        self._refuse(overloaded(text))

    def _surplus(self) -> tuple[list["TimeoutProtocol"], str]:
        """Return the connections to choose from beyond a limit, and why."""
        open_connections = [
            connection
            for connection in self.connections
            if isinstance(connection, TimeoutProtocol) and not connection.transport.is_closing()
        ]
        peers = Counter(connection.peer for connection in open_connections)
        if peers[self.peer] > self.limits.connections_per_peer:
            text = f"{self.limits.connections_per_peer} connections of {self.peer} are open, which is the most"
            return [connection for connection in open_connections if connection.peer == self.peer], text
        if len(open_connections) <= self.limits.connections:
            return [], ""
        (busiest_peer, _), *_ = peers.most_common(1)
        text = f"{self.limits.connections} connections are open, which is the most"
        connections_of_busiest = [connection for connection in open_connections if connection.peer == busiest_peer]
        # The newcomer waits; if all connections of that address are at work, any other that waits makes room.
        return (
            connections_of_busiest
            if any(not connection.is_at_work for connection in connections_of_busiest if connection is not self)
            else open_connections
        ), text

    @property
    def peer(self) -> str:
        return self.client[0] if self.client else ""

    def handle_events(self) -> None:
        """Handle what was received, unless programs could read the next request's head in two ways."""
        if self.conn.their_state is h11.IDLE and (fault := fault_in_head(bytes(self.conn.trailing_data[0]))):
            self.send_400_response(fault)
            return
        super().handle_events()

    def data_received(self, data: bytes) -> None:
        """Handle input; after the headers, the body has its own limit."""
        super().data_received(data)
        self._update_request_timer()

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()
        self._update_request_timer()
        if self._ending:
            self._abort_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and mark the request as gone, so that one that still waits is not answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.scope["state"][GONE] = True
        self._stop_request_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timer for a peer that does not read."""
        super().pause_writing()
        self._write_timer = self._write_timer or self.loop.call_later(self.times.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer: the peer has read."""
        self._stop_write_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """Close an idle connection; a busy one closes after its response."""
        super().shutdown()
        self._ending = True
        self._abort_soon()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request."""
        self._refuse(ProblemError(ProblemKind.MALFORMED, f"{msg.rstrip('.')}: it does not follow HTTP/1.1"))

    def _update_request_timer(self) -> None:
        """Run the request timer unless one is being answered; uvicorn closes idle connections."""
        is_between_requests = (
            self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE and not self._has_input
        )
        if self.is_working or is_between_requests or self.transport.is_closing():
            self._stop_request_timer()
        else:
            self._start_request_timer()

    @property
    def _has_input(self) -> bool:
        """Return whether a part of the next request has arrived."""
        return bool(self.conn.trailing_data[0])

    def _start_request_timer(self) -> None:
        # Never renewed while a head comes: a peer that sends a byte now and then ("Slowloris") has no longer than any
        # other.
        self._request_timer = self._request_timer or self.loop.call_later(self.times.header_seconds, self._time_out)

    def _time_out(self) -> None:
        text = f"the request was not complete within {self.times.header_seconds:g} s"
        self._refuse(ProblemError(ProblemKind.TOO_SLOW, text))

    def _refuse(self, problem: ProblemError) -> None:
        """Answer with a problem, if still possible, and close the connection."""
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
        self.transport.close()
        self._abort_soon()

    def _abort_soon(self) -> None:
        """Abort a peer that does not close: TLS waits half a minute."""
        if self.transport.is_closing():
            self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
