from contextlib import suppress
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.durations import DurationError, format_duration, parse_duration

UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}

WRITTEN = {
    "600s": (timedelta(minutes=10), "10m0s"),
    "1h30m": (timedelta(hours=1, minutes=30), "1h30m0s"),
    "0s": (timedelta(0), "0s"),
    "0": (timedelta(0), "0s"),
    "-0": (timedelta(0), "0s"),
    "+5s": (timedelta(seconds=5), "5s"),
    "-1.5h": (timedelta(hours=-1.5), "-1h30m0s"),
    ".5s": (timedelta(milliseconds=500), "500ms"),
    "1.s": (timedelta(seconds=1), "1s"),
    "1m1m": (timedelta(minutes=2), "2m0s"),
    "1s1h": (timedelta(hours=1, seconds=1), "1h0m1s"),
    "1.25s": (timedelta(seconds=1.25), "1.25s"),
    "2ms": (timedelta(milliseconds=2), "2ms"),
    "1500us": (timedelta(microseconds=1500), "1.5ms"),
    "7µs": (timedelta(microseconds=7), "7µs"),
    "7\u03bcs": (timedelta(microseconds=7), "7µs"),
    "1400ns": (timedelta(microseconds=1), "1µs"),
    "1600ns": (timedelta(microseconds=2), "2µs"),
    "1ns": (timedelta(microseconds=1), "1µs"),
    "-1ns": (timedelta(microseconds=-1), "-1µs"),
    "0ns": (timedelta(0), "0s"),
    "100h": (timedelta(hours=100), "100h0m0s"),
    "2562047h47m16.854775807s": (timedelta(microseconds=9223372036854776), "2562047h47m16.854776s"),
}

REFUSED = {
    "nothing": "",
    "a sign alone": "-",
    "a number without a unit": "600",
    "a unit without a number": "s",
    "a point alone": ".s",
    "a unit that Go does not know": "1d",
    "a capital unit": "1H",
    "blanks": "1h 30m",
    "a blank at the end": "1s ",
    "a line end": "1s\n",
    "two signs": "+-1s",
    "a sign inside": "1h-30m",
    "words": "ten minutes",
    "digits of another script": "\u0661s",
    "more than 64 bits of nanoseconds": "2562047h47m16.854775808s",
    "many digits": "1" * 200 + "s",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_duration_is_read_and_written_as_go_does(text: str) -> None:
    length, canonical = WRITTEN[text]
    assert parse_duration(text) == length
    assert format_duration(length) == canonical


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert str(caught.value).startswith("duration is '")
    assert str(caught.value).endswith("expected a duration such as 600s, 1h30m or 0s")


@given(st.timedeltas(min_value=timedelta(hours=-2_000_000), max_value=timedelta(hours=2_000_000)))
def test_written_and_read_again_a_length_is_the_same(length: timedelta) -> None:
    assert parse_duration(format_duration(length)) == length


@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1))
def test_parts_add_up_and_nothing_but_zero_is_zero(parts: list[tuple[int, int, str]]) -> None:
    text = "".join(f"{whole}.{thousandths:03d}{unit}" for whole, thousandths, unit in parts[:8])
    nanos = sum((Fraction(whole) + Fraction(t, 1000)) * UNITS[unit] for whole, t, unit in parts[:8])
    assert parse_duration(text) == timedelta(microseconds=max(round(nanos / 1000), 1 if nanos else 0))


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_clear_refusal(text: str) -> None:
    with suppress(DurationError):
        assert isinstance(parse_duration(text), timedelta)
