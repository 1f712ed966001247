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
    ONE_POD,
    PLACEHOLDER_LABEL,
    PODS,
    QUEUE_ANNOTATION,
    RESERVATION_LABEL,
    TASK_ANNOTATION,
    VOLCANO_POD_GROUP_API_VERSION,
    VOLCANO_SCHEDULER,
    InputError,
    Pod,
    PodSpec,
    Queue,
    QueueSource,
    ResourceAmounts,
    SlotState,
    Snapshot,
    SnapshotKind,
    choose_namespaces,
    first_few,
    queue_of_slot,
    readable_requests,
    volcano_group_of,
)
from berth_descheduler.planner.pending_pods import is_pending
from berth_descheduler.planner.rooms import RoomRequest, Shape
from berth_descheduler.planner.simulation import Cluster, NodeIndex, NodeTies, node_part, node_refusal
from berth_descheduler.planner.stranded_capacity import CapacityShape, write_shape

_JOB_QUEUE: Final = "volcano.sh/queue-name"
"""Annotation and label on a pod of a Volcano Job: its queue."""

_NAMED: Final = 5
_MOST: Final = 8
"""The most shapes of a queue; those of waiting pods come first, then the most frequent."""


_NONE: Final = Fraction(0)
_ON_THE_WAY: Final = frozenset({SlotState.HANDING_OVER, SlotState.TAKEN})

QueueKey: TypeAlias = tuple[QueueSource, str]
"""What no two queues have in common, `Queue.key`."""


# --- whose pod it is --------------------------------------------------------------------------------------------------


class QueueMembers:
    """Knows the queues of each pod: one of Volcano by its group, Reservation or annotation, one of Berth by namespace.

    A pod may be in one of each.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._of_group = {
            (one.metadata.namespace, one.metadata.name): one.spec.queue or DEFAULT_QUEUE
            for one in snapshot.pod_groups
            if one.api_version == VOLCANO_POD_GROUP_API_VERSION
        }
        self._of_job = {one.metadata.uid: one.spec.queue or DEFAULT_QUEUE for one in snapshot.volcano_jobs}
        self._of_reservation = {one.metadata.uid: one for one in snapshot.reservations}
        labels = {one.metadata.name: one.metadata.labels for one in snapshot.namespaces}
        of_kueue = {one.metadata.namespace: one.metadata.name for one in snapshot.local_queues}
        choice = choose_namespaces(snapshot.gated_queues, labels, of_kueue, snapshot.own_namespace)
        self._of_namespace = choice.queue_of
        self._uids = {one.metadata.name: one.metadata.uid for one in snapshot.gated_queues}

    def queues_of(self, pod: Pod) -> tuple[QueueKey, ...]:
        """Return the keys of a pod's queues."""
        found = ((QueueSource.VOLCANO, self._of_volcano(pod)), (QueueSource.BERTH, self._of_berth(pod)))
        return tuple(key for key in found if key[1])

    def namespaces_of(self, queue: Queue) -> tuple[str, ...]:
        """Return the namespaces of a queue of Berth in order."""
        return tuple(sorted(name for name, has in self._of_namespace.items() if has == queue.name))

    def is_held(self, pod: Pod, queue: QueueKey) -> bool:
        """Return whether a pod is for a slot that Berth's queue holds, or is to, and no pod is about to take."""
        if PLACEHOLDER_LABEL not in pod.metadata.labels or queue[0] is not QueueSource.BERTH:
            return False
        held = self._of_reservation.get(pod.metadata.labels.get(RESERVATION_LABEL, ""))
        if held is None or queue_of_slot(held) != self._uids.get(queue[1], ""):
            return False
        return not any(slot.state in _ON_THE_WAY for slot in held.status.slots)

    def _of_berth(self, pod: Pod) -> str:
        """Return the queue of a pod's namespace; a placeholder is in that of its Reservation."""
        if pod.belongs_to_node:
            return ""
        labels, home = pod.metadata.labels, pod.metadata.namespace
        if PLACEHOLDER_LABEL in labels and (held := self._of_reservation.get(labels.get(RESERVATION_LABEL, ""))):
            home = held.metadata.namespace
        return self._of_namespace.get(home, "")

    def _of_volcano(self, pod: Pod) -> str:
        meta = pod.metadata
        named = meta.annotations.get(QUEUE_ANNOTATION) or meta.annotations.get(_JOB_QUEUE, "")
        if PLACEHOLDER_LABEL in meta.labels:
            holds = self._of_reservation.get(meta.labels.get(RESERVATION_LABEL, ""))
            return named if holds is None else holds.spec.queue
        controller = pod.controller.uid if pod.controller else ""
        by_default = DEFAULT_QUEUE if pod.spec.scheduler_name == VOLCANO_SCHEDULER else ""
        return (
            self._of_group.get((meta.namespace, volcano_group_of(pod)), "")
            or named
            or self._of_job.get(controller, by_default)
        )


