"""What the terms of pod affinities and spread constraints mean: pods of some namespaces that a selector selects."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

import msgspec

from berth_core import LabelSelector, LabelSelectorRequirement, Namespace, PodAffinityTerm, matches_labels
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

    def is_within(self, namespace: str) -> bool:
        """Return whether the term means pods of one namespace only."""
        return self.namespace_selector is None and self.namespaces == {namespace}

    @property
    def key(self) -> bytes:
        """Return a key that equal terms share."""
        parts = (self.topology_key, self.selector, sorted(self.namespaces), self.namespace_selector)
        return msgspec.json.encode(parts, order="sorted")


class LabelIndex:
    """Finds the classes that a selector may select; an index by label pairs saves a look at every class."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self._classes = classes

    @cached_property
    def _all(self) -> tuple[ClassIndex, ...]:
        return tuple(pods.index for pods in self._classes)

    @cached_property
    def _with_pair(self) -> Mapping[tuple[str, str], list[ClassIndex]]:
        with_pair: defaultdict[tuple[str, str], list[ClassIndex]] = defaultdict(list)
        for pods in self._classes:
            for pair in pods.labels.items():
                with_pair[pair].append(pods.index)
        return with_pair

    def candidates(self, selector: LabelSelector | None) -> Sequence[ClassIndex]:
        """Return the classes among which are all that a selector selects, in order."""
        if selector is None:
            return ()
        # The shortest list suffices: whatever the selector selects is in each of them.
        classes_by_pair = (self._with_pair.get(pair, ()) for pair in pairs_asked_by(selector))
        return min(classes_by_pair, key=len, default=self._all)


def pairs_asked_by(selector: LabelSelector) -> list[tuple[str, str]]:
    """Return labels that every pod which a selector selects has."""
    pairs = [*selector.match_labels.items()]
    single_valued = (
        expression
        for expression in selector.match_expressions
        if expression.operator == "In" and len(expression.values) == 1
    )
    return pairs + [(expression_alone.key, expression_alone.values[0]) for expression_alone in single_valued]


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
        namespace_labels = self._labels.get(namespace)
        if namespace_labels is None:
            return Match.UNKNOWN
        return Match.YES if matches_labels(selector, namespace_labels) else Match.NO


def resolve_term(written: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    """Return a term resolved for a pod's namespace and labels.

    `matchLabelKeys` and `mismatchLabelKeys` become part of the selector, as the API server does for new pods
    (KEP-3633); doing it twice changes nothing. Without namespaces and namespace selector the pod's own namespace is
    meant.
    """
    selector = with_label_keys(written.label_selector, written.match_label_keys, labels, "In")
    selector = with_label_keys(selector, written.mismatch_label_keys, labels, "NotIn")
    namespaces = frozenset(written.namespaces)
    # A null namespaceSelector adds no namespaces, an empty one all of them (KEP-2249).
    if not namespaces and written.namespace_selector is None:
        namespaces = frozenset({namespace})
    return PodTerm(written.topology_key, selector, namespaces, written.namespace_selector)


def with_label_keys(
    selector: LabelSelector | None, keys: Sequence[str], labels: Mapping[str, str], operator: str
) -> LabelSelector | None:
    """Return a selector with a pod's own labels of some keys added; keys that the pod lacks add nothing."""
    if selector is None:
        return None
    written = {(expression.key, expression.operator, expression.values) for expression in selector.match_expressions}
    added = tuple(
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for key in keys
        if key in labels and (key, operator, (labels[key],)) not in written
    )
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *added))


def is_everything(selector: LabelSelector) -> bool:
    """Return whether a selector selects whatever there is."""
    return not selector.match_labels and not selector.match_expressions
