"""Carries out one published plan, new or continued: steps 8 to 12 of a cycle."""

from collections.abc import Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from berth_core import (
    DRAINING_TAINT,
    ROOM_TAINT,
    BerthError,
    MigrationPlan,
    MoveReason,
    MoveState,
    MoveStatus,
    PermanentError,
    PlannedMove,
    PlanPhase,
    RoomState,
    format_timestamp,
    read_timestamp,
)
from berth_descheduler import telemetry
from berth_descheduler.event_reasons import EventReason
from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.manifests.plans import PlanIdentity, build_status_patch
from berth_descheduler.migration.nodes.cooling_marks import mark_moved
from berth_descheduler.migration.nodes.freed import SourcesLeft, await_sources, marks_of, note_stuck
from berth_descheduler.migration.nodes.freed_marks import Freeing, mark_freed
from berth_descheduler.migration.nodes.plan_taints import (
    nodes_of_ended_rooms,
    nodes_of_open_rooms,
    nodes_to_empty,
    taint_nodes,
    untaint_nodes,
)
from berth_descheduler.migration.plans.abort import release_reservations
from berth_descheduler.migration.plans.binding import bind_plan
from berth_descheduler.migration.plans.events import announce
from berth_descheduler.migration.plans.history import count_ping_pong
from berth_descheduler.migration.plans.loop import Execution, LeaseLostError, PlanExecutor
from berth_descheduler.migration.plans.recovery import status_of_new_run
from berth_descheduler.migration.plans.stop import count_overtaken, is_outdated
from berth_descheduler.migration.plans.watch import PlanObservation
from berth_descheduler.migration.validation.before_moves import WaveValidator
from berth_descheduler.migration.validation.pending_replacements import count_pending
from berth_descheduler.migration.validation.revalidation import Invalid
from berth_descheduler.outcome import Phase, PlanOutcome, conclude
from berth_descheduler.plugins import goal_of
from berth_kube import MIGRATION_PLANS, NotFoundError

_LOG = structlog.get_logger(__name__)

_MOST_MOVE_EVENTS: Final = 10
_ARRIVED: Final = {MoveState.LANDED, MoveState.ELSEWHERE}


class PlanDeletedError(PermanentError):
    """The plan is gone."""


def execute_plan(context: PlanContext, plan: MigrationPlan, *, adopted: bool) -> PlanOutcome:
    """Execute a published plan and return its outcome.

    Raises `PlanDeletedError` where the plan was deleted before it began. The taints always come off, unless another
    process may hold the Lease by then: that process removes them.
    """
    begun_at = context.clock.monotonic()
    with context.timed(Phase.REVALIDATE):  # 8 re-validate on fresh state
        skipped_moves = {} if plan.phase is PlanPhase.RUNNING else _skip_before(context, plan)
    rooms = nodes_of_open_rooms(plan)
    moves = (move for index, move in enumerate(plan.spec.moves) if index not in skipped_moves)
    # A room's own taint keeps out all but its pods; the draining taint would keep these out as well.
    sources = [node for node in nodes_to_empty(moves) if node not in rooms]
    plan = _begin(context, plan, adopted=adopted)
    try:
        with context.timed(Phase.TAINT):  # 9 keep new pods off the sources
            if adopted:  # the run before may have recorded the end of a room and not taken its taint off any more
                untaint_nodes(context.client, nodes_of_ended_rooms(plan), ROOM_TAINT)
            taint_nodes(context.client, sources, plan.metadata.name)
            taint_nodes(context.client, rooms, plan.metadata.name, ROOM_TAINT)
        with context.timed(Phase.MOVE):  # 10 reserve, evict, hand over, each in its turn
            execution = _execute(context, plan, skipped_moves, adopted=adopted)
        with context.timed(Phase.VERIFY):  # 11 verify and report
            outcome = _verify(context, plan, execution, _seconds_taken(context, plan, begun_at, adopted=adopted))
            _conclude(context, plan, execution, outcome)
    finally:
        with context.timed(Phase.UNTAINT):  # 12 let the sources be used again
            if not context.lease.lost.is_set():
                untaint_nodes(context.client, sources, DRAINING_TAINT)
                untaint_nodes(context.client, rooms, ROOM_TAINT)
    return outcome


def _seconds_taken(context: PlanContext, plan: MigrationPlan, begun_at: float, *, adopted: bool) -> float:
    """Return the seconds that a plan took, from its first run on."""
    seconds = context.clock.monotonic() - begun_at
    started_at = read_timestamp(plan.status.start_time) if adopted else None
    return seconds if started_at is None else max(seconds, (context.clock.now() - started_at).total_seconds())


