"""How much of each queue's guarantee its pods could use now.

What is left of a guarantee is worth only as much as pods of the queue's shapes can be placed in it. The shapes are the
requests and the node constraints of the queue's own waiting and placed pods; a queue without pods has none, and nothing
is guessed. Each queue is looked at by itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, TypeAlias

import msgspec

from berth_core import (
    DEFAULT_QUEUE,
    PLACEHOLDER_LABEL,
    PODS,
    QUEUE_ANNOTATION,
    RESERVATION_LABEL,
    TASK_ANNOTATION,
    VOLCANO_POD_GROUP_API_VERSION,
    InputError,
    Pod,
    PodSpec,
    Queue,
    ResourceAmounts,
    Snapshot,
    readable_requests,
    volcano_group_of,
)
from berth_descheduler.planner.pending_pods import is_pending
from berth_descheduler.planner.rooms import RoomRequest, Shape
from berth_descheduler.planner.simulation import Cluster, NodeIndex, NodeTies, node_part, node_refusal
from berth_descheduler.planner.stranded_capacity import CapacityShape, write_shape

_VOLCANO_SCHEDULER: Final = "volcano"
_JOB_QUEUE: Final = "volcano.sh/queue-name"
"""Annotation and label on a pod of a Volcano Job: its queue."""

_MOST: Final = 8
"""The most shapes of a queue; those of waiting pods come first, then the most frequent."""


_NONE: Final = Fraction(0)


# --- whose pod it is --------------------------------------------------------------------------------------------------


class QueueMembers:
    """Knows the queue of each pod: that of its group, of its Reservation, or the one that it names."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._of_group = {
            (one.metadata.namespace, one.metadata.name): one.spec.queue or DEFAULT_QUEUE
            for one in snapshot.pod_groups
            if one.api_version == VOLCANO_POD_GROUP_API_VERSION
        }
        self._of_job = {one.metadata.uid: one.spec.queue or DEFAULT_QUEUE for one in snapshot.volcano_jobs}
        self._of_reservation = {one.metadata.uid: one.spec.queue for one in snapshot.reservations}

    def queue_of(self, pod: Pod) -> str:
        """Return the name of a pod's queue, "" for a pod in none."""
        meta = pod.metadata
        named = meta.annotations.get(QUEUE_ANNOTATION) or meta.annotations.get(_JOB_QUEUE, "")
        if PLACEHOLDER_LABEL in meta.labels:
            return self._of_reservation.get(meta.labels.get(RESERVATION_LABEL, ""), named)
        controller = pod.controller.uid if pod.controller else ""
        by_default = DEFAULT_QUEUE if pod.spec.scheduler_name == _VOLCANO_SCHEDULER else ""
        return (
            self._of_group.get((meta.namespace, volcano_group_of(pod)), "")
            or named
            or self._of_job.get(controller, by_default)
        )


def _families(queues: Iterable[Queue]) -> Mapping[str, tuple[str, ...]]:
    """Return the queues above each queue, itself first: its pods count in all of them."""
    parents = {queue.name: queue.parent for queue in queues}
    families: dict[str, tuple[str, ...]] = {}
    for name in parents:
        above = [name]
        while (parent := parents.get(above[-1], "")) and parent not in above:
            above.append(parent)
        families[name] = tuple(above)
    return families


# --- what is left, and what of it can be used -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueShape:
    """Equal pods of a queue, and how many more of them its guarantee and the nodes hold."""

    shape: CapacityShape
    waiting: tuple[Pod, ...]
    """Those that wait, in the order in which they would be served."""

    wanted: int
    """How many of them what is left of the guarantee holds beside the shapes before."""

    placeable: int
    nodes: int
    """Nodes that have room for at least one."""


@dataclass(frozen=True, slots=True)
class QueueCapacity:
    """A queue's guarantee, what its pods have of it, and what of the rest they could use now."""

    queue: Queue
    allocated: ResourceAmounts
    """Requests of the queue's pods on nodes, placeholders included."""

    shapes: tuple[QueueShape, ...]

    @property
    def left(self) -> ResourceAmounts:
        """Return what is left of the guarantee."""
        rest = {name: amount - self.allocated.get(name) for name, amount in self.queue.guarantee.items()}
        return ResourceAmounts({name: max(0, amount) for name, amount in rest.items()})

    @property
    def usable(self) -> ResourceAmounts:
        """Return what whole pods of the shapes would use of what is left, had every node room."""
        return self._of_guarantee(one.shape.amounts.times(one.wanted) for one in self.shapes)

    @property
    def placeable(self) -> ResourceAmounts:
        """Return what the pods that the nodes have room for would use of what is left."""
        return self._of_guarantee(one.shape.amounts.times(one.placeable) for one in self.shapes)

    def share(self, resource: str) -> Fraction | None:
        """Return the placeable share of what is usable.

        1 where nothing is left; None where no pod says what could use it.
        """
        if not self.left.get(resource):
            return Fraction(1)
        usable = self.usable.get(resource)
        return Fraction(self.placeable.get(resource), usable) if usable else None

    @property
    def wanted(self) -> int:
        return sum(one.wanted for one in self.shapes)

    @property
    def placed(self) -> int:
        return sum(one.placeable for one in self.shapes)

    def _of_guarantee(self, several: Iterable[ResourceAmounts]) -> ResourceAmounts:
        found = ResourceAmounts.total(several)
        return ResourceAmounts({name: found.get(name) for name, _ in self.queue.guarantee.items()})


