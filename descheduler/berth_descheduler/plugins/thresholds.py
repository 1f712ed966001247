"""Owns thresholds: percentages per resource as exact numbers, and how a node's amounts compare with them.

It does not own what follows from a comparison: that is the strategy's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from berth_core.errors import InputError

WHOLE: Final = 100
_EXPECTED: Final = "a percentage from 0 to 100"
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A percentage per resource, compared without rounding; sorted by resource."""

    percentages: tuple[tuple[str, Fraction], ...]

    @classmethod
    def parse(cls, field: str, raw: object) -> "Thresholds":
        """Return the thresholds of a mapping from resource to a number or its text; raises `InputError`."""
        if not isinstance(raw, Mapping) or not raw:
            raise InputError(field, raw, "a mapping from resource to percentage, such as {cpu: 40}")
        return cls(tuple(sorted((str(name), parse_percentage(f"{field}.{name}", raw[name])) for name in raw)))

    @classmethod
    def of(cls, **percentages: int) -> "Thresholds":
        """Return thresholds given by name."""
        return cls.parse("thresholds", percentages)

    def get(self, resource: str) -> Fraction | None:
        """Return the percentage of a resource, None if there is none."""
        return dict(self.percentages).get(resource)

    def to_mapping(self) -> dict[str, int | str]:
        """Return what `parse` reads: whole numbers as such, others as exact text."""
        return {name: plain_percentage(percentage) for name, percentage in self.percentages}


def parse_percentage(field: str, raw: object) -> Fraction:
    """Return a percentage from 0 to 100 as the exact number that is written; raises `InputError`."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise InputError(field, raw, _EXPECTED)
    # The shortest text of a float is the number that was written; its binary value is not.
    written = str(raw).strip().removesuffix("%")
    percentage = Fraction(written) if _DECIMAL.fullmatch(written) else Fraction(-1)
    if not 0 <= percentage <= WHOLE:
        raise InputError(field, raw, _EXPECTED)
    return percentage


def plain_percentage(percentage: Fraction) -> int | str:
    """Return a percentage as it is written: a whole number, or text with decimals."""
    if percentage.denominator == 1:
        return percentage.numerator
    return str(Decimal(percentage.numerator) / Decimal(percentage.denominator))
