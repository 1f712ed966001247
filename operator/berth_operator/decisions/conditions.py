"""Owns the standard conditions of a Reservation, each with its reason, sentence and time of transition.

It does not own the phase that they follow: `decisions.statuses` does.
"""

from datetime import datetime

from berth_core.clock import format_timestamp, parse_timestamp
from berth_core.expiry import expires_at
from berth_core.reservations import (
    Condition,
    ConditionType,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
)
from berth_operator.decisions import condition_reasons as reasons
from berth_operator.decisions.observation import Observation

_Told = tuple[str, str]
"""Reason and message."""


def compute_conditions(
    seen: Observation, state: ReservationState, *, is_available: bool, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions in a fixed order; times of transition are kept where the status is as before."""
    told = (state.reason, state.message)
    found: tuple[tuple[ConditionType, bool, _Told], ...] = (
        (ConditionType.AVAILABLE, is_available, told),
        (ConditionType.HANDOVER_READY, *_proof(seen, state)),
        (ConditionType.SUCCEEDED, state.phase is ReservationPhase.SUCCEEDED, told),
        (ConditionType.FAILED, state.phase is ReservationPhase.FAILED, told),
        (ConditionType.BOUNDED, *_bounds(seen.reservation, state.phase)),
    )
    return tuple(
        _condition(seen.reservation, type_, is_true=is_true, told=words, now=now) for type_, is_true, words in found
    )


def warn_of_endless_hold(reservation: Reservation) -> str:
    """Return what to tell about a Reservation that lacks both `ttl` and `expires`, "" where it has one, or was told."""
    prior = _prior(reservation, ConditionType.BOUNDED)
    told_before = prior is not None and prior.reason == reasons.NEVER_EXPIRES
    is_forgotten = reservation.spec.ttl is None and reservation.spec.expires is None
    return _bounds(reservation, reservation.phase)[1][1] if is_forgotten and not told_before else ""


def _proof(seen: Observation, state: ReservationState) -> tuple[bool, _Told]:
    """Return whether the path is proven: this process's proof, else what an earlier one wrote."""
    if state.phase.terminal:
        return False, (reasons.OVER, "the Reservation is over; no pod is gated for it any more")
    if state.reason == ReservationReason.NODE_CLOSED:
        return False, (state.reason, state.message)
    if seen.probe is not None:
        return seen.probe.gated, (
            reasons.PROBE_GATED if seen.probe.gated else reasons.PROBE_NOT_GATED,
            seen.probe.message,
        )
    prior = _prior(seen.reservation, ConditionType.HANDOVER_READY)
    if prior is not None and prior.reason != ReservationReason.NODE_CLOSED:
        return prior.status == "True", (prior.reason, prior.message)
    return False, (reasons.NOT_PROBED, "the hand-over path is proven once a slot is held")


def _bounds(reservation: Reservation, phase: ReservationPhase) -> tuple[bool, _Told]:
    """Return whether the Reservation ends by itself, and when."""
    spec, created = reservation.spec, reservation.metadata.creation_timestamp
    if phase.terminal:
        is_bounded = expires_at(spec, parse_timestamp(created or "")) is not None
        return is_bounded, (reasons.OVER, "the Reservation is over; no place is held any more")
    if spec.ttl is None and spec.expires is None:
        text = "neither ttl nor expires is set: places are held until all are taken or the Reservation is deleted"
        return False, (reasons.NEVER_EXPIRES, text)
    expiry = expires_at(spec, parse_timestamp(created or ""))
    if expiry is None:
        return False, (
            reasons.HELD_FOR_EVER,
            "ttl is 0s: places are held until all are taken or the Reservation is deleted",
        )
    return True, (reasons.EXPIRES, f"what is still held is released at {format_timestamp(expiry)}")


def _prior(reservation: Reservation, type_: ConditionType) -> Condition | None:
    return next((c for c in reservation.status.conditions if c.type == type_), None)


def _condition(
    reservation: Reservation, type_: ConditionType, *, is_true: bool, told: _Told, now: datetime
) -> Condition:
    prior = _prior(reservation, type_)
    status = "True" if is_true else "False"
    same = prior is not None and prior.status == status
    return Condition(
        type=type_.value,
        status=status,
        reason=told[0],
        message=told[1],
        last_transition_time=prior.last_transition_time if prior and same else format_timestamp(now),
        observed_generation=reservation.metadata.generation,
    )
