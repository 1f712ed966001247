"""Finds namespaces whose affinities and spread constraints would need more counting than a plan does.

Each time that a plan tries a move, pods are counted for every term that means the moved pod. A tenant can multiply both
pods and terms, and with them the time of everybody's plans: 120 pods with ten spread constraints each take as long as
the pods of a whole cluster. So a namespace has a bound, well above what people write. Beyond it the namespace's pods
stay where they are, and its terms count only as far as they may keep off pods of other namespaces.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from berth_core import LabelSelector
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass
from berth_descheduler.planner.simulation.pod_terms import PodTerm, pairs_asked_by, resolve_term, with_label_keys

FREE_COUNTS: Final = 4_000
"""How many counts of a pod for a term any namespace may ask for."""
COUNTS_PER_OWN_POD: Final = 32
"""What it may ask for besides, for each of its pods: carried terms, and terms that mean the pod."""
COUNTS_PER_POD: Final = 2
"""What it may ask for besides, for each pod of the cluster: terms may mean pods of all namespaces."""

_NODES_PER_COUNT: Final = 32
"""How many nodes are looked at in the time of one count, for a spread constraint that counts on nodes of its own."""


class _PodNumbers:
    """How many pods have a label, in all and in each namespace."""

    def __init__(self, classes: Sequence[PodClass], pods_of: Counter[ClassIndex]) -> None:
        self.of_namespace: Counter[str] = Counter()
        self._with_pair: Counter[tuple[str, str, str]] = Counter()
        for pods in classes:
            number = pods_of[pods.index]
            self.of_namespace[pods.namespace] += number
            for key, label_value in pods.labels.items():
                self._with_pair[pods.namespace, key, label_value] += number
                self._with_pair["", key, label_value] += number
        self.total = self.of_namespace.total()

    def selected(self, selector: LabelSelector | None, namespace: str) -> int:
        """Return how many pods a selector may select at most, in a namespace or with "" in all."""
        if selector is None:
            return 0
        numbers = (self._with_pair[namespace, *pair] for pair in pairs_asked_by(selector))
        return min(numbers, default=self.of_namespace[namespace] if namespace else self.total)


def find_crowded_namespaces(
    classes: Sequence[PodClass], class_of_pods: Iterable[ClassIndex], nodes: int, own_namespace: str
) -> Mapping[str, Refusal]:
    """Return the namespaces above the bound, each with why its pods stay; Berth's own is never one."""
    constrained = [pods for pods in classes if _has_terms(pods) and pods.namespace != own_namespace]
    if not constrained:
        return {}
    pods_of = Counter(class_of_pods)
    numbers = _PodNumbers(classes, pods_of)
    counts: Counter[str] = Counter()
    seen: set[tuple[str, bytes]] = set()
    for pods in constrained:
        for key, cost in _costs(pods, numbers, nodes):
            counts[pods.namespace] += pods_of[pods.index]
            # Terms that are equal share their counts, so that they cost once, however many classes of pods carry them.
            if (pods.namespace, key) not in seen:
                seen.add((pods.namespace, key))
                counts[pods.namespace] += cost
    crowded = {}
    for namespace, asked in counts.items():
        bound = FREE_COUNTS + COUNTS_PER_OWN_POD * numbers.of_namespace[namespace] + COUNTS_PER_POD * numbers.total
        if asked > bound:
            text = (
                f"the pod affinities and spread constraints of the namespace {namespace} ask for {asked} counts of "
                f"pods, and a plan makes {bound} at most for it"
            )
            crowded[namespace] = Refusal(RefusalReason.TOO_MANY_RULES, text)
    return crowded


def terms_beyond(pods: PodClass) -> Iterator[PodTerm]:
    """Yield the anti-affinity terms of a class that also mean pods of other namespaces."""
    for written in pods.example.spec.required_anti_affinity:
        term = resolve_term(written, pods.namespace, pods.labels)
        if not term.is_within(pods.namespace):
            yield term


def _has_terms(pods: PodClass) -> bool:
    spec = pods.example.spec
    return bool(spec.topology_spread_constraints) or spec.affinity is not None


def _costs(pods: PodClass, numbers: _PodNumbers, nodes: int) -> Iterator[tuple[bytes, int]]:
    """Yield a key for each term of a class, and how many counts the term costs once, whichever pods carry it."""
    spec = pods.example.spec
    for written in (*spec.required_affinity, *spec.required_anti_affinity):
        term = resolve_term(written, pods.namespace, pods.labels)
        yield term.key, numbers.selected(term.selector, pods.namespace if term.is_within(pods.namespace) else "")
    if not (spreads := pods.hard_spreads):
        return
    nodes_counted = msgspec.json.encode(
        (
            sorted({constraint.topology_key for constraint in spreads}),
            (spec.node_selector, spec.affinity and spec.affinity.node_affinity, spec.tolerations),
        ),
        order="sorted",
    )
    yield nodes_counted, nodes // _NODES_PER_COUNT
    for constraint in spreads:
        selector = with_label_keys(constraint.label_selector, constraint.match_label_keys, pods.labels, "In")
        key = msgspec.json.encode((constraint.topology_key, selector), order="sorted")
        yield nodes_counted + key, numbers.selected(selector, pods.namespace)
