"""Owns the checks of Berth's services themselves: that somebody holds each Lease that work depends on, and the proof.

It does not own what the services leave behind (`leftovers`).
"""

from collections.abc import Iterator
from datetime import datetime

from berth_core.clock import parse_timestamp
from berth_core.errors import InputError
from berth_core.migration_plans import PlanPhase
from berth_core.names import DESCHEDULER_LEASE, OPERATOR_LEASE
from berth_core.reservations import ConditionType, ReservationPhase
from berth_kube.leases import Lease
from berth_sandbox.invariants.state import ClusterState
from berth_sandbox.invariants.violations import Invariant, Violation


def absent_services(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield who should be at work and is not, and the held places whose hand-over is not proven."""
    missing = _why_nobody_holds(state, OPERATOR_LEASE, now)
    if missing:
        yield Violation(Invariant.OPERATOR_ABSENT, f"lease {state.own_namespace}/{OPERATOR_LEASE}", missing)
    missing = _why_nobody_holds(state, DESCHEDULER_LEASE, now)
    for plan in state.plans:
        if missing and plan.phase is PlanPhase.RUNNING:
            yield Violation(Invariant.PLAN_ABANDONED, f"migrationplan {plan.metadata.name}", missing)
    for reservation in state.live_reservations:
        ready = reservation.condition(ConditionType.HANDOVER_READY)
        if reservation.phase is ReservationPhase.AVAILABLE and not ready:
            told = next(
                (c.message for c in reservation.status.conditions if c.type == ConditionType.HANDOVER_READY), ""
            )
            yield Violation(Invariant.HANDOVER_UNPROVEN, f"reservation {reservation.key}", told or "it was not tried")


def _why_nobody_holds(state: ClusterState, name: str, now: datetime) -> str:
    """Return why a Lease is nobody's, "" where somebody holds it.

    The time of the last renewal is part of the text: where a clock differs and the Lease is renewed all the same, the
    text changes with it and never stands for long.
    """
    lease = next((found for found in state.leases if found.metadata.name == name), None)
    if lease is None:
        return "there is no such Lease"
    if not lease.spec.holder_identity:
        return "nobody holds the Lease"
    if _is_overdue(lease, now):
        return f"{lease.spec.holder_identity} held the Lease and renewed it last at {lease.spec.renew_time}"
    return ""


def _is_overdue(lease: Lease, now: datetime) -> bool:
    try:
        renewed = parse_timestamp(lease.spec.renew_time or "")
    except InputError:
        return True
    return (now - renewed).total_seconds() > (lease.spec.lease_duration_seconds or 0)
