"""Volcano's extender verbs: placeholders are no victims, owners of slots are let in, and queues pay for what is held.

Volcano's scheduler sends the candidates for eviction and evicts only those that every plugin of a tier answers; that
answer depends on the request alone. Of a job that waits to be let in it sends the pods, and whether a slot is being
handed to one is in the status of its Reservation, and whether placeholders await capacity in its spec. Of a queue it
sends its capability and what it has allocated; what placeholders hold in its name besides, each replica watches. So
every replica gives the same answers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from berth_core import (
    CPU,
    MEMORY,
    PLACEHOLDER_LABEL,
    QUEUE_ANNOTATION,
    RESERVATION_LABEL,
    InputError,
    Pod,
    Quantities,
    ResourceAmounts,
    readable_requests,
    volcano_group_of,
)
from berth_core.decoding import decode_json
from berth_operator import metrics
from berth_operator.webhook.admission import IDLE_SECONDS, LARGEST_BODY_BYTES, BodyReader, BodyRefusedError

VERBS: Final = ("preemptable", "reclaimable")
ENQUEUEABLE: Final = "jobEnqueueable"
OVERUSED: Final = "queueOverused"
_OF_EVERY_POD: Final = frozenset({CPU, MEMORY})
"""What practically every pod requests: once a queue has none of it left, none of its pods fits."""
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
    evictees: tuple[msgspec.Raw, ...] = ()


class _Job(msgspec.Struct, frozen=True, rename="pascal"):
    """The read part of a job: how many of its pods must run together, and all of them."""

    min_available: int = 0
    tasks: Mapping[str, _Task] = {}


class _JobRequest(msgspec.Struct, frozen=True):
    job: _Job | None = None


class _QueueSpec(msgspec.Struct, frozen=True):
    capability: Quantities = {}


class _QueueStatus(msgspec.Struct, frozen=True):
    allocated: Quantities = {}


class _QueueObject(msgspec.Struct, frozen=True):
    spec: _QueueSpec = _QueueSpec()
    status: _QueueStatus = _QueueStatus()


class _QueueInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """The read part of a queue: its object as of the start of Volcano's session."""

    name: str = ""
    queue: _QueueObject | None = None


class _QueueRequest(msgspec.Struct, frozen=True):
    queue: _QueueInfo | None = None


class Overuse(msgspec.Struct, frozen=True):
    """The answer to `queueOverused`: whether Volcano gives the queue nothing more for now."""

    overused: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """What is held in the name of a queue."""

    amounts: ResourceAmounts = ResourceAmounts.empty()  # noqa: RUF009 - it never changes
    """What placeholders hold that Volcano does not count."""
    lets_in: bool = False
    """Whether a slot is being handed to a pod of Volcano, which a queue that is stopped would keep out."""


HeldIn = Callable[[str], Held]
"""What is held in the name of a queue."""


class Vote(msgspec.Struct, frozen=True):
    """The answer to `jobEnqueueable`: whether the job is let in, or Volcano's other plugins decide."""

    status: int


HasSlot = Callable[[str, str], bool]
"""Whether a slot of the Reservation with a uid is being handed to the pod with a uid."""

Awaits = Callable[[str], bool]
"""Whether the Reservation with a uid waits on chosen nodes for what ends there."""


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
        candidates = decode_json(body, _Candidates).evictees
        tasks = [(raw, decode_json(raw, _Task)) for raw in candidates]
        spared = [raw for raw, task in tasks if task.pod is None or not _is_placeholder(task.pod, namespace)]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    return Victims(_ABSTAIN) if len(spared) == len(candidates) else Victims(_PERMIT, tuple(spared))


def vote_on_job(body: bytes, has_slot: HasSlot, awaits: Awaits, namespace: str) -> Vote:
    """Return the vote on a job that waits to be let in; raises InputError.

    It is let in if held slots suffice for it to start: their capacity is there and kept for them alone. A gang with too
    few of them needs more than is held, and how much more may come in is for Volcano's other plugins to say. The label
    alone is no slot: anyone could set it. Placeholders of the namespace that await capacity are let in, too: a fence
    keeps it for them, and Berth limits how much they await.
    """
    try:
        job = decode_json(body, _JobRequest).job or _Job()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    pods = [task.pod for task in job.tasks.values() if task.pod is not None]
    if pods and all(_is_placeholder(pod, namespace) and awaits(_reservation_of(pod)) for pod in pods):
        return Vote(_PERMIT)
    placed = sum(bool(pod.spec.node_name) for pod in pods)
    coming = sum(_has_slot(pod, has_slot) for pod in pods if not pod.spec.node_name)
    return Vote(_PERMIT if coming and placed + coming >= job.min_available else _ABSTAIN)


