"""Owns the server of the HTTP interface: its socket, its thread, its orderly end.

It does not own what is answered (`application`).
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Final, Self

import structlog
import uvicorn
from prometheus_client import CollectorRegistry

from berth_core.clock import Clock, SystemClock
from berth_core.errors import InputError
from berth_descheduler import log_keys
from berth_descheduler.api.application import Application
from berth_descheduler.api.certificate import Certificate
from berth_descheduler.api.connections import PatientLoop, patient_protocol
from berth_descheduler.api.settings import RestSettings
from berth_kube.client import KubeClient

_LOG = structlog.get_logger(__name__)
_BACKLOG: Final = 128
_HEAD_ROOM: Final = 16 * 1024
"""So much more than the limits say is read, so that what is too large can be told so."""
_LOOK_SECONDS: Final = 30
_JOIN_SECONDS: Final = 5.0


class RestServer:
    """Answers on an address until it is left; use as a context manager. Raises `InputError` where it cannot."""

    def __init__(
        self, client: KubeClient, settings: RestSettings, registry: CollectorRegistry, clock: Clock | None = None
    ) -> None:
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
        _LOG.info(log_keys.REST_STARTED, **{log_keys.KEY_ADDRESS: self.url})
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._running[0].call_soon_threadsafe(self._end)
        self._thread.join(self._settings.times.stop_seconds + _JOIN_SECONDS)

    @property
    def url(self) -> str:
        """Return where it listens, with its scheme."""
        host, port = self._settings.host, self._port
        return f"{'https' if self._certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: PatientLoop(self._settings.times)) as runner:
                runner.run(self._serve())
        except Exception as error:  # noqa: BLE001 - the thread's boundary: the service goes on without the interface
            _LOG.error(log_keys.REST_FAILED, exc_info=error)
        finally:
            self._socket.close()
            self._ready.set()

    async def _serve(self) -> None:
        application = Application(self._client, self._clock, self._settings, self._registry)
        server = uvicorn.Server(self._config(application))
        self._running = (asyncio.get_running_loop(), application, server)
        self._ready.set()
        try:
            await server.serve(sockets=[self._socket])
        finally:
            application.close()

    def _end(self) -> None:
        """Let streams end and requests come to their end; in the loop."""
        if self._running is not None:
            _, application, server = self._running
            application.end_streams()
            server.should_exit = True

    def _config(self, application: Application) -> uvicorn.Config:
        limits, times, certificate = self._settings.limits, self._settings.times, self._certificate
        return uvicorn.Config(
            application.asgi,
            http=patient_protocol(self._settings),
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
    """Return a socket that takes connections from now on; raises `InputError`."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        text = f"a free local address ({error.strerror})"
        raise InputError("--rest-address", f"{settings.host}:{settings.port}", text) from error
