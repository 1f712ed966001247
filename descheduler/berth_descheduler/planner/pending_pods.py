"""Pending pods that a plan makes room for, or takes room from.

Two simulated schedules are compared: on the cluster as it is, and after the moves have filled their targets and closed
their sources. The moves would take the room of a pod that has a place in the first only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from berth_core import (
    GROUP_NAME_ANNOTATION,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    ROOM_TAINT,
    PlannedMove,
    Pod,
    Snapshot,
    Taint,
    untolerated_taint,
)
from berth_descheduler.planner.rooms import RoomMade, WaitingPod
from berth_descheduler.planner.simulation import (
    ClassIndex,
    Cluster,
    KeptReadings,
    NodeIndex,
    PodIndex,
    State,
    odd_requests,
)

SHAPE_NAMESPACE: Final = "(shape)"
"""The namespace of pods that represent shapes: no cluster can have it."""

_GROUP_KEYS: Final = (GROUP_NAME_ANNOTATION, "scheduling.x-k8s.io/pod-group")
"""Annotations or labels by which batch schedulers know the pods of a gang."""


GangOf: TypeAlias = Callable[[Pod], tuple[str, str] | None]
"""Returns the namespace and the name of what a pod is only useful with; None if it is useful alone."""


def is_pending(pod: Pod) -> bool:
    """Return whether a pod waits for room; placeholders are their Reservation's matter."""
    # A gated pod is not in the scheduler's queue yet (KEP-3521), whatever room there is.
    waits = not pod.spec.node_name and not pod.is_terminal and not pod.is_terminating and not pod.is_gated
    return waits and PLACEHOLDER_LABEL not in pod.metadata.labels


def gang_of(pod: Pod) -> tuple[str, str] | None:
    """Return the gang of a pod: its namespace and the group's name."""
    values = (pod.metadata.annotations.get(key) or pod.metadata.labels.get(key) for key in _GROUP_KEYS)
    name = next((value for value in values if value), None)
    return None if name is None else (pod.metadata.namespace, name)


def no_gang(_pod: Pod) -> None:
    """Return None: each pod is of use alone."""


def room_on(pod: Pod, node: str) -> RoomMade:
    """Return the room of a pending pod on a node."""
    gang, meta = gang_of(pod), pod.metadata
    return RoomMade(
        name=pod.key,
        wanted=1,
        fitted=1,
        fits_before=0,
        fits_after=1,
        nodes=(node,),
        pods=(WaitingPod(meta.namespace, meta.name, meta.uid),),
        gang=gang[1] if gang else "",
    )


def without_served(rooms: Iterable[RoomMade], served: Collection[str]) -> Iterator[RoomMade]:
    """Yield rooms without the pods that did not fit and are served by now, by uid."""
    for room in rooms:
        pods_left = tuple(pod for pod in room.pods[room.fitted :] if pod.uid not in served)
        if pods_wanted := room.fitted + len(pods_left):
            yield replace(room, wanted=pods_wanted, pods=(*room.pods[: room.fitted], *pods_left))


_KEPT: Final = Taint(key=ROOM_TAINT, value="of another pod", effect="NoSchedule")
"""A taint for nodes where room is made: it keeps off the pods that the room is not for."""


def pods_losing_room(
    snapshot: Snapshot,
    moves: Sequence[PlannedMove],
    closed: Iterable[str] = (),
    kept: KeptReadings | None = None,
) -> tuple[Pod, ...]:
    """Return the waiting pods that would lose room to the moves, in scheduling order.

    `closed` names nodes that take no pod meanwhile beside the sources of the moves; `kept` is what was read of an
    earlier snapshot.
    """
    waiting = waiting_pods(snapshot)
    if not waiting or not moves:
        return ()
    cluster = Cluster.from_snapshot(snapshot, waiting, kept=kept)
    with_room = _Placing(cluster, frozenset()).place()
    shut = {*closed, *(move.source for move in moves)}
    nodes = frozenset(cluster.node_numbers[name] for name in shut if name in cluster.node_numbers)
    losing_room = with_room - _Placing(cluster, nodes, moves).place()
    return tuple(
        pod for pod in waiting if cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name] in losing_room
    )


def nodes_for_waiting_pods(snapshot: Snapshot, nodes: Iterable[str]) -> frozenset[str]:
    """Return which of the named nodes waiting pods need, as no other node has room for them."""
    waiting = waiting_pods(snapshot)
    if not waiting:
        return frozenset()
    cluster = Cluster.from_snapshot(snapshot, waiting)
    named_nodes = [cluster.node_numbers[name] for name in nodes if name in cluster.node_numbers]
    placing = _Placing(cluster, frozenset())
    placing.place(last=named_nodes)
    return frozenset(cluster.node_name(node) for node in named_nodes if placing.filled(node))


