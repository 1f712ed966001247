"""Counts of pods by topology domain, kept up to date as a plan moves them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from berth_descheduler.planner.simulation.cluster import NodeIndex

Domain: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Weight:
    """How a pod counts while a plan runs: surely there, possibly there."""

    sure: int
    possible: int


class DomainCounts:
    """Pods of some kind, counted by their nodes' value of a topology label.

    There are two counts: pods that are surely there, and pods that may be there. A pod that is going away, one that is
    expected, and one that the kind may not include are only in the second.
    """

    __slots__ = ("_domain_of", "_levels", "_possible", "_sure", "possible_total")

    def __init__(self, domain_of: Sequence[Domain | None], domains: int = 0) -> None:
        """Start with nothing counted in `domains` domains, a number that matters to `lowest_without` only."""
        self._domain_of = domain_of
        self._sure: Counter[Domain] = Counter()
        self._possible: Counter[Domain] = Counter()
        # Per count, how many domains have it. kube-scheduler keeps the two lowest domains for the same question
        # (`criticalPaths` in podtopologyspread/filtering.go), which is exact for one pod; a plan moves many, and back
        # again.
        self._levels: Counter[int] = Counter({0: domains})
        self.possible_total = 0

    @property
    def has_all_nodes(self) -> bool:
        """Return whether each node is in a domain."""
        return None not in self._domain_of

    @property
    def domain_of(self) -> Sequence[Domain | None]:
        """Return the domain of each node, or None."""
        return self._domain_of

    @property
    def domains(self) -> frozenset[Domain]:
        """Return the domains of all nodes."""
        return frozenset(domain for domain in self._domain_of if domain is not None)

    def domain(self, node: NodeIndex) -> Domain | None:
        """Return the domain in which a node's pods count, or None."""
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
        """Return the lowest sure count of all domains, with `count` pods of `domain` gone."""
        lowest = min((level for level, domains in self._levels.items() if domains > 0), default=0)
        return lowest if domain is None else min(lowest, self._sure[domain] - count)

    def _shift_level(self, domain: Domain, by: int) -> None:
        count_before = self._sure[domain]
        self._levels[count_before] -= 1
        self._levels[count_before + by] += 1
        self._sure[domain] = count_before + by
