"""Reviews a plan on the whole cluster, before it begins and before its moves begin.

A review ignores what the plan itself has put on the cluster: its taints on the sources, and the places of moves that
are still ahead.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from berth_core import (
    MOVE_ANNOTATION,
    PLACEHOLDER_LABEL,
    PLAN_LABEL,
    RESERVATION_LABEL,
    MigrationPlan,
    MoveMethod,
    MoveReason,
    MoveState,
    Node,
    PlannedMove,
    Reservation,
    Snapshot,
)
from berth_descheduler.migration.nodes.plan_taints import is_taint_of, nodes_to_empty
from berth_descheduler.migration.validation.pending_pods import served_pods
from berth_descheduler.migration.validation.pending_replacements import is_owned_by, owners_of
from berth_descheduler.migration.validation.revalidation import Invalid, UnderWay, revalidate
from berth_descheduler.planner import PlannerSettings, pods_losing_room, with_surges
from berth_descheduler.planner.simulation import KeptReadings
from berth_descheduler.plugins import goal_of


@dataclass(frozen=True, slots=True)
class Review:
    """The findings of one validation."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    """Moves that are no longer valid, by their position in the plan."""

    waiting: tuple[str, ...] = ()
    """Pending pods (`namespace/name`) that would lose their room to the moves."""


class PlanValidator:
    """Validates the moves of one plan."""

    def __init__(
        self,
        plan: MigrationPlan,
        planner: PlannerSettings,
        read_snapshot: Callable[[], Snapshot],
        *,
        blocked_reason: str = "",
    ) -> None:
        self._blocked_reason = blocked_reason
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
        self._kept = KeptReadings()

    @property
    def most_at_once(self) -> int:
        """Return how many moves the policy allows in a wave."""
        return self._planner.limits.waves.per_wave

    def review(
        self,
        ahead: Mapping[int, PlannedMove],
        next_moves: Collection[int],
        *,
        budgets: bool = False,
        under_way: Mapping[int, PlannedMove] | None = None,
        waiting: Collection[int] = (),
    ) -> Review:
        """Return what speaks against the next of the remaining moves; raises `BerthError`.

        Without `budgets`, these and pods that their controllers lack are left to the eviction, which tries again until
        its deadline. Moves that are under way are ahead as well until their pods leave; others are `waiting` for some
        of them.
        """
        if self._blocked_reason:
            return Review(dict.fromkeys(ahead, Invalid(MoveReason.POLICY_MISSING, self._blocked_reason)))
        whole_snapshot = self._read_snapshot()
        begun_moves = under_way or {}
        ahead = _still_ahead(whole_snapshot, ahead, begun_moves)
        snapshot = without_plan_objects(whole_snapshot, self._name, ahead)
        if not budgets:
            # Budgets move within seconds, and the eviction API asks them again under its own lock: a refusal here would
            # skip a move for a shortage that passes.
            moved_pods = frozenset(f"{move.namespace}/{move.pod}" for move in ahead.values())
            snapshot = snapshot.replace_in_order(disruption_budgets=(), leaving_freely=moved_pods)
        elif any(move.method is MoveMethod.SURGE for move in ahead.values()):
            snapshot = with_surges(snapshot)
        positions = sorted(ahead)
        moves = [ahead[index] for index in positions]
        refusals = revalidate(
            without_rooms(snapshot, self._name),
            moves,
            self._planner,
            emptied=self._emptied,
            begun=[self._moves[index] for index in sorted(self._begun_before(ahead).union(begun_moves))],
            beside=UnderWay(
                moves=frozenset(move_number for move_number, index in enumerate(positions) if index in begun_moves),
                waiting=frozenset(move_number for move_number, index in enumerate(positions) if index in waiting),
                leaving=tuple(move for index, move in begun_moves.items() if index not in ahead),
            ),
            kept=self._kept,
        )
        invalid = {positions[move_number]: invalid_move for move_number, invalid_move in refusals.items()}
        self._accepted |= ahead.keys() - invalid.keys()
        beginning_moves = [ahead[index] for index in positions if index in next_moves and index not in invalid]
        drained_nodes = self._drained if beginning_moves else ()
        # Moves under way have their places, which count as taken; for the others the room is still open to any pod.
        waiting_pods = pods_losing_room(
            without_plan_objects(whole_snapshot, self._name, ahead.keys() - begun_moves.keys()),
            beginning_moves,
            drained_nodes,
            self._kept,
        )
        # A pod made again after an eviction without a place waits because of this plan, which goes on all the same.
        evicted = (move for index, move in enumerate(self._moves) if move.is_eviction and index not in ahead)
        owners = owners_of(evicted)
        waiting_keys = (
            pod.key for pod in waiting_pods if pod.metadata.uid not in self._served and not is_owned_by(pod, owners)
        )
        return Review(invalid, tuple(waiting_keys))

    def _begun_before(self, ahead: Collection[int]) -> set[int]:
        """Return the positions of moves that have begun: at first those recorded, later also those no longer ahead."""
        if self._begun is None:
            skipped_indices = {
                index for index, status in enumerate(self._statuses) if status.state is MoveState.SKIPPED
            }
            self._begun = set(range(len(self._moves))).difference(ahead, skipped_indices)
        self._begun |= self._accepted.difference(ahead)
        return self._begun


def _still_ahead(
    snapshot: Snapshot, ahead: Mapping[int, PlannedMove], under_way: Mapping[int, PlannedMove]
) -> Mapping[int, PlannedMove]:
    """Return the moves ahead, without moves under way whose pods have left since and later moves of the same pods."""
    if not under_way:
        return ahead
    begun_uids = {move.pod_uid for move in under_way.values()}
    begun_pods = [pod for pod in snapshot.pods if pod.metadata.uid in begun_uids]
    present_uids = {pod.metadata.uid for pod in begun_pods if not pod.is_terminating and pod.controller is not None}
    moved_away = {(move.namespace, move.pod) for move in under_way.values() if move.pod_uid not in present_uids}
    return {index: move for index, move in ahead.items() if (move.namespace, move.pod) not in moved_away}


def without_plan_objects(snapshot: Snapshot, plan: str, ahead: Collection[int]) -> Snapshot:
    """Return a snapshot without a plan's taints and without the places reserved for its moves ahead."""
    positions = {str(index) for index in ahead}
    places = {
        reservation.metadata.uid for reservation in snapshot.reservations if _is_place_of(reservation, plan, positions)
    }
    return _without_placeholders(snapshot, places).replace_in_order(
        nodes=tuple(_without_taints(node, plan) for node in snapshot.nodes),
        reservations=tuple(
            reservation for reservation in snapshot.reservations if reservation.metadata.uid not in places
        ),
    )


