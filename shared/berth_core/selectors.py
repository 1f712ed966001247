"""Selectors, affinities and tolerations, evaluated as kube-scheduler does.

Unknown operators and invalid numbers do not match: a pod should rather stay.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from berth_core.errors import InputError
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
_ENDING: Final = "NoExecute"
_KEEPING_OFF: Final = frozenset({"NoSchedule", _ENDING})


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a selector.

    None selects nothing, an empty selector everything.
    """
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions
    )


def matches_node_affinity(spec: PodSpec, node: Node) -> bool:
    """Return whether a pod's nodeSelector and required node affinity allow a node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or matches_any_term(required.node_selector_terms, node)


def matches_any_term(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """Return whether a node satisfies one of the terms.

    No terms match no node.
    """
    return any(matches_term(term, node) for term in terms)


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether a node satisfies a whole term.

    An empty term matches no node.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(requirement, node.metadata.labels) for requirement in term.match_expressions) and all(
        _holds_for_field(requirement, node) for requirement in term.match_fields
    )


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether one of the tolerations tolerates a taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def untolerated_taint(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """Return the first untolerated taint that keeps a pod off, else None."""
    return next(
        (taint for taint in taints if taint.effect in _KEEPING_OFF and not tolerates(tolerations, taint)),
        None,
    )


def ending_taint(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[Taint, int] | None:
    """Return the taint that ends a pod soonest, and after how many seconds; None if the pod may stay.

    As the taint manager counts: of the tolerations of a taint the first decides, and a pod that does not tolerate one
    ends at once. A scheduler places the pod there all the same where it tolerates the taint for some seconds.
    """
    ends: list[tuple[int, Taint]] = []
    for taint in taints:
        if taint.effect != _ENDING:
            continue
        first = next((toleration for toleration in tolerations if _tolerates(toleration, taint)), None)
        if first is None:
            ends.append((0, taint))
        elif first.toleration_seconds is not None:
            ends.append((max(0, first.toleration_seconds), taint))
    seconds, soonest = min(ends, key=lambda end: end[0], default=(0, None))
    return None if soonest is None else (soonest, seconds)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration tolerates a taint; numeric operators count as no."""
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
    """Return whether labels satisfy an expression.

    A missing label satisfies NotIn and DoesNotExist.
    """
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


def _compares(found: str | None, requirement: LabelSelectorRequirement) -> bool:
    """Return whether a label is greater or less than the value.

    Both must be integers.
    """
    compare = _COMPARISONS.get(requirement.operator)
    numbers = (found or "", *requirement.values)
    if compare is None or len(numbers) != 2 or not all(map(_INTEGER.fullmatch, numbers)):  # noqa: PLR2004 - a pair
        return False
    return compare(int(numbers[0]), int(numbers[1]))


def _holds_for_field(requirement: LabelSelectorRequirement, node: Node) -> bool:
    """Return whether a node satisfies a field expression.

    The expression is about the name, with In or NotIn and one value; no node satisfies any other.
    """
    if requirement.key != _NAME_FIELD or len(requirement.values) != 1:
        return False
    if requirement.operator not in {"In", "NotIn"}:
        return False
    return (node.metadata.name == requirement.values[0]) == (requirement.operator == "In")


# --- selector texts --------------------------------------------------------------------------------------------------
# Label selectors in one line: `pool=batch,zone in (a,b),!spot`.

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_KEY: Final = rf"(?:{_NAME}/)?{_NAME}"
_VALUE: Final = rf"(?:{_NAME})?"
_SET: Final = rf"\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)"
_PART: Final = re.compile(
    rf"\s*(?:(?P<none>!)\s*(?P<absent>{_KEY})"
    rf"|(?P<key>{_KEY})(?:\s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})|\s+(?P<word>in|notin)\s*{_SET})?)\s*(?:,|$)"
)
_OPERATORS: Final = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn"}
_EXPECTED: Final = "a label selector such as pool=batch or zone in (a,b),!spot"
_WITH_VALUES: Final = frozenset({"In", "NotIn"})
_WITHOUT_VALUES: Final = frozenset({"Exists", "DoesNotExist"})


def parse_selector(text: object) -> LabelSelector:
    """Parse a selector, an empty one for "".

    Raises `InputError` with the field `selector`.
    """
    if not isinstance(text, str):
        raise InputError("selector", text, _EXPECTED)
    return LabelSelector(match_expressions=tuple(_requirements(text)))


def read_selector(raw: object) -> LabelSelector:
    """Return the selector of a mapping with `matchLabels` and `matchExpressions`.

    Raises `InputError` with the wrong part as field, "selector" for the whole.
    """
    if not isinstance(raw, Mapping) or not set(raw) <= {"matchLabels", "matchExpressions"}:
        raise InputError("selector", raw, "a mapping with matchLabels, matchExpressions or both")
    labels, expressions = raw.get("matchLabels") or {}, raw.get("matchExpressions") or []
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise InputError("matchLabels", labels, "a mapping of texts to texts")
    if not isinstance(expressions, list | tuple):
        raise InputError("matchExpressions", expressions, "a list")
    requirements = tuple(
        _read_requirement(f"matchExpressions[{index}]", expression) for index, expression in enumerate(expressions)
    )
    return LabelSelector(match_labels=dict(labels), match_expressions=requirements)


def format_selector(selector: LabelSelector) -> str:
    """Return a selector in one line, as `parse_selector` reads it."""
    labels = (f"{key}={value}" for key, value in selector.match_labels.items())
    return ",".join((*labels, *map(_format_requirement, selector.match_expressions)))


def _requirements(text: str) -> Iterator[LabelSelectorRequirement]:
    position = 0
    while position < len(text.rstrip()):
        match = _PART.match(text, position)
        if match is None or (text[match.end() - 1] == "," and not text[match.end() :].strip()):
            raise InputError("selector", text, _EXPECTED)
        yield _requirement(match)
        position = match.end()


def _requirement(found: re.Match[str]) -> LabelSelectorRequirement:
    if found["none"]:
        return LabelSelectorRequirement(key=found["absent"], operator="DoesNotExist")
    if found["sign"]:
        return LabelSelectorRequirement(key=found["key"], operator=_OPERATORS[found["sign"]], values=(found["value"],))
    if found["word"]:
        values = tuple(value.strip() for value in found[7].split(","))
        return LabelSelectorRequirement(key=found["key"], operator=_OPERATORS[found["word"]], values=values)
    return LabelSelectorRequirement(key=found["key"], operator="Exists")


def _read_requirement(field: str, raw: Any) -> LabelSelectorRequirement:  # noqa: ANN401 - a part of unread input
    if not isinstance(raw, Mapping) or not set(raw) <= {"key", "operator", "values"}:
        raise InputError(field, raw, "a mapping with key, operator and values")
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str) or not key:
        raise InputError(f"{field}.key", key, "the key of a label")
    if operator not in _WITH_VALUES | _WITHOUT_VALUES:
        raise InputError(f"{field}.operator", operator, "In, NotIn, Exists or DoesNotExist")
    texts = isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)
    if not texts or bool(values) != (operator in _WITH_VALUES):
        expected = "a list of texts" if operator in _WITH_VALUES else f"nothing with {operator}"
        raise InputError(f"{field}.values", values, expected)
    return LabelSelectorRequirement(key=key, operator=operator, values=tuple(values))


def _format_requirement(one: LabelSelectorRequirement) -> str:
    match one.operator:
        case "Exists":
            return one.key
        case "DoesNotExist":
            return f"!{one.key}"
        case _:
            return f"{one.key} {one.operator.lower()} ({','.join(one.values)})"
