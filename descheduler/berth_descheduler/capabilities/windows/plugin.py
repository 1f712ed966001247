"""The balance plugin `ReservationWindows`: moves pods off the nodes that windows wait for.

It serves windows with `mayMove: Consolidate`. Their nodes are chosen and fenced by the operator, so what a move frees
there goes to the window. Pods that end by themselves before the window starts are left to end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from msgspec.structs import replace as with_fields

from berth_core import (
    CHOSEN_NODE_ANNOTATION,
    MAY_MOVE_ANNOTATION,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    STANDING_FENCE_LABEL,
    WINDOW_LABEL,
    WINDOW_MOVES,
    WINDOW_START_ANNOTATION,
    Deadline,
    MayMove,
    Node,
    Objective,
    Pod,
    PodEnds,
    Reservation,
    Snapshot,
    Taint,
    Toleration,
    read_timestamp,
    refuse_unknown,
)
from berth_descheduler.goals.move_pods.goal import MovePodsGoal
from berth_descheduler.planner import EvictableNamespaces, NodeIndex, Problem, Proposal, State, Strategy
from berth_descheduler.planner.pending_pods import no_gang
from berth_descheduler.planner.standing_fences import standing_fences

ARGUMENTS: Final[Mapping[str, str]] = {
    "namespaces": "Namespaces whose windows are served: a list `include` or a list `exclude`; all by default.",
}
"""Each argument with its meaning, as the reference page shows it."""

_AWAITED: Final = Taint(key=WINDOW_LABEL, effect="NoSchedule")
"""Stands for a fence while moves are searched for: only the slots tolerate it."""


@dataclass(frozen=True, slots=True)
class ReservationWindows:
    """Moves pods off the nodes of windows that allow it."""

    goal: ClassVar[MovePodsGoal] = MovePodsGoal()

    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "ReservationWindows":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        refuse_unknown("args", args, ARGUMENTS)
        return cls(EvictableNamespaces.of_argument(args.get("namespaces")))

    def strategy(self, deadline: Deadline) -> Strategy:
        from berth_descheduler.goals.make_room.strategy import MakeRoom  # noqa: PLC0415 - numpy takes a while to import

        return _Consolidation(MakeRoom(deadline=deadline, gangs=no_gang), self.namespaces)

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=WINDOW_MOVES, strategy=WINDOW_MOVES, args={"namespaces": self.namespaces.to_mapping()})


@dataclass(frozen=True, slots=True)
class _Slot:
    """A placeholder that waits on a fenced node for room that moves may make."""

    pod: Pod
    reservation: Reservation
    node: str

    @property
    def start(self) -> datetime | None:
        return read_timestamp(self.reservation.metadata.annotations.get(WINDOW_START_ANNOTATION))


@dataclass(frozen=True, slots=True)
class _Consolidation:
    """Asks `MakeRoom` for the moves by which the waiting slots fit."""

    make_room: Strategy
    namespaces: EvictableNamespaces

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return none: slots count on their nodes, for which they wait."""
        return ()

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return self.make_room.possible_sources(problem) if self._slots(problem) else ()

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the fewest moves by which slots fit, and why others do not."""
        snapshot = problem.cluster.snapshot
        slots = self._slots(problem)
        if not slots:
            return Proposal((), ())
        waiting = [_tolerating(slot.pod) for slot in slots]
        asked = _as_asked(snapshot, slots, problem.settings.run.now)
        # Pods that end in time are absent from the snapshot, and their controllers must not look short of pods by that.
        free = (pod.key for pod in snapshot.pods if problem.availability.refusal(pod) is None)
        asked = replace(asked, leaving_freely=snapshot.leaving_freely.union(free))
        review = Problem.to_review(asked, problem.settings, waiting)
        numbers = review.cluster.pod_numbers
        kept = {_key(problem.cluster.pods[index].pod): refusal for index, refusal in problem.kept.items()}
        review = review.keeping({numbers[key]: refusal for key, refusal in kept.items() if key in numbers})
        review = review.wishing(problem.wishes)
        proposal = self.make_room.propose(review, State(review.cluster, self.make_room.possible_sources(review)))
        windows = {slot.node: slot.reservation.key for slot in slots}
        reasons = {}
        for step in proposal.steps:
            pod = problem.cluster.pod_numbers[_key(review.cluster.pods[step.pod].pod)]
            if problem.cluster.node_name(step.target) in windows:
                continue  # the pod tolerates every taint, but the real fence will not let it in
            state.move(pod, step.target)
            window = windows.get(problem.cluster.node_name(step.source))
            reasons[pod] = f"{WINDOW_MOVES}: " + (f"{window} waits for the node" if window else "it is in the way")
        return Proposal(state.steps, proposal.refused, reasons=reasons)

    def _slots(self, problem: Problem) -> tuple[_Slot, ...]:
        waiting_slots = _slots(problem.cluster.snapshot, self.namespaces)
        return tuple(
            slot for slot in waiting_slots if slot.pod.metadata.namespace == problem.settings.scope.own_namespace
        )


def _slots(snapshot: Snapshot, namespaces: EvictableNamespaces) -> Iterator[_Slot]:
    """Yield the slots that wait on nodes with a fence: without one, others would take what moves free."""
    serving = {
        reserved.metadata.uid: reserved
        for reserved in snapshot.reservations
        if reserved.is_live and namespaces.allows(reserved.metadata.namespace)
        if reserved.metadata.annotations.get(MAY_MOVE_ANNOTATION) == MayMove.CONSOLIDATE
    }
    fenced = standing_fences(snapshot) if serving else frozenset()
    for pod in snapshot.pods:
        if PLACEHOLDER_LABEL not in pod.metadata.labels or pod.spec.node_name or pod.is_terminal or pod.is_terminating:
            continue
        reservation = serving.get(pod.metadata.labels.get(RESERVATION_LABEL, ""))
        node = pod.metadata.annotations.get(CHOSEN_NODE_ANNOTATION, "")
        if reservation is not None and node in fenced:
            yield _Slot(pod, reservation, node)


def _as_asked(snapshot: Snapshot, slots: tuple[_Slot, ...], now: datetime | None) -> Snapshot:
    """Return the snapshot as the slots meet it: a taint stands for the fences, and pods that end in time are absent."""
    starts = {slot.node: slot.start for slot in slots}
    end_of = PodEnds(snapshot.pod_groups).of

    def ends(pod: Pod) -> bool:
        start = starts.get(pod.spec.node_name)
        end = end_of(pod) if start is not None else None
        # A pod that ends before the window begins need not be moved. One whose expected end is past has overrun it, and
        # may go on running.
        return start is not None and end is not None and end <= start and (now is None or end > now)

    def fences(pod: Pod) -> bool:
        return pod.spec.node_name in starts and STANDING_FENCE_LABEL in pod.metadata.labels

    nodes = tuple(_tainted(node) if node.metadata.name in starts else node for node in snapshot.nodes)
    return replace(snapshot, nodes=nodes, pods=tuple(pod for pod in snapshot.pods if not ends(pod) and not fences(pod)))


def _tainted(node: Node) -> Node:
    return with_fields(node, spec=with_fields(node.spec, taints=(*node.spec.taints, _AWAITED)))


def _tolerating(pod: Pod) -> Pod:
    tolerations = (*pod.spec.tolerations, Toleration(key=_AWAITED.key, operator="Exists"))
    return with_fields(pod, spec=with_fields(pod.spec, tolerations=tolerations))


def _key(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name
