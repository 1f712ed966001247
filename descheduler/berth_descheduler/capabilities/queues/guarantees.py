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
    ONE_POD,
    PLACEHOLDER_LABEL,
    PODS,
    RESERVATION_LABEL,
    TASK_ANNOTATION,
    InputError,
    Pod,
    PodSpec,
    Queue,
    QueueSource,
    ResourceAmounts,
    Snapshot,
    first_few,
    readable_requests,
)
from berth_descheduler.capabilities.queues.members import (
    QueueKey,
    QueueMembers,
    find_queue,
    label_queues,
    queue_families,
)
from berth_descheduler.planner import CapacityShape, NodeIndex, is_pending, write_shape
from berth_descheduler.planner.pending_pods import serving_order
from berth_descheduler.planner.rooms import GuaranteedRoom, RoomOwners, Shape
from berth_descheduler.planner.simulation import Cluster, NodeTies, node_part, node_refusal

_NAMED: Final = 5
_MOST_SHAPES: Final = 8
"""The most shapes of a queue; those of waiting pods come first, then the most frequent."""

_NONE: Final = Fraction(0)


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
        used_amounts = self.allocated.plus(self.held)
        amounts_left = {name: amount - used_amounts.get(name) for name, amount in self.queue.guarantee.items()}
        return ResourceAmounts({name: max(0, amount) for name, amount in amounts_left.items()})

    @property
    def usable(self) -> ResourceAmounts:
        """Return what whole pods of the shapes would use of what is left, had every node room."""
        return self._of_guarantee(
            queue_shape.shape.amounts.plus(ONE_POD).times(queue_shape.wanted) for queue_shape in self.shapes
        )

    @property
    def placeable(self) -> ResourceAmounts:
        """Return what the pods that the nodes have room for would use of what is left."""
        return self._of_guarantee(
            queue_shape.shape.amounts.plus(ONE_POD).times(queue_shape.placeable) for queue_shape in self.shapes
        )

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
        return sum(queue_shape.wanted for queue_shape in self.shapes)

    @property
    def placed(self) -> int:
        return sum(queue_shape.placeable for queue_shape in self.shapes)

    def _of_guarantee(self, several: Iterable[ResourceAmounts]) -> ResourceAmounts:
        total = ResourceAmounts.total(several)
        return ResourceAmounts({name: total.get(name) for name, _ in self.queue.guarantee.items()})


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

        return sorted(self.ties, key=rank)[:_MOST_SHAPES]

    def describe(self, key: _Key) -> str:
        waiting = len(self.waiting.get(key, ())) + self.lacking[key]
        numbers = {"waiting": waiting, "placed": self.placed[key], "held": self.slots[key]}
        return " and ".join(f"{number} {state}" for state, number in numbers.items() if number)

    def _number(self, key: _Key) -> int:
        return self.placed[key] + self.slots[key] + self.lacking[key] + len(self.waiting.get(key, ()))


def _name_of(key: _Key) -> tuple[str, bytes]:
    return write_shape(key[0]), key[1]


def measure_queues(snapshot: Snapshot, only: Queue | None = None) -> tuple[QueueCapacity, ...]:
    """Return the queues that have a guarantee, and those whose is not known or does not count; or `only` one of them.

    Of the snapshot nodes, pods, namespaces, reservations and groups are looked at. Costs nothing without such queues.
    """
    queues = snapshot.queues
    asked_queues = [queue for queue in queues if queue.guarantee or queue.unreadable or queue.refused]
    asked_queues = [queue for queue in asked_queues if only is None or queue.key == only.key]
    if not asked_queues:
        return ()
    cluster = Cluster.from_snapshot(snapshot)
    # Rows of whole numbers in the order of `cluster.column`, and no amounts by name: a queue of many shapes looks at
    # each node once for each of them.
    free_rows = [
        list(map(int.__sub__, capacity, used)) for capacity, used in zip(cluster.capacity, cluster.taken, strict=True)
    ]
    is_closed = [node_refusal(cluster, NodeIndex(node)) is not None for node in range(len(free_rows))]
    use_of_queue = _uses(cluster, queue_families(queues), frozenset(queue.key for queue in asked_queues))
    labels = label_queues(queues)
    capacities = (
        (QueueCapacity(queue, labels[queue.key], *use_of_queue[queue.key].amounts, ()), use_of_queue[queue.key])
        for queue in asked_queues
    )
    return tuple(_measure(cluster, free_rows, is_closed, queue_capacity, use) for queue_capacity, use in capacities)