def without_rooms(snapshot: Snapshot, plan: str) -> Snapshot:
    """Return a snapshot without the Reservations that wait for a plan's rooms."""
    rooms = {
        reservation.metadata.uid
        for reservation in snapshot.reservations
        if reservation.plan == plan and reservation.awaits_room
    }
    return _without_placeholders(snapshot, rooms, only_unbound=True).replace_in_order(
        reservations=tuple(
            reservation for reservation in snapshot.reservations if reservation.metadata.uid not in rooms
        )
    )


def _nodes_to_be_emptied_whole(plan: MigrationPlan) -> tuple[str, ...] | None:
    """Return the sources that keep all pods if one pod stays, None for all sources.

    With a goal that takes single pods off nodes there are none.
    """
    if not goal_of(plan.spec.objective).empties_nodes:
        return ()
    return None if plan.spec.predicted is None else plan.spec.predicted.freed_nodes


def _is_place_of(reservation: Reservation, plan: str, positions: Collection[str]) -> bool:
    metadata = reservation.metadata
    return metadata.labels.get(PLAN_LABEL) == plan and metadata.annotations.get(MOVE_ANNOTATION) in positions


def _without_placeholders(
    snapshot: Snapshot, reservation_uids: Collection[str], *, only_unbound: bool = False
) -> Snapshot:
    """Return a snapshot without the placeholders of some Reservations."""
    placeholders = [
        pod
        for pod in snapshot.marked_pods
        if PLACEHOLDER_LABEL in pod.metadata.labels
        and pod.metadata.labels.get(RESERVATION_LABEL) in reservation_uids
        and not (only_unbound and pod.spec.node_name)
    ]
    return snapshot.without_marked(placeholders)


def _without_taints(node: Node, plan: str) -> Node:
    taints_kept = tuple(taint for taint in node.spec.taints if not is_taint_of(plan, taint))
    if len(taints_kept) == len(node.spec.taints):
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints_kept))
