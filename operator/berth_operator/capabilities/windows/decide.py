"""Decide what a ReservationWindow opens and closes, and derive its status.

Everything follows from the schedule, the window's Reservations and its last status: after any downtime, on another
replica or with a clock that was set, the same decision comes out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

import msgspec

from berth_core import (
    MAY_MOVE_ANNOTATION,
    WINDOW_MOVES,
    WINDOW_START_ANNOTATION,
    ActiveOccurrence,
    Condition,
    InputError,
    MayMove,
    Missed,
    Movers,
    Occurrence,
    PastOccurrence,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationWindow,
    ReservationWindowStatus,
    SlotState,
    WindowCondition,
    WindowReason,
    WindowSchedule,
    WindowState,
    WindowTimes,
    count,
    effective_requests,
    first_few,
    format_timestamp,
    read_timestamp,
)
from berth_operator.capabilities.windows.manifests import pod_spec_of

MOST_OPEN: Final = 8
"""Occurrences of one window that are open at once, where its duration is longer than its interval."""

_LATE: Final = timedelta(seconds=60)
"""How long after its start an occurrence still counts as opened in time, and how early one may be after the clock was
put back."""
_MOST_SLOTS: Final = 1000
_NODES_NAMED: Final = 5
_POLICIES_NAMED: Final = 3
_FIRST_BACK_OFF: Final = timedelta(minutes=1)
_LONGEST_BACK_OFF: Final = timedelta(minutes=10)
_MOVERS_SECONDS: Final = 30.0
"""Between two looks for a policy that moves pods for a window that waits for it."""
_SETTLED: Final = frozenset({SlotState.HELD, SlotState.HANDING_OVER, SlotState.TAKEN})
_NO_MOVERS: Final = Movers()
_NOTHING_IDLE: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """What to do for a window, in this order, and the status to write."""

    status: ReservationWindowStatus
    closes: tuple[Reservation, ...] = ()
    """Reservations to delete: of a window switched off, or of times that the schedule no longer has."""
    retimed: tuple[tuple[Reservation, datetime], ...] = ()
    """Reservations with the time at which they end now."""
    opens: tuple[Occurrence, ...] = ()
    missed: tuple[Occurrence, ...] = ()
    left_out: tuple[Occurrence, ...] = ()
    """Occurrences that do not open because too many others are open."""
    wake_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Due:
    """The occurrences that are due without a Reservation."""

    opens: tuple[Occurrence, ...] = ()
    missed: tuple[Occurrence, ...] = ()
    left_out: tuple[Occurrence, ...] = ()
    is_full: bool = False
    """Whether as many occurrences are open as may be."""
    handled: tuple[datetime, ...] = ()
    """Starts that are settled: opened, missed or left out."""


def decide_window(
    window: ReservationWindow,
    reservations: Iterable[Reservation],
    now: datetime,
    *,
    without_nodes: bool = False,
    over_pace: str = "",
    movers: Movers = _NO_MOVERS,
    over_limit: str = "",
    idle_slots: Mapping[str, int] = _NOTHING_IDLE,
) -> WindowDecision:
    """Return what a window opens and closes now.

    `reservations` are all that it controls. `without_nodes`: no node may be used by what is due. `over_pace` says why
    what is due waits although there are nodes. `movers` are the policies that move pods where a window waits for moves.
    `over_limit` says why the window opens nothing. `idle_slots` has by uid of a Reservation how many of the slots that
    it awaits are idle at its start.
    """
    if window.metadata.deletion_timestamp is not None:
        return WindowDecision(window.status)
    by_start = sorted(((start_of(reservation), reservation) for reservation in reservations), key=lambda pair: pair[0])
    try:
        schedule = read_window(window)
    except InputError as error:
        problem = Condition(type="", status="False", reason=WindowReason.INVALID, message=str(error))
        return WindowDecision(
            _status(window, [reservation for _, reservation in by_start], now, problem, state=WindowState.INVALID)
        )
    if window.spec.suspend:
        problem = Condition(
            type="", status="False", reason=WindowReason.SUSPENDED, message="spec.suspend switches the window off"
        )
        ended = [reservation for _, reservation in by_start if not reservation.is_live]
        status = _status(window, ended, now, problem, state=WindowState.SUSPENDED)
        closes = tuple(reservation for _, reservation in by_start if reservation.is_live)
        return WindowDecision(msgspec.structs.replace(status, last_start=None), closes=closes)
    decision = _decide_scheduled(window, schedule, by_start, now, movers, idle_slots)
    if over_limit:
        return _without_opening(window, decision, over_limit, now)
    resumes = _back_off_end([reservation for _, reservation in by_start], now)
    if decision.opens and resumes > now:
        decision = _backed_off(window, decision, resumes, now)
    elif decision.opens and without_nodes:
        text = "no node that spec.nodeSelector and the template choose is ready and open to its pods"
        decision = _with_insufficient(window, decision, WindowReason.NO_NODES, text, now)
    elif decision.opens and over_pace:
        decision = _with_insufficient(window, decision, WindowReason.TOO_MANY_BEGUN, over_pace, now)
    return decision


def _with_insufficient(
    window: ReservationWindow, decision: WindowDecision, reason: WindowReason, text: str, now: datetime
) -> WindowDecision:
    problem = Condition(type="", status="False", reason=reason, message=text)
    sufficient = problem.dated(WindowCondition.SUFFICIENT, window.metadata, window.status.conditions, now)
    rest = (condition for condition in decision.status.conditions if condition.type != sufficient.type)
    return replace(decision, status=msgspec.structs.replace(decision.status, conditions=(*rest, sufficient)))


def _back_off_end(reservations: Iterable[Reservation], now: datetime) -> datetime:
    """Return when a window may begin its next Reservation: now, if limits or quotas did not refuse its last one.

    The pause begins with the last one and doubles with each that was refused in a row. One from the future counts
    nothing: the clock was put back.
    """
    by_creation = sorted(reservations, key=lambda reservation: reservation.metadata.creation_timestamp or "")
    refused = list(takewhile(_is_forbidden, reversed(by_creation)))
    last = read_timestamp(refused[0].metadata.creation_timestamp) if refused else None
    if last is None or last > now:
        return now
    pause = _FIRST_BACK_OFF
    for _ in refused[1:]:
        pause = min(2 * pause, _LONGEST_BACK_OFF)
    return last + pause


def _is_forbidden(reservation: Reservation) -> bool:
    state = reservation.status.state
    return state is not None and state.phase is ReservationPhase.FAILED and state.reason == ReservationReason.FORBIDDEN


def _backed_off(
    window: ReservationWindow, decision: WindowDecision, resumes: datetime, now: datetime
) -> WindowDecision:
    """Return the decision without what is due, which is looked at again when the pause is over."""
    text = (
        "limits or quotas refused the last Reservation of the window (status.history); the next one begins at "
        f"{format_timestamp(resumes)} at the earliest"
    )
    pause_seconds = (resumes - now).total_seconds()
    wake_seconds = min(filter(None, (decision.wake_seconds, pause_seconds)))
    paused = replace(decision, opens=(), wake_seconds=wake_seconds)
    return _with_insufficient(window, paused, WindowReason.BACK_OFF, text, now)


def _without_opening(window: ReservationWindow, decision: WindowDecision, why: str, now: datetime) -> WindowDecision:
    """Return the decision for a window beyond its namespace's limit: what is open ends in time, what is due passes."""
    problem = Condition(type="", status="False", reason=WindowReason.TOO_MANY_WINDOWS, message=why)
    scheduled = problem.dated(WindowCondition.SCHEDULED, window.metadata, window.status.conditions, now)
    rest = (condition for condition in decision.status.conditions if condition.type != scheduled.type)
    status = msgspec.structs.replace(decision.status, next=None, conditions=(scheduled, *rest))
    return replace(decision, status=status, opens=(), missed=(), left_out=())


