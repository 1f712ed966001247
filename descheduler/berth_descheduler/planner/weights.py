"""What nodes weigh, where rules say so: the nodes that a plan frees then count by their weight, not by their number.

A weight is what an hour of a node costs. It is counted in whole millionths, so that sums are exact.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Final

from berth_core import InputError

MICRO: Final = 1_000_000
"""Millionths in a weight of 1."""

_LARGEST: Final = 1_000_000
_SMALLEST: Final = Decimal("0.000001")
_EXPECTED: Final = "an amount from 0 to a million with at most six decimals, such as 0.192"


def parse_weight(field: str, raw: object) -> int:
    """Return a weight in millionths, exactly as written; raises `InputError` for anything else."""
    try:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise InputError(field, raw, _EXPECTED)
        # The shortest text of a float is the number that was written; its binary value is not.
        amount = Decimal(str(raw).strip())
        if not 0 <= amount <= _LARGEST or amount != amount.quantize(_SMALLEST):
            raise InputError(field, raw, _EXPECTED)
    except DecimalException as error:
        raise InputError(field, raw, _EXPECTED) from error
    return int(amount * MICRO)


def format_weight(micro: int) -> str:
    """Return a weight as `parse_weight` reads it, without idle zeros."""
    whole_units, millionths = divmod(micro, MICRO)
    return f"{whole_units}.{millionths:06d}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class WeightQuality:
    """What the freed nodes weigh together, beside the most that any plan could free; in millionths."""

    reached: int
    upper_bound: int


@dataclass(frozen=True, slots=True)
class NodeWeights:
    """What the nodes of a plan weigh; in millionths."""

    of_node: Mapping[str, int]
    """By name; nodes whose weight is not known are absent."""

    unknown: tuple[str, ...] = ()
    """Nodes whose weight is not known; they count 0."""

    def total(self, nodes: Iterable[str]) -> int:
        """Return what some nodes weigh together."""
        return sum(self.of_node.get(name, 0) for name in nodes)
