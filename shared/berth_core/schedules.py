"""Schedules by the wall clock of a time zone: cron lines, reservation windows, lent nodes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter

from berth_core.clock import format_duration, parse_duration
from berth_core.errors import InputError
from berth_core.policies import ScheduledReason
from berth_core.revocable_zones import RevocableZoneSpec, Weekday
from berth_core.windows import Occurrence, ReservationWindowSpec

_FIELDS: Final = 5
_EXPECTED_LINE: Final = (
    "a cron line of five fields, minute, hour, day of the month, month and day of the week, such as 0 2 * * *"
)
_RANDOM_FIELD: Final = re.compile(r"(?i)(^|[\s,])[hr]($|[\s,(/])")
"""Fields that croniter would fill by a hash or at random, differently after every start."""

_SEARCH_START: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - wall-clock time


@dataclass(frozen=True)
class CronSchedule:
    """A cron line over the wall clock of a time zone.

    A wall-clock time that comes twice, when summer time ends, counts the first time; a time that is skipped, when
    summer time begins, counts at the moment when the clock is put forward. So every time of the line counts once.
    """

    line: str
    zone: ZoneInfo

    @classmethod
    def parse(cls, line: str, time_zone: str = "") -> "CronSchedule":
        """Parse a cron line; raises `InputError` with the field `cron` or `timeZone`."""
        schedule = cls(" ".join(line.split()), _read_zone(time_zone))
        if len(line.split()) != _FIELDS or _RANDOM_FIELD.search(line):
            raise InputError("cron", line, _EXPECTED_LINE)
        try:
            croniter(schedule.line, _SEARCH_START).get_next(datetime)
        except CroniterBadDateError as error:
            raise InputError("cron", line, "a day that there is in one of the months: this one never comes") from error
        except (CroniterError, ValueError, KeyError, IndexError) as error:
            raise InputError("cron", line, _EXPECTED_LINE) from error
        return schedule

    @property
    def reason(self) -> ScheduledReason:
        return ScheduledReason.CRON

    @cached_property
    def text(self) -> str:
        return f"cron {self.line} in {self.zone.key}"

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after an instant."""
        return self._following(instant)[1]

    def latest(self, base: datetime, instant: datetime) -> datetime | None:
        """Return the last time in (`base`, `instant`], None if there is none."""
        following, _ = self._following(instant)
        previous = croniter(self.line, following).get_prev(datetime)
        fires_at = _instant_of(previous, self.zone)
        return fires_at if fires_at > base else None

    def _following(self, instant: datetime) -> tuple[datetime, datetime]:
        """Return wall-clock time and instant of the first time after `instant`.

        Instants are in the order of their wall-clock times, so the first late enough is the answer.
        """
        wall_time = instant.astimezone(self.zone).replace(tzinfo=None)
        times = croniter(self.line, wall_time)
        while True:
            wall_time = times.get_next(datetime)
            fires_at = _instant_of(wall_time, self.zone)
            if fires_at > instant:
                return wall_time, fires_at


def _read_zone(name: str) -> ZoneInfo:
    """Return a time zone, UTC for ""; raises `InputError` with the field `timeZone`."""
    try:
        return ZoneInfo(name or "UTC")
    except (OSError, ValueError, LookupError) as error:
        expected = "a time zone of the IANA database, such as Europe/Berlin"
        raise InputError("timeZone", name, expected) from error


def _instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the one instant at which a wall-clock time counts.

    With `fold=0` a time that comes twice is its first coming. A skipped time does not come back from UTC as it was;
    `fold=0` and `fold=1` then give instants after and before the gap (PEP 495).
    """
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    return _end_of_gap(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def _end_of_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the second at which a zone's clock is put forward, by bisection between instants around it.

    zoneinfo does not show its transitions.
    """
    old = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=int((after - before).total_seconds()) // 2)
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after


# --- reservation windows ---------------------------------------------------------------------------------------------
# Occurrences of a ReservationWindow: when capacity is reserved, when each window begins and when it ends.

_LONGEST: Final = timedelta(hours=168)
_HOURS_OF_A_DAY: Final = 24
_TICK: Final = timedelta(microseconds=1)
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_FROM_TO: Final = re.compile(r"([0-9]{1,2}) ([0-9]{1,2}) - ([0-9]{1,2}) (.+)")
"""The form `0 3 - 4 * * *`: from 3 to 4 o'clock, each at this minute."""


