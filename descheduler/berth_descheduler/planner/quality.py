"""Owns how good a plan is, by proof: what any plan could reach at most, and whether this one does.

It does not own how the bounds are found.
"""

from dataclasses import dataclass
from enum import StrEnum


class Prover(StrEnum):
    """What the upper bound of a plan was found by."""

    BOUND = "Bound"
    """Amounts and numbers of pods alone."""
    EXACT = "Exact"
    """The integer program."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What was reached beside what can be reached at most.

    What is counted is the strategy's aim: nodes freed by `Consolidate`, pods that find room by `MakeRoom`.
    """

    reached: int
    upper_bound: int
    """No plan within the limits reaches more."""

    moves: int
    fewest_moves: int
    """No plan that reaches as much needs fewer moves."""

    prover: Prover = Prover.BOUND
    out_of_time: bool = False
    """The time limit ended the search; without it the plan might be better, and might differ."""

    @property
    def gap(self) -> int:
        """Return by how much a better plan could reach more at most."""
        return self.upper_bound - self.reached

    @property
    def proven_optimal(self) -> bool:
        """Tell whether no plan reaches more."""
        return self.gap == 0

    @property
    def proven_fewest_moves(self) -> bool:
        """Tell whether no plan reaches as much with fewer moves."""
        return self.moves == self.fewest_moves
