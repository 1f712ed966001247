"""Owns time: the clock that everything which waits is given, and the API's way of writing a time.

It does not own lengths of time as people write them: those are in `berth_core.durations`.
"""

import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol

from berth_core.errors import InputError

LATEST_UNIX_SECONDS: Final = 253_402_300_799
"""The end of the year 9999, the last that a time can be written of."""

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class TimestampError(InputError):
    """A text is no RFC 3339 time."""

    def __init__(self, value: object) -> None:
        super().__init__("time", value, "an RFC 3339 time such as 2026-11-21T07:15:00Z")


class Clock(Protocol):
    """What tells the time and waits; a parameter of everything that does either."""

    def now(self) -> datetime:
        """Return the time of day, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards, from an arbitrary start."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never run backwards, from an arbitrary start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; a time in the past is no wait."""
        time.sleep(max(0.0, seconds))


@lru_cache(maxsize=8192)
def parse_timestamp(text: str) -> datetime:
    """Return the time that an RFC 3339 text names, in UTC; finer than microseconds is cut off.

    Raises `TimestampError`.
    """
    if not _RFC3339.fullmatch(text):
        raise TimestampError(text)
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TimestampError(text) from error


def read_timestamp(text: str | None) -> datetime | None:
    """Return the time that a text of an object names, None where it names none.

    For fields that others write: what one object says must not stop the work on the rest.
    """
    try:
        return parse_timestamp(text or "")
    except TimestampError:
        return None


def format_timestamp(moment: datetime) -> str:
    """Return a time as the API writes it: UTC, whole seconds (cut off), `Z`."""
    return _format_naive(moment, "seconds")


def format_precise_timestamp(moment: datetime) -> str:
    """Return a time as the API writes a MicroTime (leases, events): UTC, six decimals, `Z`."""
    return _format_naive(moment, "microseconds")


def _format_naive(moment: datetime, finest: str) -> str:
    # Not strftime: its %Y writes the year 1 as 1, which no reader of RFC 3339 takes.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=finest) + "Z"
