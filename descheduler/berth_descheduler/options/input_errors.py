"""Input errors of the planner in terms of the command line: the option, and what was typed."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from berth_core import InputError
from berth_descheduler.goals import OFFERED_GOALS
from berth_descheduler.registry import groups_of

OFFERED: Final = ", ".join(goal.option for goal in OFFERED_GOALS)
_OF_GOALS: Final = tuple(option for goal in OFFERED_GOALS for group in groups_of(goal) for option in group.options)
_QUOTED_WHOLE: Final = frozenset(option.flag for option in _OF_GOALS if option.is_quoted_whole)
_OPTIONS: Final = {
    "strategy": "--strategy",
    "resourceType": "--resource-type",
    "lowThresholds": "--low-threshold",
    "defragmentThresholds": "--defragment-threshold",
    "protectionThresholds": "--protection-threshold",
    "numberOfNodes": "--number-of-nodes",
    "coolDownTime": "--cool-down",
    "maxMoves": "--max-moves",
    "maxMovesPerNode": "--max-moves-per-node",
    "maxMovesPerNamespace": "--max-moves-per-namespace",
    "timeLimit": "--time-limit",
    "waves.per_controller": "--per-controller",
    "waves.per_wave": "--per-wave",
    **{field: option.flag for option in _OF_GOALS for field in option.fields},
}
"""Fields of the plugin's arguments and of the planner's settings, and the options that set them."""

_NAMESPACES: Final = "evictableNamespaces"
_NAMESPACE_OPTIONS: Final = {"--include-namespace": "include_namespace", "--exclude-namespace": "exclude_namespace"}
_THRESHOLD: Final = re.compile(r"(\w+Thresholds)\.([^\s,]+)")


@contextmanager
def naming_options(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise the input errors of the block by the names of options, not of fields.

    `options` are those that were typed.
    """
    try:
        yield
    except InputError as error:
        raise _by_option(error, options) from error


def _by_option(error: InputError, options: Mapping[str, Any]) -> InputError:
    if error.field.split(".")[0] == _NAMESPACES:
        return _namespace_error(error, options)
    field, resource = _split_threshold(error.field)
    option = _OPTIONS.get(field) or _OPTIONS.get(field.split(".")[0])
    if option is None:
        return error
    option_value = options.get(_parameter(option))
    value = option_value if option in _QUOTED_WHOLE else _typed(option_value, resource, error.value)
    return InputError(option, value, _THRESHOLD.sub(_threshold_option, error.expected), said=error.said)


def _namespace_error(error: InputError, options: Mapping[str, Any]) -> InputError:
    """Return the error by the option that names the namespace; both options at once are an error of the second."""
    for option, parameter in _NAMESPACE_OPTIONS.items():
        if error.value in options.get(parameter, ()):
            return InputError(option, error.value, error.expected)
    excluded_namespaces = ", ".join(options.get("exclude_namespace", ()))
    return InputError("--exclude-namespace", excluded_namespaces, "to be left out where --include-namespace is given")


def _split_threshold(field: str) -> tuple[str, str]:
    """Return the field of a threshold and its resource; any other field is returned as it is, with ""."""
    match = _THRESHOLD.fullmatch(field)
    return (match[1], match[2]) if match else (field, "")


def _threshold_option(match: re.Match[str]) -> str:
    return f"{_OPTIONS[match[1]]} of {match[2]}" if match[1] in _OPTIONS else match[0]


def _typed(given: object, resource: str, value: object) -> object:
    """Return what was typed for a resource's threshold; the value itself if a default is wrong."""
    if not resource or not isinstance(given, tuple):
        return value
    texts_for_resource = [text for text in given if text.startswith(f"{resource}=")]
    texts_for_all = [text for text in given if "=" not in text]
    return next(iter((*texts_for_resource[-1:], *texts_for_all[-1:])), value)


def option_of(parameter: str) -> str:
    """Return the option, as typed, of a parameter."""
    return f"--{parameter.replace('_', '-')}"


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
