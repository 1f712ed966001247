"""The openings of a RevocableZone, over midnight, on chosen days, and when the clock is changed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from berth_core import InputError, Pod
from berth_core.lent_node_pods import time_to_leave
from berth_core.revocable_zones import RevocableZoneSpec, Weekday
from berth_core.zone_schedules import ZoneSchedule, read_evict_period
from builders import meta, pod


def spec(*windows: str, **rest: Any) -> RevocableZoneSpec:  # noqa: ANN401 - a field of the spec
    return RevocableZoneSpec(windows=windows, **rest)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def minutes_open(zone: RevocableZoneSpec, day: str, *, days: int = 1) -> list[str]:
    """Return each opening in UTC within days, as a clock that goes on by five minutes sees it."""
    schedule, now, seen = ZoneSchedule.parse(zone), at(day), []
    while now < at(day) + timedelta(days=days):
        opening = schedule.current(now)
        if opening is not None:
            seen.append(f"{opening.start:%d %H:%M}-{opening.end:%d %H:%M}")
        now += timedelta(minutes=5)
    return sorted(set(seen))


SATURDAYS = (Weekday.SATURDAY,)
CASES: dict[str, tuple[RevocableZoneSpec, str, list[str]]] = {
    "the proposal's": (spec("1:00-4:00"), "2026-11-21", ["21 01:00-21 04:00"]),
    "over midnight": (spec("22:00-6:00"), "2026-11-21", ["20 22:00-21 06:00", "21 22:00-22 06:00"]),
    "until midnight": (spec("8:00-24:00"), "2026-11-21", ["21 08:00-22 00:00"]),
    "until midnight, said as 0:00": (spec("8:00-0:00"), "2026-11-21", ["21 08:00-22 00:00"]),
    "two that meet are one": (
        spec("22:00-24:00", "0:00-4:00"),
        "2026-11-21",
        ["20 22:00-21 04:00", "21 22:00-22 04:00"],
    ),
    "two that overlap are one": (spec("1:00-4:00", "3:00-5:00"), "2026-11-21", ["21 01:00-21 05:00"]),
    "the day on which it begins counts": (
        spec("22:00-6:00", days=SATURDAYS),
        "2026-11-22",
        ["21 22:00-22 06:00"],
    ),
    "another day": (spec("1:00-4:00", days=SATURDAYS), "2026-11-22", []),
    "a time zone": (spec("1:00-4:00", time_zone="Asia/Tokyo"), "2026-11-21", ["21 16:00-21 19:00"]),
    "the clock is put forward within it": (
        spec("1:00-4:00", time_zone="Europe/Berlin"),
        "2026-03-29",
        ["29 00:00-29 02:00", "29 23:00-30 02:00"],
    ),
    "the clock is put back within it": (
        spec("1:00-4:00", time_zone="Europe/Berlin"),
        "2026-10-25",
        ["24 23:00-25 03:00"],
    ),
    "it ends at an hour that comes twice": (
        spec("1:00-2:30", time_zone="Europe/Berlin"),
        "2026-10-25",
        ["24 23:00-25 00:30"],
    ),
    "it lies in the hour that is left out": (spec("2:10-2:50", time_zone="Europe/Berlin"), "2026-03-29", []),
}


@pytest.mark.parametrize(("zone", "day", "want"), CASES.values(), ids=CASES.keys())
def test_a_zone_is_open(zone: RevocableZoneSpec, day: str, want: list[str]) -> None:
    assert minutes_open(zone, day) == want


def test_the_next_opening_is_known_and_one_without_an_end_has_none() -> None:
    nightly = ZoneSchedule.parse(spec("1:00-4:00"))
    following = nightly.following(at("2026-11-21T03:00"))
    assert following is not None
    assert following.start == at("2026-11-22T01:00")
    always = ZoneSchedule.parse(spec("0:00-24:00"))
    opening = always.current(at("2026-11-21T03:00"))
    assert opening is not None
    assert not always.ends(opening, at("2026-11-21T03:00"))
    assert always.following(at("2026-11-21T03:00")) is None


@pytest.mark.parametrize("window", ["", "1-4", "1:00-1:00", "24:00-4:00", "1:00-25:00", "1:60-2:00", "1:00-24:30", "x"])
def test_a_window_that_is_none_is_refused(window: str) -> None:
    with pytest.raises(InputError) as refused:
        ZoneSchedule.parse(spec(window))
    assert refused.value.field == "windows[0]"


def test_a_zone_without_windows_and_odd_periods_are_refused() -> None:
    with pytest.raises(InputError):
        ZoneSchedule.parse(spec())
    with pytest.raises(InputError):
        read_evict_period(spec("1:00-4:00", evict_period="0s"))


def members(*, count: int, **annotations: str) -> list[Pod]:
    notes = {"scheduling.k8s.io/group-name": "job"} | {f"volcano.sh/{key}": one for key, one in annotations.items()}
    return [pod(f"pod-{number}", annotations=notes) for number in range(count)]


def test_pods_need_a_period_each_or_as_their_job_says() -> None:
    minute = timedelta(minutes=1)
    assert time_to_leave([], minute) == timedelta(0)
    assert timedelta(minutes=6) <= time_to_leave(members(count=5), minute) < timedelta(minutes=7)
    half = members(count=5, **{"jdb-max-unavailable": "50%"})
    assert timedelta(minutes=3) <= time_to_leave(half, minute) < timedelta(minutes=4)
    most = members(count=5, **{"jdb-min-available": "3"})
    assert timedelta(minutes=4) <= time_to_leave(most, minute) < timedelta(minutes=5)
    group = {("default", "job"): meta("job", annotations={"volcano.sh/jdb-max-unavailable": "5"})}
    assert timedelta(minutes=2) <= time_to_leave(members(count=5), minute, group) < timedelta(minutes=3)
    none = members(count=5, **{"jdb-max-unavailable": "0"})
    assert time_to_leave(none, minute) == time_to_leave(members(count=5), minute)
