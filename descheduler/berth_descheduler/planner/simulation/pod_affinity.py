"""Required pod affinity and anti-affinity, of moved and of present pods.

A move must be right whether the old pod is still there when its replacement is scheduled or already gone. So a pod with
an affinity may not count on itself, and a pod with an anti-affinity must not meet itself.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from berth_core import (
    DEFAULT_NAMESPACE,
    FENCE_LABEL,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    STANDING_FENCE_LABEL,
    LentFence,
)
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PlacedPod, PodPresence
from berth_descheduler.planner.simulation.crowded_namespaces import terms_beyond
from berth_descheduler.planner.simulation.domain_counts import DomainCounts, Weight
from berth_descheduler.planner.simulation.pod_classes import ClassIndex
from berth_descheduler.planner.simulation.pod_terms import LabelIndex, Match, PodTerm, TermReader, resolve_term
from berth_descheduler.planner.simulation.topology import ClassLinks

_SURE: Final = Weight(sure=1, possible=1)
_POSSIBLE: Final = Weight(sure=0, possible=1)
_PLACEHOLDER_LABELS: Final = {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "", MANAGED_LABEL: MANAGED_BY_OPERATOR}


@dataclass(frozen=True, slots=True)
class _RequiredAffinity:
    """The required affinity of a class, with counts per topology key of the pods that all its terms mean."""

    domain_counts: tuple[DomainCounts, ...]
    matches_itself: bool


class InterPodAffinity:
    """Counts pods for pod affinities and says where pods may go."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reader = TermReader(cluster.snapshot.namespaces)
        self._index = LabelIndex(cluster.classes)
        self._domains: dict[str, list[str | None]] = {}
        self._shared: dict[tuple[str, bytes], DomainCounts] = {}
        self._counted: defaultdict[ClassIndex, list[tuple[DomainCounts, Weight]]] = defaultdict(list)
        self._affinity: dict[ClassIndex, _RequiredAffinity] = {}
        self._anti_affinity: defaultdict[ClassIndex, list[DomainCounts]] = defaultdict(list)
        """Per class: the pods that it keeps away from."""
        self._others_anti_affinity: defaultdict[ClassIndex, list[DomainCounts]] = defaultdict(list)
        """Per class: the pods that keep away from it, or from the placeholder that goes before it."""
        self._placeholder_anti_affinity: list[DomainCounts] = []
        self.links = ClassLinks()
        for pods in cluster.classes:
            if pods.namespace not in cluster.crowded:
                self._read_class(pods.index)
        self._read_crowded()
        for placed_pod in cluster.pods if self._counted else ():
            self._count(placed_pod, 1)

    @cached_property
    def _topology_keys(self) -> frozenset[str]:
        return frozenset(key for node in self._cluster.nodes for key in node.metadata.labels)

    def is_constrained(self, class_index: ClassIndex) -> bool:
        """Return whether other pods restrict where a class may go."""
        return (
            class_index in self._affinity
            or bool(self._anti_affinity.get(class_index))
            or bool(self._others_anti_affinity.get(class_index))
            or bool(self._placeholder_anti_affinity)
        )

    def is_counted(self, class_index: ClassIndex) -> bool:
        """Return whether the nodes of a class's pods restrict other pods."""
        return bool(self._counted.get(class_index))

    def shuns_itself(self, class_index: ClassIndex) -> bool:
        """Return whether a node with a pod of a class takes no other of it, whichever node it is."""
        counted = [counts for counts, weight in self._counted.get(class_index, ()) if weight.sure]
        return any(
            counts.has_all_nodes and any(own_counts is counts for own_counts in counted)
            for counts in self._anti_affinity.get(class_index, ())
        )

    def standing_ties(self, moving: Collection[ClassIndex]) -> Mapping[ClassIndex, Hashable]:
        """Return the classes that only staying pods tie to nodes, each with a key of what ties it.

        `moving` are the classes of which pods may move or come. What ties such a class holds for a whole plan, and
        classes with equal keys are tied to the same nodes: `refusal` says to which, whatever their source is. A class
        whose own place restricts where others may move is not among them.
        """
        moving_classes = frozenset(moving)
        ties: defaultdict[ClassIndex, set[DomainCounts]] = defaultdict(set)
        readers: defaultdict[DomainCounts, set[ClassIndex]] = defaultdict(set)
        members: defaultdict[DomainCounts, set[ClassIndex]] = defaultdict(set)
        for class_index in moving_classes:
            affinity = self._affinity.get(class_index)
            ties[class_index].update(affinity.domain_counts if affinity is not None else ())
            ties[class_index].update(self._anti_affinity.get(class_index, ()))
            ties[class_index].update(self._others_anti_affinity.get(class_index, ()))
            ties[class_index].update(self._placeholder_anti_affinity)
            for counts in ties[class_index]:
                readers[counts].add(class_index)
            for counts, _ in self._counted.get(class_index, ()):
                members[counts].add(class_index)
        changing = members.keys() & readers.keys()
        standing: dict[ClassIndex, Hashable] = {}
        for class_index, tying_counts in ties.items():
            if self._cluster.classes[class_index].namespace in self._cluster.crowded:
                continue  # nothing is counted of its own terms, so what ties it is not known
            affinity = self._affinity.get(class_index)
            is_counted = any(counts in changing for counts, _ in self._counted.get(class_index, ()))
            if tying_counts.isdisjoint(changing) and not is_counted and not (affinity and affinity.matches_itself):
                affinity_key = frozenset(map(id, affinity.domain_counts)) if affinity else frozenset()
                standing[class_index] = (affinity_key, frozenset(map(id, tying_counts)))
        return standing

    def refusal(self, class_index: ClassIndex, source: NodeIndex, target: NodeIndex) -> Refusal | None:
        """Return why pod affinities forbid a move from source to target."""
        affinity = self._affinity.get(class_index)
        if affinity is not None and not _is_satisfied(affinity, source, target):
            return Refusal(RefusalReason.POD_AFFINITY, "no pod that the pod's affinity asks for is surely there")
        if _any_in_domain(self._anti_affinity.get(class_index, ()), target):
            return Refusal(RefusalReason.POD_ANTI_AFFINITY, "a pod that the pod's anti-affinity shuns is there")
        # Required anti-affinity holds both ways: kube-scheduler asks it of the pods that are there as well
        # (interpodaffinity/filtering.go).
        if _any_in_domain(self._others_anti_affinity.get(class_index, ()), target):
            return Refusal(RefusalReason.OTHERS_ANTI_AFFINITY, "a pod there has an anti-affinity against the pod")
        if _any_in_domain(self._placeholder_anti_affinity, target):
            return Refusal(RefusalReason.OTHERS_ANTI_AFFINITY, "a pod there has an anti-affinity against placeholders")
        return None

    def in_the_way(self, class_index: ClassIndex, target: NodeIndex) -> DomainCounts | None:
        """Return the counts of pods that keep a class off a node by anti-affinity, None if there are none."""
        against = (*self._anti_affinity.get(class_index, ()), *self._others_anti_affinity.get(class_index, ()))
        domain_counts = (*against, *self._placeholder_anti_affinity)
        return next((counts for counts in domain_counts if _any_in_domain((counts,), target)), None)

    def counted_in(self, counts: DomainCounts) -> frozenset[ClassIndex]:
        """Return the classes whose pods `counts` includes."""
        return frozenset(
            class_index
            for class_index, counts_and_weights in self._counted.items()
            if any(class_counts is counts for class_counts, _ in counts_and_weights)
        )

    def move(self, class_index: ClassIndex, source: NodeIndex, target: NodeIndex) -> None:
        """Move a settled pod's count from its source to its target."""
        for counts, weight in self._counted.get(class_index, ()):
            counts.add(source, weight, -1)
            counts.add(target, weight)

    def _count(self, placed: PlacedPod, times: int) -> None:
        for counts, weight in self._counted.get(placed.class_index, ()):
            settled = placed.presence is PodPresence.SETTLED
            counts.add(placed.node, weight if settled else Weight(0, weight.possible), times)

    def _read_class(self, index: ClassIndex) -> None:
        pods = self._cluster.classes[index]
        spec = pods.example.spec
        # A fence of a hand-over is gone within seconds, and must not keep a node out of a plan that takes minutes.
        if spec.affinity is None or _is_of_handover(pods.labels) or _is_of_lent_node(pods.labels):
            return
        terms = [resolve_term(term, pods.namespace, pods.labels) for term in spec.required_affinity]
        if terms:
            self._affinity[index] = self._read_affinity(index, terms)
        for written in spec.required_anti_affinity:
            self._read_anti_affinity(index, resolve_term(written, pods.namespace, pods.labels))

    def _read_affinity(self, index: ClassIndex, terms: list[PodTerm]) -> _RequiredAffinity:
        # kube-scheduler counts a pod for required affinity only if it matches all terms of the incoming pod
        # (`podMatchesAllAffinityTerms` in interpodaffinity/filtering.go), so all terms share their counts.
        key = b"\0".join(sorted(term.key for term in terms))
        domain_counts = []
        for topology_key in sorted({term.topology_key for term in terms}):
            counts, is_new = self._counts_of(f"affinity/{topology_key}", key, topology_key)
            domain_counts.append(counts)
            for other_class in self._index.candidates(terms[0].selector) if is_new else ():
                self._include(counts, other_class, self._match_all(terms, other_class))
        self.links.add(key, index, lambda: self._meant_by(terms))
        return _RequiredAffinity(tuple(domain_counts), self._match_all(terms, index) is Match.YES)

    def _read_anti_affinity(self, index: ClassIndex, term: PodTerm) -> None:
        avoided, is_new = self._counts_of("avoided", term.key, term.topology_key)
        self._anti_affinity[index].append(avoided)
        for other_class in self._index.candidates(term.selector) if is_new else ():
            self._include(avoided, other_class, self._match(term, other_class))
        holders, is_new = self._counts_of("shunning", term.key, term.topology_key)
        self._counted[index].append((holders, _SURE))
        if is_new:
            self._add_others(holders, term)
        self.links.add(term.key, index, lambda: self._meant_by([term]))

    def _read_crowded(self) -> None:
        """Keep pods that a crowded namespace's anti-affinity may mean out of the domains of its pods that have it.

        That is more than the terms ask for, and no more than a tenant can have with a single term. Their terms within
        their own namespace do not matter, since the pods there stay.
        """
        meant_namespaces: defaultdict[str, set[str | None]] = defaultdict(set)
        """By topology key; None is every namespace."""
        counts_by_key: dict[str, DomainCounts] = {}
        for pods in self._cluster.classes if self._cluster.crowded else ():
            if pods.namespace not in self._cluster.crowded:
                continue
            terms = [term for term in terms_beyond(pods) if term.topology_key in self._topology_keys]
            for term in terms:
                meant_namespaces[term.topology_key] |= (
                    {None} if term.namespace_selector is not None else term.namespaces
                )
            for topology_key in sorted({term.topology_key for term in terms}):
                counts_by_key[topology_key], _ = self._counts_of("crowded", topology_key.encode(), topology_key)
                self._counted[pods.index].append((counts_by_key[topology_key], _SURE))
        for topology_key, counts in counts_by_key.items():
            meant = meant_namespaces[topology_key]
            for pods in self._cluster.classes:
                if None in meant or pods.namespace in meant:
                    self._others_anti_affinity[pods.index].append(counts)
            if not meant.isdisjoint({None, DEFAULT_NAMESPACE}):
                self._placeholder_anti_affinity.append(counts)

    def _add_others(self, holders: DomainCounts, term: PodTerm) -> None:
        for other_class in self._index.candidates(term.selector):
            if self._match(term, other_class) is not Match.NO:
                self._others_anti_affinity[other_class].append(holders)
        # A placeholder holds the place before the replacement takes it, so a term that means the placeholder keeps both
        # out.
        if self._reader.match(term, DEFAULT_NAMESPACE, _PLACEHOLDER_LABELS) is not Match.NO:
            self._placeholder_anti_affinity.append(holders)

    def _meant_by(self, terms: list[PodTerm]) -> list[ClassIndex]:
        other_classes = self._index.candidates(terms[0].selector)
        return [other_class for other_class in other_classes if self._match_all(terms, other_class) is not Match.NO]

    def _include(self, counts: DomainCounts, other: ClassIndex, match: Match) -> None:
        if match is not Match.NO:
            self._counted[other].append((counts, _SURE if match is Match.YES else _POSSIBLE))

    def _match(self, term: PodTerm, index: ClassIndex) -> Match:
        pods = self._cluster.classes[index]
        return self._reader.match(term, pods.namespace, pods.labels)

    def _match_all(self, terms: Iterable[PodTerm], index: ClassIndex) -> Match:
        answers = {self._match(term, index) for term in terms}
        return next((answer for answer in (Match.NO, Match.UNKNOWN) if answer in answers), Match.YES)

    def _counts_of(self, kind: str, key: bytes, topology_key: str) -> tuple[DomainCounts, bool]:
        """Return some pods' counts by topology key, and whether they are new."""
        known_counts = self._shared.get((kind, key))
        if known_counts is not None:
            return known_counts, False
        if topology_key not in self._topology_keys:  # pods name as many keys as they like: these share a list
            topology_key = ""
        if topology_key not in self._domains:
            self._domains[topology_key] = [node.metadata.labels.get(topology_key) for node in self._cluster.nodes]
        new_counts = DomainCounts(self._domains[topology_key])
        self._shared[kind, key] = new_counts
        return new_counts, True