def _skip_before(context: PlanContext, plan: MigrationPlan) -> dict[int, MoveStatus]:
    """Return the statuses of the moves that do not begin: the invalid ones, or all while pods wait.

    Raises `LeaseLostError` if the run does not hold the Lease any more.
    """
    ahead = dict(enumerate(plan.spec.moves))
    validator = WaveValidator(
        reviewer=context.reviewer,
        clock=context.clock,
        pending_wait_seconds=context.execution.pending_wait_seconds,
        budgets=True,
        stopped=lambda: context.stop.is_set() or context.lease.lost.is_set(),
    )
    validation = validator.validate(lambda: ahead, ahead)
    if context.lease.lost.is_set():
        raise LeaseLostError("the lease was lost before a plan began; the next run continues it")
    invalid = validation.invalid
    if validation.stop:
        invalid = dict.fromkeys(ahead, Invalid(validation.stop, validation.message))
    return {
        index: MoveStatus(
            namespace=ahead[index].namespace,
            pod=ahead[index].pod,
            state=MoveState.SKIPPED,
            reason=invalid_move.reason.value,
            message=invalid_move.message,
        )
        for index, invalid_move in invalid.items()
    }


def _begin(context: PlanContext, plan: MigrationPlan, *, adopted: bool) -> MigrationPlan:
    """Set a plan Running and return it; raises `PlanDeletedError`."""
    status = status_of_new_run(context.clock, plan)
    bind_plan(context.client, plan)
    try:
        patch = build_status_patch(status)
        context.client.merge_patch(MIGRATION_PLANS, plan.metadata.name, patch, subresource="status")
    except NotFoundError as error:
        raise PlanDeletedError(f"plan {plan.metadata.name} was deleted before it began") from error
    reason = EventReason.ADOPTED if adopted else EventReason.STARTED
    action = "Continuing what an interrupted run began" if adopted else "Moving"
    announce(context.client, context.clock, plan, reason, f"{action}: {PlannedMove.count_all(plan.spec.moves)}")
    if adopted:
        _LOG.warning(telemetry.PLAN_ADOPTED, **{telemetry.KEY_PLAN: plan.metadata.name})
    context.observer.plan_begun(plan.metadata.name, len(plan.spec.moves), plan.metadata.uid)
    return replace(plan, status=status)


def _execute(
    context: PlanContext, plan: MigrationPlan, skipped: Mapping[int, MoveStatus], *, adopted: bool
) -> Execution:
    identity = PlanIdentity.of(plan)
    with PlanObservation(context.client, context.picture, identity, plan.spec.moves, plan.spec.rooms) as observation:
        # What was approved is carried out as far as it can be: a further plan has to wait for an approval again.
        stops = _may_replan(context, plan) and context.settings.begins_by_itself
        return PlanExecutor(context, plan, observation, skipped=skipped, adopted=adopted, stops_outdated=stops).run()


def _may_replan(context: PlanContext, plan: MigrationPlan) -> bool:
    """Return whether the run plans again what a plan could not do; room is asked for only once."""
    frees_nodes = goal_of(plan.spec.objective).frees_nodes
    return context.settings.max_replans > 0 and frees_nodes and not plan.spec.rooms


def _is_outdated(context: PlanContext, plan: MigrationPlan, execution: Execution) -> bool:
    """Return whether too much of a plan could not be done because of what others had changed meanwhile."""
    if not _may_replan(context, plan) or execution.stop not in {MoveReason.NONE, MoveReason.OUTDATED}:
        return False
    left_over = count_overtaken(plan.spec.moves, execution.statuses)
    return execution.stop is MoveReason.OUTDATED or is_outdated(left_over, 0)


def _verify(context: PlanContext, plan: MigrationPlan, execution: Execution, seconds: float) -> PlanOutcome:
    evicted_moves = [
        move for move, gone in zip(plan.spec.moves, execution.evicted, strict=True) if gone and not move.is_eviction
    ]
    moving_since = read_timestamp(plan.status.start_time) or context.clock.now()
    outdated = _is_outdated(context, plan, execution)
    came_too_late = outdated and not any(status.state.succeeded for status in execution.statuses)
    sources = _await_sources(context, plan, execution)
    return PlanOutcome(
        plan=plan.metadata.name,
        phase=conclude(execution.statuses, execution.rooms, interrupted=_is_interrupted(execution) or came_too_late),
        statuses=note_stuck(context.client, plan.spec.moves, execution.statuses, sources.stuck),
        evictions=sum(move.is_eviction for move in plan.spec.moves),
        freed_nodes=sources.freed,
        freeing_nodes=sources.freeing,
        ending=len(sources.ending),
        stuck=len(sources.stuck),
        pending=count_pending(context.client, evicted_moves, moving_since),
        seconds=seconds,
        note=execution.stop_message or _why_never_begun(execution),
        frees_nodes=goal_of(plan.spec.objective).frees_nodes,
        ping_pong=_count_ping_pong(context, plan, execution),
        rooms=execution.rooms,
        outdated=outdated,
        unplaced=execution.unplaced,
    )


