"""Owns how an input error of the planner is said to somebody who typed options: by option, with what was typed.

It does not own the checks, nor the options themselves (`command_options`).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from berth_core.errors import InputError

_SHAPE_OWNER: Final = "--shape-owner"
_OPTIONS: Final = {
    "strategy": "--strategy",
    "shape": "--shape",
    "pod": "--pod",
    "room.owners": _SHAPE_OWNER,
    "room.owners.namespace": _SHAPE_OWNER,
    "room.owners.selector": _SHAPE_OWNER,
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
}
"""Fields of the plugin's arguments and of the planner's settings, and the options that set them."""

_NAMESPACES: Final = "evictableNamespaces"
_NAMESPACE_OPTIONS: Final = {"--include-namespace": "include_namespace", "--exclude-namespace": "exclude_namespace"}
_THRESHOLD: Final = re.compile(r"(\w+Thresholds)\.([^\s,]+)")


@contextmanager
def naming_options(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise the input errors of the block with options in place of fields; `options` are those that were typed."""
    try:
        yield
    except InputError as error:
        raise _by_option(error, options) from error


def _by_option(error: InputError, options: Mapping[str, Any]) -> InputError:
    if error.field.split(".")[0] == _NAMESPACES:
        return _namespace_error(error, options)
    field, resource = _split_threshold(error.field)
    option = _OPTIONS.get(field)
    if option is None:
        return error
    given = options.get(_parameter(option))
    value = given if option == _SHAPE_OWNER else _typed(given, resource, error.value)
    return InputError(option, value, _THRESHOLD.sub(_threshold_option, error.expected), said=error.said)


def _namespace_error(error: InputError, options: Mapping[str, Any]) -> InputError:
    """Return the error by the option that names the namespace; both options at once are an error of the second."""
    for option, parameter in _NAMESPACE_OPTIONS.items():
        if error.value in options.get(parameter, ()):
            return InputError(option, error.value, error.expected)
    excluded = ", ".join(options.get("exclude_namespace", ()))
    return InputError("--exclude-namespace", excluded, "to be left out where --include-namespace is given")


def _split_threshold(field: str) -> tuple[str, str]:
    """Return the field of a threshold and its resource; another field as it is."""
    found = _THRESHOLD.fullmatch(field)
    return (found[1], found[2]) if found else (field, "")


def _threshold_option(found: re.Match[str]) -> str:
    return f"{_OPTIONS[found[1]]} of {found[2]}" if found[1] in _OPTIONS else found[0]


def _typed(given: object, resource: str, value: object) -> object:
    """Return what was typed for a resource's threshold; the value itself where nothing was, as a default is wrong."""
    if not resource or not isinstance(given, tuple):
        return value
    named = [text for text in given if text.startswith(f"{resource}=")]
    plain = [text for text in given if "=" not in text]
    return next(iter((*named[-1:], *plain[-1:])), value)


def option_of(parameter: str) -> str:
    """Return the option as it is typed whose value comes in a parameter."""
    return f"--{parameter.replace('_', '-')}"


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
