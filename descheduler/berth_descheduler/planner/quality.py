"""Owns how good a plan is, by proof: what any plan could reach at most, and whether this one does.

It does not own how the bounds are found.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class Prover(StrEnum):
    """What the upper bound of a plan was found by."""

    BOUND = "Bound"
    """Amounts and numbers of pods alone."""
    EXACT = "Exact"
    """The integer program."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that room was to be made for."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RoomMade:
    """What became of one thing that room was to be made for."""

    name: str
    """A shape as it was written, or namespace and name of a pod."""

    wanted: int | None
    """None: as many as the moves allow."""

    fitted: int
    """How many of it have room at the end, beside everything else that was asked for."""

    fits_before: int
    """How many of it alone would fit now, and after the plan."""
    fits_after: int

    nodes: tuple[str, ...]
    """Where what has room has it, a name as often as it has."""

    unused_before: tuple[tuple[str, Fraction], ...] = ()
    """Per resource the share of what is free that it could not use: the fragmentation by this measure."""
    unused_after: tuple[tuple[str, Fraction], ...] = ()

    pods: tuple[WaitingPod, ...] = ()
    """The pods that were meant, none for a shape; the first `fitted` of them have the room."""

    gang: str = ""
    """The name of the group that they belong to."""

    requests: tuple[tuple[str, str], ...] = ()
    """Of a shape: what each of its pods would ask for, quantities by resource."""


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

    is_snapshot_incomplete: bool = False
    """The snapshot lacks kinds of objects: what is known of other plans holds for what it has, and proves nothing."""

    @property
    def gap(self) -> int:
        """Return by how much a better plan could reach more at most."""
        return self.upper_bound - self.reached

    @property
    def proven_optimal(self) -> bool:
        """Tell whether no plan reaches more."""
        return self.gap == 0 and not self.is_snapshot_incomplete

    @property
    def proven_fewest_moves(self) -> bool:
        """Tell whether no plan reaches as much with fewer moves."""
        return self.moves == self.fewest_moves and not self.is_snapshot_incomplete
