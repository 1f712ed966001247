"""The status of a ReservationWindow: its active and past occurrences, and whether they have their capacity."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from berth_core import (
    MAY_MOVE_ANNOTATION,
    WINDOW_MOVES,
    WINDOW_START_ANNOTATION,
    ActiveOccurrence,
    Condition,
    MayMove,
    Movers,
    PastOccurrence,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationWindow,
    ReservationWindowStatus,
    SlotState,
    WindowCondition,
    WindowReason,
    WindowState,
    count,
    first_few,
    format_timestamp,
    read_timestamp,
)

_NODES_NAMED: Final = 5
_POLICIES_NAMED: Final = 3
_SETTLED: Final = frozenset({SlotState.HELD, SlotState.HANDING_OVER, SlotState.TAKEN})
NO_MOVERS: Final = Movers()
NOTHING_IDLE: Final[Mapping[str, int]] = {}


def start_of(reservation: Reservation) -> datetime:
    """Return the start of a Reservation's occurrence, by default its creation."""
    meta = reservation.metadata
    started = read_timestamp(meta.annotations.get(WINDOW_START_ANNOTATION)) or read_timestamp(meta.creation_timestamp)
    # Not dated yet: the API server has not answered its creation, so it is the newest.
    return started or datetime.max.replace(tzinfo=UTC)


def compute_window_status(
    window: ReservationWindow,
    reservations: Sequence[Reservation],
    now: datetime,
    scheduled: Condition,
    *,
    ends: dict[str, datetime] | None = None,
    edited_away: Collection[str] = (),
    state: WindowState | None = None,
    movers: Movers = NO_MOVERS,
    idle_slots: Mapping[str, int] = NOTHING_IDLE,
) -> ReservationWindowStatus:
    """Return the status.

    `ends` has by uid the ends that are about to be written, or by which what is over is past. `edited_away` are the
    uids of what is over and whose start the schedule no longer has.
    """
    described = [
        (_describe(reservation, (ends or {}).get(reservation.metadata.uid)), reservation)
        for reservation in reservations
    ]
    active = [
        (occurrence, reservation)
        for occurrence, reservation in described
        if reservation.is_live or (_lasts(occurrence, now) and reservation.metadata.uid not in edited_away)
    ]
    active_occurrences = tuple(occurrence for occurrence, _ in active)
    conditions = (
        (WindowCondition.SCHEDULED, scheduled),
        (WindowCondition.SUFFICIENT, _sufficient([reservation for _, reservation in active], movers, idle_slots)),
    )
    return ReservationWindowStatus(
        observed_generation=window.metadata.generation,
        state=state or _state(active_occurrences, now),
        active=active_occurrences,
        history=_history(window, described, active_occurrences),
        last_start=window.status.last_start,
        conditions=tuple(
            condition.dated(type_, window.metadata, window.status.conditions, now) for type_, condition in conditions
        ),
    )


def _describe(reservation: Reservation, end: datetime | None) -> ActiveOccurrence:
    slots = reservation.status.slots
    waiting_slots = [slot for slot in slots if slot.state is SlotState.PENDING]
    expected_times = [slot.expected_at for slot in waiting_slots if slot.expected_at is not None]
    return ActiveOccurrence(
        reservation=reservation.metadata.name,
        start=format_timestamp(start_of(reservation)),
        end=format_timestamp(end) if end is not None else reservation.spec.expires or "",
        phase=reservation.phase.value,
        nodes=_nodes_of(reservation),
        desired=reservation.spec.replicas,
        held=sum(slot.state in {SlotState.HELD, SlotState.HANDING_OVER} for slot in slots),
        taken=sum(slot.state is SlotState.TAKEN for slot in slots),
        # Only if it is known of each: one pod without an expected end leaves the whole occurrence without a time.
        expected_at=max(expected_times) if waiting_slots and len(expected_times) == len(waiting_slots) else None,
    )


def _nodes_of(reservation: Reservation) -> tuple[str, ...]:
    return tuple(sorted({node_name for task in reservation.spec.tasks for node_name in task.node_names}))


def _lasts(occurrence: ActiveOccurrence, now: datetime) -> bool:
    end = read_timestamp(occurrence.end)
    return end is not None and end > now


def _state(active: Sequence[ActiveOccurrence], now: datetime) -> WindowState:
    if not active:
        return WindowState.CLOSED
    has_begun = any((start := read_timestamp(occurrence.start)) is not None and start <= now for occurrence in active)
    return WindowState.OPEN if has_begun else WindowState.RESERVING


def _history(
    window: ReservationWindow,
    seen: Sequence[tuple[ActiveOccurrence, Reservation]],
    active: Sequence[ActiveOccurrence],
) -> tuple[PastOccurrence, ...]:
    """Return the past occurrences, the latest first: those seen, those that were active before, and earlier ones."""
    active_names = {occurrence_shown.reservation for occurrence_shown in active}
    past_by_name: dict[str, PastOccurrence] = {}
    for occurrence, reservation in seen:
        if occurrence.reservation not in active_names:
            past_by_name[occurrence.reservation] = _past(occurrence, _outcome(reservation))
    for earlier in window.status.history:
        past_by_name.setdefault(earlier.reservation, earlier)
    # Its Reservation was deleted since the last status was written, by its ttl or by people; what is left of it is in
    # that status.
    for gone_occurrence in window.status.active:
        past_by_name.setdefault(
            gone_occurrence.reservation,
            _past(gone_occurrence, "Taken" if gone_occurrence.phase == ReservationPhase.SUCCEEDED else "Ended"),
        )
    past_occurrences = [
        entry for reservation_name, entry in past_by_name.items() if reservation_name not in active_names
    ]
    return tuple(sorted(past_occurrences, key=lambda entry: entry.start, reverse=True)[: window.spec.history_limit])