def _any_in_domain(domain_counts: Iterable[DomainCounts], target: NodeIndex) -> bool:
    """Return whether any of the counts may have a pod in the target's domain; without the label it has none."""
    for counts in domain_counts:
        domain = counts.domain(target)
        if domain is not None and counts.possible(domain) > 0:
            return True
    return False


def _is_satisfied(affinity: _RequiredAffinity, source: NodeIndex, target: NodeIndex) -> bool:
    """Return whether the affinity holds at the target, both with the pod still at its source and without it."""
    self_count = 1 if affinity.matches_itself else 0
    has_match = True
    for counts in affinity.domain_counts:
        domain = counts.domain(target)
        if domain is None:
            # A node without the topology label of a term never satisfies it (`nodeMatchesAllTopologyTerms` in
            # interpodaffinity/filtering.go).
            return False
        if counts.sure(domain) - (self_count if counts.domain(source) == domain else 0) <= 0:
            has_match = False
    return has_match or (affinity.matches_itself and _is_alone(affinity.domain_counts, source, target))


def _is_alone(domain_counts: tuple[DomainCounts, ...], source: NodeIndex, target: NodeIndex) -> bool:
    """Return whether the pod is the only one of its kind.

    kube-scheduler lets the first pod of a kind go anywhere (`satisfyPodAffinity` in its plugin InterPodAffinity), so
    its replacement may go anywhere once it is gone. Until then the replacement finds it, so the target has to be in the
    old pod's domains.
    """
    for counts in domain_counts:
        is_counted = counts.domain(source) is not None
        if counts.possible_total - (1 if is_counted else 0) > 0:
            return False
    domains = [(counts.domain(source), counts.domain(target)) for counts in domain_counts]
    return all(old_domain is None for old_domain, _ in domains) or all(
        old_domain == new_domain for old_domain, new_domain in domains
    )


def _is_of_lent_node(labels: Mapping[str, str]) -> bool:
    """Return whether labels are those of a lent node's fence; `node_fit` knows which pods it lets in."""
    return labels.get(STANDING_FENCE_LABEL) in set(LentFence)


def _is_of_handover(labels: Mapping[str, str]) -> bool:
    """Return whether labels are those of a fence that comes and goes with a hand-over, as a guard does."""
    return FENCE_LABEL in labels and STANDING_FENCE_LABEL not in labels
