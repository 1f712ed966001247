"""Owns which pods that wait for a node would lose their room to a plan's moves: pods that come first.

It does not own how long somebody waits for them, nor pods that have room nowhere: no move takes any from those.

Two schedules are compared, both made by the same simple rule: where the waiting pods go as the cluster is, and where
they go when the moves have filled their targets and closed their sources. A pod that has a place in the first only is
one whose room the moves would take.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from berth_core.labels import RESERVATION_LABEL, ROOM_TAINT
from berth_core.migration_plans import PlannedMove
from berth_core.objects import Pod, Taint
from berth_core.selectors import untolerated_taint
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.classes import ClassIndex, odd_requests
from berth_descheduler.planner.cluster import Cluster, NodeIndex, PodIndex
from berth_descheduler.planner.quality import RoomMade
from berth_descheduler.planner.room_seekers import is_pending
from berth_descheduler.planner.state import State

_KEPT: Final = Taint(key=ROOM_TAINT, value="of another pod", effect="NoSchedule")
"""What stands on a node where room is made, for whoever it is not made for."""


def starved_pods(snapshot: Snapshot, moves: Sequence[PlannedMove], closed: Iterable[str] = ()) -> tuple[Pod, ...]:
    """Return the waiting pods that have room now and would have none once the moves are made, in their order.

    `closed` names nodes that take no pod meanwhile beside the sources of the moves.
    """
    waiting = waiting_pods(snapshot)
    if not waiting or not moves:
        return ()
    cluster = Cluster.from_snapshot(snapshot, waiting)
    with_room = _Placing(cluster, frozenset()).place()
    shut = {*closed, *(move.source for move in moves)}
    nodes = frozenset(cluster.node_numbers[name] for name in shut if name in cluster.node_numbers)
    left = with_room - _Placing(cluster, nodes, moves).place()
    return tuple(pod for pod in waiting if cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name] in left)


def nodes_for_waiting_pods(snapshot: Snapshot, nodes: Iterable[str]) -> frozenset[str]:
    """Return those of the named nodes on which waiting pods would go, that have room on none of the others."""
    waiting = waiting_pods(snapshot)
    if not waiting:
        return frozenset()
    cluster = Cluster.from_snapshot(snapshot, waiting)
    named = [cluster.node_numbers[name] for name in nodes if name in cluster.node_numbers]
    placing = _Placing(cluster, frozenset())
    placing.place(last=named)
    return frozenset(cluster.node_name(node) for node in named if placing.filled(node))


def pods_competing_for_room(
    snapshot: Snapshot, moves: Sequence[PlannedMove], room: Sequence[RoomMade]
) -> tuple[Pod, ...]:
    """Return the waiting pods that no taint keeps off the room that moves make, in their order."""
    if not moves or not room:
        return ()
    seekers = {one.uid for made in room for one in made.pods}
    others = (pod for pod in waiting_pods(snapshot) if pod.metadata.uid not in seekers)
    waiting = [pod for pod in others if untolerated_taint(pod.spec.tolerations, [_KEPT]) is None]
    if not waiting:
        return ()
    cluster = Cluster.from_snapshot(snapshot, waiting)
    nodes = [cluster.node_numbers[name] for name in sorted({name for made in room for name in made.nodes})]
    placing = _Placing(cluster, frozenset(), moves)
    return tuple(
        pod
        for pod in waiting
        if placing.fits_any(cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name], nodes)
    )


def waiting_pods(snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return the pods that wait for a node by themselves, in the order in which a scheduler would look at them.

    Pods in a hand-over and pods that are nominated to a node are no such pods: their place is counted already.
    """
    found = (pod for pod in snapshot.pods if is_pending(pod) and not pod.status.nominated_node_name)
    return tuple(sorted((pod for pod in found if _is_on_its_own(pod)), key=_rank))


def _is_on_its_own(pod: Pod) -> bool:
    return RESERVATION_LABEL not in pod.metadata.labels and not odd_requests(pod)


def _rank(pod: Pod) -> tuple[int, str, str]:
    return (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.key)


class _Placing:
    """One schedule: every waiting pod in turn goes to the first node that takes it."""

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
        """Per class that stands alone: no node before this one has room; nodes only fill."""

    def place(self, last: Sequence[NodeIndex] = ()) -> frozenset[PodIndex]:
        """Return the waiting pods that find a node; the `last` nodes are tried after all others."""
        nodes = [*self._open_nodes(frozenset(last)), *last]
        waiting = self._cluster.pods_on[self._cluster.waiting_node] if self._cluster.waiting_node is not None else ()
        return frozenset(pod for pod in waiting if self._place(pod, nodes))

    def fits_any(self, pod: PodIndex, nodes: Iterable[NodeIndex]) -> bool:
        """Return whether a waiting pod would find room on one of some nodes, if it came first."""
        class_index = self._cluster.pods[pod].class_index
        return any(self._state.fits(class_index, node) and self._state.refusal(pod, node) is None for node in nodes)

    def filled(self, node: NodeIndex) -> bool:
        """Tell whether a waiting pod went to a node."""
        return any(step.target == node for step in self._state.steps[self._moved :])

    def _open_nodes(self, others: frozenset[NodeIndex]) -> list[NodeIndex]:
        numbers = range(len(self._cluster.nodes))
        shut = self._closed | others | {self._cluster.waiting_node}
        return [NodeIndex(number) for number in numbers if number not in shut]

    def _place(self, pod: PodIndex, nodes: Sequence[NodeIndex]) -> bool:
        class_index = self._cluster.pods[pod].class_index
        alone = self._state.stands_alone(class_index)
        for position in range(self._first_node.get(class_index, 0) if alone else 0, len(nodes)):
            node = nodes[position]
            if self._state.fits(class_index, node) and self._state.refusal(pod, node) is None:
                self._state.move(pod, node)
                self._first_node[class_index] = position
                return True
        self._first_node[class_index] = len(nodes)
        return False
