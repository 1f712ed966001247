"""Reservations that wait in vain or whose placeholders are refused, as their states say, for `berth doctor`."""

from collections.abc import Iterator, Mapping
from typing import Final

from berth_core import STARVING_JOB_LABEL, Capacity, ReservationPhase, ReservationReason
from berth_sandbox.invariants import ClusterState, Invariant, Violation

_IN_VAIN: Final[Mapping[tuple[ReservationPhase, str], Invariant]] = {
    (ReservationPhase.PENDING, ReservationReason.FENCE_LIMIT): Invariant.ROOM_UNFENCED,
    (ReservationPhase.PENDING, ReservationReason.UNSCHEDULABLE_YET): Invariant.WAITS_IN_VAIN,
}


def find_waits_in_vain(state: ClusterState) -> Iterator[Violation]:
    """Yield the Reservations that wait for capacity in vain, but for those of a controller, which reports it itself."""
    for reservation in state.live_reservations:
        meta, reservation_state = reservation.metadata, reservation.status.state
        is_of_others = STARVING_JOB_LABEL in meta.labels or any(owner.controller for owner in meta.owner_references)
        if reservation_state is None or is_of_others or reservation.spec.capacity is not Capacity.WHEN_FREE:
            continue
        if (invariant := _IN_VAIN.get((reservation_state.phase, reservation_state.reason))) is not None:
            yield Violation(invariant, f"reservation {reservation.key}", reservation_state.message)


def find_refused_placeholders(state: ClusterState) -> Iterator[Violation]:
    """Yield the Reservations whose placeholders admission in Berth's namespace refuses, whoever made them."""
    for reservation in state.live_reservations:
        reservation_state = reservation.status.state
        if reservation_state is not None and reservation_state.reason == ReservationReason.PLACEHOLDER_REFUSED:
            target = f"reservation {reservation.key}"
            yield Violation(Invariant.PLACEHOLDER_REFUSED, target, reservation_state.message)
