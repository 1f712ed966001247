"""Volcano's extender verbs `preemptable` and `reclaimable`: no placeholder is a victim.

Volcano's scheduler sends the candidates for eviction and evicts only those that every plugin of a tier answers. The
answer depends on the request alone, so that every replica gives the same one.
"""

from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from berth_core import PLACEHOLDER_LABEL, InputError
from berth_operator import metrics
from berth_operator.webhook.admission import IDLE_SECONDS, LARGEST_BODY_BYTES, BodyReader, BodyRefusedError

VERBS: Final = ("preemptable", "reclaimable")
_PERMIT: Final = 1
_ABSTAIN: Final = 0
"""Volcano's votes: the plugin answers victims, or has no part in the decision."""
_STOP_SECONDS: Final = 2.0


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    labels: dict[str, str] = {}


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Task(msgspec.Struct, frozen=True, rename="pascal"):
    """The read part of a task; Volcano writes Go's field names."""

    pod: _Pod | None = None


class _Candidates(msgspec.Struct, frozen=True):
    evictees: tuple[msgspec.Raw, ...] | None = None


class Victims(msgspec.Struct, frozen=True):
    """The answer to a verb: Volcano's vote, and the candidates that may be evicted as they came."""

    status: int
    victims: tuple[msgspec.Raw, ...] = ()


def choose_victims(body: bytes, namespace: str) -> Victims:
    """Return the candidates that are no placeholders of this namespace; raises InputError.

    Without a placeholder among them it abstains, which changes nothing. The label alone makes no placeholder: anyone
    could set it, while only the operator makes pods in Berth's own namespace.
    """
    try:
        candidates = msgspec.json.decode(body, type=_Candidates).evictees or ()
        spared = [raw for raw in candidates if not _is_placeholder(raw, namespace)]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    return Victims(_ABSTAIN) if len(spared) == len(candidates) else Victims(_PERMIT, tuple(spared))


def _is_placeholder(raw: msgspec.Raw, namespace: str) -> bool:
    pod = msgspec.json.decode(raw, type=_Task).pod
    if pod is None:
        return False
    return pod.metadata.namespace == namespace and pod.metadata.labels.get(PLACEHOLDER_LABEL) == "true"


class VolcanoExtender:
    """Serves the verbs over HTTP; Volcano's plugin trusts no certificate but public ones."""

    def __init__(self, host: str, port: int, namespace: str) -> None:
        """`namespace` is the placeholders'."""
        self._host = host
        self._port = port
        self._namespace = namespace
        self._bodies = BodyReader()
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """Return `HOST:PORT` with the real port in place of 0."""
        port = self._runner.addresses[0][1] if self._runner and self._runner.addresses else self._port
        return f"{self._host}:{port}"

    async def start(self) -> None:
        """Listen; raises InputError if the address is not a free one of this machine."""
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        for verb in VERBS:
            app.router.add_post(f"/{verb}", partial(self._answer, verb))
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_STOP_SECONDS, keepalive_timeout=IDLE_SECONDS, auto_decompress=False
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            raise InputError(
                "--volcano-extender-address", self.address, f"one to listen on: {error.strerror}"
            ) from error

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, verb: str, request: web.Request) -> web.Response:
        """Answer one request.

        After a refusal Volcano's plugin names no victim in its tier.
        """
        try:
            answer = choose_victims(await self._bodies.read(request), self._namespace)
        except (BodyRefusedError, InputError) as refusal:
            metrics.EXTENDER_ANSWERS.labels(verb=verb, verdict="refused").inc()
            status = refusal.status if isinstance(refusal, BodyRefusedError) else 400
            return web.Response(status=status, text=str(refusal))
        verdict = "spared" if answer.status == _PERMIT else "abstained"
        metrics.EXTENDER_ANSWERS.labels(verb=verb, verdict=verdict).inc()
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