def judge_queue(body: bytes, held_in: HeldIn) -> Overuse:
    """Return whether a queue has used up its capability with what placeholders hold in its name; raises InputError.

    That is so once cpu or memory reaches the capability, or all that the capability names. Of a GPU alone it is not:
    pods that request none still fit. Where no such placeholder adds to it, Volcano counts by itself.
    """
    try:
        queue = decode_json(body, _QueueRequest).queue or _QueueInfo()
        found = queue.queue or _QueueObject()
        capability = ResourceAmounts.from_quantities(found.spec.capability)
        allocated = ResourceAmounts.from_quantities(found.status.allocated)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    held = held_in(queue.name)
    used = allocated.plus(held.amounts)
    named = set(found.spec.capability)
    reached = {name for name in named if used[name] >= capability[name]}
    ours = reached.intersection(held.amounts)
    return Overuse(not held.lets_in and bool(ours) and (reached == named or not ours.isdisjoint(_OF_EVERY_POD)))


def uncounted_by_queue(placeholders: Iterable[Pod]) -> dict[str, ResourceAmounts]:
    """Return what placeholders hold in the name of each queue that Volcano does not count in it.

    Volcano counts pods in the queue of their PodGroup, and only its own scheduler needs one.
    """
    found: dict[str, ResourceAmounts] = {}
    for pod in placeholders:
        queue = pod.metadata.annotations.get(QUEUE_ANNOTATION, "")
        if queue and pod.spec.node_name and not pod.is_terminal and not volcano_group_of(pod):
            found[queue] = found.get(queue, ResourceAmounts.empty()).plus(readable_requests(pod))
    return found


def _has_slot(pod: _Pod, has_slot: HasSlot) -> bool:
    uid = _reservation_of(pod)
    return bool(uid) and has_slot(uid, pod.metadata.uid)


def _reservation_of(pod: _Pod) -> str:
    return pod.metadata.labels.get(RESERVATION_LABEL, "")


def _is_placeholder(pod: _Pod, namespace: str) -> bool:
    return pod.metadata.namespace == namespace and pod.metadata.labels.get(PLACEHOLDER_LABEL) == "true"


class VolcanoExtender:
    """Serves the verbs over HTTP; Volcano's plugin trusts no certificate but public ones."""

    def __init__(
        self, address: tuple[str, int], namespace: str, *, has_slot: HasSlot, awaits: Awaits, held_in: HeldIn
    ) -> None:
        """`address` is a host and a port; `namespace` is the placeholders'."""
        self._has_slot = has_slot
        self._awaits = awaits
        self._held_in = held_in
        self._host, self._port = address
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
        app.router.add_post(f"/{OVERUSED}", self._judge)
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
            answer = vote_on_job(await self._bodies.read(request), self._has_slot, self._awaits, self._namespace)
        except (BodyRefusedError, InputError):
            return self._reply(ENQUEUEABLE, "refused", Vote(_ABSTAIN))
        return self._reply(ENQUEUEABLE, "permitted" if answer.status == _PERMIT else "abstained", answer)

    async def _judge(self, request: web.Request) -> web.Response:
        """Answer whether a queue is overused; what cannot be read is not, as without an answer."""
        try:
            answer = judge_queue(await self._bodies.read(request), self._held_in)
        except (BodyRefusedError, InputError):
            return self._reply(OVERUSED, "refused", Overuse())
        return self._reply(OVERUSED, "overused" if answer.overused else "abstained", answer)

    def _reply(self, verb: str, verdict: str, answer: Victims | Vote | Overuse) -> web.Response:
        metrics.EXTENDER_ANSWERS.labels(verb=verb, verdict=verdict).inc()
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