@dataclass(frozen=True)
class WindowSchedule:
    """The occurrences of a window, each by its start."""

    starts: CronSchedule
    length: timedelta
    lead: timedelta
    """How long before the start capacity is reserved."""
    start_hour: int | None = None
    """With it the end is a wall-clock time, `length` after this hour of the same day."""

    @classmethod
    def parse(cls, spec: ReservationWindowSpec) -> "WindowSchedule":
        """Return the schedule of a window; raises `InputError` with the field."""
        line = " ".join((spec.schedule or spec.cron).split())
        lead = _read_length("startReserveAgo", spec.start_reserve_ago, shortest=timedelta(0))
        match = _FROM_TO.fullmatch(line)
        if match is None:
            length = _read_length("duration", spec.duration, shortest=timedelta(seconds=1))
            return cls(_read_starts(line, spec.time_zone), length, lead)
        minute, first_hour, last_hour, days = match.groups()
        length = _read_hours(line, int(first_hour), int(last_hour))
        if spec.duration:
            raise InputError(
                "duration", spec.duration, f"nothing beside {first_hour} - {last_hour}, which says the end"
            )
        return cls(
            _read_starts(f"{minute} {first_hour} {days}", spec.time_zone), length, lead, start_hour=int(first_hour)
        )

    def next_after(self, instant: datetime) -> Occurrence:
        """Return the first occurrence that reserves after an instant."""
        return self.starting(self.starts.next_after(instant + self.lead))

    def back_from(self, instant: datetime) -> Iterator[Occurrence]:
        """Yield the occurrences that reserve by an instant, the latest first."""
        start = self.starts.latest(_EARLIEST, instant + self.lead)
        while start is not None:
            yield self.starting(start)
            start = self.starts.latest(_EARLIEST, start - _TICK)

    def has(self, start: datetime) -> bool:
        """Return whether an occurrence starts at an instant."""
        return self.starts.next_after(start - _TICK) == start

    def starting(self, start: datetime) -> Occurrence:
        """Return the occurrence of a start."""
        return Occurrence(start=start, end=self._end_of(start), reserve_at=start - self.lead)

    def _end_of(self, start: datetime) -> datetime:
        """Return the end of the occurrence.

        An end by the wall clock that a change of summer time puts before the start is ignored.
        """
        if self.start_hour is not None:
            wall_time = start.astimezone(self.starts.zone).replace(tzinfo=None)
            wall_start = wall_time.replace(hour=self.start_hour, minute=self._minute, second=0, microsecond=0)
            end = _instant_of(wall_start + self.length, self.starts.zone)
            if end > start:
                return end
        return start + self.length

    @property
    def _minute(self) -> int:
        return int(self.starts.line.partition(" ")[0])


def _read_starts(line: str, time_zone: str) -> CronSchedule:
    try:
        return CronSchedule.parse(line, time_zone)
    except InputError as error:
        field = "schedule" if error.field == "cron" else error.field
        raise InputError(field, error.value, error.expected) from error


def _read_hours(line: str, first: int, last: int) -> timedelta:
    """Return the hours from one hour of the day to another, which may be on the next day."""
    if first >= _HOURS_OF_A_DAY or last > _HOURS_OF_A_DAY or first == last:
        raise InputError("schedule", line, "two different hours, as in 0 3 - 4 * * *")
    return timedelta(hours=(last - first) % _HOURS_OF_A_DAY or _HOURS_OF_A_DAY)


def _read_length(field: str, text: str, *, shortest: timedelta) -> timedelta:
    expected = f"a duration from {format_duration(shortest)} to {format_duration(_LONGEST)}, such as 2h"
    try:
        length = parse_duration(text)
    except InputError as error:
        raise InputError(field, text, expected) from error
    if not shortest <= length <= _LONGEST:
        raise InputError(field, text, expected)
    return length


# --- revocable zones -------------------------------------------------------------------------------------------------
# When the nodes of a RevocableZone are lent. Windows that overlap or meet are one opening.

