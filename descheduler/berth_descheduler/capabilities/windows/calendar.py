"""What ReservationWindows open and close in the next hours, as a document of the command and of the HTTP interface."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from berth_core import (
    ActiveOccurrence,
    InputError,
    Occurrence,
    ReservationWindow,
    WindowSchedule,
    format_timestamp,
    refuse_unreadable,
    requests_of_slot,
)

_AHEAD: Final = timedelta(hours=24)
_MAX_OCCURRENCES_OF_A_WINDOW: Final = 500
_MAX_OCCURRENCES: Final = 2_000
"""Occurrences that are computed for all windows together, if these are not more: windows may open every minute."""
_MAX_UNDER_WAY: Final = 24
"""Occurrences of one window under way at once that are listed, however many windows there are."""
_MAX_ENTRIES: Final = 2_000
"""Entries that are listed of all windows; the calendar ends earlier where there are more."""


class WindowChange(StrEnum):
    """What a window does."""

    RESERVES = "reserves"
    """It begins to look for its places, before they are wanted."""
    OPENS = "opens"
    CLOSES = "closes"


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The time at which a window reserves, opens or closes."""

    time: str
    what: WindowChange
    window: str
    """The `namespace/name` of the window."""
    start: str
    end: str
    pods: int
    resources: dict[str, int | str]
    """What each pod requests."""
    node_selector: dict[str, str]
    reservation: str | None
    """The Reservation of the occurrence; None before it reserves."""
    nodes: tuple[str, ...]
    held: int
    taken: int
    expected_at: str | None
    """When its last place will be free, as far as that is known."""


class CalendarProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A window that never opens."""

    window: str
    problem: str


class Calendar(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the windows do within 24 hours, in the order of time; `until` is earlier where that would be too much."""

    begins: str = msgspec.field(name="from")
    until: str
    items: tuple[CalendarEntry, ...]
    problems: tuple[CalendarProblem, ...]


def describe_calendar(windows: Iterable[ReservationWindow], now: datetime) -> Calendar:
    """Return what windows that are not suspended do from now on."""
    active_windows = [window for window in windows if not window.spec.suspend]
    share = _MAX_OCCURRENCES // max(1, len(active_windows))
    max_occurrences = min(_MAX_OCCURRENCES_OF_A_WINDOW, max(1, share))
    entries: list[CalendarEntry] = []
    problems: list[CalendarProblem] = []
    until = format_timestamp(now + _AHEAD)
    for window in active_windows:
        try:
            refuse_unreadable("ReservationWindow", window.metadata)
            requests_of_slot(window.spec)
            occurrences, cut_at = _occurrences(WindowSchedule.parse(window.spec), now, max_occurrences)
        except InputError as error:
            problems.append(CalendarProblem(window=window.key, problem=str(error)))
            continue
        entries += _entries_of(window, occurrences, now)
        until = min(until, format_timestamp(cut_at))
    entries.sort(key=lambda entry: (entry.time, entry.window, entry.start))
    if len(entries) > _MAX_ENTRIES:
        until = min(until, entries[_MAX_ENTRIES].time)
    if until < format_timestamp(now + _AHEAD):
        entries = [entry for entry in entries if entry.time < until]
    return Calendar(
        begins=format_timestamp(now),
        until=until,
        items=tuple(entries),
        problems=tuple(sorted(problems, key=lambda problem: problem.window)),
    )


def _entries_of(window: ReservationWindow, occurrences: Iterable[Occurrence], now: datetime) -> Iterator[CalendarEntry]:
    """Yield what a window does, by occurrence."""
    active_by_start = {active_occurrence.start: active_occurrence for active_occurrence in window.status.active}
    for occurrence in occurrences:
        active = active_by_start.get(format_timestamp(occurrence.start))
        for change, moment in (
            (WindowChange.RESERVES, occurrence.reserve_at),
            (WindowChange.OPENS, occurrence.start),
            (WindowChange.CLOSES, occurrence.end),
        ):
            opens_at_once = change is WindowChange.RESERVES and occurrence.reserve_at == occurrence.start
            if now < moment <= now + _AHEAD and not opens_at_once:
                yield _describe(window, occurrence, change, moment, active)


def _occurrences(
    schedule: WindowSchedule, now: datetime, max_occurrences: int
) -> tuple[tuple[Occurrence, ...], datetime]:
    """Return the occurrences that are under way or reserve within the time, and until when they are all of them.

    Raises `InputError` if too many are under way at once to say which of them closes first.
    """
    begun_occurrences: list[Occurrence] = []
    for occurrence in schedule.back_from(now):
        if occurrence.end <= now:
            break
        if len(begun_occurrences) == max(max_occurrences, _MAX_UNDER_WAY):
            said = f"such that more than {len(begun_occurrences)} occurrences are under way now"
            raise InputError("schedule", None, "fewer at a time, of which the first to close is known", said=said)
        begun_occurrences.append(occurrence)
    occurrences = begun_occurrences[::-1]
    next_occurrence = schedule.next_after(now)
    for _ in range(max_occurrences):
        if next_occurrence.reserve_at > now + _AHEAD:
            return tuple(occurrences), now + _AHEAD
        occurrences.append(next_occurrence)
        next_occurrence = schedule.next_after(next_occurrence.reserve_at)
    return tuple(occurrences), min(now + _AHEAD, next_occurrence.reserve_at)


def _describe(
    window: ReservationWindow,
    occurrence: Occurrence,
    change: WindowChange,
    moment: datetime,
    active: ActiveOccurrence | None,
) -> CalendarEntry:
    return CalendarEntry(
        time=format_timestamp(moment),
        what=change,
        window=window.key,
        start=format_timestamp(occurrence.start),
        end=format_timestamp(occurrence.end),
        pods=window.spec.pod_num_to_reserve,
        resources=dict(window.spec.resources),
        node_selector=dict(window.spec.node_selector),
        reservation=active.reservation if active else None,
        nodes=tuple(active.nodes) if active else (),
        held=active.held if active else 0,
        taken=active.taken if active else 0,
        expected_at=active.expected_at if active else None,
    )
