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
_MOST_OF_ONE: Final = 500
"""Occurrences of one window that are listed; one may come every minute."""


class WindowChange(StrEnum):
    """What a window does."""

    RESERVES = "reserves"
    """It begins to look for its places, before they are wanted."""
    OPENS = "opens"
    CLOSES = "closes"


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A window reserves, opens or closes."""

    time: str
    what: WindowChange
    window: str
    """As `namespace/name`."""
    start: str
    end: str
    pods: int
    resources: dict[str, int | str]
    """Of each pod."""
    node_selector: dict[str, str]
    reservation: str | None
    """That of the occurrence; None before it reserves."""
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
    """What the windows do within 24 hours, the first first."""

    begins: str = msgspec.field(name="from")
    until: str
    items: tuple[CalendarEntry, ...]
    problems: tuple[CalendarProblem, ...]


def describe_calendar(windows: Iterable[ReservationWindow], now: datetime) -> Calendar:
    """Return what windows that are not suspended do from now on."""
    entries: list[CalendarEntry] = []
    problems: list[CalendarProblem] = []
    for window in windows:
        if window.spec.suspend:
            continue
        try:
            refuse_unreadable("ReservationWindow", window.metadata)
            entries += _entries_of(window, now)
        except InputError as error:
            problems.append(CalendarProblem(window=window.key, problem=str(error)))
    return Calendar(
        begins=format_timestamp(now),
        until=format_timestamp(now + _AHEAD),
        items=tuple(sorted(entries, key=lambda entry: (entry.time, entry.window, entry.start))),
        problems=tuple(sorted(problems, key=lambda problem: problem.window)),
    )


def _entries_of(window: ReservationWindow, now: datetime) -> Iterator[CalendarEntry]:
    """Yield what a window does, by occurrence."""
    active_by_start = {active_occurrence.start: active_occurrence for active_occurrence in window.status.active}
    requests_of_slot(window.spec)
    for occurrence in _occurrences(WindowSchedule.parse(window.spec), now):
        active = active_by_start.get(format_timestamp(occurrence.start))
        for change, moment in (
            (WindowChange.RESERVES, occurrence.reserve_at),
            (WindowChange.OPENS, occurrence.start),
            (WindowChange.CLOSES, occurrence.end),
        ):
            opens_at_once = change is WindowChange.RESERVES and occurrence.reserve_at == occurrence.start
            if now < moment <= now + _AHEAD and not opens_at_once:
                yield _describe(window, occurrence, change, moment, active)


def _occurrences(schedule: WindowSchedule, now: datetime) -> Iterator[Occurrence]:
    """Yield the occurrences that are under way or reserve within the time."""
    begun_occurrences: list[Occurrence] = []
    for occurrence in schedule.back_from(now):
        if occurrence.end <= now or len(begun_occurrences) == _MOST_OF_ONE:
            break
        begun_occurrences.append(occurrence)
    yield from reversed(begun_occurrences)
    next_occurrence = schedule.next_after(now)
    for _ in range(_MOST_OF_ONE):
        if next_occurrence.reserve_at > now + _AHEAD:
            return
        yield next_occurrence
        next_occurrence = schedule.next_after(next_occurrence.reserve_at)


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
