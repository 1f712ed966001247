"""Owns the reading of Kubernetes quantities (`500m`, `1.5Gi`, `1e3`) as exact numbers.

It does not own what they are quantities of: amounts per resource are in `berth_core.resources`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from berth_core.errors import InputError

_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>|[numkMGTPE]|[KMGTPE]i|[eE](?P<exponent>[+-]?[0-9]+))"
)
_DECIMAL_EXPONENT: Final = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENT: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO_DIGITS: Final = 9
_NANO: Final = 10**_NANO_DIGITS
_BINARY_CAP: Final = ((1 << 63) - 1) * _NANO
_LONGEST_TEXT: Final = 256
_LARGEST_EXPONENT: Final = 1_000


class QuantityError(InputError):
    """A text is no quantity, or not one that makes sense where it stands."""

    def __init__(
        self, value: object, *, field: str = "quantity", expected: str = "a quantity such as 500m, 2, 1.5Gi or 1e3"
    ) -> None:
        super().__init__(field, value, expected)


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact number of billionths, the finest that Kubernetes keeps."""

    nanos: int

    def value(self) -> int:
        """Return whole units, rounded away from zero."""
        return _divided(self.nanos, _NANO)

    def milli(self) -> int:
        """Return thousandths, rounded away from zero."""
        return _divided(self.nanos, 1_000_000)

    def nano(self) -> int:
        """Return billionths."""
        return self.nanos


@lru_cache(maxsize=1 << 16)
def parse_quantity(text: str) -> Quantity:
    """Return what `resource.ParseQuantity` of Kubernetes makes of a text, without the overflows of its 64 bits.

    As there, what is finer than a billionth is rounded away from zero, and numbers with a binary suffix are capped at
    2^63-1. Raises `QuantityError` for what it refuses, and for numbers that are longer than anybody writes.
    """
    match = _PATTERN.fullmatch(text) if 0 < len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(text)
    fraction = match["fraction"] or ""
    digits = int(f"0{match['whole']}{fraction}")
    if match["suffix"] in _BINARY_EXPONENT:
        nanos = min(_scaled(digits << _BINARY_EXPONENT[match["suffix"]], _NANO_DIGITS - len(fraction)), _BINARY_CAP)
    else:
        nanos = _scaled(digits, _decimal_exponent(match) + _NANO_DIGITS - len(fraction))
    return Quantity(-nanos if match["sign"] == "-" else nanos)


def _decimal_exponent(match: re.Match[str]) -> int:
    """Return the power of ten that a decimal suffix or an exponent stands for."""
    if match["exponent"] is None:
        return _DECIMAL_EXPONENT[match["suffix"]]
    exponent = int(match["exponent"])
    if exponent > _LARGEST_EXPONENT:
        raise QuantityError(match.string)
    return max(exponent, -_LARGEST_EXPONENT)


def _scaled(number: int, exponent: int) -> int:
    """Return a number that is not negative times a power of ten, rounded up."""
    return number * 10**exponent if exponent >= 0 else _divided(number, 10**-exponent)


def _divided(number: int, divisor: int) -> int:
    """Return a quotient rounded away from zero."""
    return -(-number // divisor) if number >= 0 else number // divisor


def read_whole_number(text: str, *, most: int) -> int | None:
    """Return a number that a label, annotation or taint holds; None for one above a limit or any other text.

    Whoever may write such a text may write four hundred nines, which no float holds.
    """
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None
