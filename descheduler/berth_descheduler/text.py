"""Shared forms of texts for people: numbers with nouns, shortened lists, spans of time."""

from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Final

ALL_IN_JSON: Final = "all of them with --output json"
"""What is said below a table that is cut."""


def count(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural with an s unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_few(names: Sequence[str], most: int) -> str:
    """Return names up to a number, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


# --- spans -----------------------------------------------------------------------------------------------------------
# A length of time for people: in at most two units, as `kubectl get` shows it.

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_ENOUGH: Final = 10
"""With so many of a unit the next smaller one says nothing."""


def span_in_words(span: timedelta) -> str:
    """Return a span such as 45s, 3m20s, 2h5m or 4d1h; one below zero, as clocks that differ give it, is 0s."""
    seconds = max(0, int(span.total_seconds()))
    for index, (unit, size) in enumerate(_UNITS):
        whole, rest = divmod(seconds, size)
        if not whole:
            continue
        if index + 1 == len(_UNITS) or whole >= _ENOUGH:
            return f"{whole}{unit}"
        next_unit, next_size = _UNITS[index + 1]
        more = rest // next_size
        return f"{whole}{unit}{more}{next_unit}" if more else f"{whole}{unit}"
    return "0s"


def percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"
