"""Clocks, deadlines, and the API's notation of times."""

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
    # `fromisoformat` reads more than RFC 3339, such as dates alone and those of weeks.
    if not _RFC3339.fullmatch(text):
        raise TimestampError(text)
    try:
        # RFC 3339 (5.6) also allows `z`, which `fromisoformat` refuses.
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TimestampError(text) from error


def read_timestamp(text: str | None) -> datetime | None:
    """Parse a time field of an object; return None if it holds no time.

    Such fields are filled by others, and one bad object must not stop the work on the rest.
    """
    try:
        return parse_timestamp(text or "")
    except TimestampError:
        return None


def format_timestamp(moment: datetime) -> str:
    """Format a `Time` as the API server writes it: UTC, `Z`, fractions of a second cut off."""
    # Converted first: the cache would take the two moments of an hour that a zone has twice for one, as `fold` does not
    # count when times of one zone are compared (PEP 495).
    return _format_to_seconds(_at_utc(moment))


def format_precise_timestamp(moment: datetime) -> str:
    """Format a `MicroTime`, as in Leases: UTC, six decimals, `Z`."""
    return _format(_at_utc(moment), "microseconds")


def _at_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


@lru_cache(maxsize=64)  # a status has the same few times in many places
def _format_to_seconds(at_utc: datetime) -> str:
    return _format(at_utc, "seconds")


def _format(at_utc: datetime, timespec: str) -> str:
    # Not strftime: its %Y writes the year 1 as 1, which RFC 3339 parsers reject.
    return at_utc.isoformat(timespec=timespec).removesuffix("+00:00") + "Z"


def forget_times() -> None:
    """Forget the times that were read and written so far."""
    for cached in (parse_timestamp, _format_to_seconds):
        cached.cache_clear()
