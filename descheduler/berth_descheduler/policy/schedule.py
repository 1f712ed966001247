"""When a policy runs by itself: by cron lines or intervals.

Cron lines are in a time zone. Here is also what was missed.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter

from berth_core import DurationError, InputError, ScheduledReason, Trigger, format_duration, parse_duration

_FIELDS: Final = 5
_SHORTEST_INTERVAL: Final = timedelta(seconds=10)
_EXPECTED_LINE: Final = (
    "a cron line of five fields, minute, hour, day of the month, month and day of the week, such as 0 2 * * *"
)
_CHANCE: Final = re.compile(r"(?i)(^|[\s,])[hr]($|[\s,(/])")
"""Fields that croniter would fill by a hash or by chance, differently after every start."""

_NEVER: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - wall-clock time; where the search for any date at all begins


class Schedule(Protocol):
    """Times at which runs are due."""

    @property
    def reason(self) -> ScheduledReason:
        """Return what kind of schedule this is."""
        ...

    @property
    def text(self) -> str:
        """Return the schedule in words; another schedule has other words."""
        ...

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after an instant."""
        ...

    def latest(self, base: datetime, instant: datetime) -> datetime | None:
        """Return the last time in (`base`, `instant`], None if there is none."""
        ...


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


@dataclass(frozen=True)
class IntervalSchedule:
    """Runs whose starts are an interval apart, counted from the last one."""

    interval: timedelta

    @classmethod
    def parse(cls, text: str) -> "IntervalSchedule":
        """Return the schedule of a duration; raises `InputError` with the field `interval`."""
        expected = f"a duration of at least {format_duration(_SHORTEST_INTERVAL)}, such as 30m"
        try:
            interval = parse_duration(text)
        except DurationError as error:
            raise InputError("interval", text, expected) from error
        if interval < _SHORTEST_INTERVAL:
            raise InputError("interval", text, expected)
        return cls(interval)

    @property
    def reason(self) -> ScheduledReason:
        """Return what kind of schedule this is."""
        return ScheduledReason.INTERVAL

    @property
    def text(self) -> str:
        """Return the schedule in words."""
        return f"every {format_duration(self.interval)}"

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after an instant, which is itself one."""
        return instant + self.interval

    def latest(self, base: datetime, instant: datetime) -> datetime | None:
        """Return the last time in (`base`, `instant`], None if there is none.

        `base` is itself a time of the schedule.
        """
        times = (instant - base) // self.interval
        return base + times * self.interval if times > 0 else None


@dataclass(frozen=True, slots=True)
class Timing:
    """When a policy runs: the time due now, and the next."""

    due: datetime | None
    next_run: datetime


def read_schedule(trigger: Trigger) -> Schedule | None:
    """Return the schedule of a trigger, None if it has none.

    Raises `InputError` with the field within the trigger.
    """
    if trigger.cron and trigger.interval:
        raise InputError("interval", trigger.interval, "nothing beside cron: give the times or the distance, not both")
    if trigger.time_zone and not trigger.cron:
        raise InputError("timeZone", trigger.time_zone, "nothing without cron")
    if trigger.cron:
        return CronSchedule.parse(trigger.cron, trigger.time_zone)
    return IntervalSchedule.parse(trigger.interval) if trigger.interval else None


def read_timing(schedule: Schedule, base: datetime, now: datetime) -> Timing:
    """Return what is due now and when the next run is.

    What was missed since `base`, the last time that counted, is due once, as its last time. A base in the future, after
    the clock was put back, is now.
    """
    since = min(base, now)
    due = schedule.latest(since, now)
    return Timing(due, due or schedule.next_after(since))


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
