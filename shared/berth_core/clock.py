"""Clocks, deadlines, and the API's notation of times and durations."""

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol

from berth_core.errors import InputError

LATEST_UNIX_SECONDS: Final = 253_402_300_799
"""The end of the year 9999, the latest that RFC 3339 and `datetime` can write."""

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class TimestampError(InputError):
    """A text is not an RFC 3339 time."""

    def __init__(self, value: object) -> None:
        super().__init__("time", value, "an RFC 3339 time such as 2026-11-21T07:15:00Z")


class Clock(Protocol):
    """Source of time and waits.

    Code that needs either takes a clock as a parameter.
    """

    def now(self) -> datetime:
        """Return the time of day, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards, from an arbitrary start."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; does not wait for a negative number of seconds."""
        time.sleep(max(0.0, seconds))


class Deadline(Protocol):
    """A limit on the time that some work may take."""

    def remaining_seconds(self) -> float | None:
        """Return the seconds left, not below 0; None without a limit."""
        ...


class NoDeadline:
    """No limit."""

    def remaining_seconds(self) -> None:
        return


@dataclass
class ClockDeadline:
    """A limit that counts from its creation."""

    clock: Clock
    seconds: float | None
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock.monotonic()

    def remaining_seconds(self) -> float | None:
        """Return the seconds left; None without a limit."""
        return None if self.seconds is None else max(0.0, self._started + self.seconds - self.clock.monotonic())


class EarlierDeadline:
    """Ends before another deadline, by a share of the time that is left when this one is made."""

    def __init__(self, whole: Deadline, part: float) -> None:
        """`part` is the share, from 0 to 1."""
        self._whole = whole
        self._earlier_seconds = part * (whole.remaining_seconds() or 0.0)

    def remaining_seconds(self) -> float | None:
        """Return the seconds left; None without a limit."""
        seconds_left = self._whole.remaining_seconds()
        return None if seconds_left is None else max(0.0, seconds_left - self._earlier_seconds)


def is_over(deadline: Deadline) -> bool:
    seconds_left = deadline.remaining_seconds()
    return seconds_left is not None and seconds_left <= 0


@lru_cache(maxsize=8192)
def parse_timestamp(text: str) -> datetime:
    """Parse an RFC 3339 time into UTC, cut to microseconds.

    Raises `TimestampError`.
    """
    if not _RFC3339.fullmatch(text):
        raise TimestampError(text)
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TimestampError(text) from error


def read_timestamp(text: str | None) -> datetime | None:
    """Parse a time field of an object; return None if it holds no time.

    For fields that other writers fill: one bad object must not stop the work on the rest.
    """
    try:
        return parse_timestamp(text or "")
    except TimestampError:
        return None


def format_timestamp(moment: datetime) -> str:
    """Format a `Time` as the API server writes it: UTC, `Z`, fractions of a second cut off."""
    return _format_naive(moment, "seconds")


def format_precise_timestamp(moment: datetime) -> str:
    """Format a `MicroTime`, as in Leases: UTC, six decimals, `Z`."""
    return _format_naive(moment, "microseconds")


def _format_naive(moment: datetime, timespec: str) -> str:
    # Not strftime: its %Y writes the year 1 as 1, which RFC 3339 parsers reject.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


# --- durations -------------------------------------------------------------------------------------------------------
# Lengths of time in Go's notation, as `ttl` and the settings carry them.

_NANOS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MAX_NANOS: Final = (1 << 63) - 1
_LONGEST_TEXT: Final = 128
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
    length = timedelta(microseconds=max(round(nanos / 1_000), 1 if nanos else 0))
    return -length if text.startswith("-") else length


def _parts(text: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in _PART.finditer(text)]


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


# --- spans -----------------------------------------------------------------------------------------------------------
# A length of time for people: in at most two units, as `kubectl get` shows it.

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
