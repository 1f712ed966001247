"""The server of the HTTP interface: options, certificate, connections, thread and shutdown."""

import asyncio
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import click
import h11
import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from berth_core import Clock, InputError, SystemClock
from berth_descheduler import telemetry
from berth_descheduler.api.app import Application
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.api.context import RequestContext
from berth_descheduler.api.problems import MEDIA_TYPE, ProblemError, ProblemKind, overloaded
from berth_descheduler.api.request_guard import GONE
from berth_descheduler.api.request_heads import fault_in_head
from berth_descheduler.api.settings import RestSettings, RestTimes
from berth_descheduler.options import option_of, with_options
from berth_kube import ClientSettings, KubeClient, connect
from berth_service.listening import join_address, listen, plain_host
from berth_service.process import parse_address

# --- certificate -----------------------------------------------------------------------------------------------------
# The server's certificate, reloaded when its files change.

_LOG = structlog.get_logger(__name__)
_CERTIFICATE: Final = "--rest-certificate"


class Certificate:
    """A TLS context of two PEM files; raises `InputError` if they are bad."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._seen = self._stamps()
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(certificate, key, error) from error

    async def look(self) -> None:
        """Reload changed files; a bad pair is logged, and the old one stays in use."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            self._seen = stamps
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError, InputError) as error:
            _LOG.error(telemetry.CERTIFICATE_FAILED, **{telemetry.KEY_ERROR: str(error)})
        else:
            _LOG.info(telemetry.CERTIFICATE_LOADED)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        """Return a value that changes with either file."""
        certificate, key = self._files
        try:
            file_stats = [path.stat() for path in self._files]
        except OSError as error:
            raise _unusable(certificate, key, error) from error
        return tuple((file_stat.st_mtime_ns, file_stat.st_ino) for file_stat in file_stats)


