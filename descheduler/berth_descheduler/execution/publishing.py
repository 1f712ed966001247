"""Owns how a plan comes into the API: created, or filled in where somebody asked for it, and in which phase it begins.

It does not own what is in the plan (`planner`), nor what becomes of it (`carrying_out`, `leftovers`).
"""

import secrets
from datetime import timedelta

import msgspec
import structlog
from msgspec.structs import replace

from berth_core.clock import Clock, format_timestamp
from berth_core.migration_plans import (
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    PlanPhase,
    Predicted,
    RunMode,
)
from berth_core.names import plan_name
from berth_descheduler import log_keys
from berth_descheduler.execution.plan_objects import build_plan, build_plan_filling, build_status_patch
from berth_descheduler.nodes_at_planning import note_nodes
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Plan
from berth_descheduler.settings import Approval, CycleSettings
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import MIGRATION_PLANS

_LOG = structlog.get_logger(__name__)

_UNDECIDED = frozenset({Verdict.LEASE_HELD, Verdict.STOPPED, Verdict.PLAN_DELETED})
"""Verdicts after which a plan that was asked for is still to be made, or is no more."""


def publish_plan(
    client: KubeClient, clock: Clock, settings: CycleSettings, found: Plan, request: MigrationPlan | None
) -> MigrationPlan:
    """Put a plan into the API, approved at once where nobody is to be asked; fill in the one that was asked for.

    Raises `NotFoundError` where that has been deleted meanwhile.
    """
    spec = build_spec(clock, settings, found)
    if request is None:
        name = settings.plan_name or plan_name(clock.now().strftime("%Y%m%d-%H%M%S"), secrets.token_hex(8))
        published = client.create(MIGRATION_PLANS, build_plan(name, spec), type=MigrationPlan)
    else:
        name = request.metadata.name
        published = client.merge_patch(MIGRATION_PLANS, name, build_plan_filling(spec), type=MigrationPlan)
    if not published.spec.aborted:
        _write_phase(client, name, PlanPhase.APPROVED if spec.approved else PlanPhase.PROPOSED)
    _LOG.info(log_keys.PLAN_PUBLISHED, **{log_keys.KEY_PLAN: name, log_keys.KEY_MOVES: len(spec.moves)})
    return published


def build_spec(clock: Clock, settings: CycleSettings, found: Plan) -> MigrationPlanSpec:
    """Return what a plan says that is published now."""
    approve_before = None
    if settings.mode is RunMode.APPROVE:
        approve_before = format_timestamp(clock.now() + timedelta(seconds=settings.approval_seconds))
    return MigrationPlanSpec(
        policy=settings.policy,
        trigger=settings.trigger,
        mode=settings.mode,
        objective=found.objective,
        approved=settings.approval is Approval.AUTO,
        approve_before=approve_before,
        moves=found.moves,
        rooms=found.rooms,
        predicted=replace(found.predicted, nodes=len(found.before.nodes)),
        nodes_before=note_nodes(found),
    )


def conclude_request(client: KubeClient, clock: Clock, request: MigrationPlan, outcome: Outcome) -> None:
    """Say on a plan that was asked for what came of that, where no moves came of it."""
    if outcome.published or outcome.plan is not None or outcome.verdict in _UNDECIDED:
        return
    nothing = outcome.verdict is Verdict.NOTHING_TO_MOVE
    if nothing:
        predicted = Predicted(nodes=outcome.forecast.nodes, moves=0, waves=0)
        filling = {"spec": {"moves": [], "predicted": msgspec.to_builtins(predicted)}}
        try:
            client.merge_patch(MIGRATION_PLANS, request.metadata.name, filling)
        except NotFoundError:
            return
    end_plan(client, clock, request, PlanPhase.SUCCEEDED if nothing else PlanPhase.ABORTED, outcome.sentence)


def end_plan(client: KubeClient, clock: Clock, plan: MigrationPlan, phase: PlanPhase, message: str) -> None:
    """End a plan of which nothing was begun, in a phase and with a sentence; one that is gone needs none."""
    status = MigrationPlanStatus(phase=phase, message=message, completion_time=format_timestamp(clock.now()))
    try:
        client.merge_patch(MIGRATION_PLANS, plan.metadata.name, build_status_patch(status), subresource="status")
    except NotFoundError:
        return
    _LOG.info(log_keys.PLAN_ENDED, **{log_keys.KEY_PLAN: plan.metadata.name, log_keys.KEY_MESSAGE: message})


def _write_phase(client: KubeClient, name: str, phase: PlanPhase) -> None:
    patch = build_status_patch(MigrationPlanStatus(phase=phase))
    del patch["status"]["moves"]
    client.merge_patch(MIGRATION_PLANS, name, patch, subresource="status")
