"""Schedules: cron lines over the wall clock of a time zone, and the occurrences of reservation windows.

Imported only where it is needed, because it brings croniter.
"""

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
from berth_core.windows import Occurrence, ReservationWindowSpec

_FIELDS: Final = 5
_EXPECTED_LINE: Final = (
    "a cron line of five fields, minute, hour, day of the month, month and day of the week, such as 0 2 * * *"
)
_CHANCE: Final = re.compile(r"(?i)(^|[\s,])[hr]($|[\s,(/])")
"""Fields that croniter would fill by a hash or by chance, differently after every start."""

_NEVER: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - wall-clock time; where the search for any date at all begins


@dataclass(frozen=True)
class CronSchedule:
    """A cron line over the wall clock of a time zone.

    A wall-clock time that comes twice, at the end of summer time, counts at its first coming; one that is left out, at
    its beginning, counts at the moment at which the clock is put forward. So every time of the line counts once.
    """

    line: str
    zone: ZoneInfo

    @classmethod
    def parse(cls, line: str, time_zone: str = "") -> "CronSchedule":
        """Return the schedule of a line.

        Raises `InputError` with the field `cron` or `timeZone`.
        """
        schedule = cls(" ".join(line.split()), _read_zone(time_zone))
        if len(line.split()) != _FIELDS or _CHANCE.search(line):
            raise InputError("cron", line, _EXPECTED_LINE)
        try:
            croniter(schedule.line, _NEVER).get_next(datetime)
        except CroniterBadDateError as error:
            raise InputError("cron", line, "a day that there is in one of the months: this one never comes") from error
        except (CroniterError, ValueError, KeyError, IndexError) as error:
            raise InputError("cron", line, _EXPECTED_LINE) from error
        return schedule

    @property
    def reason(self) -> ScheduledReason:
        """Return what kind of schedule this is."""
        return ScheduledReason.CRON

    @cached_property
    def text(self) -> str:
        """Return the schedule in words."""
        return f"cron {self.line} in {self.zone.key}"

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after an instant."""
        return self._following(instant)[1]

    def latest(self, base: datetime, instant: datetime) -> datetime | None:
        """Return the last time in (`base`, `instant`], None if there is none."""
        following, _ = self._following(instant)
        previous = croniter(self.line, following).get_prev(datetime)
        found = _instant_of(previous, self.zone)
        return found if found > base else None

    def _following(self, instant: datetime) -> tuple[datetime, datetime]:
        """Return wall-clock time and instant of the first time after `instant`.

        Later wall-clock times never count earlier, so the first that counts late enough is the one.
        """
        wall = instant.astimezone(self.zone).replace(tzinfo=None)
        times = croniter(self.line, wall)
        while True:
            wall = times.get_next(datetime)
            found = _instant_of(wall, self.zone)
            if found > instant:
                return wall, found


def _read_zone(name: str) -> ZoneInfo:
    """Return a time zone, UTC for "".

    Raises `InputError` with the field `timeZone`.
    """
    try:
        return ZoneInfo(name or "UTC")
    except (OSError, ValueError, LookupError) as error:
        expected = "a time zone of the IANA database, such as Europe/Berlin"
        raise InputError("timeZone", name, expected) from error


def _instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the one instant at which a wall-clock time counts."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return first
    return _end_of_gap(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), first, zone)


def _end_of_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the second at which a zone's clock is put forward.

    It is a whole second between the two instants.
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
        found = _FROM_TO.fullmatch(line)
        if found is None:
            length = _read_length("duration", spec.duration, shortest=timedelta(seconds=1))
            return cls(_read_starts(line, spec.time_zone), length, lead)
        minute, first, last, days = found.groups()
        length = _read_hours(line, int(first), int(last))
        if spec.duration:
            raise InputError("duration", spec.duration, f"nothing beside {first} - {last}, which says the end")
        return cls(_read_starts(f"{minute} {first} {days}", spec.time_zone), length, lead, start_hour=int(first))

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
        """Return the end; without the wall-clock time of the end, the length decides."""
        if self.start_hour is not None:
            wall = start.astimezone(self.starts.zone).replace(tzinfo=None)
            first = wall.replace(hour=self.start_hour, minute=self._minute, second=0, microsecond=0)
            end = _instant_of(first + self.length, self.starts.zone)
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
    """Return the hours from one hour of the day to another; the later may be on the next day."""
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
