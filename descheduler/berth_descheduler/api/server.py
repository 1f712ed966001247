"""The server of the HTTP interface: address, thread and shutdown."""

import asyncio
import socket
import threading
from contextlib import ExitStack, suppress
from typing import Final, Self

import structlog
import uvicorn
from prometheus_client import CollectorRegistry

from berth_core import Clock, InputError, SystemClock
from berth_descheduler import telemetry
from berth_descheduler.api.app import Application
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.api.certificate import Certificate
from berth_descheduler.api.connections import CLOSE_SECONDS, TimeoutLoop, TimeoutProtocol, timeout_protocol
from berth_descheduler.api.settings import RestSettings
from berth_kube import ClientSettings, KubeClient, connect
from berth_service.listening import HandshakeLimit, file_descriptors, join_address, listen

_LOG = structlog.get_logger(__name__)

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
            await asyncio.wait(self.server_state.tasks, timeout=CLOSE_SECONDS)
        for connection in self.server_state.connections:
            if isinstance(connection, TimeoutProtocol):
                connection.transport.abort()
        await asyncio.sleep(0)  # the loop closes an aborted socket in its next pass

    def established(self) -> frozenset[int]:
        """Return the file descriptors of the connections whose handshakes are over."""
        connections = self.server_state.connections
        return file_descriptors(
            connection.transport for connection in connections if isinstance(connection, TimeoutProtocol)
        )


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
        # Here and not in the thread: an address that is in use is the caller's error, with the option's name.
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
        if self._certificate is not None:
            self._socket = HandshakeLimit(self._socket, self._settings.limits.handshakes, server.established)
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
            # For an upgrade uvicorn would change to another protocol class, which has none of the limits of this one.
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            # uvicorn would configure the loggers of the whole process.
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,  # X-Forwarded-For would let a client choose the address its limits count for
            server_header=False,
            backlog=_BACKLOG,
            # uvicorn takes whole seconds.
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


def serve_rest(
    settings: RestSettings | None,
    registry: CollectorRegistry,
    history: CapacityHistory,
    *,
    kubeconfig: str | None,
    context: str | None,
) -> ExitStack:
    """Start the server, if there are settings for one, and return its context."""
    # With connections to the API server of its own, so that busy callers do not slow down the service.
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
