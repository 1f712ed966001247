"""When policies run: no wall-clock time twice in autumn, none lost in spring, what was missed once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter_range
from hypothesis import example, given, settings
from hypothesis import strategies as st

from berth_core.errors import InputError
from berth_core.policies import Trigger
from berth_descheduler.policy.schedule import CronSchedule, IntervalSchedule, Timing, read_schedule, read_timing
from properties import holds_for

ZONES: Final = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "Africa/Casablanca",  # backwards in the month of fasting
    "America/Santiago",  # at midnight
    "Pacific/Apia",  # a whole day was left out in 2011
    "Asia/Kathmandu",
)
LINES: Final = (
    "0 2 * * *",
    "30 2 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "59 23 * * *",
    "0 0 * * *",
    "17 1-3 * * SUN",
    "0 12 1 * *",
    "*/7 0-4 * 3,4,9,10,11 *",
)
MINUTE: Final = timedelta(minutes=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cron(line: str, zone: str = "UTC") -> CronSchedule:
    return CronSchedule.parse(line, zone)


def times(schedule: CronSchedule, start: datetime, count: int) -> Iterator[datetime]:
    for _ in range(count):
        start = schedule.next_after(start)
        yield start


SPRING: Final = {
    "a time that is left out counts when the clock is put forward": (
        "30 2 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T01:00", "2026-03-30T00:30"],
    ),
    "several that are left out count once together": (
        "*/20 2 * * *",
        "2026-03-29T00:00",
        ["2026-03-29T01:00", "2026-03-30T00:00"],
    ),
    "a time that is there counts as ever": ("30 3 * * *", "2026-03-28T12:00", ["2026-03-29T01:30"]),
}
AUTUMN: Final = {
    "a time that comes twice counts at its first coming": (
        "30 2 * * *",
        "2026-10-24T12:00",
        ["2026-10-25T00:30", "2026-10-26T01:30"],
    ),
    "every hour is every hour of the wall clock": (
        "0 * * * *",
        "2026-10-24T23:30",
        ["2026-10-25T00:00", "2026-10-25T02:00"],
    ),
    "a time after it counts as ever": ("30 3 * * *", "2026-10-24T12:00", ["2026-10-25T02:30"]),
    "asked in the hour that comes again, the times of its first coming are over": (
        "*/15 * * * *",
        "2026-10-25T01:05",
        ["2026-10-25T02:00"],
    ),
}


@pytest.mark.parametrize(("line", "start", "want"), (SPRING | AUTUMN).values(), ids=SPRING | AUTUMN)
def test_the_clock_is_put_forward_and_back_in_berlin(line: str, start: str, want: list[str]) -> None:
    assert list(times(cron(line, "Europe/Berlin"), utc(start), len(want))) == [utc(one) for one in want]


def test_a_day_that_there_was_not_counts_at_its_end() -> None:
    schedule = cron("0 9 30 12 *", "Pacific/Apia")
    assert schedule.next_after(utc("2011-12-01T00:00")) == utc("2011-12-30T10:00")


def simulated(line: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """Return the times of a line by watching a clock: each wall-clock minute counts when it is first reached or passed.

    The clock is watched from a while before the start, so that minutes are known that come again after it.
    """
    wall = (start - timedelta(days=1, hours=2)).astimezone(zone).replace(tzinfo=None)
    instant = start - timedelta(days=1, hours=2)
    passed = wall
    last = end.astimezone(zone).replace(tzinfo=None) + timedelta(hours=26)  # a zone may skip a whole day
    matching = set(croniter_range(wall, last, line))
    found = []
    while (instant := instant + MINUTE) <= end:
        wall = instant.astimezone(zone).replace(tzinfo=None)
        new = []
        while passed < wall:
            passed += MINUTE
            new.append(passed)
        if instant > start and not matching.isdisjoint(new):
            found.append(instant)
    return found


def starts() -> st.SearchStrategy[datetime]:
    """Return starts near the days on which clocks are put forward or back somewhere."""
    near = ["2026-03-28", "2026-03-07", "2026-10-24", "2026-10-31", "2026-04-04", "2026-10-03", "2026-02-14"]
    near += ["2026-03-21", "2026-09-05", "2011-12-29", "2026-06-15"]
    minutes = st.integers(0, 60 * 36)
    return st.builds(lambda day, offset: utc(f"{day}T00:00") + offset * MINUTE, st.sampled_from(near), minutes)


@holds_for(line=st.sampled_from(LINES), zone=st.sampled_from(ZONES), start=starts(), quick=5, deep=50)
@example(line="*/15 * * * *", zone="Europe/Berlin", start=utc("2026-10-25T00:59"))
@example(line="30 2 * * *", zone="Europe/Berlin", start=utc("2026-03-29T00:59"))
@example(line="0 0 * * *", zone="America/Santiago", start=utc("2026-09-06T03:00"))
def test_times_are_those_of_a_watched_clock(line: str, zone: str, start: datetime) -> None:
    want = simulated(line, ZoneInfo(zone), start, start + timedelta(hours=30))
    assert list(times(cron(line, zone), start, len(want))) == want
    after = want[-1] if want else start
    assert cron(line, zone).next_after(after) > start + timedelta(hours=30)


@settings(max_examples=60, deadline=None)
@given(
    line=st.sampled_from(LINES), zone=st.sampled_from(ZONES), start=starts(), seconds=st.integers(0, 60 * 60 * 24 * 40)
)
def test_the_latest_time_is_the_last_before_the_next(line: str, zone: str, start: datetime, seconds: int) -> None:
    schedule = cron(line, zone)
    now = start + timedelta(seconds=seconds)
    latest = schedule.latest(start, now)
    if latest is None:
        assert schedule.next_after(start) > now
    else:
        assert start < latest <= now
        assert schedule.next_after(latest) > now


@settings(max_examples=20, deadline=None)
@given(line=st.sampled_from(LINES), zone=st.sampled_from(ZONES), start=starts())
def test_times_grow(line: str, zone: str, start: datetime) -> None:
    assert all(one < other for one, other in pairwise([start, *times(cron(line, zone), start, 20)]))


BAD_TRIGGERS: Final = {
    "six fields": (Trigger(cron="0 0 2 * * *"), "cron", "a cron line of five fields"),
    "a nickname": (Trigger(cron="@daily"), "cron", "a cron line of five fields"),
    "an hour that there is not": (Trigger(cron="0 25 * * *"), "cron", "a cron line of five fields"),
    "a step of nothing": (Trigger(cron="*/0 * * * *"), "cron", "a cron line of five fields"),
    "a word": (Trigger(cron="0 2 * * SOMEDAY"), "cron", "a cron line of five fields"),
    "chance": (Trigger(cron="R 2 * * *"), "cron", "a cron line of five fields"),
    "chance from a range": (Trigger(cron="h(0-5) 2 * * *"), "cron", "a cron line of five fields"),
    "a day that never comes": (Trigger(cron="0 0 30 2 *"), "cron", "this one never comes"),
    "a zone that there is not": (
        Trigger(cron="0 2 * * *", time_zone="Europe/Gotham"),
        "timeZone",
        "a time zone of the IANA database, such as Europe/Berlin",
    ),
    "a zone that is a path": (Trigger(cron="0 2 * * *", time_zone="../../etc/passwd"), "timeZone", "a time zone"),
    "a zone without times": (Trigger(time_zone="Europe/Berlin"), "timeZone", "nothing without cron"),
    "both": (Trigger(cron="0 2 * * *", interval="1h"), "interval", "nothing beside cron"),
    "an interval in words": (Trigger(interval="daily"), "interval", "a duration of at least 10s"),
    "an interval of nothing": (Trigger(interval="0s"), "interval", "a duration of at least 10s"),
    "a negative interval": (Trigger(interval="-1h"), "interval", "a duration of at least 10s"),
}


@pytest.mark.parametrize(("trigger", "want_field", "want"), BAD_TRIGGERS.values(), ids=BAD_TRIGGERS)
def test_a_bad_trigger_is_refused_by_name(trigger: Trigger, want_field: str, want: str) -> None:
    with pytest.raises(InputError, match=want) as caught:
        read_schedule(trigger)
    assert caught.value.field == want_field


def test_a_leap_day_comes() -> None:
    assert cron("0 0 29 2 *").next_after(utc("2026-01-01T00:00")) == utc("2028-02-29T00:00")


def test_no_trigger_is_no_schedule() -> None:
    assert read_schedule(Trigger()) is None


def test_schedules_say_what_they_are() -> None:
    assert cron("0  2 * * *", "").text == "cron 0 2 * * * in UTC"
    assert cron("0 2 * * *", "Europe/Berlin").text == "cron 0 2 * * * in Europe/Berlin"
    assert IntervalSchedule.parse("90m").text == "every 1h30m0s"


HOURLY: Final = IntervalSchedule.parse("1h")
NIGHTLY: Final = cron("0 2 * * *")
TIMINGS: Final = {
    "an interval that is not over is not due": (HOURLY, "2026-06-01T09:30", "2026-06-01T10:00", None, "10:30"),
    "an interval that is over is due": (HOURLY, "2026-06-01T09:00", "2026-06-01T10:00", "2026-06-01T10:00", None),
    "missed intervals are due once": (HOURLY, "2026-06-01T00:30", "2026-06-01T10:00", "2026-06-01T09:30", None),
    "a time that has not come is not due": (NIGHTLY, "2026-06-01T02:00", "2026-06-01T10:00", None, "02T02:00"),
    "a time that has come is due": (NIGHTLY, "2026-06-01T01:00", "2026-06-01T02:00", "2026-06-01T02:00", None),
    "missed times are due once": (NIGHTLY, "2026-05-20T02:00", "2026-06-01T10:00", "2026-06-01T02:00", None),
    "a base in the future does not stop times for ever": (
        NIGHTLY,
        "2027-01-01T00:00",
        "2026-06-01T10:00",
        None,
        "02T02:00",
    ),
    "a base in the future does not stop intervals": (HOURLY, "2027-01-01T00:00", "2026-06-01T10:00", None, "11:00"),
}


@pytest.mark.parametrize(("schedule", "base", "now", "want_due", "want_next"), TIMINGS.values(), ids=TIMINGS)
def test_what_is_due(
    schedule: CronSchedule | IntervalSchedule, base: str, now: str, want_due: str | None, want_next: str | None
) -> None:
    found = read_timing(schedule, utc(base), utc(now))
    due = utc(want_due) if want_due else None
    if want_next is None:
        assert found == Timing(due, due or utc(now))
    else:
        assert found.due is due
        assert found.next_run.isoformat().removesuffix(":00+00:00").endswith(want_next)