def _await_sources(context: PlanContext, plan: MigrationPlan, execution: Execution) -> SourcesLeft:
    """Wait a while for the pods on their way out, where nodes become free by that and nothing ends the run."""
    waits = goal_of(plan.spec.objective).frees_nodes and not _is_interrupted(execution)
    return await_sources(
        context.client,
        context.clock,
        plan.spec.moves,
        end_seconds=context.execution.timeouts.end_seconds,
        is_over=lambda: not waits or context.stop.is_set() or context.lease.lost.is_set(),
    )


def _is_interrupted(execution: Execution) -> bool:
    """Return whether a plan was stopped from outside, or kept from beginning by pending pods."""
    return execution.stop in {MoveReason.INTERRUPTED, MoveReason.ABORTED} or bool(_why_never_begun(execution))


def _why_never_begun(execution: Execution) -> str:
    """Return which pending pods made the plan skip every move, "" if none did."""
    first_status = execution.statuses[0] if execution.statuses else None
    if first_status is None or any(status.reason != MoveReason.PODS_WAITING for status in execution.statuses):
        return ""
    return first_status.message


def _count_ping_pong(context: PlanContext, plan: MigrationPlan, execution: Execution) -> int:
    """Return how many moves undid earlier ones, 0 where the earlier plans cannot be read."""
    try:
        plans = context.client.list(MIGRATION_PLANS, type=MigrationPlan).items
    except BerthError as error:
        _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_PLAN: plan.metadata.name, telemetry.KEY_ERROR: str(error)})
        return 0
    earlier_plans = [other_plan for other_plan in plans if other_plan.metadata.uid != plan.metadata.uid]
    moves_and_statuses = list(zip(plan.spec.moves, execution.statuses, strict=True))
    return count_ping_pong(earlier_plans, moves_and_statuses, context.clock.now(), context.settings.pod_cool_down)


def _conclude(context: PlanContext, plan: MigrationPlan, execution: Execution, outcome: PlanOutcome) -> None:
    """Record the plan's outcome in its status, in events and on nodes."""
    moves_and_evicted = zip(plan.spec.moves, execution.evicted, strict=True)
    source_nodes = {move.source for move, gone in moves_and_evicted if gone}
    reached = {status.node for status in execution.statuses if status.node and status.state in _ARRIVED}
    cool_down = context.settings.node_cool_down
    # Before the plan's status: a process that is killed in between leaves a plan that the next run continues, and marks
    # again.
    mark_moved(context.client, context.clock, sources=source_nodes, targets=reached, cool_down=cool_down)
    marks = None
    if outcome.frees_nodes and outcome.phase is not PlanPhase.ABORTED:
        marks = marks_of(context.settings.freed) if source_nodes.intersection(outcome.freeing_nodes) else None
        freeing = Freeing(plan.metadata.name, plan.spec.policy, context.settings.freed)
        mark_freed(context.client, context.clock, sorted(source_nodes.intersection(outcome.freed_nodes)), freeing)
    # The garbage collector deletes the Reservations as well, but later, and they keep capacity from others until then.
    if execution.plan_deleted:
        release_reservations(context.client, plan.metadata.name)
        return
    status = replace(
        plan.status,
        phase=outcome.phase,
        message=outcome.sentence,
        completion_time=format_timestamp(context.clock.now()),
        moves=outcome.statuses,
        rooms=outcome.rooms,
        achieved=outcome.achieved,
        freed_marks=marks,
    )
    try:
        context.client.merge_patch(
            MIGRATION_PLANS, plan.metadata.name, build_status_patch(status), subresource="status"
        )
    except NotFoundError:
        return
    failed_moves = [move for move in outcome.statuses if move.state in {MoveState.FAILED, MoveState.ELSEWHERE}]
    # The others are in the plan's status: the API server stores every event for an hour (`--event-ttl`).
    for move in failed_moves[:_MOST_MOVE_EVENTS]:
        text = f"{move.namespace}/{move.pod} {' '.join(filter(None, (move.state.value, move.reason)))}: {move.message}"
        announce(context.client, context.clock, plan, EventReason.MOVE_FAILED, text, bad=True)
    for room in [room for room in outcome.rooms if room.state is RoomState.FAILED][:_MOST_MOVE_EVENTS]:
        text = f"{room.name} {room.reason}: {room.message}"
        announce(context.client, context.clock, plan, EventReason.ROOM_FAILED, text, bad=True)
    reason = EventReason.ABORTED if outcome.phase is PlanPhase.ABORTED else EventReason.FINISHED
    announce(context.client, context.clock, plan, reason, outcome.sentence, bad=not outcome.clean)