def _past(occurrence: ActiveOccurrence, outcome: str) -> PastOccurrence:
    return PastOccurrence(
        reservation=occurrence.reservation,
        start=occurrence.start,
        end=occurrence.end,
        outcome=outcome,
        desired=occurrence.desired,
        taken=occurrence.taken,
    )


def _outcome(reservation: Reservation) -> str:
    """Return what became of an occurrence, in a word or with the reason of its failure."""
    state = reservation.status.state
    if reservation.phase is ReservationPhase.SUCCEEDED:
        return "Taken"
    if state is None or state.reason in {ReservationReason.EXPIRED, ReservationReason.DELETED}:
        return "Ended"
    return f"{state.phase.value}: {state.reason}"


def waits_for_capacity(reservation: Reservation) -> bool:
    """Return whether a live Reservation lacks slots that it wants."""
    return reservation.is_live and reservation.phase is not ReservationPhase.AVAILABLE


def waits_for_moves(reservation: Reservation) -> bool:
    """Return whether pods may be moved for slots of a Reservation that wait."""
    may_move = reservation.metadata.annotations.get(MAY_MOVE_ANNOTATION) == MayMove.CONSOLIDATE
    return may_move and waits_for_capacity(reservation)


def _sufficient(reservations: Sequence[Reservation], movers: Movers, idle_slots: Mapping[str, int]) -> Condition:
    """Return whether all active occurrences have their capacity; the message is about the first that lacks any."""
    if not reservations:
        return Condition(
            type="", status="Unknown", reason=WindowReason.NOT_RESERVING, message="nothing is reserved now"
        )
    by_reservation = [
        (_sufficient_for(reservation, movers, idle_slots.get(reservation.metadata.uid, 0)), reservation)
        for reservation in reservations
    ]
    # A condition has one message; the first that lacks capacity is what people have to look at.
    condition, reservation = next((pair for pair in by_reservation if pair[0].status != "True"), by_reservation[0])
    if len(reservations) == 1:
        return condition
    places = count(sum(other.spec.replicas for other in reservations), "place")
    start = format_timestamp(start_of(reservation))
    text = f"{len(reservations)} occurrences overlap, with {places} together; that of {start}: {condition.message}"
    return msgspec.structs.replace(condition, message=text)


def _sufficient_for(reservation: Reservation, movers: Movers, idle_slots: int) -> Condition:
    condition = _sufficient_by_itself(reservation, idle_slots)
    if condition.status != "False" or not waits_for_moves(reservation):
        return condition
    if condition.reason == WindowReason.FENCE_LIMIT:
        return condition  # no move makes room on a node that may not be fenced
    if movers.alone:
        policies = first_few(movers.alone, _POLICIES_NAMED)
        return msgspec.structs.replace(
            condition, message=f"{condition.message}; pods are moved by the policy {policies}"
        )
    if movers.on_approval:
        policies = first_few(movers.on_approval, _POLICIES_NAMED)
        text = f"{condition.message}; pods are moved once a plan of the policy {policies} is approved"
        return msgspec.structs.replace(condition, reason=WindowReason.AWAITING_APPROVAL, message=text)
    text = f"{condition.message}; no pods are moved: no policy with {WINDOW_MOVES} is run by a descheduler"
    return msgspec.structs.replace(condition, reason=WindowReason.NO_MOVES, message=text)


def _sufficient_by_itself(reservation: Reservation, idle_slots: int) -> Condition:
    """Return whether the capacity of an occurrence is there at its start, when `idle_slots` of its awaited ones fit."""
    state = reservation.status.state
    if state is not None and (state.phase is ReservationPhase.FAILED or state.reason == WindowReason.FENCE_LIMIT):
        return Condition(type="", status="False", reason=state.reason, message=state.message)
    slots = reservation.spec.replicas
    if reservation.phase in {ReservationPhase.AVAILABLE, ReservationPhase.SUCCEEDED}:
        text = f"{count(slots, 'slot')} held or taken"
        return Condition(type="", status="True", reason=WindowReason.HELD, message=text)
    start = start_of(reservation)
    late = [
        expected_at
        for slot in reservation.status.slots
        if (expected_at := read_timestamp(slot.expected_at)) and expected_at > start
    ]
    if late:
        text = f"{count(len(late), 'slot')} expected after the start, the last at {format_timestamp(max(late))}"
        return Condition(type="", status="False", reason=WindowReason.LATE, message=text)
    settled = sum(slot.state in _SETTLED for slot in reservation.status.slots)
    nodes = first_few(_nodes_of(reservation), _NODES_NAMED)
    held_text = f"besides {settled} that are held or taken, " if settled else ""
    closed = next((slot for slot in reservation.status.slots if slot.reason == ReservationReason.NODE_CLOSED), None)
    text = (
        f"{held_text}what is idle at the start on {nodes} holds {idle_slots} of {count(slots - settled, 'slot')}"
        f"{'' if closed is None else f'; {closed.message}'}"
    )
    if idle_slots >= slots - settled:
        return Condition(type="", status="True", reason=WindowReason.IDLE_SUFFICES, message=text)
    return Condition(type="", status="False", reason=WindowReason.IDLE_INSUFFICIENT, message=text)
