from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.clock import (
    Clock,
    SystemClock,
    TimestampError,
    format_precise_timestamp,
    format_timestamp,
    parse_timestamp,
    read_timestamp,
)
from builders import FakeClock

READ = {
    "2026-11-21T07:15:00Z": datetime(2026, 11, 21, 7, 15, tzinfo=UTC),
    "2026-11-21t07:15:00z": datetime(2026, 11, 21, 7, 15, tzinfo=UTC),
    "2026-11-21T07:15:00+02:00": datetime(2026, 11, 21, 5, 15, tzinfo=UTC),
    "2026-11-21T07:15:00.25Z": datetime(2026, 11, 21, 7, 15, 0, 250_000, tzinfo=UTC),
    "2026-11-21T07:15:00.123456789Z": datetime(2026, 11, 21, 7, 15, 0, 123_456, tzinfo=UTC),
}
REFUSED = {
    "nothing": "",
    "a day": "2026-11-21",
    "no zone": "2026-11-21T07:15:00",
    "a blank for the T": "2026-11-21 07:15:00Z",
    "no such day": "2026-02-30T07:15:00Z",
    "no such hour": "2026-11-21T27:15:00Z",
    "before the first year in UTC": "0001-01-01T00:00:00+02:00",
    "words": "tomorrow",
    "something behind": "2026-11-21T07:15:00Z\n",
    "the basic format": "20261121T071500Z",
}


@pytest.mark.parametrize("text", READ)
def test_a_time_is_read_into_utc(text: str) -> None:
    moment = parse_timestamp(text)
    assert moment == READ[text]
    assert moment.tzinfo is UTC
    assert read_timestamp(text) == moment


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_rfc_3339_time_is_refused(text: str) -> None:
    with pytest.raises(TimestampError, match="expected an RFC 3339 time such as"):
        parse_timestamp(text)
    assert read_timestamp(text) is None


def test_where_an_object_names_no_time_none_is_read() -> None:
    assert read_timestamp(None) is None


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_written_and_read_again_a_time_is_the_same(moment: datetime) -> None:
    assert parse_timestamp(format_timestamp(moment)) == moment.replace(microsecond=0)
    assert parse_timestamp(format_precise_timestamp(moment)) == moment


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 11, 21, 8, 15, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert format_timestamp(moment) == "2026-11-21T07:15:00Z"
    assert format_precise_timestamp(moment) == "2026-11-21T07:15:00.000005Z"


def test_an_hour_that_a_zone_has_twice_is_written_as_two() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert format_timestamp(first) == "2026-10-25T00:30:00Z"
    assert format_timestamp(first.replace(fold=1)) == "2026-10-25T01:30:00Z"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "0999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_a_year_is_written_with_four_digits(text: str) -> None:
    assert format_timestamp(parse_timestamp(text)) == text


def test_the_systems_clock_runs_in_utc_and_never_backwards() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(-1)
    clock.sleep(0.001)
    assert clock.monotonic() >= before + 0.001
    assert clock.now().utcoffset() == timedelta(0)


def test_the_tests_clock_moves_only_when_told() -> None:
    fake = FakeClock()
    clock: Clock = fake
    start, ticks = clock.now(), clock.monotonic()
    clock.sleep(30)
    fake.advance(30)
    assert clock.now() - start == timedelta(minutes=1)
    assert clock.monotonic() - ticks == 60
    assert fake.slept == [30]