def room_of_guarantee(snapshot: Snapshot, name: str, owners: RoomOwners | None) -> GuaranteedRoom:
    """Return what is left of the guarantee of a queue, as what room can be made for.

    The queue's waiting pods are meant themselves, as many as the rest of the guarantee holds; what more it holds is
    meant as shapes. Of these only those go to any node that pods without constraints go to. Raises `InputError` for a
    queue that is not known or has no guarantee.
    """
    queue = find_queue(snapshot, name)
    if queue.unreadable or not queue.guarantee:
        wanted_guarantee = f"a guarantee that counts: {queue.refused}" if queue.refused else "a queue with a guarantee"
        raise InputError("room.queue", name, queue.unreadable or wanted_guarantee)
    # A queue of Berth is chosen by the namespace of a pod, so owners in another namespace would never count in it.
    # Volcano's queues are named by the pod group, from any namespace.
    if owners is not None and queue.source is QueueSource.BERTH:
        namespaces = QueueMembers(snapshot).namespaces_of(queue)
        if owners.namespace not in namespaces:
            expected = f"a namespace of the queue: {first_few(namespaces, _NAMED) or 'it has none'}"
            raise InputError("room.owners.namespace", owners.namespace, expected)
    pods: list[tuple[str, str]] = []
    shapes: list[Shape] = []
    for queue_shape in measure_queues(snapshot, queue)[0].shapes:
        # A nominated pod waits only for its victims to end: room was made for it by preemption, and is in `promised`
        # already.
        without_place = [pod for pod in queue_shape.waiting if is_pending(pod) and not pod.status.nominated_node_name]
        waiting = without_place[: queue_shape.wanted]
        pods += ((pod.metadata.namespace, pod.metadata.name) for pod in waiting)
        shapes_left = queue_shape.wanted - max(len(waiting), min(queue_shape.wanted, len(queue_shape.waiting)))
        # A Reservation for future pods holds slots that any of them may take; slots with a node selector would need its
        # template.
        if shapes_left and queue_shape.shape.ties == node_part(PodSpec()):
            shapes.append(Shape(queue_shape.shape.amounts, shapes_left, queue_shape.shape.name))
    counted_in, home = _reserved(snapshot, queue)
    return GuaranteedRoom(tuple(pods), tuple(shapes), queue=counted_in, namespace=home)


def _reserved(snapshot: Snapshot, queue: Queue) -> tuple[str, str]:
    """Return the queue that Reservations for a queue name, and the namespace where one without owners is.

    What a Reservation holds counts in Volcano's queue that it names, and in Berth's queue of its namespace.
    """
    if queue.source is QueueSource.VOLCANO:
        return queue.name, ""
    return "", next(iter(QueueMembers(snapshot).namespaces_of(queue)), "")


def _uses(
    cluster: Cluster, families: Mapping[QueueKey, tuple[QueueKey, ...]], asked: frozenset[QueueKey]
) -> Mapping[QueueKey, _Use]:
    members = QueueMembers(cluster.snapshot)
    templates = _templates(cluster.snapshot)
    use_of_queue = {key: _Use() for key in asked}
    for pod, node in _pods(cluster):
        for queue in members.queues_of(pod):
            # Of what pods use elsewhere Berth's queues are guaranteed nothing.
            counts = queue[0] is QueueSource.VOLCANO or pod.spec.node_name in cluster.snapshot.offered_to_queues
            is_held = members.is_held(pod, queue)
            for key in asked.intersection(families.get(queue, (queue,))):
                _add(use_of_queue[key], pod, node, templates, counts=counts, is_held=is_held)
    return use_of_queue


def _pods(cluster: Cluster) -> Iterator[tuple[Pod, NodeIndex | None]]:
    """Yield the pods that have or want a place, with the node that is theirs or promised to them."""
    yield from ((placed_pod.pod, placed_pod.node) for placed_pod in cluster.pods)
    yield from ((pod, None) for pod in cluster.elsewhere if not pod.spec.node_name and not pod.is_terminating)


