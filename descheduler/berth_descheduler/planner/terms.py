"""Owns which pods the term of a pod affinity, a pod anti-affinity or a spread constraint means.

It does not own where those pods are: that is counted in `tallies`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from berth_core.objects import Affinity, LabelSelector, LabelSelectorRequirement, Namespace, PodAffinityTerm
from berth_core.selectors import matches_labels
from berth_descheduler.planner.classes import ClassIndex, PodClass


class Meant(Enum):
    """Whether a pod is meant by a term."""

    NO = auto()
    MAYBE = auto()
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
    """Finds the classes that a selector may select without looking at every one of them."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self._all = tuple(pods.index for pods in classes)
        self._with_pair: defaultdict[tuple[str, str], list[ClassIndex]] = defaultdict(list)
        for pods in classes:
            for pair in pods.labels.items():
                self._with_pair[pair].append(pods.index)

    def candidates(self, selector: LabelSelector | None) -> Sequence[ClassIndex]:
        """Return the classes among which all are that a selector selects, in order."""
        if selector is None:
            return ()
        pairs = [*selector.match_labels.items()]
        alone = (one for one in selector.match_expressions if one.operator == "In" and len(one.values) == 1)
        pairs += [(one.key, one.values[0]) for one in alone]
        found = (self._with_pair.get(pair, ()) for pair in pairs)
        return min(found, key=len, default=self._all)


class TermReader:
    """Tells which pods terms mean; knows the labels of the namespaces in the snapshot."""

    def __init__(self, namespaces: Iterable[Namespace]) -> None:
        self._labels = {namespace.metadata.name: namespace.metadata.labels for namespace in namespaces}

    def meant(self, term: PodTerm, namespace: str, labels: Mapping[str, str]) -> Meant:
        """Tell whether a pod of a namespace and with labels is meant."""
        if not matches_labels(term.selector, labels):
            return Meant.NO
        return self._namespace_meant(term, namespace)

    def _namespace_meant(self, term: PodTerm, namespace: str) -> Meant:
        if namespace in term.namespaces:
            return Meant.YES
        selector = term.namespace_selector
        if selector is None:
            return Meant.NO
        if is_everything(selector):
            return Meant.YES
        known = self._labels.get(namespace)
        if known is None:
            return Meant.MAYBE
        return Meant.YES if matches_labels(selector, known) else Meant.NO


def required_affinity(affinity: Affinity | None) -> tuple[PodAffinityTerm, ...]:
    """Return the terms of a required pod affinity as written."""
    found = affinity.pod_affinity if affinity else None
    return found.required_during_scheduling_ignored_during_execution if found else ()


def required_anti_affinity(affinity: Affinity | None) -> tuple[PodAffinityTerm, ...]:
    """Return the terms of a required pod anti-affinity as written."""
    found = affinity.pod_anti_affinity if affinity else None
    return found.required_during_scheduling_ignored_during_execution if found else ()


def resolve_term(written: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    """Return a term as it reads for a pod of a namespace and with labels.

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
    """Return a selector that also compares the pod's own values of some labels; keys that it lacks are skipped."""
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
    """Tell whether a selector selects whatever there is."""
    return not selector.match_labels and not selector.match_expressions