_Key: TypeAlias = tuple[ResourceAmounts, bytes]
"""Requests, and the encoded fields of a spec that are about nodes."""


@dataclass(slots=True)
class _Use:
    """The pods of one queue, by shape."""

    allocated: list[ResourceAmounts] = field(default_factory=list)
    ties: dict[_Key, PodSpec] = field(default_factory=dict)
    placed: Counter[_Key] = field(default_factory=Counter)
    waiting: dict[_Key, list[Pod]] = field(default_factory=dict)
    promised: list[tuple[NodeIndex, ResourceAmounts]] = field(default_factory=list)
    """What waiting pods are promised on nodes: free for them alone."""

    def ordered(self) -> list[_Key]:
        """Return the shapes of waiting pods, then the others; of each the most frequent first."""
        return sorted(self.ties, key=lambda key: (key not in self.waiting, -self._number(key), _name_of(key)))[:_MOST]

    def describe(self, key: _Key) -> str:
        waiting = len(self.waiting.get(key, ()))
        parts = [f"{waiting} waiting"] * bool(waiting) + [f"{self.placed[key]} placed"] * bool(self.placed[key])
        return " and ".join(parts)

    def _number(self, key: _Key) -> int:
        return self.placed[key] + len(self.waiting.get(key, ()))


def _name_of(key: _Key) -> tuple[str, bytes]:
    return write_shape(key[0]), key[1]


def measure_queues(snapshot: Snapshot, only: str | None = None) -> tuple[QueueCapacity, ...]:
    """Return the queues that have a guarantee, and those that cannot be read; or `only` one of them.

    Of the snapshot nodes, pods, reservations and groups are looked at. Costs nothing without such queues.
    """
    queues = snapshot.queues
    asked = [one for one in queues if (one.guarantee or one.unreadable) and only in (None, one.name)]
    if not asked:
        return ()
    cluster = Cluster.from_snapshot(snapshot)
    free = [list(map(int.__sub__, have, used)) for have, used in zip(cluster.capacity, cluster.taken, strict=True)]
    closed = [node_refusal(cluster, NodeIndex(node)) is not None for node in range(len(free))]
    uses = _uses(cluster, _families(queues), frozenset(one.name for one in asked))
    return tuple(_measure(cluster, free, closed, one, uses[one.name]) for one in asked)


def room_of_guarantee(snapshot: Snapshot, request: RoomRequest) -> RoomRequest:
    """Return the request for what is left of the guarantee of the queue that it names.

    The queue's waiting pods are meant themselves, as many as the rest of the guarantee holds; what more it holds is
    meant as shapes. Of these only those go to any node that pods without constraints go to. Raises `InputError` for a
    queue that is not known or has no guarantee.
    """
    known = {one.name: one for one in snapshot.queues}
    queue = known.get(request.queue)
    if snapshot.unread:
        raise InputError("room.queue", request.queue, "queues that can be read: the snapshot has none")
    if queue is None:
        raise InputError("room.queue", request.queue, f"the name of a queue: {', '.join(known) or 'there is none'}")
    if queue.unreadable or not queue.guarantee:
        raise InputError("room.queue", request.queue, queue.unreadable or "a queue with a guarantee")
    pods: list[tuple[str, str]] = []
    shapes: list[Shape] = []
    for one in measure_queues(snapshot, request.queue)[0].shapes:
        waiting = [pod for pod in one.waiting if is_pending(pod) and not pod.status.nominated_node_name][: one.wanted]
        pods += ((pod.metadata.namespace, pod.metadata.name) for pod in waiting)
        rest = one.wanted - max(len(waiting), min(one.wanted, len(one.waiting)))
        if rest and one.shape.ties == node_part(PodSpec()):
            shapes.append(Shape(one.shape.amounts, rest, one.shape.name))
    return replace(request, pods=tuple(pods), shapes=tuple(shapes))


def _uses(cluster: Cluster, families: Mapping[str, tuple[str, ...]], asked: frozenset[str]) -> Mapping[str, _Use]:
    members = QueueMembers(cluster.snapshot)
    templates = _templates(cluster.snapshot)
    uses = {name: _Use() for name in asked}
    for pod, node in _pods(cluster):
        queue = members.queue_of(pod)
        for name in asked.intersection(families.get(queue, (queue,))):
            _add(uses[name], pod, node, templates)
    return uses


def _pods(cluster: Cluster) -> Iterator[tuple[Pod, NodeIndex | None]]:
    """Yield the pods that have or want a place, with the node that is theirs or promised to them."""
    yield from ((one.pod, one.node) for one in cluster.pods)
    yield from ((pod, None) for pod in cluster.elsewhere if not pod.spec.node_name and not pod.is_terminating)


