"""Owns what is written into a policy's status: whether it can be run, when it runs next, what became of its last run.

It does not write it (`clerk`, `runner`); every function here is pure.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from berth_core.clock import format_timestamp
from berth_core.migration_plans import MigrationPlan
from berth_core.policies import (
    SCHEDULED,
    VALID,
    DeschedulerPolicyStatus,
    FragmentationStatus,
    ResourceUse,
    ScheduledReason,
    ShapeRoom,
    ValidReason,
)
from berth_core.reservations import Condition
from berth_core.resources import format_amount
from berth_descheduler.outcome import Outcome
from berth_descheduler.plan_quality import usual_shapes
from berth_descheduler.planner import Fragmentation, Plan
from berth_descheduler.planner.asked_shapes import write_shape
from berth_descheduler.policies.lint import find_warnings
from berth_descheduler.policies.reading import PolicyError
from berth_descheduler.policy_service.work import Known, read_due

FAILED: Final = "Failed"
"""The verdict of a run that ended in an error."""

_MOST_ERRORS: Final = 5
_LONGEST_SENTENCE: Final = 4000


def observed_status(known: Known, plans: Iterable[MigrationPlan], now: datetime) -> DeschedulerPolicyStatus:
    """Return a policy's status with what can be said of it without a run, the rest as it is."""
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
    """Return a merge patch of what `observed_status` says; what a run says is left alone."""
    body = msgspec.to_builtins(status)
    names = ("observedGeneration", "nextRunTime", "warnings", "conditions")
    return {"status": {name: body.get(name) for name in names}}


def build_conditions(known: Known, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions of a policy; the time of one stays while it says the same."""
    return (_condition(known, VALID, *_valid(known), now), _condition(known, SCHEDULED, *_scheduled(known), now))


def _valid(known: Known) -> tuple[bool, str, str]:
    if not isinstance(known.run, PolicyError):
        return True, ValidReason.ACCEPTED.value, "the policy can be run"
    errors = [str(error) for error in known.run.errors]
    more = f"; and {len(errors) - _MOST_ERRORS} more" if len(errors) > _MOST_ERRORS else ""
    return False, ValidReason.INVALID_FIELD.value, f"{'; '.join(errors[:_MOST_ERRORS])}{more}"


def _scheduled(known: Known) -> tuple[bool, str, str]:
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


def _condition(known: Known, type_: str, truth: bool, reason: str, message: str, now: datetime) -> Condition:  # noqa: FBT001 - the parts of a condition
    """Return a condition; noted for the first time, a schedule holds since the policy was made."""
    metadata, before = known.policy.metadata, known.policy.condition(type_)
    since = format_timestamp(now)
    if before is None and type_ == SCHEDULED:
        since = metadata.creation_timestamp or since
    elif before is not None and (before.status, before.reason) == (str(truth), reason) and _holds(before, message):
        since = before.last_transition_time
    return Condition(
        type=type_,
        status=str(truth),
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=metadata.generation,
    )


def _holds(before: Condition, message: str) -> bool:
    """Tell whether a condition still says the same; the time of a schedule is that of the very schedule."""
    return before.type != SCHEDULED or before.message == message


def build_outcome_patch(
    outcome: Outcome, *, begun: datetime, scheduled: datetime | None, found: Plan | None
) -> dict[str, Any]:
    """Return a merge patch of what became of a run; what it says nothing of stays."""
    plan = outcome.published or (outcome.plan.plan if outcome.plan else "")
    status: dict[str, Any] = {
        "lastRunTime": format_timestamp(begun),
        "lastVerdict": outcome.verdict.value,
        "lastOutcome": outcome.sentence[:_LONGEST_SENTENCE],
    }
    if plan:
        status["lastPlan"] = plan
    if scheduled is not None:
        status["lastScheduledTime"] = format_timestamp(scheduled)
    if found is not None:
        status["fragmentation"] = msgspec.to_builtins(fragmentation_status(found, begun))
    return {"status": status}


def build_failure_patch(message: str, *, begun: datetime, scheduled: datetime | None) -> dict[str, Any]:
    """Return a merge patch that says that a run ended in an error."""
    status = {"lastRunTime": format_timestamp(begun), "lastVerdict": FAILED, "lastOutcome": message[:_LONGEST_SENTENCE]}
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
        shapes=tuple(ShapeRoom(shape=write_shape(shape), room=before.fits(shape)) for shape in usual_shapes(found)),
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
