"""Owns required pod affinity and anti-affinity, of the moved pod and of those already there.

It does not own topology spread: that is `spread`.

A move must be right whether the old pod is still there when its replacement is scheduled or already gone. So a pod that
wants company may not count on itself, and one that wants none must not meet itself.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from berth_core.labels import FENCE_LABEL, MANAGED_BY_OPERATOR, MANAGED_LABEL, PLACEHOLDER_LABEL, RESERVATION_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PlacedPod, Presence
from berth_descheduler.planner.simulation.pod_classes import ClassIndex
from berth_descheduler.planner.simulation.topology_counts import (
    LabelIndex,
    Meant,
    PodTerm,
    Tally,
    TermReader,
    Weight,
    required_affinity,
    required_anti_affinity,
    resolve_term,
)

_SURE: Final = Weight(sure=1, possible=1)
_POSSIBLE: Final = Weight(sure=0, possible=1)
_PLACEHOLDER_LABELS: Final = {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "", MANAGED_LABEL: MANAGED_BY_OPERATOR}


@dataclass(frozen=True, slots=True)
class _Company:
    """The required affinity of a class: one tally per topology key, of the pods that all its terms mean."""

    tallies: tuple[Tally, ...]
    meant_itself: bool


class Neighbours:
    """Counts the pods that pod affinities are about, and tells where a pod may go for their sake."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reader = TermReader(cluster.snapshot.namespaces)
        self._index = LabelIndex(cluster.classes)
        self._domains: dict[str, list[str | None]] = {}
        self._shared: dict[tuple[str, bytes], Tally] = {}
        self._counted: defaultdict[ClassIndex, list[tuple[Tally, Weight]]] = defaultdict(list)
        self._company: dict[ClassIndex, _Company] = {}
        self._shunned: defaultdict[ClassIndex, list[Tally]] = defaultdict(list)
        """Per class: the pods that it keeps away from."""
        self._shunning: defaultdict[ClassIndex, list[Tally]] = defaultdict(list)
        """Per class: the pods that keep away from it, or from the placeholder that goes before it."""
        self._shunning_placeholders: list[Tally] = []
        self._links: set[tuple[ClassIndex, ClassIndex]] = set()
        for pods in cluster.classes:
            self._read_class(pods.index)
        for placed in cluster.pods if self._counted else ():
            self._count(placed, 1)

    @property
    def links(self) -> frozenset[tuple[ClassIndex, ClassIndex]]:
        """Return the pairs of classes of which the one's place decides about the other's."""
        return frozenset(self._links)

    def constrains(self, class_index: ClassIndex) -> bool:
        """Tell whether where pods of a class may go depends on other pods."""
        return (
            class_index in self._company
            or bool(self._shunned.get(class_index))
            or bool(self._shunning.get(class_index))
            or bool(self._shunning_placeholders)
        )

    def counts(self, class_index: ClassIndex) -> bool:
        """Tell whether where pods of a class are decides about others."""
        return bool(self._counted.get(class_index))

    def refusal(self, class_index: ClassIndex, source: NodeIndex, target: NodeIndex) -> Refusal | None:
        """Return why a settled pod of a class cannot go from its source to a target for the sake of other pods."""
        company = self._company.get(class_index)
        if company is not None and not _finds_company(company, source, target):
            return Refusal(RefusalReason.POD_AFFINITY, "no pod that the pod's affinity asks for is surely there")
        if _any_in_domain(self._shunned.get(class_index, ()), target):
            return Refusal(RefusalReason.POD_ANTI_AFFINITY, "a pod that the pod's anti-affinity shuns is there")
        if _any_in_domain(self._shunning.get(class_index, ()), target):
            return Refusal(RefusalReason.OTHERS_ANTI_AFFINITY, "a pod there has an anti-affinity against the pod")
        if _any_in_domain(self._shunning_placeholders, target):
            return Refusal(RefusalReason.OTHERS_ANTI_AFFINITY, "a pod there has an anti-affinity against placeholders")
        return None

    def in_the_way(self, class_index: ClassIndex, target: NodeIndex) -> Tally | None:
        """Return the pods because of which a node refuses a class for anti-affinity, None if there are none."""
        against = (*self._shunned.get(class_index, ()), *self._shunning.get(class_index, ()))
        tallies = (*against, *self._shunning_placeholders)
        return next((tally for tally in tallies if _any_in_domain((tally,), target)), None)

    def counted_in(self, tally: Tally) -> frozenset[ClassIndex]:
        """Return the classes whose pods are counted in a tally."""
        return frozenset(one for one, counted in self._counted.items() if any(found is tally for found, _ in counted))

    def move(self, class_index: ClassIndex, source: NodeIndex, target: NodeIndex) -> None:
        """Count a settled pod of a class at its target instead of its source."""
        for tally, weight in self._counted.get(class_index, ()):
            tally.add(source, weight, -1)
            tally.add(target, weight)

    def _count(self, placed: PlacedPod, times: int) -> None:
        for tally, weight in self._counted.get(placed.class_index, ()):
            settled = placed.presence is Presence.SETTLED
            tally.add(placed.node, weight if settled else Weight(0, weight.possible), times)

    def _read_class(self, index: ClassIndex) -> None:
        pods = self._cluster.classes[index]
        affinity = pods.example.spec.affinity
        if affinity is None or FENCE_LABEL in pods.labels:  # a fence comes and goes, as a guard does
            return
        wanted = [resolve_term(term, pods.namespace, pods.labels) for term in required_affinity(affinity)]
        if wanted:
            self._company[index] = self._read_company(index, wanted)
        for written in required_anti_affinity(affinity):
            self._read_anti_affinity(index, resolve_term(written, pods.namespace, pods.labels))

    def _read_company(self, index: ClassIndex, terms: list[PodTerm]) -> _Company:
        key = b"\0".join(sorted(term.key for term in terms))
        tallies = []
        for topology_key in sorted({term.topology_key for term in terms}):
            tally, is_new = self._tally(f"company/{topology_key}", key, topology_key)
            tallies.append(tally)
            for other in self._index.candidates(terms[0].selector) if is_new else ():
                self._include(tally, other, self._all_mean(terms, other))
        self._link_meant(index, terms)
        return _Company(tuple(tallies), self._all_mean(terms, index) is Meant.YES)

    def _read_anti_affinity(self, index: ClassIndex, term: PodTerm) -> None:
        shunned, is_new = self._tally("shunned", term.key, term.topology_key)
        self._shunned[index].append(shunned)
        for other in self._index.candidates(term.selector) if is_new else ():
            self._include(shunned, other, self._mean(term, other))
        holders, is_new = self._tally("shunning", term.key, term.topology_key)
        self._counted[index].append((holders, _SURE))
        if is_new:
            self._warn_of(holders, term)
        self._link_meant(index, [term])

    def _warn_of(self, holders: Tally, term: PodTerm) -> None:
        for other in self._index.candidates(term.selector):
            if self._mean(term, other) is not Meant.NO:
                self._shunning[other].append(holders)
        if self._reader.meant(term, DEFAULT_NAMESPACE, _PLACEHOLDER_LABELS) is not Meant.NO:
            self._shunning_placeholders.append(holders)

    def _link_meant(self, index: ClassIndex, terms: list[PodTerm]) -> None:
        others = self._index.candidates(terms[0].selector)
        self._links.update((index, other) for other in others if self._all_mean(terms, other) is not Meant.NO)

    def _include(self, tally: Tally, other: ClassIndex, meant: Meant) -> None:
        if meant is not Meant.NO:
            self._counted[other].append((tally, _SURE if meant is Meant.YES else _POSSIBLE))

    def _mean(self, term: PodTerm, index: ClassIndex) -> Meant:
        pods = self._cluster.classes[index]
        return self._reader.meant(term, pods.namespace, pods.labels)

    def _all_mean(self, terms: Iterable[PodTerm], index: ClassIndex) -> Meant:
        answers = {self._mean(term, index) for term in terms}
        return next((answer for answer in (Meant.NO, Meant.MAYBE) if answer in answers), Meant.YES)

    def _tally(self, kind: str, key: bytes, topology_key: str) -> tuple[Tally, bool]:
        """Return the tally of some pods by a topology key, and whether it was just made."""
        known = self._shared.get((kind, key))
        if known is not None:
            return known, False
        if topology_key not in self._domains:
            self._domains[topology_key] = [node.metadata.labels.get(topology_key) for node in self._cluster.nodes]
        made = Tally(self._domains[topology_key])
        self._shared[kind, key] = made
        return made, True


