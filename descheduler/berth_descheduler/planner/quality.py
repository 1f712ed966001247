"""What a plan is proven to reach: the most that any plan could reach, and whether this one does."""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from berth_descheduler.planner.weights import WeightQuality


class Prover(StrEnum):
    """What proved the upper bound of a plan."""

    BOUND = "Bound"
    """Sums of requests and numbers of pods."""
    EXACT = "Exact"
    """The integer program."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What a plan reaches, beside the most that any plan could reach.

    The counts are of the strategy's objective: nodes freed by `Consolidate`, pods that find room by `MakeRoom`,
    millionths of what is free that become usable by `MinimizeFragmentation`. Where nodes have weights, these are the
    objective: what is proven is then about `weight`, and the counts are only true.
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

    leaves_empty_nodes: bool = False
    """What is known of other plans holds for those that leave empty nodes empty: one that fills a cheap one to empty a
    dear one may reach more."""

    weight: WeightQuality | None = None
    """None: nodes have no weights."""

    def bounded_by(self, wider: "Quality", *, fewest_moves: int) -> "Quality":
        """Return it with the bounds of a problem in which fewer pods have to stay: only these hold for all plans."""
        return replace(
            self,
            upper_bound=max(wider.upper_bound, self.reached),
            fewest_moves=fewest_moves,
            prover=wider.prover,
            out_of_time=self.out_of_time or wider.out_of_time,
            leaves_empty_nodes=self.leaves_empty_nodes or wider.leaves_empty_nodes,
            weight=self.weight and wider.weight and replace(self.weight, upper_bound=wider.weight.upper_bound),
        )

    @property
    def gap(self) -> int:
        """Return how much more another plan could reach at most."""
        return self.upper_bound - self.reached

    @property
    def proven_optimal(self) -> bool:
        """Return whether no plan reaches more."""
        return self.reaches_bound and not self.leaves_empty_nodes

    @property
    def reaches_bound(self) -> bool:
        """Return whether none of the plans that the bound is about reaches more."""
        gap = self.gap if self.weight is None else self.weight.upper_bound - self.weight.reached
        return gap == 0 and not self.is_snapshot_incomplete

    @property
    def bounded_plans(self) -> str:
        """Return which plans the bound is about, to follow "no plan"; "" for all."""
        return " that leaves the empty nodes empty" if self.leaves_empty_nodes else ""

    @property
    def proven_fewest_moves(self) -> bool:
        """Return whether no plan reaches as much with fewer moves."""
        return self.moves == self.fewest_moves and not (self.is_snapshot_incomplete or self.leaves_empty_nodes)


@dataclass(frozen=True, slots=True)
class FragmentationChange:
    """What the workload cannot use of a free resource, before and after a plan; averages over its pods."""

    resource: str
    free_before: int
    fragmented_before: Fraction
    free_after: int
    """As before, unless pods leave a node that is over-booked."""

    fragmented_after: Fraction

    @property
    def share_before(self) -> Fraction:
        """Return the fragmented share of what is free; it is 0 where nothing is."""
        return self.fragmented_before / self.free_before if self.free_before else Fraction(0)

    @property
    def share_after(self) -> Fraction:
        """Return the fragmented share of what is free then; it is 0 where nothing is."""
        return self.fragmented_after / self.free_after if self.free_after else Fraction(0)