def read_window(window: ReservationWindow) -> WindowSchedule:
    """Return the schedule of a window that can open; raises `InputError` with the field."""
    if window.metadata.unreadable:
        raise InputError("spec", None, "what the schema describes", said=f"unreadable ({window.metadata.unreadable})")
    if not 1 <= window.spec.pod_num_to_reserve <= _MOST_SLOTS:
        raise InputError("podNumToReserve", window.spec.pod_num_to_reserve, f"1 to {_MOST_SLOTS}")
    if not effective_requests(pod_spec_of(window)):
        raise InputError("resources", None, "something that each pod requests", said="nothing")
    return WindowSchedule.parse(window.spec)


def start_of(reservation: Reservation) -> datetime:
    """Return the start of a Reservation's occurrence, by default its creation."""
    meta = reservation.metadata
    started = read_timestamp(meta.annotations.get(WINDOW_START_ANNOTATION)) or read_timestamp(meta.creation_timestamp)
    return started or datetime.max.replace(tzinfo=UTC)


def _decide_scheduled(
    window: ReservationWindow,
    schedule: WindowSchedule,
    own: Sequence[tuple[datetime, Reservation]],
    now: datetime,
    movers: Movers,
    idle_slots: Mapping[str, int],
) -> WindowDecision:
    closes = tuple(
        reservation for start, reservation in own if reservation.is_live and not _is_due(schedule, start, now)
    )
    kept_by_start = [(start, reservation) for start, reservation in own if reservation not in closes]
    retimed_ends = tuple(
        (reservation, end)
        for start, reservation in kept_by_start
        if reservation.is_live and read_timestamp(reservation.spec.expires) != (end := schedule.starting(start).end)
    )
    ends = {reservation.metadata.uid: end for reservation, end in retimed_ends}
    over_by_start = [(start, reservation) for start, reservation in kept_by_start if not reservation.is_live]
    for start, reservation in over_by_start:
        expires = read_timestamp(reservation.spec.expires)
        if expires is not None and schedule.has(start):  # never later, for what is over does not open once more
            ends[reservation.metadata.uid] = min(expires, schedule.starting(start).end)
    due = _find_due(window, schedule, kept_by_start, now)
    following = schedule.next_after(now)
    scheduled = _on_schedule(window, following, due)
    status = _status(
        window,
        [reservation for _, reservation in kept_by_start],
        now,
        scheduled,
        ends=ends,
        edited_away={reservation.metadata.uid for start, reservation in over_by_start if not schedule.has(start)},
        movers=movers,
        idle_slots=idle_slots,
    )
    status = msgspec.structs.replace(
        status,
        next=WindowTimes(
            reserve_at=format_timestamp(following.reserve_at),
            start=format_timestamp(following.start),
            end=format_timestamp(following.end),
        ),
        last_start=_latest(due.handled),
    )
    return WindowDecision(
        status,
        closes=closes,
        retimed=retimed_ends,
        opens=due.opens,
        missed=due.missed,
        left_out=due.left_out,
        wake_seconds=min(
            [
                _seconds_to_next(status, following, now),
                *(_MOVERS_SECONDS for _, reservation in kept_by_start if waits_for_moves(reservation)),
            ]
        ),
    )