def _unusable(certificate: Path, key: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(_CERTIFICATE, str(certificate), f"a PEM file with the certificate of the key in {key} ({reason})")


# --- connections -----------------------------------------------------------------------------------------------------
# Limits on single connections: how slowly a peer may send and read, and how many there may be.
#
# uvicorn's h11 protocol speaks HTTP; this one adds the limits, and answers malformed requests with a problem, too.

_CLOSE_SECONDS: Final = 1.0


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
        """Start the request timer; beyond a limit, refuse the connection that has been idle for longest.

        A connection whose caller is not known yet counts as idle: otherwise callers without a token would close the
        interface to all newcomers.
        """
        super().connection_made(transport)
        if self.client is not None:
            host, port = self.client
            self.client = plain_host(host), port
        self._start_request_timer()
        surplus, text = self._surplus()
        if surplus:
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
            self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


_BACKLOG: Final = 128
_HEAD_ROOM: Final = 16 * 1024
"""Bytes read beyond the limits, so that a request that is too large gets an answer."""
_LOOK_SECONDS: Final = 30
_JOIN_SECONDS: Final = 5.0


class ClosingServer(uvicorn.Server):
    """Leaves no connection open when it has ended, not even one that was accepted while it ended."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_CLOSE_SECONDS)
        for connection in self.server_state.connections:
            if isinstance(connection, TimeoutProtocol):
                connection.transport.abort()
        await asyncio.sleep(0)  # the loop closes an aborted socket in its next pass


class RestServer:
    """Serves on an address while the context is open; raises `InputError` if it cannot."""

    def __init__(
        self,
        client: KubeClient,
        settings: RestSettings,
        registry: CollectorRegistry,
        clock: Clock | None = None,
        *,
        history: CapacityHistory | None = None,
    ) -> None:
        self._history = history
        self._settings = settings
        self._certificate = None
        if settings.certificate is not None and settings.key is not None:
            self._certificate = Certificate(settings.certificate, settings.key)
        self._client = client
        self._registry = registry
        self._clock = clock or SystemClock()
        self._socket = _listen(settings)
        self._port: int = self._socket.getsockname()[1]
        self._running: tuple[asyncio.AbstractEventLoop, Application, uvicorn.Server] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        _LOG.info(telemetry.REST_STARTED, **{telemetry.KEY_ADDRESS: self.url})
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._running[0].call_soon_threadsafe(self._end)
        self._thread.join(self._settings.times.stop_seconds + _JOIN_SECONDS)

    @property
    def url(self) -> str:
        host, port = self._settings.host, self._port
        return f"{'https' if self._certificate else 'http'}://{join_address(host, port)}"

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: TimeoutLoop(self._settings.times)) as runner:
                runner.run(self._serve())
        except Exception as error:  # noqa: BLE001 - the thread's boundary: the service goes on without the interface
            _LOG.error(telemetry.REST_FAILED, exc_info=error)
        finally:
            self._socket.close()
            self._ready.set()

    async def _serve(self) -> None:
        application = Application(self._client, self._clock, self._settings, self._registry, self._history)
        server = ClosingServer(self._config(application))
        self._running = (asyncio.get_running_loop(), application, server)
        self._ready.set()
        try:
            await server.serve(sockets=[self._socket])
        finally:
            application.close()

    def _end(self) -> None:
        """End streams and let requests finish; runs in the loop."""
        if self._running is not None:
            _, application, server = self._running
            application.end_streams()
            server.should_exit = True

    def _config(self, application: Application) -> uvicorn.Config:
        limits, times, certificate = self._settings.limits, self._settings.times, self._certificate
        return uvicorn.Config(
            application.asgi,
            http=timeout_protocol(self._settings),
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=max(1, round(times.idle_seconds)),
            timeout_graceful_shutdown=max(1, round(times.stop_seconds)),
            h11_max_incomplete_event_size=limits.header_bytes + limits.target_bytes + _HEAD_ROOM,
            ssl_context_factory=(lambda _config, _default: certificate.context) if certificate else None,
            callback_notify=certificate.look if certificate else None,
            timeout_notify=_LOOK_SECONDS,
        )


def _listen(settings: RestSettings) -> socket.socket:
    """Return a listening socket; raises `InputError`."""
    try:
        return listen(settings.host, settings.port, backlog=_BACKLOG)
    except OSError as error:
        text = f"a free local address ({error.strerror})"
        raise InputError("--rest-address", join_address(settings.host, settings.port), text) from error


# --- options ---------------------------------------------------------------------------------------------------------
# The service's options for the HTTP interface; importing them needs no web framework.

F = TypeVar("F", bound=Callable[..., Any])

_ADDRESS: Final = "--rest-address"


def rest_options(command: F) -> F:
    """Add the options from which `rest_settings` makes the settings."""
    file = click.Path(path_type=Path)
    options = [
        click.option(_ADDRESS, metavar="HOST:PORT", help="Where to answer REST requests; default: nowhere."),
        click.option(
            "--rest-certificate",
            metavar="FILE",
            type=file,
            help="PEM file of the certificate with its chain, read anew when it changes; without it, REST is plain "
            "HTTP and takes a loopback address only.",
        ),
        click.option("--rest-key", metavar="FILE", type=file, help="PEM file of the certificate's key."),
        click.option(
            "--rest-audience",
            metavar="NAME",
            multiple=True,
            help="Take only tokens that were made for this audience; may be repeated. Default: the API server's own.",
        ),
        click.option("--rest-ui", is_flag=True, help="Serve a page for people at /ui beside REST."),
        click.option(
            "--rest-prometheus-url",
            metavar="URL",
            help="Where people see Berth's metrics over longer times, such as a dashboard; the page links it.",
        ),
    ]
    return with_options(command, options)


def rest_settings(options: dict[str, Any]) -> RestSettings | None:
    """Return the settings, None without an address; raises `InputError` naming the option."""
    if options["rest_address"] is None:
        for required in ("rest_certificate", "rest_key", "rest_audience", "rest_ui", "rest_prometheus_url"):
            if options[required]:
                option = option_of(required)
                raise InputError(_ADDRESS, None, f"HOST:PORT beside {option}", said="not given")
        return None
    host, port = parse_address(_ADDRESS, options["rest_address"])
    return RestSettings(
        host=host,
        port=port,
        certificate=options["rest_certificate"],
        key=options["rest_key"],
        audiences=tuple(options["rest_audience"]),
        namespace=options["namespace"],
        ui=options["rest_ui"],
        prometheus_url=options["rest_prometheus_url"] or "",
    )


def serve_rest(
    settings: RestSettings | None,
    registry: CollectorRegistry,
    history: CapacityHistory,
    *,
    kubeconfig: str | None,
    context: str | None,
) -> ExitStack:
    """Start the server, if there are settings for one, and return its context.

    It has its own connections to the API server, so that busy callers do not slow down the service.
    """
    stack = ExitStack()
    if settings is None:
        return stack

    with stack:
        limits = ClientSettings(max_connections=settings.limits.workers + 1)
        client = stack.enter_context(
            connect(kubeconfig=kubeconfig, context=context, user_agent="berth-descheduler/rest", settings=limits)
        )
        stack.enter_context(RestServer(client, settings, registry, history=history))
        return stack.pop_all()
    raise AssertionError("the stack passes every error on")