def _families(queues: Iterable[Queue]) -> Mapping[QueueKey, tuple[QueueKey, ...]]:
    """Return the queues above each queue, itself first: its pods count in all of them."""
    parents = {queue.key: (queue.source, queue.parent) for queue in queues}
    families: dict[QueueKey, tuple[QueueKey, ...]] = {}
    for key in parents:
        above = [key]
        while (parent := parents.get(above[-1])) and parent in parents and parent not in above:
            above.append(parent)
        families[key] = tuple(above)
    return families


def find_queue(snapshot: Snapshot, text: str) -> Queue:
    """Return the queue of a name, with its kind before it where both kinds have one of that name.

    Raises `InputError` for one that is not known.
    """
    found = [one for one in snapshot.queues if text in {one.name, one.full_name}]
    if len(found) == 1:
        return found[0]
    if found:
        expected = f"one of the two: {' or '.join(one.full_name for one in found)}"
        raise InputError("room.queue", text, expected)
    unread = [source.resource for source in QueueSource if SnapshotKind(source.resource) in snapshot.unread]
    if unread:
        raise InputError("room.queue", text, f"a queue that can be read: the snapshot has no {' and no '.join(unread)}")
    names = ", ".join(label_queues(snapshot.queues).values())
    raise InputError("room.queue", text, f"the name of a queue: {names or 'there is none'}")


