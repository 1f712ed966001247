"""Owns whether labels, nodes and taints satisfy a selector, an affinity or a toleration, as kube-scheduler reads them.

It does not own pod affinity and topology spread, which need to know where other pods are: those are the planner's.

What cannot be understood (an unknown operator, a number that is none) does not match: a pod is rather left where it is.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from berth_core.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    Toleration,
)

_NAME_FIELD: Final = "metadata.name"
_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {"Gt": int.__gt__, "Lt": int.__lt__}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_KEEPING_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy a selector: none selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions
    )


def matches_node_affinity(spec: PodSpec, node: Node) -> bool:
    """Tell whether a pod's nodeSelector and required node affinity allow a node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or matches_any_term(required.node_selector_terms, node)


def matches_any_term(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """Tell whether a node satisfies one of the terms; no terms match no node."""
    return any(matches_term(term, node) for term in terms)


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """Tell whether a node satisfies all of a term; an empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(requirement, node.metadata.labels) for requirement in term.match_expressions) and all(
        _holds_for_field(requirement, node) for requirement in term.match_fields
    )


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Tell whether one of the tolerations puts up with a taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def untolerated_taint(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps a pod with these tolerations off a node, None if there is none."""
    return next(
        (taint for taint in taints if taint.effect in _KEEPING_OFF and not tolerates(tolerations, taint)),
        None,
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether a toleration puts up with a taint; the numeric operators are off by default and count as no."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return False


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy one expression; a missing label satisfies NotIn and DoesNotExist."""
    found = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return found in requirement.values
        case "NotIn":
            return found not in requirement.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case _:
            return _compares(found, requirement)


def _compares(found: str | None, requirement: LabelSelectorRequirement) -> bool:
    """Tell whether a label is greater or less than the one value; both must be integers."""
    compare = _COMPARISONS.get(requirement.operator)
    numbers = (found or "", *requirement.values)
    if compare is None or len(numbers) != 2 or not all(map(_INTEGER.fullmatch, numbers)):  # noqa: PLR2004 - a pair
        return False
    return compare(int(numbers[0]), int(numbers[1]))


def _holds_for_field(requirement: LabelSelectorRequirement, node: Node) -> bool:
    """Tell whether a node satisfies an expression over its fields: only the name, In or NotIn, one value."""
    if requirement.key != _NAME_FIELD or len(requirement.values) != 1:
        return False
    if requirement.operator not in {"In", "NotIn"}:
        return False
    return (node.metadata.name == requirement.values[0]) == (requirement.operator == "In")