_CLOCK_TIMES: Final = re.compile(r"([0-9]{1,2}):([0-9]{2}) *- *([0-9]{1,2}):([0-9]{2})")
_MINUTES_OF_AN_HOUR: Final = 60
_MINUTES_OF_A_DAY: Final = _HOURS_OF_A_DAY * _MINUTES_OF_AN_HOUR
_DAYS_BEFORE: Final = 2
_DAYS_AHEAD: Final = 9
"""Further ahead nothing is looked for: an opening that lasts until then counts as one without an end."""


@dataclass(frozen=True, slots=True, order=True)
class Opening:
    """One opening of a zone."""

    start: datetime
    end: datetime


@dataclass(frozen=True)
class ZoneSchedule:
    """The openings of a zone, by the wall clock of a time zone."""

    spans: tuple[tuple[int, int], ...]
    """Minutes of the day at which each window begins and ends; the end may be on the next day."""
    days: frozenset[int]
    """The days on which windows begin, Monday first."""
    zone: ZoneInfo

    @classmethod
    def parse(cls, spec: RevocableZoneSpec) -> "ZoneSchedule":
        """Return the schedule of a zone; raises `InputError` with the field."""
        if not spec.windows:
            raise InputError("windows", None, 'from when to when, such as ["1:00-4:00"]', said="empty")
        spans = tuple(_read_span(index, text) for index, text in enumerate(spec.windows))
        days = frozenset(list(Weekday).index(day) for day in spec.days) or frozenset(range(len(Weekday)))
        return cls(spans, days, _read_zone(spec.time_zone))

    def current(self, now: datetime) -> Opening | None:
        """Return the opening at an instant, None if the zone is closed then."""
        return next((opening for opening in self._openings(now) if opening.start <= now < opening.end), None)

    def following(self, now: datetime) -> Opening | None:
        """Return the first opening after an instant; None if the zone never closes."""
        return next((opening for opening in self._openings(now) if opening.start > now), None)

    def ends(self, opening: Opening, now: datetime) -> bool:
        """Return whether an opening ends within the days that are looked ahead."""
        return opening.end - now < timedelta(days=_DAYS_AHEAD - 1)

    def _openings(self, now: datetime) -> list[Opening]:
        """Return the openings around an instant in order; those that overlap or meet are merged."""
        today = now.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        days = (today + timedelta(days=ahead) for ahead in range(-_DAYS_BEFORE, _DAYS_AHEAD))
        openings: list[Opening] = []
        for opening in sorted(
            self._of_day(day, span) for day in days if day.weekday() in self.days for span in self.spans
        ):
            if openings and opening.start <= openings[-1].end:
                openings[-1] = Opening(openings[-1].start, max(openings[-1].end, opening.end))
            elif opening.start < opening.end:  # not within the hour that is left out
                openings.append(opening)
        return openings

    def _of_day(self, day: datetime, span: tuple[int, int]) -> Opening:
        begin, end = (_instant_of(day + timedelta(minutes=minutes), self.zone) for minutes in span)
        return Opening(begin, end)


def read_evict_period(spec: RevocableZoneSpec) -> timedelta:
    """Return the evict period of a zone; raises `InputError`."""
    return _read_length("evictPeriod", spec.evict_period, shortest=timedelta(seconds=1))


def read_evict_before(spec: RevocableZoneSpec) -> timedelta | None:
    """Return how long before the end pods leave, None if they decide; raises `InputError`."""
    return _read_length("evictBefore", spec.evict_before, shortest=timedelta(0)) if spec.evict_before else None


def _read_span(index: int, text: str) -> tuple[int, int]:
    """Return the minutes of the day at which a window begins and ends."""
    match = _CLOCK_TIMES.fullmatch(text.strip())
    numbers = [int(part) for part in match.groups()] if match else [_HOURS_OF_A_DAY, 0, 0, 0]
    begin, end = (numbers[at] * _MINUTES_OF_AN_HOUR + numbers[at + 1] for at in (0, 2))
    is_time = max(numbers[1], numbers[3]) < _MINUTES_OF_AN_HOUR and begin < _MINUTES_OF_A_DAY >= end
    if not is_time or begin == end:
        raise InputError(f"windows[{index}]", text, "two different times of the day, as in 1:00-4:00 or 22:00-6:00")
    return (begin, end) if end > begin else (begin, end + _MINUTES_OF_A_DAY)