def _is_due(schedule: WindowSchedule, start: datetime, now: datetime) -> bool:
    """Return whether the schedule has an occurrence that reserves by now.

    A Reservation far ahead of its time is left from a clock that went ahead.
    """
    return start - schedule.lead <= now + _LATE and schedule.has(start)


def _find_due(
    window: ReservationWindow,
    schedule: WindowSchedule,
    kept: Sequence[tuple[datetime, Reservation]],
    now: datetime,
) -> _Due:
    last_start = read_timestamp(window.status.last_start)
    if last_start is not None and last_start > now + schedule.lead + _LATE:  # the clock was put back
        last_start = None
    known_starts = {start for start, _ in kept}
    ended_occurrence: Occurrence | None = None
    due_occurrences: list[Occurrence] = []
    for occurrence in schedule.back_from(now):
        if occurrence.end <= now:
            ended_occurrence = occurrence
            break
        if (last_start is not None and occurrence.start <= last_start) or len(due_occurrences) > MOST_OPEN:
            break
        if occurrence.start not in known_starts:
            due_occurrences.append(occurrence)
    due_occurrences.reverse()
    skipped = [
        candidate
        for candidate in due_occurrences
        if window.spec.missed is Missed.SKIP and candidate.start + _LATE < now
    ]
    wanted_occurrences = [candidate for candidate in due_occurrences if candidate not in skipped]
    room = max(0, MOST_OPEN - sum(reservation.is_live for _, reservation in kept))
    is_missed = (
        ended_occurrence is not None
        and last_start is not None
        and last_start < ended_occurrence.start
        and ended_occurrence.start not in known_starts
    )
    missed = [
        *([ended_occurrence] if ended_occurrence is not None and is_missed else []),
        *(skipped if last_start is not None else []),
    ]
    settled_occurrences = [
        *skipped,
        *wanted_occurrences[room:],
        *([ended_occurrence] if ended_occurrence is not None else []),
    ]
    return _Due(
        opens=tuple(wanted_occurrences[:room]),
        missed=tuple(missed),
        left_out=tuple(wanted_occurrences[room:]),
        is_full=len(wanted_occurrences) >= room,
        handled=(
            *([last_start] if last_start is not None else []),
            *(start for start in known_starts if start <= now + schedule.lead + _LATE),
            *(settled_occurrence.start for settled_occurrence in settled_occurrences),
        ),
    )


