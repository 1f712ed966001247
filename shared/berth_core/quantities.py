"""Exact numbers from text: Kubernetes quantities (`500m`, `1.5Gi`, `1e3`), percentages and whole numbers."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from berth_core.errors import InputError

_PERCENTAGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)%?")
_WHOLE: Final = 100


def read_percentage(text: str) -> Fraction | None:
    """Return a percentage from 0 to 100 exactly as written, None for anything else."""
    match = _PERCENTAGE.fullmatch(text)
    percentage = Fraction(match[1]) if match is not None else None
    return None if percentage is None or percentage > _WHOLE else percentage


_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>|[numkMGTPE]|[KMGTPE]i|[eE](?P<exponent>[+-]?[0-9]+))"
)
_DECIMAL_EXPONENT: Final = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENT: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# No Quantity is finer: ParseQuantity rounds up to nano (apimachinery's pkg/api/resource/quantity.go).
_NANO_DIGITS: Final = 9
_NANO: Final = 10**_NANO_DIGITS
# ParseQuantity caps a number with a binary suffix and reports no error: 9Ei is stored, and scheduled, as 2^63-1
# (`maxAllowed` in apimachinery's pkg/api/resource/amount.go). Decimal ones are kept exactly.
_BINARY_CAP: Final = ((1 << 63) - 1) * _NANO
# A template in a custom resource is not validated as a pod is, so its quantity may be a megabyte of digits: int() takes
# quadratic time for it, and refuses more than 4,300 digits with a ValueError.
_LONGEST_TEXT: Final = 256
_LARGEST_EXPONENT: Final = 1_000


class QuantityError(InputError):
    """A text is not a quantity, or not valid in its place."""

    def __init__(
        self, value: object, *, field: str = "quantity", expected: str = "a quantity such as 500m, 2, 1.5Gi or 1e3"
    ) -> None:
        super().__init__(field, value, expected)


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact number of billionths, Kubernetes' finest unit."""

    nanos: int

    @property
    def is_whole(self) -> bool:
        return self.nanos % _NANO == 0

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
    """Parse a text as Kubernetes' `resource.ParseQuantity` does, without 64-bit overflows.

    As there, fractions of a billionth round away from zero, and numbers with a binary suffix are capped at 2^63-1.
    Raises `QuantityError` for what Kubernetes refuses, and for absurdly long numbers.
    """
    match = _PATTERN.fullmatch(text) if 0 < len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(text)
    fraction = match["fraction"] or ""
    digits = int(f"0{match['whole']}{fraction}")
    if match["suffix"] in _BINARY_EXPONENT:
        # First shifted, then rounded: 0.1Ki is 102.4 bytes exactly, and only what is finer than a billionth is rounded
        # up.
        nanos = min(_scaled(digits << _BINARY_EXPONENT[match["suffix"]], _NANO_DIGITS - len(fraction)), _BINARY_CAP)
    else:
        nanos = _scaled(digits, _decimal_exponent(match) + _NANO_DIGITS - len(fraction))
    return Quantity(-nanos if match["sign"] == "-" else nanos)


def _decimal_exponent(match: re.Match[str]) -> int:
    """Return the power of ten of a decimal suffix or an exponent."""
    if match["exponent"] is None:
        return _DECIMAL_EXPONENT[match["suffix"]]
    exponent = int(match["exponent"])
    if exponent > _LARGEST_EXPONENT:
        raise QuantityError(match.string)
    # A tiny number is rounded up to a billionth whatever its exponent is, so 1e-999999 needs no power of that size.
    return max(exponent, -_LARGEST_EXPONENT)


def _scaled(number: int, exponent: int) -> int:
    """Return a non-negative number times a power of ten, rounded up."""
    return number * 10**exponent if exponent >= 0 else _divided(number, 10**-exponent)


def _divided(number: int, divisor: int) -> int:
    """Return a quotient rounded away from zero."""
    # As Quantity.Value and MilliValue: a request may only be rounded up, or a pod would be placed where it does not
    # fit.
    return -(-number // divisor) if number >= 0 else number // divisor


def read_whole_number(text: str, *, most: int) -> int | None:
    """Parse a whole number of a label, annotation or taint; None above `most` or for any other text.

    The length is checked first: such a text may hold four hundred nines, which no float can represent.
    """
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None
