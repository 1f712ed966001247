"""The plain HTTP port with `/healthz`, `/readyz` and `/metrics`."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from berth_core import InputError
from berth_operator.metrics import REGISTRY


class HealthServer:
    """Answers probes and scrapes."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        healthy: Callable[[], bool],
        why_not_ready: Callable[[], tuple[str, ...]],
        leading: Callable[[], bool],
    ) -> None:
        self._host = host
        self.port = port
        self._healthy = healthy
        self._why_not_ready = why_not_ready
        self._leading = leading
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._readiness)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self.port).start()
        except OSError as error:
            address = f"{self._host}:{self.port}"
            raise InputError("health address", address, f"one to listen on: {error.strerror}") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return self._say(good=self._healthy())

    async def _readiness(self, _: web.Request) -> web.Response:
        return self._say(good=not self._why_not_ready())

    def _say(self, *, good: bool) -> web.Response:
        """Answer with all that is known, also why pods may not be sent here."""
        reasons = self._why_not_ready()
        body = {"healthy": self._healthy(), "ready": not reasons, "leading": self._leading(), "waitsFor": list(reasons)}
        return web.json_response(body, status=200 if good else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
