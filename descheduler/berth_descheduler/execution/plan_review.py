"""Owns the look at the whole cluster before a plan begins and before each of its waves: does it still hold, who waits.

It does not own the rules: those are the planner's. What the plan itself has put on the cluster is looked through: its
taints on the sources, and the places of moves that are to be made yet.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Final, Protocol

import msgspec

from berth_core.labels import MOVE_ANNOTATION, PLACEHOLDER_LABEL, PLAN_LABEL, RESERVATION_LABEL
from berth_core.migration_plans import MigrationPlan, MoveReason, MoveState, PlannedMove
from berth_core.objects import Node, Pod
from berth_core.plan_rooms import Room
from berth_core.reservations import Reservation
from berth_core.snapshot import Snapshot
from berth_descheduler.execution.source_taints import is_taint_of, nodes_to_empty
from berth_descheduler.planner import Invalid, PlannerSettings, revalidate
from berth_descheduler.planner.waiting_pods import starved_pods
from berth_descheduler.plugins.defragmentation import StrategyName
from berth_descheduler.wording import first_few

_NAMES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Review:
    """What a look found."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    """Moves that do not hold any more, by their position in the plan."""

    waiting: tuple[str, ...] = ()
    """Pods (`namespace/name`) that wait for a node and would lose their room to the moves."""


class Reviewer(Protocol):
    """Who looks at the cluster before a wave."""

    def review(self, ahead: Mapping[int, PlannedMove], next_moves: Collection[int], *, budgets: bool = False) -> Review:
        """Return what speaks against the next of the moves that are still to be made; raises a `BerthError`.

        Without `budgets` disruption budgets are left to the eviction, which tries again until its deadline.
        """
        ...


class PlanReview:
    """Looks at the cluster for one plan."""

    def __init__(
        self,
        plan: MigrationPlan,
        planner: PlannerSettings,
        read_snapshot: Callable[[], Snapshot],
        *,
        barred: str = "",
    ) -> None:
        self._barred = barred
        self._name = plan.metadata.name
        self._moves = plan.spec.moves
        self._statuses = plan.move_statuses
        self._begun: set[int] | None = None
        self._accepted: set[int] = set()
        self._planner = planner
        self._read_snapshot = read_snapshot
        self._emptied = _nodes_to_be_emptied_whole(plan)
        self._drained = nodes_to_empty(plan.spec.moves)
        self._served = served_pods(plan.spec.rooms)

    def review(self, ahead: Mapping[int, PlannedMove], next_moves: Collection[int], *, budgets: bool = False) -> Review:
        """Return what speaks against the next of the moves that are still to be made, as the protocol has it."""
        if self._barred:
            return Review(dict.fromkeys(ahead, Invalid(MoveReason.POLICY_MISSING, self._barred)))
        snapshot = without_traces(self._read_snapshot(), self._name, ahead)
        if not budgets:
            snapshot = replaced(snapshot, disruption_budgets=())
        positions = sorted(ahead)
        moves = [ahead[index] for index in positions]
        found = revalidate(
            without_rooms(snapshot, self._name),
            moves,
            self._planner,
            emptied=self._emptied,
            begun=[self._moves[index] for index in sorted(self._begun_before(ahead))],
        )
        invalid = {positions[number]: why for number, why in found.items()}
        self._accepted |= ahead.keys() - invalid.keys()
        begun = [ahead[index] for index in positions if index in next_moves and index not in invalid]
        drained = self._drained if begun else ()
        starved = starved_pods(snapshot, begun, drained)
        return Review(invalid, tuple(pod.key for pod in starved if pod.metadata.uid not in self._served))

    def _begun_before(self, ahead: Collection[int]) -> set[int]:
        """Return the moves that have been begun: at the first look by what is recorded, later by what is not ahead."""
        if self._begun is None:
            skipped = {index for index, status in enumerate(self._statuses) if status.state is MoveState.SKIPPED}
            self._begun = set(range(len(self._moves))).difference(ahead, skipped)
        self._begun |= self._accepted.difference(ahead)
        return self._begun


def served_pods(rooms: Iterable[Room]) -> frozenset[str]:
    """Return the uids of the pods that room is made for: the moves take it from none of these."""
    return frozenset(slot.pod_uid for room in rooms for slot in room.slots if slot.pod_uid)


def names_of(pods: Iterable[str]) -> str:
    """Return the names of pods for a sentence, the first few of many."""
    return first_few(sorted(pods), _NAMES_SHOWN)


def who_waits(pods: Collection[str]) -> str:
    """Return how many pods wait, for a sentence."""
    return "1 pod waits" if len(pods) == 1 else f"{len(pods)} pods wait"


def without_traces(snapshot: Snapshot, plan: str, ahead: Collection[int]) -> Snapshot:
    """Return a snapshot without a plan's taints and without the places that it holds for moves still to be made."""
    positions = {str(index) for index in ahead}
    places = {one.metadata.uid for one in snapshot.reservations if _is_place_of(one, plan, positions)}
    return replaced(
        snapshot,
        nodes=tuple(_without_taints(node, plan) for node in snapshot.nodes),
        reservations=tuple(one for one in snapshot.reservations if one.metadata.uid not in places),
        pods=tuple(pod for pod in snapshot.pods if not _holds_one_of(pod, places)),
    )


def without_rooms(snapshot: Snapshot, plan: str) -> Snapshot:
    """Return a snapshot without the places that wait for the room which a plan makes: moves may pass them by."""
    rooms = {one.metadata.uid for one in snapshot.reservations if one.plan == plan and one.awaits_room}
    return replaced(
        snapshot,
        reservations=tuple(one for one in snapshot.reservations if one.metadata.uid not in rooms),
        pods=tuple(pod for pod in snapshot.pods if pod.spec.node_name or not _holds_one_of(pod, rooms)),
    )


def _nodes_to_be_emptied_whole(plan: MigrationPlan) -> tuple[str, ...] | None:
    """Return the sources that are left alone if one pod stays, None for all; where room is made, none is."""
    if plan.spec.objective.strategy == StrategyName.MAKE_ROOM:
        return ()
    return None if plan.spec.predicted is None else plan.spec.predicted.freed_nodes


def _is_place_of(reservation: Reservation, plan: str, positions: Collection[str]) -> bool:
    metadata = reservation.metadata
    return metadata.labels.get(PLAN_LABEL) == plan and metadata.annotations.get(MOVE_ANNOTATION) in positions


def _holds_one_of(pod: Pod, places: Collection[str]) -> bool:
    return PLACEHOLDER_LABEL in pod.metadata.labels and pod.metadata.labels.get(RESERVATION_LABEL) in places


def _without_taints(node: Node, plan: str) -> Node:
    kept = tuple(taint for taint in node.spec.taints if not is_taint_of(plan, taint))
    if len(kept) == len(node.spec.taints):
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=kept))
