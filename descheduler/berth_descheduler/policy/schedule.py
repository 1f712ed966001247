"""When a policy runs by itself: by cron lines in a time zone or by intervals, and which run was missed."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from berth_core import DurationError, InputError, ScheduledReason, Trigger, format_duration, parse_duration
from berth_core.cron_schedules import CronSchedule

_SHORTEST_INTERVAL: Final = timedelta(seconds=10)


class Schedule(Protocol):
    """Times at which runs are due."""

    @property
    def reason(self) -> ScheduledReason:
        """Return what kind of schedule this is."""
        ...

    @property
    def text(self) -> str:
        """Return the schedule in words, which differ between different schedules."""
        ...

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after an instant."""
        ...

    def latest(self, base: datetime, instant: datetime) -> datetime | None:
        """Return the last time in (`base`, `instant`], None if there is none."""
        ...


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
        """Return the last time in (`base`, `instant`], None if there is none; `base` is a time of the schedule."""
        times = (instant - base) // self.interval
        return base + times * self.interval if times > 0 else None


@dataclass(frozen=True, slots=True)
class Timing:
    """When a policy runs: the time due now, and the next."""

    due: datetime | None
    next_run: datetime


def read_schedule(trigger: Trigger) -> Schedule | None:
    """Return the schedule of a trigger, None if it has none; raises `InputError` with the field within it."""
    if trigger.cron and trigger.interval:
        raise InputError("interval", trigger.interval, "nothing beside cron: give the times or the distance, not both")
    if trigger.time_zone and not trigger.cron:
        raise InputError("timeZone", trigger.time_zone, "nothing without cron")
    if trigger.cron:
        return CronSchedule.parse(trigger.cron, trigger.time_zone)
    return IntervalSchedule.parse(trigger.interval) if trigger.interval else None


def read_timing(
    schedule: Schedule, base: datetime, now: datetime, starting_deadline: timedelta | None = None
) -> Timing:
    """Return which run is due now and when the next one is.

    Runs that were missed since `base`, the last time that counted, are due once, at the last of their times. A base in
    the future, after the clock was put back, counts as now. A run that could not start within the deadline after its
    time is left out.
    """
    earliest_base = min(base, now)
    due = schedule.latest(earliest_base, now)
    if due is not None and starting_deadline is not None and now - due > starting_deadline:
        return Timing(None, schedule.next_after(due))
    return Timing(due, due or schedule.next_after(earliest_base))
