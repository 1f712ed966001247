"""Writes policies' statuses, ends plans that cannot begin, deletes expired plans."""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final, assert_never

import msgspec
import structlog
from msgspec.structs import replace

from berth_core import (
    EFFECTIVE,
    SCHEDULED,
    VALID,
    BerthError,
    Condition,
    DeschedulerPolicyStatus,
    EffectiveReason,
    FragmentationStatus,
    MigrationPlan,
    PlanPhase,
    ResourceUse,
    RestrictionReason,
    ScheduledReason,
    ShapeRoom,
    ValidReason,
    format_amount,
    format_timestamp,
)
from berth_descheduler import telemetry
from berth_descheduler.controller.decisions import (
    ParsedPolicy,
    PlanTermination,
    expired_plans,
    pause_until,
    plans_over_history_limit,
    plans_to_end,
    read_due,
    unreadable_plans,
)
from berth_descheduler.controller.store import PolicyStore, ServiceContext
from berth_descheduler.metrics import PolicyMetrics
from berth_descheduler.migration.plans.abort import abort_plan, release_reservations
from berth_descheduler.migration.plans.publishing import end_plan
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Fragmentation, Plan, write_shape
from berth_descheduler.policy import PolicyError, find_warnings
from berth_descheduler.telemetry import PolicyEventReason
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, NotFoundError

FAILED: Final = "Failed"
"""The verdict of a run that ended in an error."""

_MOST_ERRORS: Final = 5
_LONGEST_SENTENCE: Final = 4000


def observed_status(known: ParsedPolicy, plans: Iterable[MigrationPlan], now: datetime) -> DeschedulerPolicyStatus:
    """Return a policy's status as far as it needs no run.

    The rest stays as it is.
    """
    timing = read_due(known, plans, now)
    next_run = None if timing is None else format_timestamp(timing.due or timing.next_run)
    warnings: tuple[str, ...] = ()
    if not isinstance(known.run, PolicyError):
        warnings = tuple(finding.sentence for finding in find_warnings(known.policy, known.run))
    return replace(
        known.policy.status,
        observed_generation=known.policy.metadata.generation,
        next_run_time=next_run,
        warnings=warnings,
        conditions=build_conditions(known, now),
    )


def build_observed_patch(status: DeschedulerPolicyStatus) -> dict[str, Any]:
    """Return a merge patch of what `observed_status` says.

    Leaves alone what a run says.
    """
    body = msgspec.to_builtins(status)
    names = ("observedGeneration", "nextRunTime", "warnings", "conditions")
    return {"status": {name: body.get(name) for name in names}}


