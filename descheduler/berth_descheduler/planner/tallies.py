"""Owns counts of pods by topology domain, kept up to date as a plan moves them.

It does not own what is counted and why: `neighbours` and `spread` make the tallies that they need.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from berth_descheduler.planner.cluster import NodeIndex

Domain: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Weight:
    """How a pod counts in a tally: surely there while the plan runs, possibly there."""

    sure: int
    possible: int


class Tally:
    """Pods of some kind by the value of a topology label of their node.

    Two counts: pods that are surely there, and pods that may be there. A pod that is going away, one that is expected
    and one of which it is not known whether it is meant are only in the second.
    """

    __slots__ = ("_domain_of", "_levels", "_possible", "_sure", "possible_total")

    def __init__(self, domain_of: Sequence[Domain | None], domains: int = 0) -> None:
        """Start with nothing counted in any of so many domains; `domains` matters to `lowest_without` only."""
        self._domain_of = domain_of
        self._sure: Counter[Domain] = Counter()
        self._possible: Counter[Domain] = Counter()
        self._levels: Counter[int] = Counter({0: domains})
        self.possible_total = 0

    def domain(self, node: NodeIndex) -> Domain | None:
        """Return the domain in which a node's pods count, None if they do not."""
        return self._domain_of[node]

    def sure(self, domain: Domain) -> int:
        """Return how many pods are surely in a domain."""
        return self._sure[domain]

    def possible(self, domain: Domain) -> int:
        """Return how many pods may be in a domain."""
        return self._possible[domain]

    def add(self, node: NodeIndex, weight: Weight, times: int = 1) -> None:
        """Count a pod in, or out with `times` = -1; a node outside every domain changes nothing."""
        domain = self._domain_of[node]
        if domain is None:
            return
        if weight.sure:
            self._shift_level(domain, weight.sure * times)
        self._possible[domain] += weight.possible * times
        self.possible_total += weight.possible * times

    def lowest_without(self, domain: Domain | None, count: int) -> int:
        """Return the least sure count over all domains if `count` pods of one domain were not there."""
        lowest = min((level for level, domains in self._levels.items() if domains > 0), default=0)
        return lowest if domain is None else min(lowest, self._sure[domain] - count)

    def _shift_level(self, domain: Domain, by: int) -> None:
        before = self._sure[domain]
        self._levels[before] -= 1
        self._levels[before + by] += 1
        self._sure[domain] = before + by