def _any_in_domain(tallies: Iterable[Tally], target: NodeIndex) -> bool:
    """Tell whether a counted pod may be in the target's domain of one of the tallies; no label, no domain."""
    for tally in tallies:
        domain = tally.domain(target)
        if domain is not None and tally.possible(domain) > 0:
            return True
    return False


def _finds_company(company: _Company, source: NodeIndex, target: NodeIndex) -> bool:
    """Tell whether the affinity is satisfied at the target, with the pod itself still at the source and without it."""
    own = 1 if company.meant_itself else 0
    enough = True
    for tally in company.tallies:
        domain = tally.domain(target)
        if domain is None:
            return False
        if tally.sure(domain) - (own if tally.domain(source) == domain else 0) <= 0:
            enough = False
    return enough or (company.meant_itself and _is_alone(company.tallies, source, target))


def _is_alone(tallies: tuple[Tally, ...], source: NodeIndex, target: NodeIndex) -> bool:
    """Tell whether the pod is the only one of its kind, which may go anywhere once it is gone.

    Until then its replacement finds it, so the target has to be in the old pod's domains.
    """
    for tally in tallies:
        counted = tally.domain(source) is not None
        if tally.possible_total - (1 if counted else 0) > 0:
            return False
    domains = [(tally.domain(source), tally.domain(target)) for tally in tallies]
    return all(old is None for old, _ in domains) or all(old == new for old, new in domains)
