"""Label selectors as text in one line, `pool=batch,zone in (a,b),!spot`, and as mappings of users."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from berth_core.errors import InputError
from berth_core.objects.metadata import LabelSelector, LabelSelectorRequirement

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
    """Parse a selector, an empty one for ""; raises `InputError` with the field `selector`."""
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


def _requirement(match: re.Match[str]) -> LabelSelectorRequirement:
    if match["none"]:
        return LabelSelectorRequirement(key=match["absent"], operator="DoesNotExist")
    if match["sign"]:
        return LabelSelectorRequirement(key=match["key"], operator=_OPERATORS[match["sign"]], values=(match["value"],))
    if match["word"]:
        values = tuple(value.strip() for value in match[7].split(","))
        return LabelSelectorRequirement(key=match["key"], operator=_OPERATORS[match["word"]], values=values)
    return LabelSelectorRequirement(key=match["key"], operator="Exists")


def _read_requirement(field: str, raw: Any) -> LabelSelectorRequirement:  # noqa: ANN401 - a part of unread input
    if not isinstance(raw, Mapping) or not set(raw) <= {"key", "operator", "values"}:
        raise InputError(field, raw, "a mapping with key, operator and values")
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str) or not key:
        raise InputError(f"{field}.key", key, "the key of a label")
    if operator not in _WITH_VALUES | _WITHOUT_VALUES:
        raise InputError(f"{field}.operator", operator, "In, NotIn, Exists or DoesNotExist")
    are_texts = isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)
    if not are_texts or bool(values) != (operator in _WITH_VALUES):
        expected = "a list of texts" if operator in _WITH_VALUES else f"nothing with {operator}"
        raise InputError(f"{field}.values", values, expected)
    return LabelSelectorRequirement(key=key, operator=operator, values=tuple(values))


def _format_requirement(requirement: LabelSelectorRequirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case _:
            return f"{requirement.key} {requirement.operator.lower()} ({','.join(requirement.values)})"
