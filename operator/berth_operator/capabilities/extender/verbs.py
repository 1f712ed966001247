"""The verbs of Volcano's extender: placeholders are no victims, owners of slots are let in, queues pay for held places.

Volcano's scheduler sends three kinds of requests. Every replica gives the same answer to each, but for the places that
jobs without pods are let in for:

- Candidates for eviction, of which it evicts only those that every plugin of a tier names. The answer depends on the
  request alone.
- A job that waits to be let in, with its pods. The status of a Reservation says whether a slot is being handed to one
  of them, its spec whether its placeholders await capacity.
- A queue, with its capability and what it has allocated. Each replica watches the placeholders that hold more in its
  name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from berth_core import (
    CPU,
    MEMORY,
    PLACEHOLDER_LABEL,
    QUEUE_ANNOTATION,
    RESERVATION_LABEL,
    InputError,
    OwnerReference,
    Pod,
    Quantities,
    ResourceAmounts,
    readable_requests,
    volcano_group_of,
)
from berth_core.decoding import decode_json

_OF_EVERY_POD: Final = frozenset({CPU, MEMORY})
"""Resources that practically every pod requests: once a queue has none left of one, none of its pods fits."""
PERMIT: Final = 1
ABSTAIN: Final = 0
"""Votes in Volcano's numbers: the plugin decides, or leaves the decision to the others."""


class _PodMetadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMetadata = _PodMetadata()
    spec: _PodSpec = _PodSpec()


class _Task(msgspec.Struct, frozen=True, rename="pascal"):
    """The part of a task that is read; Volcano encodes its structs without JSON tags, so with Go's field names."""

    pod: _Pod | None = None


class _Candidates(msgspec.Struct, frozen=True):
    evictees: tuple[msgspec.Raw, ...] = ()


