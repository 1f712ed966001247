"""Owns the reading of a DeschedulerPolicy from a file: fields that there are not, and values of the wrong kind.

It does not own what the values mean (`reading`). The API server refuses the same things, in its own words.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import msgspec.inspect

from berth_core.errors import InputError
from berth_core.policies import API_VERSION, KIND, DeschedulerPolicy, DeschedulerPolicySpec

_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>[^`]+)`$")
_ENUM: Final = re.compile(r"^Invalid enum value '(?P<value>.*)'$")
_KIND: Final = re.compile(r"^Expected `(?P<wanted>[^`]+)`, got `(?P<found>[^`]+)`$")


def decode_policy(raw: object) -> DeschedulerPolicy:
    """Return the policy of a document; raises `InputError` that names the field."""
    if not isinstance(raw, Mapping):
        raise InputError("the document", raw, "a DeschedulerPolicy")
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if raw.get(field) != wanted:
            raise InputError(field, raw.get(field), wanted)
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise InputError("metadata.name", None, "a name", said="missing")
    if not isinstance(raw.get("spec"), Mapping):
        raise InputError("spec", raw.get("spec"), "what the policy says, an object")
    for path, known in unknown_fields(msgspec.inspect.type_info(DeschedulerPolicySpec), raw["spec"], "spec"):
        raise InputError(path, None, f"one of {', '.join(known)}", said="no field of a policy")
    try:
        return msgspec.convert({"metadata": {"name": metadata["name"]}, "spec": raw["spec"]}, DeschedulerPolicy)
    except msgspec.ValidationError as error:
        raise _as_input_error(raw, str(error)) from error


def unknown_fields(kind: msgspec.inspect.Type, raw: object, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the path of every field that a type does not have, with those that it has there."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            for one in types:
                yield from unknown_fields(one, raw, path)
        case msgspec.inspect.StructType(fields=fields) if isinstance(raw, Mapping):
            known = {field.encode_name: field.type for field in fields}
            for name, value in raw.items():
                if name in known:
                    yield from unknown_fields(known[name], value, f"{path}.{name}")
                else:
                    yield f"{path}.{name}", tuple(sorted(known))
        case msgspec.inspect.VarTupleType(item_type=item) if isinstance(raw, list | tuple):
            for index, value in enumerate(raw):
                yield from unknown_fields(item, value, f"{path}[{index}]")
        case _:
            return


def _as_input_error(raw: Mapping[str, Any], message: str) -> InputError:
    """Return msgspec's error in our words: the field, what stands there, and what would be right."""
    found = _PLACE.match(message)
    what, path = (found["what"], found["path"] or "") if found else (message, "")
    if missing := _MISSING.match(what):
        field = f"{path}.{missing['field']}".lstrip(".")
        return InputError(field, None, "a value", said="missing")
    value = _value_at(raw, path)
    if _ENUM.match(what):
        return InputError(path, value, "one of the values that the field has")
    kinds = _KIND.match(what)
    return InputError(path, value, f"a value of the type {kinds['wanted']}" if kinds else what)


def _value_at(raw: object, path: str) -> object:
    """Return what stands at a path such as `spec.profiles[0].name`; None where nothing does."""
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(raw, Mapping):
            raw = raw.get(step)
        elif isinstance(raw, list) and step.isdigit() and int(step) < len(raw):
            raw = raw[int(step)]
        else:
            return None
    return raw
