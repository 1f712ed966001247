"""Runs the operator with zones whose day is short: an environment variable says how often it passes in a true one.

It changes nothing else: only the schedule of zones sees the hurried time, and what it says is turned back into true
times. Pods, plans, fences and budgets have all the time that they have elsewhere.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from berth_core.zone_schedules import Opening, ZoneSchedule
from berth_operator.cli import main

_NOON = datetime.fromisoformat(os.environ["NOON"])
"""The true time at which it is noon in hurried time, too."""
_SPEED = float(os.environ["SPEED"])

_current, _following, _ends = ZoneSchedule.current, ZoneSchedule.following, ZoneSchedule.ends


def hurried(true: datetime) -> datetime:
    """Return the time of the schedule at a true time."""
    return _NOON.replace(hour=12, minute=0, second=0, microsecond=0) + (true - _NOON) * _SPEED


def _true(at: datetime) -> datetime:
    since_noon = at - _NOON.replace(hour=12, minute=0, second=0, microsecond=0)
    return (_NOON + since_noon / _SPEED + timedelta(microseconds=999_999)).replace(microsecond=0).astimezone(UTC)


def _turned_back(found: Opening | None) -> Opening | None:
    return None if found is None else Opening(_true(found.start), _true(found.end))


def _in_hurried_time(
    method: Callable[[ZoneSchedule, datetime], Opening | None],
) -> Callable[[ZoneSchedule, datetime], Opening | None]:
    return lambda schedule, now: _turned_back(method(schedule, hurried(now)))


def _ends_in_hurried_time(schedule: ZoneSchedule, opening: Opening, now: datetime) -> bool:
    return _ends(schedule, Opening(hurried(opening.start), hurried(opening.end)), hurried(now))


if __name__ == "__main__":
    ZoneSchedule.current = _in_hurried_time(_current)  # type: ignore[method-assign]
    ZoneSchedule.following = _in_hurried_time(_following)  # type: ignore[method-assign]
    ZoneSchedule.ends = _ends_in_hurried_time  # type: ignore[method-assign]
    main()