def _latest(starts: Iterable[datetime]) -> str | None:
    latest = max(starts, default=None)
    return None if latest is None else format_timestamp(latest)


def _on_schedule(window: ReservationWindow, following: Occurrence, due: _Due) -> Condition:
    if due.is_full:
        text = f"{MOST_OPEN} occurrences are open at once; those that begin before one of them ends are left out"
        return Condition(type="", status="False", reason=WindowReason.OVERLAPPING, message=text)
    zone = window.spec.time_zone or "UTC"
    reserves, starts = format_timestamp(following.reserve_at), format_timestamp(following.start)
    text = f"{window.spec.schedule or window.spec.cron} in {zone}: reserves at {reserves}, starts at {starts}"
    return Condition(type="", status="True", reason=WindowReason.ON_SCHEDULE, message=text)


def _seconds_to_next(status: ReservationWindowStatus, following: Occurrence, now: datetime) -> float:
    """Return the seconds until the next occurrence reserves, or an active one begins or ends."""
    coming_times = [following.reserve_at]
    for occurrence in status.active:
        coming_times += [
            time
            for text in (occurrence.start, occurrence.end)
            if (time := read_timestamp(text)) is not None and time > now
        ]
    return max(0.0, (min(coming_times) - now).total_seconds())


# --- status ----------------------------------------------------------------------------------------------------------


def _status(
    window: ReservationWindow,
    reservations: Sequence[Reservation],
    now: datetime,
    scheduled: Condition,
    *,
    ends: dict[str, datetime] | None = None,
    edited_away: Collection[str] = (),
    state: WindowState | None = None,
    movers: Movers = _NO_MOVERS,
    idle_slots: Mapping[str, int] = _NOTHING_IDLE,
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
        expected_at=max(expected_times) if waiting_slots and len(expected_times) == len(waiting_slots) else None,
    )


def _nodes_of(reservation: Reservation) -> tuple[str, ...]:
    return tuple(sorted({node_name for task in reservation.spec.tasks for node_name in task.node_names}))


def _lasts(one: ActiveOccurrence, now: datetime) -> bool:
    end = read_timestamp(one.end)
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
    for gone_occurrence in window.status.active:
        past_by_name.setdefault(
            gone_occurrence.reservation,
            _past(gone_occurrence, "Taken" if gone_occurrence.phase == ReservationPhase.SUCCEEDED else "Ended"),
        )
    past_occurrences = [
        entry for reservation_name, entry in past_by_name.items() if reservation_name not in active_names
    ]
    return tuple(sorted(past_occurrences, key=lambda entry: entry.start, reverse=True)[: window.spec.history_limit])


def _past(one: ActiveOccurrence, outcome: str) -> PastOccurrence:
    return PastOccurrence(
        reservation=one.reservation,
        start=one.start,
        end=one.end,
        outcome=outcome,
        desired=one.desired,
        taken=one.taken,
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
    """Return whether slots of a Reservation are neither held nor taken."""
    return reservation.is_live and reservation.phase is not ReservationPhase.AVAILABLE


def waits_for_moves(reservation: Reservation) -> bool:
    """Return whether pods may be moved for slots of a Reservation that wait."""
    may_move = reservation.metadata.annotations.get(MAY_MOVE_ANNOTATION) == MayMove.CONSOLIDATE
    return may_move and waits_for_capacity(reservation)


def _sufficient(reservations: Sequence[Reservation], movers: Movers, idle_slots: Mapping[str, int]) -> Condition:
    """Return whether all active occurrences have their capacity; of several what the first says that lacks any."""
    if not reservations:
        return Condition(
            type="", status="Unknown", reason=WindowReason.NOT_RESERVING, message="nothing is reserved now"
        )
    by_reservation = [
        (_sufficient_for(reservation, movers, idle_slots.get(reservation.metadata.uid, 0)), reservation)
        for reservation in reservations
    ]
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
    """Return whether the capacity of an occurrence is there at its start.

    `idle_slots` are the slots that it awaits and that are idle then.
    """
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
