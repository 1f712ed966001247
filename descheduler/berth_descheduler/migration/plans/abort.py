"""Ends a plan without further moves: releases its places, then writes its status."""

import structlog
from msgspec.structs import replace

from berth_core import (
    LONGEST_LABEL_VALUE,
    PLAN_LABEL,
    BerthError,
    Clock,
    MigrationPlan,
    MoveReason,
    MoveState,
    MoveStatus,
    PlannedMove,
    PlanPhase,
    Reservation,
    Room,
    RoomReason,
    RoomState,
    RoomStatus,
    format_timestamp,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.manifests.plans import build_status_patch
from berth_descheduler.migration.plans.binding import bind_plan
from berth_kube import MIGRATION_PLANS, PODS, RESERVATIONS, KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)


def abort_plan(
    client: KubeClient, plan: MigrationPlan, clock: Clock, message: str, phase: PlanPhase = PlanPhase.ABORTED
) -> None:
    """End a plan without further moves: release its places, then write its status."""
    # Released first: if it ends in between, the plan is still unfinished, and the next run ends it once more.
    release_reservations(client, plan.metadata.name)
    # Bound before it ends: a backup of an unbound plan would come back as one that has never begun.
    bind_plan(client, plan)
    status = replace(
        plan.status,
        phase=phase,
        message=message,
        completion_time=format_timestamp(clock.now()),
        moves=tuple(
            _aborted(client, plan, *move_and_status)
            for move_and_status in zip(plan.spec.moves, plan.move_statuses, strict=True)
        ),
        rooms=tuple(map(_aborted_room, plan.spec.rooms, plan.room_statuses)),
    )
    try:
        client.merge_patch(MIGRATION_PLANS, plan.metadata.name, build_status_patch(status), subresource="status")
    except NotFoundError:
        return
    _LOG.warning(telemetry.PLAN_ABORTED, **{telemetry.KEY_PLAN: plan.metadata.name, telemetry.KEY_MESSAGE: message})


def release_reservations(client: KubeClient, plan: str) -> None:
    """Delete a plan's Reservations that still hold capacity; where that fails, they expire by their TTL."""
    if len(plan) > LONGEST_LABEL_VALUE:
        return  # it has none: its name is the value of their label
    for reservation in map(Reservation.read, client.list(RESERVATIONS, label_selector=f"{PLAN_LABEL}={plan}").items):
        # It holds nothing any more, and shows people where the pod went.
        if reservation.phase.terminal:
            continue
        try:
            client.delete(RESERVATIONS, reservation.metadata.name, namespace=reservation.metadata.namespace)
        except NotFoundError:
            continue
        except BerthError as error:
            keys = {telemetry.KEY_RESERVATION: reservation.key, telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.RELEASE_FAILED, **keys)


def _aborted(client: KubeClient, plan: MigrationPlan, move: PlannedMove, status: MoveStatus) -> MoveStatus:
    """Return the final status of a move in an aborted plan.

    The move of an evicted pod has failed, as the pod was not seen to land; so has one whose eviction may have been
    asked for and whose pod has left.
    """
    if status.state.terminal:
        return status
    state, message = MoveState.SKIPPED, "the run was interrupted"
    may_be_asked = status.state is MoveState.RESERVED or (plan.phase is PlanPhase.RUNNING and move.is_eviction)
    if status.state is MoveState.EVICTED:
        state = MoveState.FAILED
    elif may_be_asked and _has_left(client, move):
        state = MoveState.FAILED
        message += "; its pod has left, and whether it was evicted is not known"
    return replace(status, state=state, reason=MoveReason.INTERRUPTED.value, message=message)


def _has_left(client: KubeClient, move: PlannedMove) -> bool:
    try:
        metadata = client.get(PODS, move.pod, namespace=move.namespace)["metadata"]
    except NotFoundError:
        return True
    return metadata["uid"] != move.pod_uid or bool(metadata.get("deletionTimestamp"))


def _aborted_room(room: Room, status: RoomStatus) -> RoomStatus:
    """Return the final status of a room in an aborted plan."""
    if status.has_ended(room):
        return status
    reason, message = RoomReason.INTERRUPTED.value, "the run was interrupted"
    return replace(status, state=RoomState.RELEASED, reason=reason, message=message)
