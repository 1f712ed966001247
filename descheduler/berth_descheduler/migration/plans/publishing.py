"""Publishes plans, and records how those end that are not begun."""

import secrets
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import structlog
from msgspec.structs import replace

from berth_core import (
    BerthError,
    Clock,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    MoveMethod,
    PlannedMove,
    PlanPhase,
    Predicted,
    RunMode,
    format_timestamp,
    plan_name,
)
from berth_descheduler import telemetry
from berth_descheduler.event_reasons import EventReason
from berth_descheduler.migration.manifests.plans import build_plan, build_plan_filling, build_status_patch
from berth_descheduler.migration.plans.binding import bind_plan, build_binding
from berth_descheduler.migration.plans.events import announce
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Plan, record_nodes, resource_type_of
from berth_descheduler.settings import Approval, CycleSettings
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)

_UNDECIDED = frozenset({Verdict.LEASE_HELD, Verdict.STOPPED, Verdict.PLAN_DELETED})
"""Verdicts after which a requested plan has yet to be filled, or is gone."""


def publish_plan(
    client: KubeClient, clock: Clock, settings: CycleSettings, plan: Plan, request: MigrationPlan | None
) -> MigrationPlan:
    """Publish a plan, new or into the requested one.

    The write that binds the plan to its object (see `binding`) also approves it where no approval is needed. Raises
    `NotFoundError` where the requested plan was deleted meanwhile.
    """
    spec = build_spec(clock, settings, plan)
    if request is None:
        name = settings.plan_name or plan_name(clock.now().strftime("%Y%m%d-%H%M%S"), secrets.token_hex(8))
        unapproved_plan = client.create(
            # Unapproved at first: the uid to which an approval is bound is given by the API server at creation.
            MIGRATION_PLANS,
            build_plan(name, replace(spec, approved=False)),
            type=MigrationPlan,
        )
        patch = build_binding(unapproved_plan, {"approved": True} if spec.approved else None)
    else:
        name = request.metadata.name
        patch = build_binding(request, build_plan_filling(spec))
    published_plan = client.merge_patch(MIGRATION_PLANS, name, patch, type=MigrationPlan)
    # An abort may have come while the plan was computed; the service ends it then, and no phase may hide that.
    if not published_plan.is_aborted:
        _write_phase(client, name, PlanPhase.APPROVED if spec.approved else PlanPhase.PROPOSED)
    _LOG.info(telemetry.PLAN_PUBLISHED, **{telemetry.KEY_PLAN: name, telemetry.KEY_MOVES: len(spec.moves)})
    return published_plan


def build_spec(clock: Clock, settings: CycleSettings, plan: Plan) -> MigrationPlanSpec:
    """Return the spec of a plan that is published now."""
    approve_before = None
    if settings.mode in {RunMode.APPROVE, RunMode.AUTO}:
        approve_before = format_timestamp(clock.now() + timedelta(seconds=settings.approval_seconds))
    return MigrationPlanSpec(
        policy=settings.policy,
        trigger=settings.trigger,
        mode=settings.mode,
        objective=plan.objective,
        approved=settings.approval is Approval.AUTO,
        approve_before=approve_before,
        moves=_with_method(plan.moves, settings.moves),
        rooms=plan.rooms,
        predicted=replace(plan.predicted, nodes=len(plan.before.nodes)),
        nodes_before=record_nodes(
            plan.before, resource_type_of(plan.objective), freed=plan.freed_nodes, moves=plan.moves
        ),
    )


def _with_method(moves: Sequence[PlannedMove], method: MoveMethod) -> tuple[PlannedMove, ...]:
    """Return the moves with their method; an eviction without a place stays one."""
    return tuple(move if move.is_eviction else replace(move, method=method) for move in moves)


def conclude_request(client: KubeClient, clock: Clock, request: MigrationPlan, outcome: Outcome) -> None:
    """Record the outcome on a requested plan that got no moves."""
    if outcome.published or outcome.plan is not None or outcome.verdict in _UNDECIDED:
        return
    is_nothing_to_move = outcome.verdict is Verdict.NOTHING_TO_MOVE
    planned_gain, objective = outcome.forecast.predicted, outcome.forecast.objective
    if is_nothing_to_move or planned_gain is not None:
        predicted = Predicted(
            nodes=planned_gain.nodes if planned_gain else 0,
            moves=0,
            waves=0,
            restrictions=planned_gain.restrictions if planned_gain else (),
            notes=planned_gain.notes if planned_gain else msgspec.UNSET,
        )
        objective_field = {"objective": msgspec.to_builtins(objective)} if objective is not None else {}
        filling_patch = {"spec": {"moves": [], "predicted": msgspec.to_builtins(predicted), **objective_field}}
        try:
            client.merge_patch(MIGRATION_PLANS, request.metadata.name, filling_patch)
        except NotFoundError:
            return
    end_plan(client, clock, request, PlanPhase.SUCCEEDED if is_nothing_to_move else PlanPhase.ABORTED, outcome.sentence)


def end_plan(client: KubeClient, clock: Clock, plan: MigrationPlan, phase: PlanPhase, message: str) -> None:
    """End an unbegun plan in a phase with a message; a plan that is gone needs nothing."""
    bind_plan(client, plan)
    status = MigrationPlanStatus(phase=phase, message=message, completion_time=format_timestamp(clock.now()))
    try:
        client.merge_patch(MIGRATION_PLANS, plan.metadata.name, build_status_patch(status), subresource="status")
    except NotFoundError:
        return
    _LOG.info(telemetry.PLAN_ENDED, **{telemetry.KEY_PLAN: plan.metadata.name, telemetry.KEY_MESSAGE: message})


def _write_phase(client: KubeClient, name: str, phase: PlanPhase) -> None:
    patch = build_status_patch(MigrationPlanStatus(phase=phase))
    # Those that an adopted or requested plan has recorded stay.
    del patch["status"]["moves"]
    client.merge_patch(MIGRATION_PLANS, name, patch, subresource="status")


def note_replanned(client: KubeClient, clock: Clock, plan: str, again: str) -> None:
    """Record on a plan that is over which further plan has its rest; a failure is only logged."""
    try:
        stored_plan = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
        status = {"replannedAs": again, "message": f"{stored_plan.status.message} Planned again as {again}."}
        client.merge_patch(MIGRATION_PLANS, plan, {"status": status}, subresource="status")
    except NotFoundError:
        return
    except BerthError as error:
        _LOG.warning(telemetry.STATUS_FAILED, **{telemetry.KEY_PLAN: plan, telemetry.KEY_ERROR: str(error)})
        return
    message = f"What could not be done any more is planned again as {again}"
    announce(client, clock, stored_plan, EventReason.REPLANNED, message)
