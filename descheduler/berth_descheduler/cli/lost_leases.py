"""Cycles for people: one that loses its Lease, or the API server for a while, tries for it again and goes on.

The service leaves a plan whose Lease is lost to its next run, which begins by itself. No run follows that of a person:
its plan would stay Running, with its taints, until the next command runs one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import structlog

from berth_core import MigrationPlan, PlanPhase, RetryableError, parse_timestamp
from berth_descheduler import telemetry
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from berth_descheduler.plugins import goal_of
from berth_kube import MIGRATION_PLANS, NotFoundError, UntrustedServerError

_LOG = structlog.get_logger(__name__)

_PAUSE_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 3600.0
"""How long a run without a limit of its own tries for its Lease."""

MakeCycle: TypeAlias = Callable[[CycleContext], Cycle]


def run_persistently(make_cycle: MakeCycle, context: CycleContext, max_seconds: float | None = None) -> Outcome:
    """Run a cycle; where that is cut off after its plan was published, go on with the plan until it is over.

    Tries for `max_seconds`. Raises the error that cut it off where nothing was published, where the run is to stop, and
    where the time is over; whoever holds the Lease by then goes on with the plan.
    """
    cycle = make_cycle(context)
    try:
        return cycle.run()
    except RetryableError as error:
        if not cycle.published or context.stop.is_set() or isinstance(error, UntrustedServerError):
            raise
        return _go_on(make_cycle, context, cycle.published, max_seconds or _PATIENCE_SECONDS, error)


def _go_on(
    make_cycle: MakeCycle, context: CycleContext, plan_name: str, patience_seconds: float, error: RetryableError
) -> Outcome:
    """Resume a published plan once that is possible, or return how another run ended it."""
    clock, deadline = context.clock, context.clock.monotonic() + patience_seconds
    while True:
        _LOG.warning(telemetry.CYCLE_CUT_OFF, **{telemetry.KEY_PLAN: plan_name, telemetry.KEY_ERROR: str(error)})
        context.observer.cut_off(str(error))
        try:
            outcome = _resume(make_cycle, context, plan_name)
        except NotFoundError:
            return Outcome(Verdict.PLAN_DELETED, published=plan_name)
        except RetryableError as next_error:
            error, outcome = next_error, None
        if outcome is not None:
            return outcome
        if context.stop.is_set() or clock.monotonic() >= deadline:
            raise error
        context.stop.wait(_PAUSE_SECONDS)


def _resume(make_cycle: MakeCycle, context: CycleContext, plan_name: str) -> Outcome | None:
    """Return what became of a plan, None while another run holds the Lease."""
    plan = context.client.get(MIGRATION_PLANS, plan_name, type=MigrationPlan)
    if plan.phase.terminal:
        return _outcome_of_ended(plan)
    if plan.phase is not PlanPhase.RUNNING:
        # It was not begun, so it is planned anew on the cluster as it is by now; whoever was asked has said yes.
        outcome = make_cycle(replace(context, confirm=None)).run()
        return None if outcome.verdict is Verdict.LEASE_HELD else outcome
    outcome = make_cycle(context).resume(plan)
    # Where another run has ended it meanwhile, its status says how.
    return None if outcome.verdict in {Verdict.LEASE_HELD, Verdict.ABORTED} else outcome


def _outcome_of_ended(plan: MigrationPlan) -> Outcome:
    """Return the outcome of a plan that another run has brought to its end, as its status has it."""
    status, achieved = plan.status, plan.status.achieved
    times = [parse_timestamp(time) for time in (status.start_time, status.completion_time) if time]
    ended = PlanOutcome(
        plan=plan.metadata.name,
        phase=plan.phase,
        statuses=plan.move_statuses,
        evictions=sum(move.is_eviction for move in plan.spec.moves),
        freed_nodes=achieved.freed_nodes if achieved else (),
        freeing_nodes=achieved.freeing_nodes if achieved else (),
        ending=achieved.ending_pods if achieved else 0,
        stuck=achieved.stuck_pods if achieved else 0,
        pending=achieved.pending_pods if achieved else 0,
        seconds=(times[-1] - times[0]).total_seconds() if times else 0.0,
        frees_nodes=goal_of(plan.spec.objective).frees_nodes,
        rooms=plan.room_statuses,
    )
    return Outcome(Verdict.CARRIED_OUT, plan=ended, published=plan.metadata.name)
