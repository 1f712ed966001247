"""Counts the pods that an affinity or spread term matches, by domain."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from berth_core import Affinity, LabelSelector, LabelSelectorRequirement, Namespace, PodAffinityTerm, matches_labels
from berth_descheduler.planner.simulation.cluster import NodeIndex
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass


class Match(Enum):
    """Whether a pod is meant by a term."""

    NO = auto()
    UNKNOWN = auto()
    """The pod's namespace, and so its labels, is not in the snapshot."""
    YES = auto()


@dataclass(frozen=True, slots=True)
class PodTerm:
    """The pods of some namespaces that a selector selects, within one topology."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    @property
    def key(self) -> bytes:
        """Return what is equal for equal terms."""
        parts = (self.topology_key, self.selector, sorted(self.namespaces), self.namespace_selector)
        return msgspec.json.encode(parts, order="sorted")


class LabelIndex:
    """Finds the classes that a selector may select by their labels.

    An index by label pairs spares a look at every class.
    """

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self._all = tuple(pods.index for pods in classes)
        self._with_pair: defaultdict[tuple[str, str], list[ClassIndex]] = defaultdict(list)
        for pods in classes:
            for pair in pods.labels.items():
                self._with_pair[pair].append(pods.index)

    def candidates(self, selector: LabelSelector | None) -> Sequence[ClassIndex]:
        """Return the candidate classes of a selector, in order.

        Every class that the selector selects is among them.
        """
        if selector is None:
            return ()
        pairs = [*selector.match_labels.items()]
        alone = (one for one in selector.match_expressions if one.operator == "In" and len(one.values) == 1)
        pairs += [(one.key, one.values[0]) for one in alone]
        found = (self._with_pair.get(pair, ()) for pair in pairs)
        return min(found, key=len, default=self._all)


class TermReader:
    """Matches pods against terms; knows the labels of the snapshot's namespaces."""

    def __init__(self, namespaces: Iterable[Namespace]) -> None:
        self._labels = {namespace.metadata.name: namespace.metadata.labels for namespace in namespaces}

    def match(self, term: PodTerm, namespace: str, labels: Mapping[str, str]) -> Match:
        """Return whether a pod of a namespace and with labels is meant."""
        if not matches_labels(term.selector, labels):
            return Match.NO
        return self._match_namespace(term, namespace)

    def _match_namespace(self, term: PodTerm, namespace: str) -> Match:
        if namespace in term.namespaces:
            return Match.YES
        selector = term.namespace_selector
        if selector is None:
            return Match.NO
        if is_everything(selector):
            return Match.YES
        known = self._labels.get(namespace)
        if known is None:
            return Match.UNKNOWN
        return Match.YES if matches_labels(selector, known) else Match.NO


def required_affinity(affinity: Affinity | None) -> tuple[PodAffinityTerm, ...]:
    """Return the terms of a required pod affinity as written."""
    found = affinity.pod_affinity if affinity else None
    return found.required_during_scheduling_ignored_during_execution if found else ()


def required_anti_affinity(affinity: Affinity | None) -> tuple[PodAffinityTerm, ...]:
    """Return the terms of a required pod anti-affinity as written."""
    found = affinity.pod_anti_affinity if affinity else None
    return found.required_during_scheduling_ignored_during_execution if found else ()


def resolve_term(written: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    """Return a term resolved for a pod's namespace and labels.

    `matchLabelKeys` and `mismatchLabelKeys` become part of the selector, as the API server does it for new pods; doing
    it twice is the same as once. Without namespaces and namespace selector the pod's own namespace is meant.
    """
    selector = with_label_keys(written.label_selector, written.match_label_keys, labels, "In")
    selector = with_label_keys(selector, written.mismatch_label_keys, labels, "NotIn")
    named = frozenset(written.namespaces)
    if not named and written.namespace_selector is None:
        named = frozenset({namespace})
    return PodTerm(written.topology_key, selector, named, written.namespace_selector)


def with_label_keys(
    selector: LabelSelector | None, keys: Sequence[str], labels: Mapping[str, str], operator: str
) -> LabelSelector | None:
    """Return a selector with the pod's own labels of some keys added.

    Keys that the pod lacks add nothing.
    """
    if selector is None:
        return None
    written = {(one.key, one.operator, one.values) for one in selector.match_expressions}
    added = tuple(
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for key in keys
        if key in labels and (key, operator, (labels[key],)) not in written
    )
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *added))


def is_everything(selector: LabelSelector) -> bool:
    """Return whether a selector selects whatever there is."""
    return not selector.match_labels and not selector.match_expressions


# --- domain counts ----------------------------------------------------------------------------------------------------
# Counts of pods by topology domain, kept up to date as a plan moves them.

Domain: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Weight:
    """How a pod counts while a plan runs: surely there, possibly there."""

    sure: int
    possible: int


class DomainCounts:
    """Pods of some kind, counted by their nodes' topology label value.

    Two counts: pods that are surely there, and pods that may be there. A pod that is going away, one that is expected
    and one of which it is not known whether it is meant are only in the second.
    """

    __slots__ = ("_domain_of", "_levels", "_possible", "_sure", "possible_total")

    def __init__(self, domain_of: Sequence[Domain | None], domains: int = 0) -> None:
        """Start with nothing counted in any of so many domains.

        `domains` matters to `lowest_without` only.
        """
        self._domain_of = domain_of
        self._sure: Counter[Domain] = Counter()
        self._possible: Counter[Domain] = Counter()
        self._levels: Counter[int] = Counter({0: domains})
        self.possible_total = 0

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
        """Count a pod in, or out with `times` = -1.

        A node outside every domain changes nothing.
        """
        domain = self._domain_of[node]
        if domain is None:
            return
        if weight.sure:
            self._shift_level(domain, weight.sure * times)
        self._possible[domain] += weight.possible * times
        self.possible_total += weight.possible * times

    def lowest_without(self, domain: Domain | None, count: int) -> int:
        """Return the lowest sure count with `count` pods of `domain` gone.

        The minimum is over all domains.
        """
        lowest = min((level for level, domains in self._levels.items() if domains > 0), default=0)
        return lowest if domain is None else min(lowest, self._sure[domain] - count)

    def _shift_level(self, domain: Domain, by: int) -> None:
        before = self._sure[domain]
        self._levels[before] -= 1
        self._levels[before + by] += 1
        self._sure[domain] = before + by
