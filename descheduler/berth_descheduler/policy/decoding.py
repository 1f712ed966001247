"""Decodes a policy, and names the field of what it cannot decode."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import msgspec.inspect

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    DeschedulerPolicy,
    DeschedulerPolicySpec,
    InputError,
    field_steps,
)
from berth_core.decoding import convert

_PLACE: Final = re.compile(r"^(?P<expectation>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>[^`]+)`$")
_ENUM: Final = re.compile(r"^Invalid enum value '(?P<value>.*)'$")
_KIND: Final = re.compile(r"^Expected `(?P<wanted>[^`]+)`, got `(?P<found>[^`]+)`$")


def decode_policy(raw: object) -> DeschedulerPolicy:
    """Return the policy of a document; raises `InputError` that names the field."""
    if not isinstance(raw, Mapping):
        raise InputError("the document", raw, "a DeschedulerPolicy")
    for key, wanted_value in (("apiVersion", POLICY_API_VERSION), ("kind", POLICY_KIND)):
        if raw.get(key) != wanted_value:
            raise InputError(key, raw.get(key), wanted_value)
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise InputError("metadata.name", None, "a name", said="missing")
    if not isinstance(raw.get("spec"), Mapping):
        raise InputError("spec", raw.get("spec"), "what the policy says, an object")
    # msgspec passes over unknown fields, as it must in what API servers send. In a file one is a typing error, and its
    # default would move more pods than was meant.
    for path, known_fields in unknown_fields(msgspec.inspect.type_info(DeschedulerPolicySpec), raw["spec"], "spec"):
        raise InputError(path, None, f"one of {', '.join(known_fields)}", said="no field of a policy")
    try:
        return convert({"metadata": {"name": metadata["name"]}, "spec": raw["spec"]}, DeschedulerPolicy)
    except msgspec.ValidationError as error:
        raise _as_input_error(raw, str(error)) from error


def unknown_fields(kind: msgspec.inspect.Type, raw: object, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the path of every field that a type does not have, with the fields that it has there."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            for member in types:
                yield from unknown_fields(member, raw, path)
        case msgspec.inspect.StructType(fields=fields) if isinstance(raw, Mapping):
            known_fields = {field.encode_name: field.type for field in fields}
            for field_name, value in raw.items():
                if field_name in known_fields:
                    yield from unknown_fields(known_fields[field_name], value, f"{path}.{field_name}")
                else:
                    yield f"{path}.{field_name}", tuple(sorted(known_fields))
        case msgspec.inspect.VarTupleType(item_type=item) if isinstance(raw, list | tuple):
            for index, value in enumerate(raw):
                yield from unknown_fields(item, value, f"{path}[{index}]")
        case _:
            return


def _as_input_error(raw: Mapping[str, Any], message: str) -> InputError:
    """Return msgspec's error in our words: the field, its value, and what would be right."""
    match = _PLACE.match(message)
    expectation, path = (match["expectation"], match["path"] or "") if match else (message, "")
    if missing := _MISSING.match(expectation):
        field = f"{path}.{missing['field']}".lstrip(".")
        return InputError(field, None, "a value", said="missing")
    value = _value_at(raw, path)
    if _ENUM.match(expectation):
        return InputError(path, value, f"one of {', '.join(_values_of(path))}")
    kinds = _KIND.match(expectation)
    return InputError(path, value, f"a value of the type {kinds['wanted']}" if kinds else expectation)


def _values_of(path: str) -> Iterator[str]:
    """Yield the values of the enumeration at a path such as `spec.freedNodes.taint`."""
    kind: msgspec.inspect.Type = msgspec.inspect.type_info(DeschedulerPolicy)
    for step in path.split("."):
        if isinstance(kind, msgspec.inspect.StructType):
            kind = next(field.type for field in kind.fields if field.encode_name == step)
    if isinstance(kind, msgspec.inspect.EnumType):
        yield from (str(member.value) for member in kind.cls)


def _value_at(raw: object, path: str) -> object:
    """Return the value at a path such as `spec.profiles[0].name`, None where there is none."""
    for step in field_steps(path):
        if isinstance(raw, Mapping):
            raw = raw.get(step)
        elif isinstance(raw, list) and step.isdigit() and int(step) < len(raw):
            raw = raw[int(step)]
        else:
            return None
    return raw