def _templates(snapshot: Snapshot) -> Mapping[tuple[str, str], PodSpec]:
    """Return the specs of all slots: placeholders themselves are pinned to their nodes."""
    return {
        (one.metadata.uid, task.name): task.template.spec for one in snapshot.reservations for task in one.spec.tasks
    }


def _add(use: _Use, pod: Pod, node: NodeIndex | None, templates: Mapping[tuple[str, str], PodSpec]) -> None:
    amounts = readable_requests(pod)
    waits = not pod.spec.node_name
    if waits and RESERVATION_LABEL in pod.metadata.labels and PLACEHOLDER_LABEL not in pod.metadata.labels:
        return  # its place is the placeholder's
    if not waits:
        use.allocated.append(amounts)
    elif node is not None:
        use.promised.append((node, amounts))
    if not amounts:
        return
    slot = pod.metadata.labels.get(RESERVATION_LABEL, ""), pod.metadata.annotations.get(TASK_ANNOTATION, "")
    spec = templates.get(slot, pod.spec) if PLACEHOLDER_LABEL in pod.metadata.labels else pod.spec
    ties = node_part(spec)
    key = amounts, msgspec.json.encode(ties, order="sorted")
    use.ties[key] = ties
    if waits:
        use.waiting.setdefault(key, []).append(pod)
    else:
        use.placed[key] += 1


def _measure(
    cluster: Cluster, free: Sequence[Sequence[int]], closed: Sequence[bool], queue: Queue, use: _Use
) -> QueueCapacity:
    """Return what the pods of a queue could use of its guarantee."""
    found = QueueCapacity(queue, ResourceAmounts.total(use.allocated), ())
    keys = use.ordered()
    wanted = _wanted(queue, found.left, keys, use)
    rows = [list(row) for row in free]
    for node, amounts in use.promised:
        _give_back(cluster, rows[node], amounts)
    placed = {}
    for key in sorted(keys, key=lambda key: (-_size(cluster, key[0]), _name_of(key))):
        open_to = NodeTies(use.ties[key], ())
        nodes = [not shut and open_to.refusal(node) is None for shut, node in zip(closed, cluster.nodes, strict=True)]
        placed[key] = _pack(cluster, rows, nodes, key[0], wanted[key])
    shapes = (
        QueueShape(
            shape=CapacityShape(write_shape(key[0]), key[0], use.ties[key], use.describe(key)),
            waiting=tuple(sorted(use.waiting.get(key, ()), key=_rank)),
            wanted=wanted[key],
            placeable=sum(placed[key]),
            nodes=len(placed[key]),
        )
        for key in keys
    )
    return replace(found, shapes=tuple(shapes))


def _wanted(queue: Queue, left: ResourceAmounts, keys: Sequence[_Key], use: _Use) -> Mapping[_Key, int]:
    """Return how many pods of each shape the rest of a guarantee holds.

    First those that wait, then as many more of each shape in turn.
    """
    wanted: Counter[_Key] = Counter()
    for of_waiting in (True, False):
        for key in keys:
            holds = _holds(queue.guarantee, left, key[0])
            number = min(holds, len(use.waiting.get(key, ()))) if of_waiting else holds
            wanted[key] += number
            left = left.minus(key[0].times(number))
    return wanted


def _holds(guarantee: ResourceAmounts, left: ResourceAmounts, amounts: ResourceAmounts) -> int:
    """Return how many pods of a shape the rest holds, 0 for a shape without a guaranteed resource."""
    pairs = ((left.get(name), amounts.get(name)) for name, _ in guarantee.items())
    return min((max(0, have) // need for have, need in pairs if need > 0), default=0)


def _size(cluster: Cluster, amounts: ResourceAmounts) -> Fraction:
    """Return the largest share of the cluster's resources that a shape takes; larger ones are placed first."""
    whole = {name: sum(row[column] for row in cluster.capacity) for name, column in cluster.column.items()}
    return max((Fraction(amount, whole[name]) for name, amount in amounts.items() if whole.get(name)), default=_NONE)


def _pack(
    cluster: Cluster, rows: Sequence[list[int]], takes: Sequence[bool], amounts: ResourceAmounts, wanted: int
) -> list[int]:
    """Return how many of up to `wanted` pods each node gets that gets any; takes that off the rows."""
    needs = [(cluster.column.get(name), need) for name, need in amounts.items() if need > 0]
    if any(column is None for column, _ in needs):
        return []
    columns = [(column, need) for column, need in needs if column is not None]
    columns.append((cluster.column[PODS], 1))
    placed = []
    for row, is_open in zip(rows, takes, strict=True):
        number = min(wanted, *(max(0, row[column]) // need for column, need in columns)) if is_open else 0
        if number:
            placed.append(number)
            wanted -= number
            for column, need in columns:
                row[column] -= need * number
    return placed


def _give_back(cluster: Cluster, row: list[int], amounts: ResourceAmounts) -> None:
    """Free a promised place for those to whom it was promised."""
    row[cluster.column[PODS]] += 1
    for name, amount in amounts.items():
        row[cluster.column[name]] += amount


def _rank(pod: Pod) -> tuple[int, str, str]:
    return (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.key)