def label_queues(queues: Iterable[Queue]) -> Mapping[QueueKey, str]:
    """Return what people call each queue: its name, with the kind before it where both kinds have one of that name."""
    several = Counter(one.name for one in queues)
    return {one.key: one.name if several[one.name] == 1 else one.full_name for one in queues}


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
    label: str
    """Its name, with its kind where another kind has a queue of that name."""
    allocated: ResourceAmounts
    """Requests of the queue's pods on nodes, and of placeholders but for those that are held."""
    held: ResourceAmounts
    """Requests of the slots that the queue holds for its pods, on nodes."""

    shapes: tuple[QueueShape, ...]

    @property
    def left(self) -> ResourceAmounts:
        """Return what of the guarantee is neither allocated nor held."""
        have = self.allocated.plus(self.held)
        rest = {name: amount - have.get(name) for name, amount in self.queue.guarantee.items()}
        return ResourceAmounts({name: max(0, amount) for name, amount in rest.items()})

    @property
    def usable(self) -> ResourceAmounts:
        """Return what whole pods of the shapes would use of what is left, had every node room."""
        return self._of_guarantee(one.shape.amounts.plus(ONE_POD).times(one.wanted) for one in self.shapes)

    @property
    def placeable(self) -> ResourceAmounts:
        """Return what the pods that the nodes have room for would use of what is left."""
        return self._of_guarantee(one.shape.amounts.plus(ONE_POD).times(one.placeable) for one in self.shapes)

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
    held: list[ResourceAmounts] = field(default_factory=list)
    ties: dict[_Key, PodSpec] = field(default_factory=dict)
    placed: Counter[_Key] = field(default_factory=Counter)
    slots: Counter[_Key] = field(default_factory=Counter)
    """Those that are held."""
    lacking: Counter[_Key] = field(default_factory=Counter)
    """Slots that wait for room."""
    waiting: dict[_Key, list[Pod]] = field(default_factory=dict)
    promised: list[tuple[NodeIndex, ResourceAmounts]] = field(default_factory=list)
    """What waiting pods are promised on nodes: free for them alone."""

    @property
    def amounts(self) -> tuple[ResourceAmounts, ResourceAmounts]:
        """Return what is allocated, and what is held."""
        return ResourceAmounts.total(self.allocated), ResourceAmounts.total(self.held)

    def ordered(self) -> list[_Key]:
        """Return the shapes of waiting pods, of slots that wait, then the others; of each the most frequent first."""

        def rank(key: _Key) -> tuple[bool, bool, int, tuple[str, bytes]]:
            return key not in self.waiting, key not in self.lacking, -self._number(key), _name_of(key)

        return sorted(self.ties, key=rank)[:_MOST]

    def describe(self, key: _Key) -> str:
        waiting = len(self.waiting.get(key, ())) + self.lacking[key]
        numbers = {"waiting": waiting, "placed": self.placed[key], "held": self.slots[key]}
        return " and ".join(f"{number} {what}" for what, number in numbers.items() if number)

    def _number(self, key: _Key) -> int:
        return self.placed[key] + self.slots[key] + self.lacking[key] + len(self.waiting.get(key, ()))


def _name_of(key: _Key) -> tuple[str, bytes]:
    return write_shape(key[0]), key[1]


def measure_queues(snapshot: Snapshot, only: Queue | None = None) -> tuple[QueueCapacity, ...]:
    """Return the queues that have a guarantee, and those whose is not known or does not count; or `only` one of them.

    Of the snapshot nodes, pods, namespaces, reservations and groups are looked at. Costs nothing without such queues.
    """
    queues = snapshot.queues
    asked = [one for one in queues if one.guarantee or one.unreadable or one.refused]
    asked = [one for one in asked if only is None or one.key == only.key]
    if not asked:
        return ()
    cluster = Cluster.from_snapshot(snapshot)
    free = [list(map(int.__sub__, have, used)) for have, used in zip(cluster.capacity, cluster.taken, strict=True)]
    closed = [node_refusal(cluster, NodeIndex(node)) is not None for node in range(len(free))]
    uses = _uses(cluster, _families(queues), frozenset(one.key for one in asked))
    labels = label_queues(queues)
    begun = ((QueueCapacity(one, labels[one.key], *uses[one.key].amounts, ()), uses[one.key]) for one in asked)
    return tuple(_measure(cluster, free, closed, one, use) for one, use in begun)


def room_of_guarantee(snapshot: Snapshot, request: RoomRequest) -> RoomRequest:
    """Return the request for what is left of the guarantee of the queue that it names.

    The queue's waiting pods are meant themselves, as many as the rest of the guarantee holds; what more it holds is
    meant as shapes. Of these only those go to any node that pods without constraints go to. Raises `InputError` for a
    queue that is not known or has no guarantee.
    """
    queue = find_queue(snapshot, request.queue)
    if queue.unreadable or not queue.guarantee:
        refused = f"a guarantee that counts: {queue.refused}" if queue.refused else "a queue with a guarantee"
        raise InputError("room.queue", request.queue, queue.unreadable or refused)
    if request.owners is not None and queue.source is QueueSource.BERTH:
        namespaces = QueueMembers(snapshot).namespaces_of(queue)
        if request.owners.namespace not in namespaces:
            expected = f"a namespace of the queue: {first_few(namespaces, _NAMED) or 'it has none'}"
            raise InputError("room.owners.namespace", request.owners.namespace, expected)
    pods: list[tuple[str, str]] = []
    shapes: list[Shape] = []
    for one in measure_queues(snapshot, queue)[0].shapes:
        waiting = [pod for pod in one.waiting if is_pending(pod) and not pod.status.nominated_node_name][: one.wanted]
        pods += ((pod.metadata.namespace, pod.metadata.name) for pod in waiting)
        rest = one.wanted - max(len(waiting), min(one.wanted, len(one.waiting)))
        if rest and one.shape.ties == node_part(PodSpec()):
            shapes.append(Shape(one.shape.amounts, rest, one.shape.name))
    return replace(request, pods=tuple(pods), shapes=tuple(shapes))


