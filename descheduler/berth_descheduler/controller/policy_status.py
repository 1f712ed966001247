"""Builds the statuses of policies: conditions, the last run, and what a run has found."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from berth_core import (
    EFFECTIVE,
    SCHEDULED,
    VALID,
    Condition,
    DeschedulerPolicyStatus,
    EffectiveReason,
    FragmentationStatus,
    MigrationPlan,
    ResourceUse,
    RestrictionReason,
    ScheduledReason,
    ShapeRoom,
    ValidReason,
    format_amount,
    format_timestamp,
)
from berth_descheduler.controller.decisions import ParsedPolicy, read_due
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Fragmentation, Plan, write_shape
from berth_descheduler.policy import PolicyError, find_warnings

FAILED: Final = "Failed"
"""The verdict of a run that ended in an error."""

_MOST_ERRORS: Final = 5
_LONGEST_SENTENCE: Final = 4000


def observed_status(known: ParsedPolicy, plans: Iterable[MigrationPlan], now: datetime) -> DeschedulerPolicyStatus:
    """Return a policy's status with all that is known without a run; the rest stays as it is."""
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
    """Return a merge patch of what `observed_status` sets, which leaves alone what runs report."""
    body = msgspec.to_builtins(status)
    # Only these: the runner writes the rest of the same status from another thread.
    names = ("observedGeneration", "nextRunTime", "warnings", "conditions")
    # A field without a value is sent as null, which removes it (RFC 7386): left out, an old `nextRunTime` would stay.
    return {"status": {field_name: body.get(field_name) for field_name in names}}


def build_conditions(known: ParsedPolicy, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions of a policy; the time of one that says the same stays."""
    condition_parts = {VALID: _valid(known), SCHEDULED: _scheduled(known), EFFECTIVE: _effective(known)}
    return tuple(_condition(known, type_, *parts, now) for type_, parts in condition_parts.items() if parts is not None)


def _effective(known: ParsedPolicy) -> tuple[bool | None, str, str] | None:
    """Return whether the last run was kept from moving anything; None before the first run."""
    status = known.policy.status
    if status.last_run_time is None:
        return None
    if status.last_verdict == FAILED:
        return None, EffectiveReason.RUN_FAILED.value, "the last run failed"
    hindrances = [
        (reason, restriction.message)
        for restriction in status.restrictions
        if (reason := _why_hindered(restriction.reason)) is not None
    ]
    if status.last_verdict != Verdict.NOTHING_TO_MOVE.value or not hindrances:
        return True, EffectiveReason.UNHINDERED.value, "no limit and no name kept the last run from moving pods"
    return False, hindrances[0][0].value, " ".join(message for _, message in hindrances)


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

    A schedule that is noted for the first time has held since the policy was created.
    """
    metadata, condition_before = known.policy.metadata, known.policy.condition(type_)
    transition_time, status = format_timestamp(now), "Unknown" if truth is None else str(truth)
    if condition_before is None and type_ == SCHEDULED:
        transition_time = metadata.creation_timestamp or transition_time
    elif (
        condition_before is not None
        and (condition_before.status, condition_before.reason) == (status, reason)
        and _holds(condition_before, message)
    ):
        transition_time = condition_before.last_transition_time
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=transition_time,
        observed_generation=metadata.generation,
    )


def _holds(before: Condition, message: str) -> bool:
    """Return whether a condition still says the same.

    The time of `Scheduled` is that of one schedule, which its message names, so there the message counts as well.
    """
    return before.type != SCHEDULED or before.message == message


def build_outcome_patch(
    outcome: Outcome, *, begun: datetime, scheduled: datetime | None, proposed_plan: Plan | None
) -> dict[str, Any]:
    """Return a merge patch of a run's outcome; what the outcome does not mention stays."""
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
    if proposed_plan is not None:
        status["fragmentation"] = msgspec.to_builtins(fragmentation_status(proposed_plan, begun))
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


def fragmentation_status(plan: Plan, at: datetime) -> FragmentationStatus:
    """Return how pods and free capacity lay over the nodes before a plan."""
    fragmentation_before = plan.before
    return FragmentationStatus(
        measured_at=format_timestamp(at),
        nodes=len(fragmentation_before.nodes),
        empty_nodes=len(fragmentation_before.empty_nodes),
        resources=_resource_uses(fragmentation_before),
        shapes=tuple(
            ShapeRoom(shape=write_shape(shape), room=fragmentation_before.fits(shape))
            for shape in fragmentation_before.usual_shapes
        ),
    )


def _resource_uses(before: Fragmentation) -> tuple[ResourceUse, ...]:
    return tuple(
        ResourceUse(
            resource=resource,
            requested_ratio=f"{float(before.utilisation(resource)):.4f}",
            largest_free=format_amount(resource, max(0, before.largest_free(resource))),
            free=format_amount(resource, before.free(resource)),
        )
        for resource in before.resources
    )