class _GroupMeta(msgspec.Struct, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class _GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_resources: dict[str, str] | None = None


class _PodGroup(_GroupMeta, frozen=True, rename="camel"):
    """The read part of a PodGroup; some versions of Volcano write its metadata without a name of their own."""

    metadata: _GroupMeta | None = None
    spec: _GroupSpec = _GroupSpec()


class _Job(msgspec.Struct, frozen=True, rename="pascal"):
    """The part of a job that is read."""

    name: str = ""
    namespace: str = ""
    min_available: int = 0
    """How many of its pods must run together."""
    tasks: Mapping[str, _Task] | None = None
    """All its tasks by uid; Go encodes an empty map that was never made as null."""
    creation_timestamp: str | None = None
    """When its PodGroup was created."""
    pod_group: _PodGroup | None = None

    @property
    def without_pods(self) -> "JobWithoutPods":
        """Return what is known of a job before it has pods."""
        group = self.pod_group or _PodGroup()
        meta = group.metadata or group
        return JobWithoutPods(
            name=self.name,
            namespace=self.namespace,
            pods=max(1, self.min_available),
            requests=group.spec.min_resources or {},
            annotations=meta.annotations or {},
            owners=meta.owner_references or (),
        )


@dataclass(frozen=True, slots=True)
class JobWithoutPods:
    """What a PodGroup says of a job whose pods come once it is let in."""

    name: str
    """That of its PodGroup; Volcano's cache names a job by it."""
    namespace: str
    pods: int
    """How many must run together."""
    requests: Quantities
    """What these request together; empty if the group does not say."""
    annotations: Mapping[str, str]
    owners: tuple[OwnerReference, ...]


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
    """The part of a queue that is read: its object as of the start of Volcano's session."""

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
    """Whether a slot is being handed to a pod of Volcano, which an overused queue would keep out."""


HeldIn = Callable[[str], Held]
"""Returns what is held in the name of a queue."""


class Vote(msgspec.Struct, frozen=True):
    """The answer to `jobEnqueueable`: PERMIT lets the job in, ABSTAIN leaves that to Volcano's other plugins."""

    status: int


HasSlot = Callable[[str, str], bool]
"""Returns whether a slot of a Reservation is being handed to a pod, both by uid."""

Awaits = Callable[[str], bool]
"""Returns whether a Reservation, by uid, waits on chosen nodes for pods there to end."""

HasWaited = Callable[[str], bool]
"""Returns whether a job with this creation time has waited so long that it is let in without pods."""


HoldsFor = Callable[[JobWithoutPods], bool]
"""Whether places are held that the pods of a job may take once there are any."""


def for_none(_job: JobWithoutPods) -> bool:
    """Hold no place for a job without pods."""
    return False


def never(_created: str) -> bool:
    return False


class Victims(msgspec.Struct, frozen=True):
    """The answer to `preemptable` and `reclaimable`: a vote, and the candidates that may be evicted, as they came."""

    status: int
    victims: tuple[msgspec.Raw, ...] = ()


def choose_victims(body: bytes, namespace: str) -> Victims:
    """Return the candidates that are no placeholders of this namespace; raises InputError.

    Without a placeholder among them the vote is ABSTAIN, which changes nothing. The label alone makes no placeholder,
    since anyone could set it, while only the operator creates pods in Berth's own namespace.
    """
    try:
        candidates = decode_json(body, _Candidates).evictees
        tasks = [(raw, decode_json(raw, _Task)) for raw in candidates]
        spared = [raw for raw, task in tasks if task.pod is None or not _is_placeholder(task.pod, namespace)]
    except msgspec.DecodeError as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    return Victims(ABSTAIN) if len(spared) == len(candidates) else Victims(PERMIT, tuple(spared))


def vote_on_job(
    body: bytes,
    has_slot: HasSlot,
    awaits: Awaits,
    namespace: str,
    *,
    has_waited: HasWaited = never,
    holds: HoldsFor = for_none,
) -> Vote:
    """Return the vote on a job that waits to be let in; raises InputError.

    It is let in if held slots suffice for it to start: their capacity is there and kept for them alone. A gang with too
    few of them needs more than is held, and how much more may come in is for Volcano's other plugins to say. The label
    alone is no slot: anyone could set it. Placeholders of the namespace that await capacity are let in, too: a fence
    keeps it for them, and Berth limits how much they await. A job without pods is let in where places are held
    that its pods may take, and once it has waited: only then are there pods that places can be held for.
    """
    try:
        job = decode_json(body, _JobRequest).job or _Job()
    except msgspec.DecodeError as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    tasks = job.tasks or {}
    if not tasks:
        # Volcano's Job controller creates pods only once the job is let in, so waiting for pods here would never end
        # (volcano-sh/volcano#3910).
        created = job.creation_timestamp
        return Vote(PERMIT if holds(job.without_pods) or (created and has_waited(created)) else ABSTAIN)
    pods = [task.pod for task in tasks.values() if task.pod is not None]
    if pods and all(_is_placeholder(pod, namespace) and awaits(_reservation_of(pod)) for pod in pods):
        return Vote(PERMIT)
    placed = sum(bool(pod.spec.node_name) for pod in pods)
    # A pod in a hand-over has its place already: a queue that is full because of the placeholder must not keep it out.
    pods_coming = sum(_has_slot(pod, has_slot) for pod in pods if not pod.spec.node_name)
    return Vote(PERMIT if pods_coming and placed + pods_coming >= job.min_available else ABSTAIN)


def judge_queue(body: bytes, held_in: HeldIn) -> Overuse:
    """Return whether a queue has used up its capability, with what placeholders hold in its name; raises InputError.

    It has once cpu, memory or every resource of the capability is used up. It has not if that is only so for GPUs, as
    pods that request none still fit. Without such placeholders Volcano's own count decides.
    """
    try:
        queue = decode_json(body, _QueueRequest).queue or _QueueInfo()
        volcano_queue = queue.queue or _QueueObject()
        capability = ResourceAmounts.from_quantities(volcano_queue.spec.capability)
        allocated = ResourceAmounts.from_quantities(volcano_queue.status.allocated)
    except msgspec.DecodeError as error:
        raise InputError("body", None, f"a request of Volcano's extender plugin: {error}") from error
    held_for_queue = held_in(queue.name)
    amounts_used = allocated.plus(held_for_queue.amounts)
    capped_resources = set(volcano_queue.spec.capability)
    reached = {resource for resource in capped_resources if amounts_used[resource] >= capability[resource]}
    # Only what placeholders hold is this extender's to say: the rest is counted by Volcano's proportion or capacity
    # plugin.
    reached_by_us = reached.intersection(held_for_queue.amounts)
    return Overuse(
        not held_for_queue.lets_in
        and bool(reached_by_us)
        and (reached == capped_resources or not reached_by_us.isdisjoint(_OF_EVERY_POD))
    )


def uncounted_by_queue(placeholders: Iterable[Pod]) -> dict[str, ResourceAmounts]:
    """Return by queue what placeholders hold in its name without Volcano counting it.

    Volcano counts a pod in the queue of its PodGroup, which only placeholders that Volcano schedules have.
    """
    uncounted: dict[str, ResourceAmounts] = {}
    for pod in placeholders:
        queue = pod.metadata.annotations.get(QUEUE_ANNOTATION, "")
        if queue and pod.spec.node_name and not pod.is_terminal and not volcano_group_of(pod):
            uncounted[queue] = uncounted.get(queue, ResourceAmounts.empty()).plus(readable_requests(pod))
    return uncounted


def _has_slot(pod: _Pod, has_slot: HasSlot) -> bool:
    uid = _reservation_of(pod)
    return bool(uid) and has_slot(uid, pod.metadata.uid)


def _reservation_of(pod: _Pod) -> str:
    return pod.metadata.labels.get(RESERVATION_LABEL, "")


def _is_placeholder(pod: _Pod, namespace: str) -> bool:
    return pod.metadata.namespace == namespace and pod.metadata.labels.get(PLACEHOLDER_LABEL) == "true"
