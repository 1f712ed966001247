"""The conditions of a Reservation: whether each holds, its reason and its message."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from berth_core import (
    Condition,
    ConditionType,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    expires_at,
    format_timestamp,
)
from berth_operator.reservation.observation import Observation


class ConditionReason(StrEnum):
    """Why a condition is true or false, besides the reasons of the phase; conditions and events use both."""

    OVER = "Over"
    """HandoverReady, Bounded: the Reservation has ended."""
    PROBE_GATED = "ProbeGated"
    """HandoverReady is true: a dry-run pod came back gated."""
    PROBE_NOT_GATED = "ProbeNotGated"
    """HandoverReady is false: a dry-run pod did not come back gated; the message says what happened."""
    NOT_PROBED = "NotProbed"
    """HandoverReady is false: nothing is held yet, or the first probe has not ended."""
    NEVER_EXPIRES = "NeverExpires"
    """Bounded is false: the Reservation has neither `ttl` nor `expires`. Also the reason of one warning event."""
    HELD_FOR_EVER = "HeldForEver"
    """Bounded is false, as meant: `ttl` is 0s."""
    EXPIRES = "Expires"
    """Bounded is true: `ttl` or `expires` ends the Reservation."""


TEMPLATE_DIFFERS: Final = "TemplateDiffers"
"""Reason of the event on a pod that an owner entry names and no template fits."""
OWNER_DIFFERS: Final = "OwnerDiffers"
"""Reason of the event on a pod whose controller has the name in an owner entry and another uid."""


_Why = tuple[str, str]
"""Reason and message."""


def compute_conditions(
    seen: Observation, state: ReservationState, *, is_available: bool, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions in a fixed order; those with an unchanged status keep their time."""
    why = (state.reason, state.message)
    verdicts: tuple[tuple[ConditionType, bool, _Why], ...] = (
        (ConditionType.AVAILABLE, is_available, why),
        (ConditionType.HANDOVER_READY, *_proof(seen, state)),
        (ConditionType.SUCCEEDED, state.phase is ReservationPhase.SUCCEEDED, why),
        (ConditionType.FAILED, state.phase is ReservationPhase.FAILED, why),
        (ConditionType.BOUNDED, *_bounds(seen.reservation, state.phase)),
    )
    return tuple(
        _condition(seen.reservation, type_, is_true=is_true, why=why, now=now) for type_, is_true, why in verdicts
    )


def warn_of_endless_hold(reservation: Reservation) -> str:
    """Return the warning for a Reservation without `ttl` and `expires`, once."""
    prior = _prior(reservation, ConditionType.BOUNDED)
    warned_before = prior is not None and prior.reason == ConditionReason.NEVER_EXPIRES
    is_forgotten = reservation.spec.ttl is None and reservation.spec.expires is None
    return _bounds(reservation, reservation.phase)[1][1] if is_forgotten and not warned_before else ""


def _proof(seen: Observation, state: ReservationState) -> tuple[bool, _Why]:
    """Return whether the path is proven, by this process or an earlier one."""
    if state.phase.terminal:
        return False, (ConditionReason.OVER, "the Reservation is over; no pod is gated for it any more")
    if state.reason == ReservationReason.NODE_CLOSED:
        return False, (state.reason, state.message)
    if seen.probe is not None:
        return seen.probe.gated, (
            ConditionReason.PROBE_GATED if seen.probe.gated else ConditionReason.PROBE_NOT_GATED,
            seen.probe.message,
        )
    prior = _prior(seen.reservation, ConditionType.HANDOVER_READY)
    if prior is not None and prior.reason != ReservationReason.NODE_CLOSED:
        return prior.status == "True", (prior.reason, prior.message)
    return False, (ConditionReason.NOT_PROBED, "the hand-over path is proven once a slot is held")


def _bounds(reservation: Reservation, phase: ReservationPhase) -> tuple[bool, _Why]:
    """Return whether the Reservation ends by itself, and when."""
    spec = reservation.spec
    if phase.terminal:
        return expires_at(reservation) is not None, (
            ConditionReason.OVER,
            "the Reservation is over; no place is held any more",
        )
    if spec.ttl is None and spec.expires is None:
        text = "neither ttl nor expires is set: places are held until all are taken or the Reservation is deleted"
        return False, (ConditionReason.NEVER_EXPIRES, text)
    expiry = expires_at(reservation)
    if expiry is None:
        return False, (
            ConditionReason.HELD_FOR_EVER,
            "ttl is 0s: places are held until all are taken or the Reservation is deleted",
        )
    return True, (ConditionReason.EXPIRES, f"what is still held is released at {format_timestamp(expiry)}")


def _prior(reservation: Reservation, type_: ConditionType) -> Condition | None:
    return next((condition for condition in reservation.status.conditions if condition.type == type_), None)


def _condition(reservation: Reservation, type_: ConditionType, *, is_true: bool, why: _Why, now: datetime) -> Condition:
    condition = Condition(type="", status="True" if is_true else "False", reason=why[0], message=why[1])
    return condition.dated(type_, reservation.metadata, reservation.status.conditions, now)
