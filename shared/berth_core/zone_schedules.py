"""When the nodes of a RevocableZone are lent; windows that overlap or meet are one opening."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from berth_core.cron_schedules import instant_of, read_time_zone
from berth_core.durations import read_bounded_duration
from berth_core.errors import InputError
from berth_core.revocable_zones import RevocableZoneSpec, Weekday

_CLOCK_TIMES: Final = re.compile(r"([0-9]{1,2}):([0-9]{2}) *- *([0-9]{1,2}):([0-9]{2})")
_MINUTES_OF_AN_HOUR: Final = 60
_HOURS_OF_A_DAY: Final = 24
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
        return cls(spans, days, read_time_zone(spec.time_zone))

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
            # Windows that meet at midnight must not close the zone for an instant: every pod on its nodes would be
            # evicted.
            if openings and opening.start <= openings[-1].end:
                openings[-1] = Opening(openings[-1].start, max(openings[-1].end, opening.end))
            elif opening.start < opening.end:  # not within the hour that is left out
                openings.append(opening)
        return openings

    def _of_day(self, day: datetime, span: tuple[int, int]) -> Opening:
        begin, end = (instant_of(day + timedelta(minutes=minutes), self.zone) for minutes in span)
        return Opening(begin, end)


def read_evict_period(spec: RevocableZoneSpec) -> timedelta:
    """Return the evict period of a zone; raises `InputError`."""
    return read_bounded_duration("evictPeriod", spec.evict_period, shortest=timedelta(seconds=1))


def read_evict_before(spec: RevocableZoneSpec) -> timedelta | None:
    """Return how long before the end pods leave, None if they decide; raises `InputError`."""
    return read_bounded_duration("evictBefore", spec.evict_before, shortest=timedelta(0)) if spec.evict_before else None


def _read_span(index: int, text: str) -> tuple[int, int]:
    """Return the minutes of the day at which a window begins and ends."""
    match = _CLOCK_TIMES.fullmatch(text.strip())
    numbers = [int(part) for part in match.groups()] if match else [_HOURS_OF_A_DAY, 0, 0, 0]
    begin, end = (numbers[at] * _MINUTES_OF_AN_HOUR + numbers[at + 1] for at in (0, 2))
    is_time = max(numbers[1], numbers[3]) < _MINUTES_OF_AN_HOUR and begin < _MINUTES_OF_A_DAY >= end
    if not is_time or begin == end:
        raise InputError(f"windows[{index}]", text, "two different times of the day, as in 1:00-4:00 or 22:00-6:00")
    return (begin, end) if end > begin else (begin, end + _MINUTES_OF_A_DAY)