def pods_competing_for_room(
    snapshot: Snapshot, moves: Sequence[PlannedMove], room: Sequence[RoomMade]
) -> tuple[Pod, ...]:
    """Return the waiting pods that no taint keeps off a plan's room, in scheduling order."""
    if not moves or not room:
        return ()
    seekers = {waiting_pod.uid for room_made in room for waiting_pod in room_made.pods}
    other_pods = (pod for pod in waiting_pods(snapshot) if pod.metadata.uid not in seekers)
    waiting = [pod for pod in other_pods if untolerated_taint(pod.spec.tolerations, [_KEPT]) is None]
    if not waiting:
        return ()
    cluster = Cluster.from_snapshot(snapshot, waiting)
    nodes = [cluster.node_numbers[name] for name in sorted({name for room_made in room for name in room_made.nodes})]
    placing = _Placing(cluster, frozenset(), moves)
    return tuple(
        pod
        for pod in waiting
        if placing.fits_any(cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name], nodes)
    )


def waiting_pods(snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return the waiting pods in scheduling order.

    Pods in a hand-over and pods with a nominated node are not among them: their place is counted already.
    """
    unbound_pods = (pod for pod in snapshot.pods if not pod.spec.node_name)  # few, so the rest is asked of these only
    not_nominated = (pod for pod in unbound_pods if is_pending(pod) and not pod.status.nominated_node_name)
    return tuple(sorted((pod for pod in not_nominated if _is_on_its_own(pod)), key=serving_order))


def _is_on_its_own(pod: Pod) -> bool:
    return RESERVATION_LABEL not in pod.metadata.labels and not odd_requests(pod)


def serving_order(pod: Pod) -> tuple[int, str, str]:
    """Return the sort key by which waiting pods are served: higher priority first, then the older."""
    # As the plugin PrioritySort, which goes by the time of entering the queue: the pods' age stands for that here.
    return (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.key)


class _Placing:
    """Simulates a first-fit schedule of the waiting pods."""

    def __init__(self, cluster: Cluster, closed: frozenset[NodeIndex], moves: Sequence[PlannedMove] = ()) -> None:
        self._cluster = cluster
        self._state = State(cluster)
        self._closed = closed
        for move in moves:
            pod = cluster.pod_numbers.get((move.namespace, move.pod))
            target = cluster.node_numbers.get(move.target)
            if pod is not None and target is not None:
                self._state.move(pod, target)
        self._moved = self._state.mark()
        self._first_node: dict[ClassIndex, int] = {}
        """Per independent class: no node before this one has room, as nodes only fill."""

    def place(self, last: Sequence[NodeIndex] = ()) -> frozenset[PodIndex]:
        """Return the waiting pods that find a node; the `last` nodes are tried after all others."""
        nodes = [*self._open_nodes(frozenset(last)), *last]
        waiting = self._cluster.pods_on[self._cluster.waiting_node] if self._cluster.waiting_node is not None else ()
        return frozenset(pod for pod in waiting if self._place(pod, nodes))

    def fits_any(self, pod: PodIndex, nodes: Iterable[NodeIndex]) -> bool:
        """Return whether a waiting pod would fit on one of the nodes if it came before the other waiting pods."""
        class_index = self._cluster.pods[pod].class_index
        return any(self._state.fits(class_index, node) and self._state.refusal(pod, node) is None for node in nodes)

    def filled(self, node: NodeIndex) -> bool:
        """Return whether a waiting pod went to a node."""
        return any(step.target == node for step in self._state.steps[self._moved :])

    def _open_nodes(self, others: frozenset[NodeIndex]) -> list[NodeIndex]:
        numbers = range(len(self._cluster.nodes))
        shut = self._closed | others | {self._cluster.waiting_node}
        return [NodeIndex(number) for number in numbers if number not in shut]

    def _place(self, pod: PodIndex, nodes: Sequence[NodeIndex]) -> bool:
        class_index = self._cluster.pods[pod].class_index
        is_independent = self._state.is_independent(class_index)
        for position in range(self._first_node.get(class_index, 0) if is_independent else 0, len(nodes)):
            node = nodes[position]
            if self._state.fits(class_index, node) and self._state.refusal(pod, node) is None:
                self._state.move(pod, node)
                self._first_node[class_index] = position
                return True
        self._first_node[class_index] = len(nodes)
        return False
