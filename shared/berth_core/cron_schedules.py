"""Cron lines over the wall clock of a time zone."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter

from berth_core.errors import InputError
from berth_core.policies import ScheduledReason

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
        schedule = cls(" ".join(line.split()), read_time_zone(time_zone))
        # Five fields, as a CronJob has: croniter would also take six, with the seconds last, and seven.
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
        fires_at = instant_of(previous, self.zone)
        return fires_at if fires_at > base else None

    def _following(self, instant: datetime) -> tuple[datetime, datetime]:
        """Return wall-clock time and instant of the first time after `instant`.

        Instants are in the order of their wall-clock times, so the first late enough is the answer.
        """
        wall_time = instant.astimezone(self.zone).replace(tzinfo=None)
        times = croniter(self.line, wall_time)
        while True:
            wall_time = times.get_next(datetime)
            fires_at = instant_of(wall_time, self.zone)
            if fires_at > instant:
                return wall_time, fires_at


def read_time_zone(name: str) -> ZoneInfo:
    """Return a time zone, UTC for ""; raises `InputError` with the field `timeZone`."""
    try:
        # OSError: the name of a directory of the database, such as Europe. ValueError: an absolute path or `..` (PEP
        # 615).
        return ZoneInfo(name or "UTC")
    except (OSError, ValueError, LookupError) as error:
        expected = "a time zone of the IANA database, such as Europe/Berlin"
        raise InputError("timeZone", name, expected) from error


def instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
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
