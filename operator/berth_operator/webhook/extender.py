"""Volcano's extender verbs: no placeholder is a victim, and the owner of a held slot is let in at once.

Volcano's scheduler sends the candidates for eviction and evicts only those that every plugin of a tier answers; that
answer depends on the request alone. Of a job that waits to be let in it sends the pods, and whether a slot is being
handed to one is in the status of its Reservation. So every replica gives the same answers.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from berth_core import PLACEHOLDER_LABEL, RESERVATION_LABEL, InputError
from berth_operator import metrics
from berth_operator.webhook.admission import IDLE_SECONDS, LARGEST_BODY_BYTES, BodyReader, BodyRefusedError

VERBS: Final = ("preemptable", "reclaimable")
ENQUEUEABLE: Final = "jobEnqueueable"
_PERMIT: Final = 1
_ABSTAIN: Final = 0
"""Volcano's votes: the plugin answers victims, or has no part in the decision."""
_STOP_SECONDS: Final = 2.0


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()


class _Task(msgspec.Struct, frozen=True, rename="pascal"):
    """The read part of a task; Volcano writes Go's field names."""

    pod: _Pod | None = None


class _Candidates(msgspec.Struct, frozen=True):
    evictees: tuple[msgspec.Raw, ...] | None = None


class _Job(msgspec.Struct, frozen=True, rename="pascal"):
    """The read part of a job: how many of its pods must run together, and all of them."""

    min_available: int = 0
    tasks: Mapping[str, _Task] | None = None


class _JobRequest(msgspec.Struct, frozen=True):
    job: _Job | None = None


class Vote(msgspec.Struct, frozen=True):
    """The answer to `jobEnqueueable`: whether the job is let in, or Volcano's other plugins decide."""

    status: int


HasSlot = Callable[[str, str], bool]
"""Whether a slot of the Reservation with a uid is being handed to the pod with a uid."""


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


def vote_on_job(body: bytes, has_slot: HasSlot) -> Vote:
    """Return the vote on a job that waits to be let in; raises InputError.

    It is let in if held slots suffice for it to start: their capacity is there and kept for them alone. A gang with too
    few of them needs more than is held, and how much more may come in is for Volcano's other plugins to say. The label
    alone is no slot: anyone could set it.
    """
    try:
        job = msgspec.json.decode(body, type=_JobRequest).job or _Job()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    pods = [task.pod for task in (job.tasks or {}).values() if task.pod is not None]
    placed = sum(bool(pod.spec.node_name) for pod in pods)
    coming = sum(_has_slot(pod, has_slot) for pod in pods if not pod.spec.node_name)
    return Vote(_PERMIT if coming and placed + coming >= job.min_available else _ABSTAIN)


def _has_slot(pod: _Pod, has_slot: HasSlot) -> bool:
    uid = pod.metadata.labels.get(RESERVATION_LABEL, "")
    return bool(uid) and has_slot(uid, pod.metadata.uid)


def _is_placeholder(raw: msgspec.Raw, namespace: str) -> bool:
    pod = msgspec.json.decode(raw, type=_Task).pod
    if pod is None:
        return False
    return pod.metadata.namespace == namespace and pod.metadata.labels.get(PLACEHOLDER_LABEL) == "true"


class VolcanoExtender:
    """Serves the verbs over HTTP; Volcano's plugin trusts no certificate but public ones."""

    def __init__(self, host: str, port: int, namespace: str, has_slot: HasSlot) -> None:
        """`namespace` is the placeholders'."""
        self._has_slot = has_slot
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
        app.router.add_post(f"/{ENQUEUEABLE}", self._vote)
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
        return self._reply(verb, "spared" if answer.status == _PERMIT else "abstained", answer)

    async def _vote(self, request: web.Request) -> web.Response:
        """Answer whether a job is let in.

        It abstains on what it cannot read: Volcano's plugin would take a refusal for leave.
        """
        try:
            answer = vote_on_job(await self._bodies.read(request), self._has_slot)
        except (BodyRefusedError, InputError):
            return self._reply(ENQUEUEABLE, "refused", Vote(_ABSTAIN))
        return self._reply(ENQUEUEABLE, "permitted" if answer.status == _PERMIT else "abstained", answer)

    def _reply(self, verb: str, verdict: str, answer: Victims | Vote) -> web.Response:
        metrics.EXTENDER_ANSWERS.labels(verb=verb, verdict=verdict).inc()
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
