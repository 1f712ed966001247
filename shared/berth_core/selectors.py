"""Selectors, affinities and tolerations, evaluated as kube-scheduler does.

Unknown operators and invalid numbers do not match: in doubt a pod stays. An expression of which no selector can be
built, such as one with a value that no label can have, makes its whole term or selector match nothing, whatever its
operator is (`labels.NewRequirement` of k8s.io/apimachinery).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from berth_core.names import is_label_value, is_qualified_name
from berth_core.objects.metadata import LabelSelector, LabelSelectorRequirement
from berth_core.objects.nodes import Node, Taint
from berth_core.objects.pods import PodSpec
from berth_core.objects.scheduling import Affinity, NodeSelectorTerm, Toleration

_NAME_FIELD: Final = "metadata.name"
_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {"Gt": int.__gt__, "Lt": int.__lt__}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")
# `Gt` and `Lt` compare int64 (`ParseInt` in apimachinery's pkg/labels/selector.go).
_INT64: Final = 1 << 63
_NO_EXECUTE: Final = "NoExecute"
_BLOCKING_EFFECTS: Final = frozenset({"NoSchedule", _NO_EXECUTE})


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a selector; None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        # Gt and Lt belong to node selectors; `metav1.LabelSelectorAsSelector` knows neither and fails.
        requirement.operator not in _COMPARISONS and holds(requirement, labels)
        for requirement in selector.match_expressions
    )


def why_invalid_selectors(spec: PodSpec) -> str:
    """Return which part of a spec keeps kube-scheduler from placing the pod on any node, "" if none does.

    It builds the selectors of all terms of pods' affinities and of spread constraints before it looks at nodes, and of
    preferred node affinity before it scores them.
    """
    affinity = spec.affinity or Affinity()
    for name, terms in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        weighted = terms.preferred_during_scheduling_ignored_during_execution if terms else ()
        required = terms.required_during_scheduling_ignored_during_execution if terms else ()
        for term in (*required, *(weighted_term.pod_affinity_term for weighted_term in weighted)):
            if not (_is_valid_selector(term.label_selector) and _is_valid_selector(term.namespace_selector)):
                return f"its {name} has a selector that no label can satisfy"
    if not all(_is_valid_selector(constraint.label_selector) for constraint in spec.topology_spread_constraints):
        return "its topologySpreadConstraints have a selector that no label can satisfy"
    nodes = (
        affinity.node_affinity.preferred_during_scheduling_ignored_during_execution if affinity.node_affinity else ()
    )
    if not all(map(is_valid, (requirement for term in nodes for requirement in term.preference.match_expressions))):
        return "its preferred nodeAffinity has an expression that no label can satisfy"
    return ""


@lru_cache(maxsize=1 << 14)
def is_valid(requirement: LabelSelectorRequirement) -> bool:
    """Return whether Kubernetes can build a selector of an expression."""
    if not is_qualified_name(requirement.key) or not all(map(is_label_value, requirement.values)):
        return False
    match requirement.operator:
        case "In" | "NotIn":
            return bool(requirement.values)
        case "Exists" | "DoesNotExist":
            return not requirement.values
        case "Gt" | "Lt":
            return len(requirement.values) == 1 and _integer(requirement.values[0]) is not None
        case _:
            return False


def _is_valid_selector(selector: LabelSelector | None) -> bool:
    if selector is None:
        return True
    equals = (
        LabelSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in selector.match_labels.items()
    )
    expressions = selector.match_expressions
    return all(map(is_valid, (*equals, *expressions))) and not any(
        requirement.operator in _COMPARISONS for requirement in expressions
    )


def _integer(text: str) -> int | None:
    """Return a number of 64 bits as Go's `strconv.ParseInt` reads it, None for anything else."""
    # Longer texts cannot be 64-bit numbers, but for leading zeros; int() would take "1_000" and digits of other
    # scripts, which Go refuses.
    number = int(text) if _INTEGER.fullmatch(text) else _INT64
    return number if -_INT64 <= number < _INT64 else None


def matches_node_affinity(spec: PodSpec, node: Node) -> bool:
    """Return whether a pod's nodeSelector and required node affinity allow a node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or matches_any_term(required.node_selector_terms, node)


def matches_any_term(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """Return whether a node satisfies one of the terms; without terms no node does."""
    return any(matches_term(term, node) for term in terms)


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether a node satisfies a whole term; an empty term matches no node."""
    # `isEmptyNodeSelectorTerm` of component-helpers. For label selectors the rule is the opposite: there, empty selects
    # all.
    if not term.match_expressions and not term.match_fields:
        return False
    return all(holds(requirement, node.metadata.labels) for requirement in term.match_expressions) and all(
        _holds_for_field(requirement, node) for requirement in term.match_fields
    )


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def untolerated_taint(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """Return the first untolerated taint that keeps a pod off, else None."""
    return next(
        # PreferNoSchedule lowers a node's score only, so no pod is kept off by it.
        (taint for taint in taints if taint.effect in _BLOCKING_EFFECTS and not tolerates(tolerations, taint)),
        None,
    )


def ending_taint(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[Taint, int] | None:
    """Return the taint that ends a pod soonest, and after how many seconds; None if the pod may stay.

    As in pkg/controller/tainteviction of Kubernetes, the first toleration that matches a taint decides, and a
    pod without one ends at once. A scheduler still places the pod there if it tolerates the taint for some seconds.
    """
    ends: list[tuple[int, Taint]] = []
    for taint in taints:
        if taint.effect != _NO_EXECUTE:
            continue
        first = next((toleration for toleration in tolerations if _tolerates(toleration, taint)), None)
        if first is None:
            ends.append((0, taint))
        # Seconds below 0 are valid in the API and end the pod at once, as 0 does (`getMinTolerationTime`).
        elif first.toleration_seconds is not None:
            ends.append((max(0, first.toleration_seconds), taint))
    seconds, soonest = min(ends, key=lambda end: end[0], default=(0, None))
    return None if soonest is None else (soonest, seconds)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration tolerates a taint.

    The numeric operators Gt and Lt count as no: they are alpha, and a cluster without them stores no such pod (feature
    gate TaintTolerationComparisonOperators).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    # No key tolerates every taint. Validation of pods then wants Exists, but templates in custom resources are not
    # validated.
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return False


def holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy an expression; a missing label satisfies NotIn and DoesNotExist."""
    return _is_satisfied(requirement, labels) and is_valid(requirement)


def _is_satisfied(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy an expression, if that is valid."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(value, requirement)


def _compares(label_value: str | None, requirement: LabelSelectorRequirement) -> bool:
    """Return whether a label is greater or less than the value; both must be 64-bit integers."""
    compare = _COMPARISONS.get(requirement.operator)
    if compare is None or label_value is None or len(requirement.values) != 1:
        return False
    number, limit = _integer(label_value), _integer(requirement.values[0])
    return number is not None and limit is not None and compare(number, limit)


def _holds_for_field(requirement: LabelSelectorRequirement, node: Node) -> bool:
    """Return whether a node satisfies a field expression.

    Only expressions about the name, with In or NotIn and one value, can be satisfied.
    """
    # The DaemonSet controller pins its pods by this field (`ReplaceDaemonSetPodNodeNameNodeAffinity`), because
    # `kubernetes.io/hostname` need not be the node's name.
    if requirement.key != _NAME_FIELD or len(requirement.values) != 1:
        return False
    if requirement.operator not in {"In", "NotIn"}:
        return False
    return (node.metadata.name == requirement.values[0]) == (requirement.operator == "In")