def reserved_queue(snapshot: Snapshot, text: str) -> tuple[str, str]:
    """Return the queue that Reservations for a queue name, and the namespace where one without owners is.

    What a Reservation holds counts in Volcano's queue that it names, and in Berth's queue of its namespace.
    """
    queue = find_queue(snapshot, text)
    if queue.source is QueueSource.VOLCANO:
        return queue.name, ""
    return "", next(iter(QueueMembers(snapshot).namespaces_of(queue)), "")


def _uses(
    cluster: Cluster, families: Mapping[QueueKey, tuple[QueueKey, ...]], asked: frozenset[QueueKey]
) -> Mapping[QueueKey, _Use]:
    members = QueueMembers(cluster.snapshot)
    templates = _templates(cluster.snapshot)
    uses = {key: _Use() for key in asked}
    for pod, node in _pods(cluster):
        for queue in members.queues_of(pod):
            # Of what pods use elsewhere Berth's queues are guaranteed nothing.
            counts = queue[0] is QueueSource.VOLCANO or pod.spec.node_name in cluster.snapshot.offered_to_queues
            is_held = members.is_held(pod, queue)
            for key in asked.intersection(families.get(queue, (queue,))):
                _add(uses[key], pod, node, templates, counts=counts, is_held=is_held)
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


def _add(
    use: _Use,
    pod: Pod,
    node: NodeIndex | None,
    templates: Mapping[tuple[str, str], PodSpec],
    *,
    counts: bool,
    is_held: bool,
) -> None:
    amounts = readable_requests(pod)
    waits = not pod.spec.node_name
    if waits and RESERVATION_LABEL in pod.metadata.labels and PLACEHOLDER_LABEL not in pod.metadata.labels:
        return  # its place is the placeholder's
    if not waits and counts:
        (use.held if is_held else use.allocated).append(amounts.plus(ONE_POD))
    if waits and node is not None:
        use.promised.append((node, amounts))
    if not amounts:
        return
    slot = pod.metadata.labels.get(RESERVATION_LABEL, ""), pod.metadata.annotations.get(TASK_ANNOTATION, "")
    spec = templates.get(slot, pod.spec) if PLACEHOLDER_LABEL in pod.metadata.labels else pod.spec
    ties = node_part(spec)
    key = amounts, msgspec.json.encode(ties, order="sorted")
    use.ties[key] = ties
    if waits and is_held:
        use.lacking[key] += 1
    elif waits:
        use.waiting.setdefault(key, []).append(pod)
    else:
        (use.slots if is_held else use.placed)[key] += 1


def _measure(
    cluster: Cluster, free: Sequence[Sequence[int]], closed: Sequence[bool], found: QueueCapacity, use: _Use
) -> QueueCapacity:
    """Return what the pods of a queue could use of its guarantee."""
    keys = use.ordered()
    wanted = _wanted(found.queue, found.left, keys, use)
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
            left = left.minus(key[0].plus(ONE_POD).times(number))
    return wanted


def _holds(guarantee: ResourceAmounts, left: ResourceAmounts, amounts: ResourceAmounts) -> int:
    """Return how many pods of a shape the rest holds, 0 for a shape without a guaranteed resource."""
    amounts = amounts.plus(ONE_POD)
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