def _templates(snapshot: Snapshot) -> Mapping[tuple[str, str], PodSpec]:
    """Return the specs of all slots: placeholders themselves are pinned to their nodes."""
    return {
        (reservation.metadata.uid, task.name): task.template.spec
        for reservation in snapshot.reservations
        for task in reservation.spec.tasks
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
    # Affinities are structs with lists and maps in them, which have no hash; their JSON has one.
    key = amounts, msgspec.json.encode(ties, order="sorted")
    use.ties[key] = ties
    if waits and is_held:
        use.lacking[key] += 1
    elif waits:
        use.waiting.setdefault(key, []).append(pod)
    else:
        (use.slots if is_held else use.placed)[key] += 1


def _measure(
    cluster: Cluster, free: Sequence[Sequence[int]], closed: Sequence[bool], capacity: QueueCapacity, use: _Use
) -> QueueCapacity:
    """Return what the pods of a queue could use of its guarantee."""
    keys = use.ordered()
    wanted = _wanted(capacity.queue, capacity.left, keys, use)
    rows = [list(row) for row in free]
    for node, amounts in use.promised:
        _give_back(cluster, rows[node], amounts)
    pods_placed = {}
    # First-fit decreasing: small pods still fit into what large ones leave, not the other way round.
    for key in sorted(keys, key=lambda key: (-_size(cluster, key[0]), _name_of(key))):
        open_to = NodeTies(use.ties[key], ())
        nodes = [not shut and open_to.refusal(node) is None for shut, node in zip(closed, cluster.nodes, strict=True)]
        pods_placed[key] = _pack(cluster, rows, nodes, key[0], wanted[key])
    shapes = (
        QueueShape(
            shape=CapacityShape(write_shape(key[0]), key[0], use.ties[key], use.describe(key)),
            waiting=tuple(sorted(use.waiting.get(key, ()), key=serving_order)),
            wanted=wanted[key],
            placeable=sum(pods_placed[key]),
            nodes=len(pods_placed[key]),
        )
        for key in keys
    )
    return replace(capacity, shapes=tuple(shapes))


def _wanted(queue: Queue, left: ResourceAmounts, keys: Sequence[_Key], use: _Use) -> Mapping[_Key, int]:
    """Return how many pods of each shape the rest of a guarantee holds.

    First those that wait, then as many more of each shape in turn.
    """
    wanted: Counter[_Key] = Counter()
    for of_waiting in (True, False):
        for key in keys:
            pods_held = _holds(queue.guarantee, left, key[0])
            number = min(pods_held, len(use.waiting.get(key, ()))) if of_waiting else pods_held
            wanted[key] += number
            left = left.minus(key[0].plus(ONE_POD).times(number))
    return wanted


def _holds(guarantee: ResourceAmounts, left: ResourceAmounts, amounts: ResourceAmounts) -> int:
    """Return how many pods of a shape the rest holds, 0 for a shape without a guaranteed resource."""
    amounts = amounts.plus(ONE_POD)
    pairs = ((left.get(name), amounts.get(name)) for name, _ in guarantee.items())
    return min((max(0, left_amount) // need for left_amount, need in pairs if need > 0), default=0)


def _size(cluster: Cluster, amounts: ResourceAmounts) -> Fraction:
    """Return the largest share of the cluster's resources that a shape takes; larger ones are placed first."""
    total_amounts = {name: sum(row[column] for row in cluster.capacity) for name, column in cluster.column.items()}
    return max(
        (Fraction(amount, total_amounts[name]) for name, amount in amounts.items() if total_amounts.get(name)),
        default=_NONE,
    )


def _pack(
    cluster: Cluster, rows: Sequence[list[int]], takes: Sequence[bool], amounts: ResourceAmounts, wanted: int
) -> list[int]:
    """Return how many of up to `wanted` pods each node gets that gets any; takes that off the rows."""
    needs = [(cluster.column.get(name), need) for name, need in amounts.items() if need > 0]
    if any(column is None for column, _ in needs):
        return []
    columns = [(column, need) for column, need in needs if column is not None]
    columns.append((cluster.column[PODS], 1))
    pods_per_node = []
    for row, is_open in zip(rows, takes, strict=True):
        # A node may be over-booked, as after an in-place resize; its row is then negative.
        number = min(wanted, *(max(0, row[column]) // need for column, need in columns)) if is_open else 0
        if number:
            pods_per_node.append(number)
            wanted -= number
            for column, need in columns:
                row[column] -= need * number
    return pods_per_node


def _give_back(cluster: Cluster, row: list[int], amounts: ResourceAmounts) -> None:
    """Free a promised place for those to whom it was promised."""
    row[cluster.column[PODS]] += 1
    for name, amount in amounts.items():
        row[cluster.column[name]] += amount
