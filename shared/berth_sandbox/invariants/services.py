"""Checks of Berth's services: each Lease that work depends on has a holder, and the hand-over is proven."""

from collections.abc import Iterator
from datetime import datetime

from berth_core import (
    DESCHEDULER_LEASE,
    OPERATOR_LEASE,
    ConditionType,
    InputError,
    PlanPhase,
    ReservationPhase,
    parse_timestamp,
)
from berth_kube import Lease
from berth_sandbox.invariants.state import ClusterState
from berth_sandbox.invariants.violations import Invariant, Violation


def absent_services(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield absent services and unproven hand-overs.

    The operator must always run, the descheduler during a plan. Hand-overs of available Reservations must be proven.
    """
    missing = why_not_held(state, OPERATOR_LEASE, now)
    if missing:
        yield Violation(Invariant.OPERATOR_ABSENT, f"lease {state.own_namespace}/{OPERATOR_LEASE}", missing)
    missing = why_not_held(state, DESCHEDULER_LEASE, now)
    for plan in state.plans:
        if missing and plan.phase is PlanPhase.RUNNING:
            yield Violation(Invariant.PLAN_ABANDONED, f"migrationplan {plan.metadata.name}", missing)
    for reservation in state.live_reservations:
        ready = reservation.condition(ConditionType.HANDOVER_READY)
        if reservation.phase is ReservationPhase.AVAILABLE and not ready:
            message = next(
                (
                    condition.message
                    for condition in reservation.status.conditions
                    if condition.type == ConditionType.HANDOVER_READY
                ),
                "",
            )
            yield Violation(
                Invariant.HANDOVER_UNPROVEN, f"reservation {reservation.key}", message or "it was not tried"
            )


def why_not_held(state: ClusterState, name: str, now: datetime) -> str:
    """Return why a Lease has no holder, "" if it has one.

    The text contains the time of the last renewal: if clocks differ and the Lease is renewed nevertheless, the text
    changes with it and never lasts for its bound.
    """
    lease = next((candidate for candidate in state.leases if candidate.metadata.name == name), None)
    if lease is None:
        return "there is no such Lease"
    if not lease.spec.holder_identity:
        return "the Lease has no holder"
    if _is_overdue(lease, now):
        return f"{lease.spec.holder_identity} held the Lease and renewed it last at {lease.spec.renew_time}"
    return ""


def _is_overdue(lease: Lease, now: datetime) -> bool:
    try:
        renewed = parse_timestamp(lease.spec.renew_time or "")
    except InputError:
        return True
    return (now - renewed).total_seconds() > (lease.spec.lease_duration_seconds or 0)
