"""Plans in the cluster, as documents for programs."""

from collections import Counter
from typing import Any

import msgspec

from berth_core import (
    Achieved,
    MigrationPlan,
    MoveMethod,
    MoveState,
    MoveStatus,
    ObjectMeta,
    PlanPhase,
    Predicted,
    Room,
    RoomStatus,
    RunMode,
    fails_unread,
)
from berth_descheduler.report.documents import (
    describe_objective,
    describe_slot,
    move_fields,
    result_fields,
    room_result_fields,
)
from berth_descheduler.report.schemas import ListedPlan, PlanDocument, PlanMove, PlanRoom


class _ListedMoveStatus(msgspec.Struct, frozen=True, gc=False):
    state: MoveState = MoveState.PENDING


class _PlanHeadStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    phase: PlanPhase | None = None
    message: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    moves: tuple[_ListedMoveStatus, ...] = ()
    achieved: Achieved | None = None


class _PlanHeadSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    policy: str = ""
    trigger: str = "Manual"
    mode: RunMode | None = None
    requested_by: str = ""
    approved: bool = False
    approved_by: str = ""
    approve_before: str | None = None
    aborted: bool = False
    aborted_by: str = ""
    predicted: Predicted | None = None


class PlanHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a plan that a list reads: without the moves, which are by far the largest part."""

    metadata: ObjectMeta
    spec: _PlanHeadSpec = _PlanHeadSpec()
    status: _PlanHeadStatus = _PlanHeadStatus()

    @property
    def phase(self) -> PlanPhase:
        """Return the phase, as `MigrationPlan.phase` does; moves never come without a prediction."""
        if fails_unread(self.metadata, self.status.phase):
            return PlanPhase.FAILED
        if self.status.phase is not None:
            return self.status.phase
        asked_for = self.spec.mode is not None and self.spec.predicted is None
        return PlanPhase.REQUESTED if asked_for else PlanPhase.PROPOSED

    @property
    def is_aborted(self) -> bool:
        """Return what `MigrationPlan.is_aborted` does."""
        return self.spec.aborted or self.metadata.deletion_timestamp is not None


def list_plan(plan: PlanHead | MigrationPlan) -> ListedPlan:
    return ListedPlan(**_head_fields(plan))


def describe_stored_plan(plan: MigrationPlan) -> PlanDocument:
    """Return a plan of the cluster with all its moves."""
    return PlanDocument(
        **_head_fields(plan),
        uid=plan.metadata.uid,
        version=plan.metadata.resource_version,
        objective=describe_objective(plan.spec.objective),
        predicted=plan.spec.predicted,
        achieved=plan.status.achieved,
        conditions=plan.status.conditions,
        moves=describe_moves(plan),
        rooms=describe_rooms(plan),
    )


def describe_moves(plan: MigrationPlan) -> tuple[PlanMove, ...]:
    """Return the moves with their states, Pending where there is none."""
    pairs = zip(plan.spec.moves, plan.move_statuses, strict=True)
    return tuple(
        PlanMove(**move_fields(index, move), **_result_fields(status)) for index, (move, status) in enumerate(pairs)
    )


def describe_rooms(plan: MigrationPlan) -> tuple[PlanRoom, ...]:
    """Return the rooms with their states, Pending where there is none."""
    pairs = zip(plan.spec.rooms, plan.room_statuses, strict=True)
    return tuple(_describe_room(room, status) for room, status in pairs)


def _head_fields(plan: PlanHead | MigrationPlan) -> dict[str, Any]:
    spec, status = plan.spec, plan.status
    achieved = status.achieved
    planned_moves, evictions = (spec.predicted.moves, spec.predicted.evictions) if spec.predicted else (0, 0)
    states = Counter(move.state for move in status.moves)
    states[MoveState.PENDING] += max(0, planned_moves + evictions - len(status.moves))
    return {
        "name": plan.metadata.name,
        "created": plan.metadata.creation_timestamp,
        "policy": spec.policy,
        "trigger": spec.trigger,
        "mode": spec.mode,
        "requested_by": spec.requested_by,
        "approved": spec.approved,
        "approved_by": spec.approved_by,
        "approve_before": spec.approve_before,
        "aborted": plan.is_aborted,
        "aborted_by": spec.aborted_by,
        "phase": plan.phase,
        "message": status.message,
        "start_time": status.start_time,
        "completion_time": status.completion_time,
        "planned_moves": planned_moves,
        "planned_evictions": evictions,
        "states": {state: states[state] for state in MoveState if states[state]},
        "landed_on_target": achieved.landed_on_target if achieved else 0,
        "evictions": achieved.evictions if achieved else 0,
        "freed_node_count": len(achieved.freed_nodes) if achieved else 0,
    }


def _describe_room(room: Room, status: RoomStatus) -> PlanRoom:
    return PlanRoom(
        **room_result_fields(status),
        namespace=room.namespace,
        gang=room.gang,
        requests=room.requests,
        selector=room.selector,
        capacity=room.capacity.value,
        slots=tuple(map(describe_slot, room.slots)),
    )


def _result_fields(status: MoveStatus) -> dict[str, Any]:
    method = status.method or MoveMethod.EVICT
    return {**result_fields(status), "method": method, "method_reason": status.method_reason}
