"""Stand-ins for objects that cannot be decoded.

One bad object must not stop the others. Templates and plugin arguments have no schema: the API server stores values
nested up to 10,000 levels deep, and values of any type. Every recursive decoder raises `RecursionError` for such an
object, in lists too. A stand-in has the metadata and as much else as fits its type; `metadata.unreadable` says what is
wrong.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar, get_args

import msgspec

from berth_core.decoding import Decoder, convert
from berth_core.depths import CUT, MAX_DEPTH, cut
from berth_core.errors import InputError
from berth_core.long_integers import TOO_LARGE
from berth_core.objects.metadata import ObjectMeta

_PLACE_LEVELS: Final = 6
"""How many levels of a field's path a message names."""
_EMPTY: Final[tuple[Any, ...]] = ([], {}, "", 0)

_MANAGED_FIELDS: Final = "managedFields"
_IDENTITY: Final = ("name", "namespace", "uid")

T = TypeVar("T")


def too_deep_for(place: str) -> str:
    return f"{place or 'it'} is nested more than {MAX_DEPTH} levels deep"


def why_unreadable(body: dict[str, Any], error: Exception | None) -> str:
    """Return what is wrong with a decoded object whose values were cut, "" if nothing is known."""
    first_cut = _first_cut({key: value for key, value in body.items() if key != "metadata"}) or _first_cut(body)
    if first_cut is not None:
        place, mark_of_cut = first_cut
        return too_deep_for(place) if mark_of_cut == CUT else f"{place or 'it'} is an integer beyond 64 bits"
    return "" if error is None else str(error)


def _first_cut(body: object) -> tuple[str, str] | None:
    """Return the path of the first cut value, shortened, and the mark that stands there; None without one."""
    level: list[tuple[str, int, object]] = [("", 0, body)]
    while level:
        next_level: list[tuple[str, int, object]] = []
        for place, depth, value in level:
            if isinstance(value, str) and value in {CUT, TOO_LARGE}:
                return place, value
            next_level += ((_under(place, depth, key), depth + 1, inner) for key, inner in _entries(value))
        level = next_level
    return None


def _entries(value: object) -> Iterable[tuple[str, object]]:
    match value:
        case dict():
            return ((f".{key}", inner) for key, inner in value.items())
        case list():
            return ((f"[{index}]", inner) for index, inner in enumerate(value))
        case _:
            return ()


def _under(place: str, depth: int, key: str) -> str:
    """Return the path of an entry, shortened from `_PLACE_LEVELS` levels on."""
    if depth < _PLACE_LEVELS:
        return f"{place}{key}".removeprefix(".")
    return place if place.endswith("…") else f"{place}.…"


_OBJECT_DECODER: Final = Decoder(dict[str, Any])
_FIELDS_DECODER: Final = Decoder(dict[str, msgspec.Raw])
_VALUE_DECODER: Final[Decoder[Any]] = Decoder(object)


def readable_body(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Decode an object without values that are nested too deeply, or top-level fields that no decoder takes.

    Leaves out `metadata.managedFields`: they record who wrote which field, which is of no use here, and users who may
    create an object may nest them at will. Raises `msgspec.DecodeError` if it is no object.
    """
    body = _shallow_body(raw)
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        body["metadata"] = {key: value for key, value in metadata.items() if key != _MANAGED_FIELDS}
    return body


def _shallow_body(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    shallow = cut(bytes(raw))
    try:
        return _OBJECT_DECODER.decode_strictly(shallow)
    except msgspec.ValidationError:  # a number out of range
        fields = _FIELDS_DECODER.decode_strictly(shallow)
    body = {}
    for key, value in fields.items():
        with suppress(msgspec.DecodeError):
            body[key] = _VALUE_DECODER.decode_strictly(value)
    return body


def mark(body: dict[str, Any], why: str) -> dict[str, Any]:
    """Return an undecoded object with the reason in `metadata.unreadable`.

    An object without a readable name gets "": whatever could depend on it has to count as depending on it.
    """
    metadata = body.get("metadata")
    metadata_fields = metadata if isinstance(metadata, dict) else {}
    wrong_keys = {key for key in _IDENTITY if not isinstance(metadata_fields.get(key, ""), str)}
    kept_fields = {key: value for key, value in metadata_fields.items() if key not in wrong_keys}
    return {**body, "metadata": {"name": "", **kept_fields, "unreadable": why or "Object without a name"}}


def with_metadata(body: dict[str, Any]) -> dict[str, Any]:
    """Return an undecoded object, marked as unreadable if it has no readable name."""
    metadata = body.get("metadata")
    is_named = isinstance(metadata, dict) and metadata.get("name") and isinstance(metadata["name"], str)
    return body if is_named else mark(body, "")


def stand_in(body: dict[str, Any], type_: type[T], why: str) -> T:
    """Return the readable part of an undecodable object."""
    readable: T = _readable_part(mark(body, why), type_)
    return readable


def read_or_stand_in(body: Mapping[str, Any], type_: type[T], **instead: object) -> T:
    """Decode an API object, or return its stand-in, in which `instead` replaces fields."""
    metadata = body.get("metadata")
    why = str(metadata.get("unreadable") or "") if isinstance(metadata, Mapping) else ""
    try:
        if not why:
            return convert(body, type_)
    except msgspec.ValidationError as error:
        why = str(error)
    return stand_in({**body, **instead}, type_, why)


def _readable_part(value: Any, type_: Any) -> Any:  # noqa: ANN401 - any JSON value, any type that msgspec decodes
    """Return a value as its type without fields that do not fit; raises `msgspec.ValidationError` if nothing fits."""
    try:
        return convert(value, type_)
    except msgspec.ValidationError:
        struct = next((candidate for candidate in (type_, *get_args(type_)) if _is_struct(candidate)), None)
        if struct is None or not isinstance(value, dict):
            raise
    kept_fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        try:
            kept_fields[field.name] = _readable_part(value[field.encode_name], field.type)
        except (KeyError, msgspec.ValidationError):
            if field.required:
                kept_fields[field.name] = _emptiest(field.type)
    return struct(**kept_fields)


def _is_struct(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _emptiest(type_: Any) -> Any:  # noqa: ANN401 - any type that msgspec decodes
    """Return the emptiest value of a type, for a required field."""
    for value in _EMPTY:
        try:
            return _readable_part(value, type_)
        except msgspec.ValidationError:
            continue
    return None


def refuse_unreadable(kind: str, metadata: ObjectMeta) -> None:
    """Raise `InputError` for a stand-in, whose kind is of use only as a whole."""
    if metadata.unreadable:
        name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        raise InputError(
            f"{kind} {name}", None, "what the Kubernetes API serves", said=f"unreadable ({metadata.unreadable})"
        )
