"""Decide what a ReservationWindow opens and closes.

Everything follows from the schedule, the window's Reservations and its last status: after any downtime, on another
replica or with a clock that was set, the same decision comes out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from operator import itemgetter
from typing import Final

import msgspec

from berth_core import (
    Condition,
    InputError,
    Missed,
    Movers,
    Occurrence,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationWindow,
    ReservationWindowStatus,
    WindowCondition,
    WindowReason,
    WindowSchedule,
    WindowState,
    WindowTimes,
    effective_requests,
    format_timestamp,
    read_timestamp,
)
from berth_operator.capabilities.windows.manifests import pod_spec_of
from berth_operator.capabilities.windows.status import (
    NO_MOVERS,
    NOTHING_IDLE,
    compute_window_status,
    start_of,
    waits_for_moves,
)

MAX_OPEN: Final = 8
"""Occurrences of one window that are open at once, where its duration is longer than its interval."""

_LATE: Final = timedelta(seconds=60)
"""How long after its start an occurrence counts as opened in time, and how early one may be after the clock was set
back."""
# As the schema of windows has it.
_MAX_SLOTS: Final = 1000
_FIRST_BACK_OFF: Final = timedelta(minutes=1)
_LONGEST_BACK_OFF: Final = timedelta(minutes=10)
_MOVERS_SECONDS: Final = 30.0
"""Between two searches for a policy that moves pods for a window that waits for moves."""


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
    """Starts of occurrences that have been opened, missed or left out."""


def decide_window(
    window: ReservationWindow,
    reservations: Iterable[Reservation],
    now: datetime,
    *,
    without_nodes: bool = False,
    over_pace: str = "",
    movers: Movers = NO_MOVERS,
    over_limit: str = "",
    idle_slots: Mapping[str, int] = NOTHING_IDLE,
) -> WindowDecision:
    """Return what a window, which controls `reservations`, opens and closes now.

    What is due does not open if there is no node for it (`without_nodes`), if too many have begun this minute (why:
    `over_pace`), or if the namespace has too many windows (why: `over_limit`). `movers` are the policies that move pods
    for windows. `idle_slots` has by a Reservation's uid how many of its awaited slots are idle at its start.
    """
    if window.metadata.deletion_timestamp is not None:
        return WindowDecision(window.status)
    # By the start in their annotation: a Reservation is created `startReserveAgo` earlier, and that may have been
    # changed since.
    by_start = sorted(((start_of(reservation), reservation) for reservation in reservations), key=itemgetter(0))
    own = [reservation for _, reservation in by_start]
    try:
        schedule = read_window(window)
    except InputError as error:
        problem = Condition(type="", status="False", reason=WindowReason.INVALID, message=str(error))
        return WindowDecision(compute_window_status(window, own, now, problem, state=WindowState.INVALID))
    if window.spec.suspend:
        problem = Condition(
            type="", status="False", reason=WindowReason.SUSPENDED, message="spec.suspend switches the window off"
        )
        ended = [reservation for reservation in own if not reservation.is_live]
        status = compute_window_status(window, ended, now, problem, state=WindowState.SUSPENDED)
        # What is over stays in the history; only what still holds places is deleted.
        closes = tuple(reservation for reservation in own if reservation.is_live)
        return WindowDecision(msgspec.structs.replace(status, last_start=None), closes=closes)
    decision = _decide_scheduled(window, schedule, by_start, now, movers, idle_slots)
    if over_limit:
        return _without_opening(window, decision, over_limit, now)
    resumes = _back_off_end(own, now)
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

    The pause begins with the last one and doubles with each that was refused in a row.
    """
    by_creation = sorted(reservations, key=lambda reservation: reservation.metadata.creation_timestamp or "")
    refused = list(takewhile(_is_forbidden, reversed(by_creation)))
    # By the API server's clock, which dates all Reservations alike, whichever replica made them.
    last = read_timestamp(refused[0].metadata.creation_timestamp) if refused else None
    if last is None or last > now:  # a creation in the future: the clock was set back
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
    """Return the decision without what is due, which is decided again when the pause is over."""
    text = (
        "limits or quotas refused the last Reservation of the window (status.history); the next one begins at "
        f"{format_timestamp(resumes)} at the earliest"
    )
    pause_seconds = (resumes - now).total_seconds()
    wake_seconds = min(filter(None, (decision.wake_seconds, pause_seconds)))
    paused = replace(decision, opens=(), wake_seconds=wake_seconds)
    return _with_insufficient(window, paused, WindowReason.BACK_OFF, text, now)


def _without_opening(window: ReservationWindow, decision: WindowDecision, why: str, now: datetime) -> WindowDecision:
    """Return the decision for a window beyond its namespace's limit: what is open ends in time, nothing opens."""
    problem = Condition(type="", status="False", reason=WindowReason.TOO_MANY_WINDOWS, message=why)
    scheduled = problem.dated(WindowCondition.SCHEDULED, window.metadata, window.status.conditions, now)
    rest = (condition for condition in decision.status.conditions if condition.type != scheduled.type)
    status = msgspec.structs.replace(decision.status, next=None, conditions=(scheduled, *rest))
    return replace(decision, status=status, opens=(), missed=(), left_out=())


def read_window(window: ReservationWindow) -> WindowSchedule:
    """Return the schedule of a window that can open; raises `InputError` with the field."""
    if window.metadata.unreadable:
        raise InputError("spec", None, "what the schema describes", said=f"unreadable ({window.metadata.unreadable})")
    if not 1 <= window.spec.pod_num_to_reserve <= _MAX_SLOTS:
        raise InputError("podNumToReserve", window.spec.pod_num_to_reserve, f"1 to {_MAX_SLOTS}")
    if not effective_requests(pod_spec_of(window)):
        raise InputError("resources", None, "something that each pod requests", said="nothing")
    return WindowSchedule.parse(window.spec)


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
    status = compute_window_status(
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
    """Return whether the schedule has an occurrence that reserves by now."""
    # A Reservation far ahead of its time is left from a clock that was ahead.
    return start - schedule.lead <= now + _LATE and schedule.has(start)


def _find_due(
    window: ReservationWindow,
    schedule: WindowSchedule,
    kept: Sequence[tuple[datetime, Reservation]],
    now: datetime,
) -> _Due:
    last_start = read_timestamp(window.status.last_start)
    if last_start is not None and last_start > now + schedule.lead + _LATE:  # the clock was set back
        last_start = None
    known_starts = {start for start, _ in kept}
    ended_occurrence: Occurrence | None = None
    due_occurrences: list[Occurrence] = []
    # Backwards from now: after a year without an operator a window of every minute must not cost a year of occurrences.
    for occurrence in schedule.back_from(now):
        if occurrence.end <= now:
            ended_occurrence = occurrence
            break
        if (last_start is not None and occurrence.start <= last_start) or len(due_occurrences) > MAX_OPEN:
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
    # A window of 2 h every 5 min would otherwise hold 24 times its places at once.
    room = max(0, MAX_OPEN - sum(reservation.is_live for _, reservation in kept))
    # Only the last one that is over is reported: an event per occurrence of a long outage would say no more.
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
        text = f"{MAX_OPEN} occurrences are open at once; those that begin before one of them ends are left out"
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
