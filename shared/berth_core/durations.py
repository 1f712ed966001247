"""Lengths of time: Go's notation, as `ttl` and the settings carry it, and spans for people."""

import re
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final

from berth_core.errors import InputError

_NANOS: Final = {
    "ns": 1,
    "us": 1_000,
    # Go's time package reads both characters, and prints the first.
    "µs": 1_000,  # U+00B5, micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
# Go's time.Duration is an int64 of nanoseconds.
_MAX_NANOS: Final = (1 << 63) - 1
_LONGEST_TEXT: Final = 128
_WEEK: Final = timedelta(hours=168)
_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNIT: Final = f"(?:{'|'.join(_NANOS)})"
_PART: Final = re.compile(f"({_NUMBER})({_UNIT})")
_WHOLE: Final = re.compile(f"[+-]?(?:0|(?:{_NUMBER}{_UNIT})+)")


class DurationError(InputError):
    """A text is not a duration."""

    def __init__(self, value: object) -> None:
        super().__init__("duration", value, "a duration such as 600s, 1h30m or 0s")


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> timedelta:
    """Parse a duration as Go's `time.ParseDuration` does, to the microsecond.

    It may be negative. Only a written zero is zero, because a zero TTL means "never". Raises `DurationError`, also for
    a duration of more nanoseconds than an int64 holds, as Go does.
    """
    if len(text) > _LONGEST_TEXT or not _WHOLE.fullmatch(text):
        raise DurationError(text)
    nanos = sum((Fraction(number) * _NANOS[unit] for number, unit in _parts(text)), Fraction(0))
    if nanos > _MAX_NANOS:
        raise DurationError(text)
    # timedelta knows microseconds only: 1ns would become 0, which for a TTL means "never expires".
    length = timedelta(microseconds=max(round(nanos / 1_000), 1 if nanos else 0))
    return -length if text.startswith("-") else length


def _parts(text: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in _PART.finditer(text)]


def read_bounded_duration(field: str, text: str, *, shortest: timedelta) -> timedelta:
    """Parse a field of a schedule; raises `InputError` unless it is from `shortest` to a week."""
    expected = f"a duration from {format_duration(shortest)} to {format_duration(_WEEK)}, such as 2h"
    try:
        length = parse_duration(text)
    except InputError as error:
        raise InputError(field, text, expected) from error
    if not shortest <= length <= _WEEK:
        raise InputError(field, text, expected)
    return length


def format_duration(length: timedelta) -> str:
    """Format a duration as Go does: `1h30m0s`, `10m0s`, `1.5s`, `250ms`, `0s`."""
    micros = length // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    if micros == 0:
        return "0s"
    if micros < 1_000:  # noqa: PLR2004 - microseconds in a millisecond
        return f"{sign}{micros}µs"
    if micros < 1_000_000:  # noqa: PLR2004 - microseconds in a second
        return f"{sign}{_decimal(micros, 1_000)}ms"
    minutes, micros = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    hours_and_minutes = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{hours_and_minutes}{_decimal(micros, 1_000_000)}s"


def _decimal(count: int, unit: int) -> str:
    """Return `count / unit` exactly, without trailing zeros; `unit` is a power of ten."""
    whole, rest = divmod(count, unit)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_ONE_UNIT_FROM: Final = 10
"""From this many of a unit on, the next smaller unit is left out."""


def span_in_words(span: timedelta) -> str:
    """Return a span such as 45s, 3m20s, 2h5m or 4d1h.

    A negative span, which comes from clocks that differ, is 0s.
    """
    seconds = max(0, int(span.total_seconds()))
    for index, (unit, size) in enumerate(_UNITS):
        whole, rest = divmod(seconds, size)
        if not whole:
            continue
        if index + 1 == len(_UNITS) or whole >= _ONE_UNIT_FROM:
            return f"{whole}{unit}"
        next_unit, next_size = _UNITS[index + 1]
        smaller_units = rest // next_size
        return f"{whole}{unit}{smaller_units}{next_unit}" if smaller_units else f"{whole}{unit}"
    return "0s"
