"""Occurrences of a ReservationWindow: when capacity is reserved, when each begins and when it ends."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from berth_core.cron_schedules import CronSchedule, instant_of
from berth_core.durations import read_bounded_duration
from berth_core.errors import InputError
from berth_core.windows import Occurrence, ReservationWindowSpec

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
        lead = read_bounded_duration("startReserveAgo", spec.start_reserve_ago, shortest=timedelta(0))
        match = _FROM_TO.fullmatch(line)
        if match is None:
            length = read_bounded_duration("duration", spec.duration, shortest=timedelta(seconds=1))
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
        # `next_after` never returns the instant itself.
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
            end = instant_of(wall_start + self.length, self.starts.zone)
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