def build_conditions(known: ParsedPolicy, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions of a policy.

    The time of a condition stays while it says the same.
    """
    said = {VALID: _valid(known), SCHEDULED: _scheduled(known), EFFECTIVE: _effective(known)}
    return tuple(_condition(known, type_, *parts, now) for type_, parts in said.items() if parts is not None)


def _effective(known: ParsedPolicy) -> tuple[bool | None, str, str] | None:
    """Return whether the last run was kept from moving anything; None before the first run."""
    status = known.policy.status
    if status.last_run_time is None:
        return None
    if status.last_verdict == FAILED:
        return None, EffectiveReason.RUN_FAILED.value, "the last run failed"
    reasons = [_why_hindered(restriction.reason) for restriction in status.restrictions]
    first = next((reason for reason in reasons if reason is not None), None)
    if status.last_verdict != Verdict.NOTHING_TO_MOVE.value or first is None:
        return True, EffectiveReason.UNHINDERED.value, "no limit and no name kept the last run from moving pods"
    messages = (restriction.message for restriction in status.restrictions if _why_hindered(restriction.reason))
    return False, first.value, " ".join(messages)


def _why_hindered(reason: RestrictionReason) -> EffectiveReason | None:
    """Return why a restriction may have kept a run from moving anything, None where it changes nothing."""
    match reason:
        case RestrictionReason.LIMIT_BINDS:
            return EffectiveReason.LIMIT_BINDS
        case RestrictionReason.SELECTS_NOTHING:
            return EffectiveReason.SELECTS_NOTHING
        case RestrictionReason.UNKNOWN_NAME | RestrictionReason.UNREADABLE_OBJECT:
            return None
        case _:
            assert_never(reason)


def _valid(known: ParsedPolicy) -> tuple[bool, str, str]:
    if not isinstance(known.run, PolicyError):
        return True, ValidReason.ACCEPTED.value, "the policy can be run"
    errors = [str(error) for error in known.run.errors]
    more = f"; and {len(errors) - _MOST_ERRORS} more" if len(errors) > _MOST_ERRORS else ""
    return False, ValidReason.INVALID_FIELD.value, f"{'; '.join(errors[:_MOST_ERRORS])}{more}"


def _scheduled(known: ParsedPolicy) -> tuple[bool, str, str]:
    schedule = known.schedule
    if schedule is not None:
        return True, schedule.reason.value, schedule.text
    if isinstance(known.run, PolicyError):
        return False, ScheduledReason.NOT_VALID.value, "the policy cannot be run"
    if known.policy.spec.suspend:
        return (
            False,
            ScheduledReason.SUSPENDED.value,
            "spec.suspend switches the trigger off; requests are served",
        )
    return False, ScheduledReason.ON_REQUEST.value, "runs are made on request only: there is no trigger"


def _condition(
    known: ParsedPolicy,
    type_: str,
    truth: bool | None,  # noqa: FBT001 - the parts of a condition
    reason: str,
    message: str,
    now: datetime,
) -> Condition:
    """Return a condition with the time of its last change.

    A schedule noted for the first time holds since the policy was made.
    """
    metadata, before = known.policy.metadata, known.policy.condition(type_)
    since, status = format_timestamp(now), "Unknown" if truth is None else str(truth)
    if before is None and type_ == SCHEDULED:
        since = metadata.creation_timestamp or since
    elif before is not None and (before.status, before.reason) == (status, reason) and _holds(before, message):
        since = before.last_transition_time
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=metadata.generation,
    )


def _holds(before: Condition, message: str) -> bool:
    """Return whether a condition still says the same.

    A schedule's time is that of the very schedule, so its message counts, too.
    """
    return before.type != SCHEDULED or before.message == message


def build_outcome_patch(
    outcome: Outcome, *, begun: datetime, scheduled: datetime | None, found: Plan | None
) -> dict[str, Any]:
    """Return a merge patch of a run's outcome.

    What the outcome says nothing of stays.
    """
    plan = outcome.published or (outcome.plan.plan if outcome.plan else "")
    predicted = outcome.forecast.predicted
    status: dict[str, Any] = {
        "lastRunTime": format_timestamp(begun),
        "lastVerdict": outcome.verdict.value,
        "lastOutcome": outcome.sentence[:_LONGEST_SENTENCE],
        "restrictions": msgspec.to_builtins(predicted.restrictions if predicted is not None else ()),
    }
    if plan:
        status["lastPlan"] = plan
    if scheduled is not None:
        status["lastScheduledTime"] = format_timestamp(scheduled)
    if found is not None:
        status["fragmentation"] = msgspec.to_builtins(fragmentation_status(found, begun))
    return {"status": status}


def build_failure_patch(message: str, *, begun: datetime, scheduled: datetime | None) -> dict[str, Any]:
    """Return a merge patch for a run that ended in an error."""
    status: dict[str, Any] = {
        "lastRunTime": format_timestamp(begun),
        "lastVerdict": FAILED,
        "lastOutcome": message[:_LONGEST_SENTENCE],
        "restrictions": [],
    }
    if scheduled is not None:
        status["lastScheduledTime"] = format_timestamp(scheduled)
    return {"status": status}


def fragmentation_status(found: Plan, at: datetime) -> FragmentationStatus:
    """Return how the pods lay over the nodes before a plan."""
    before = found.before
    return FragmentationStatus(
        measured_at=format_timestamp(at),
        nodes=len(before.nodes),
        empty_nodes=len(before.empty_nodes),
        resources=_resource_uses(before),
        shapes=tuple(ShapeRoom(shape=write_shape(shape), room=before.fits(shape)) for shape in before.usual_shapes),
    )


def _resource_uses(before: Fragmentation) -> tuple[ResourceUse, ...]:
    return tuple(
        ResourceUse(
            resource=name,
            requested_ratio=f"{float(before.utilisation(name)):.4f}",
            largest_free=format_amount(name, max(0, before.largest_free(name))),
            free=format_amount(name, before.free(name)),
        )
        for name in before.resources
    )


# --- controller ------------------------------------------------------------------------------------------------------
# The controller has its own thread, so that an invalid policy is reported and an approval times out also while a run
# takes hours. It leaves the plan of the current run alone.

_LOG = structlog.get_logger(__name__)
_LONGEST_PAUSE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 2.0


class StatusController:
    """Reconciles the statuses of policies and plans."""

    def __init__(
        self, context: ServiceContext, store: PolicyStore, metrics: PolicyMetrics, wake_up: threading.Event
    ) -> None:
        self._context = context
        self._store = store
        self._metrics = metrics
        self._wake_up = wake_up

    def work_until(self, over: Callable[[], bool]) -> None:
        """Work until `over`; retries whatever fails."""
        while not over():
            self._wake_up.clear()
            pause = _AGAIN_SECONDS
            try:
                if self.pass_once():
                    now = self._context.clock.now()
                    pause = pause_until(self._store.known().values(), self._store.plans(), now, _LONGEST_PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - the loop's boundary: whatever is wrong is tried again
                _LOG.exception(telemetry.CHORE_FAILED)
            self._wake_up.wait(pause)

    def pass_once(self) -> bool:
        """Reconcile everything once; return whether all of it worked."""
        known, plans, now = self._store.known(), self._store.plans(), self._context.clock.now()
        invalid = sum(isinstance(one.run, PolicyError) for one in known.values())
        self._metrics.show({name: one.policy.status for name, one in known.items()}, invalid=invalid)
        chores = [partial(self._write_status, one, plans) for one in known.values()]
        chores += [partial(self._end, ending) for ending in plans_to_end(known, plans, now)]
        chores += [partial(self._fail, plan) for plan in unreadable_plans(plans)]
        forgotten = expired_plans(known, plans, now, self._context.plan_retention)
        chores += [partial(self._delete, plan) for plan in (*plans_over_history_limit(known, plans, now), *forgotten)]
        failed = [chore for chore in chores if not _attempt(chore)]
        return not failed

    def _write_status(self, known: ParsedPolicy, plans: tuple[MigrationPlan, ...]) -> None:
        """Write a policy's status where it changed.

        Also reports where the policy has become valid or invalid.
        """
        policy = known.policy
        status = observed_status(known, plans, self._context.clock.now())
        if status == policy.status:
            return
        body = build_observed_patch(status)
        self._context.client.merge_patch(DESCHEDULER_POLICIES, policy.metadata.name, body, subresource="status")
        before = policy.condition(VALID)
        after = next(condition for condition in status.conditions if condition.type == VALID)
        if before is not None and (before.status, before.message) == (after.status, after.message):
            return
        if after.status == "True" and before is not None:
            self._context.record_event(policy, PolicyEventReason.VALID, after.message, bad=False)
        elif after.status != "True":
            keys = {telemetry.KEY_POLICY: policy.metadata.name, telemetry.KEY_MESSAGE: after.message}
            _LOG.warning(telemetry.POLICY_INVALID, **keys)
            self._context.record_event(policy, PolicyEventReason.INVALID, after.message, bad=True)

    def _end(self, ending: PlanTermination) -> None:
        if not self._store.is_in_progress(ending.plan.metadata.name):
            abort_plan(self._context.client, ending.plan, self._context.clock, ending.message, ending.phase)

    def _fail(self, plan: MigrationPlan) -> None:
        """Fail a plan that cannot be read.

        Also releases what it may have held.
        """
        release_reservations(self._context.client, plan.metadata.name)
        message = f"invalid: {plan.metadata.unreadable}"
        end_plan(self._context.client, self._context.clock, plan, PlanPhase.FAILED, message)

    def _delete(self, plan: MigrationPlan) -> None:
        self._context.client.delete(MIGRATION_PLANS, plan.metadata.name, uid=plan.metadata.uid)
        _LOG.info(telemetry.PLAN_NOT_KEPT, **{telemetry.KEY_PLAN: plan.metadata.name})


def _attempt(chore: Callable[[], None]) -> bool:
    """Do one chore and return whether it worked.

    What is gone meanwhile needs nothing more.
    """
    try:
        chore()
    except NotFoundError:
        return True
    except BerthError as error:
        _LOG.warning(telemetry.CHORE_FAILED, **{telemetry.KEY_ERROR: str(error)})
        return False
    except Exception:  # noqa: BLE001 - a mistake with one object must not keep the others' statuses from being true
        _LOG.exception(telemetry.CHORE_FAILED)
        return False
    return True
