"""Owns thresholds: percentages per resource as exact numbers, and how a node's amounts compare with them.

It does not own what follows from a comparison: that is the strategy's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from berth_core.errors import InputError

WHOLE: Final = 100
_EXPECTED: Final = "a percentage from 0 to 100"


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
        return {name: _plain(percentage) for name, percentage in self.percentages}


def parse_percentage(field: str, raw: object) -> Fraction:
    """Return a percentage from 0 to 100 as the exact number that is written; raises `InputError`."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise InputError(field, raw, _EXPECTED)
    try:
        # The shortest text of a float is the number that was written; its binary value is not.
        percentage = Fraction(str(raw).strip().removesuffix("%"))
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(field, raw, _EXPECTED) from error
    if not 0 <= percentage <= WHOLE:
        raise InputError(field, raw, _EXPECTED)
    return percentage


def _plain(percentage: Fraction) -> int | str:
    return percentage.numerator if percentage.denominator == 1 else str(percentage)
