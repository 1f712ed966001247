"""Decoding of API objects in which null is the default.

Go has no empty value beside null: an API server, a kubelet or another client writes an empty list or map as null, and
an unset number too, whatever the field's type is. Reading a null as the zero value of its type is what Go does, in
every field, list and map. msgspec refuses it unless each field's type allows None, and every reader would then have to
distinguish None from empty. Here an object is decoded as it is; only if that fails are the nulls left out at which its
type has no None, and it is decoded again. Values without a type (templates, plugin arguments) keep their nulls.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import inspect

from berth_core.depths import MAX_DEPTH, cut, has_cut, is_cut

T = TypeVar("T")

_NULL: Final = b"null"
_ZEROS: Final[Mapping[type[inspect.Type], Any]] = {
    inspect.IntType: 0,  # before text: a quantity may be either, and "" is no quantity
    inspect.FloatType: 0.0,
    inspect.StrType: "",
    inspect.BoolType: False,
    inspect.DictType: {},
    inspect.ListType: [],
    inspect.VarTupleType: [],
    inspect.StructType: {},
}
"""The value that Go gives to a null in a list or a map, and to an unset field without a default."""
_LISTS: Final = (inspect.ListType, inspect.VarTupleType)


class TooDeepError(msgspec.ValidationError):
    """A value of a field that is read is nested too deeply."""


class Decoder(Generic[T]):
    """Decodes JSON into one type; building one takes longer than using it."""

    def __init__(self, type_: type[T], *, outer_levels: int = 0) -> None:
        """`outer_levels` is how deeply the object is nested in what is decoded, such as 2 in a List."""
        self._type: Any = type_
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_)
        self._outer_levels = outer_levels

    def decode(self, raw: bytes | str | msgspec.Raw) -> T:
        """Decode JSON; raises `msgspec.DecodeError` whatever is wrong with it.

        Fields that the type does not have may hold anything, nested as deeply as one likes: who may create a pod may
        write such `managedFields`. In a field that the type has, too deep a value is a `TooDeepError`.
        """
        try:
            try:
                decoded = self._decode(raw)
            except RecursionError:
                raw = cut(raw.encode() if isinstance(raw, str) else bytes(raw), outer_levels=self._outer_levels)
                decoded = self._decode(raw)
        except UnicodeDecodeError as error:
            raise _malformed(error) from error
        if is_cut(raw) and has_cut(decoded):
            raise TooDeepError(f"nested more than {MAX_DEPTH} levels deep")
        return decoded

    def _decode(self, raw: bytes | str | msgspec.Raw) -> T:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            text = raw.encode() if isinstance(raw, str) else bytes(raw)
            if _NULL not in text:
                raise
            json_without_nulls = self._without_nulls(text, error)
        return self._decoder.decode(json_without_nulls)

    def decode_strictly(self, raw: bytes | msgspec.Raw) -> T:
        """Decode JSON without a second try, for speed.

        A null where the type has none raises `msgspec.ValidationError`, and too deep a value `RecursionError`. What was
        cut out counts as text.
        """
        try:
            return self._decoder.decode(raw)
        except UnicodeDecodeError as error:
            raise _malformed(error) from error

    def _without_nulls(self, raw: bytes, error: msgspec.ValidationError) -> bytes:
        """Return JSON without nulls; raises `error` if it cannot be read at all."""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            raise error from None
        return msgspec.json.encode(_value_without_nulls(value, _type_info(self._type)))


def _malformed(error: UnicodeDecodeError) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"JSON is malformed: {error}")


@lru_cache(maxsize=256)
def _cached(type_: Any) -> Decoder[Any]:  # noqa: ANN401 - any type that msgspec decodes
    return Decoder(type_)


def decode_json(raw: bytes | str | msgspec.Raw, type_: type[T]) -> T:
    """Decode JSON into a type; raises `msgspec.DecodeError` whatever is wrong with it."""
    cache_key: Any = type_
    decoded: T = _cached(cache_key).decode(raw)
    return decoded


def convert(value: object, type_: type[T]) -> T:
    """Convert builtins into a type; raises `msgspec.ValidationError`."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        cache_key: Any = type_
        value_without_nulls = _value_without_nulls(value, _type_info(cache_key))
        if value_without_nulls == value:
            raise
    return msgspec.convert(value_without_nulls, type_)


@lru_cache(maxsize=256)
def _type_info(type_: Any) -> inspect.Type:  # noqa: ANN401 - any type that msgspec decodes
    return inspect.type_info(type_)


def _value_without_nulls(value: Any, type_: inspect.Type) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value without the nulls for which its type has no None."""
    match value:
        case None:
            return None if _admits_null(type_) else _zero(type_)
        case Mapping():
            return _mapping_without_nulls(value, type_)
        case list() | tuple():
            items = next((choice.item_type for choice in _choices(type_) if isinstance(choice, _LISTS)), None)
            return value if items is None else [_value_without_nulls(item, items) for item in value]
        case _:
            return value


def _mapping_without_nulls(value: Mapping[str, Any], type_: inspect.Type) -> Mapping[str, Any]:
    for choice in _choices(type_):
        match choice:
            case inspect.StructType():
                return _struct_without_nulls(value, choice)
            case inspect.DictType():
                return {key: _value_without_nulls(member, choice.value_type) for key, member in value.items()}
    return value


def _struct_without_nulls(value: Mapping[str, Any], type_: inspect.StructType) -> Mapping[str, Any]:
    """Return the known fields of an object without nulls; a null in a required list or map becomes empty."""
    kept_fields = {}
    for field in type_.fields:
        field_name = field.encode_name
        if field_name not in value:
            continue
        if value[field_name] is not None:
            kept_fields[field_name] = _value_without_nulls(value[field_name], field.type)
        elif _admits_null(field.type):
            kept_fields[field_name] = None
        elif field.required and any(isinstance(choice, (*_LISTS, inspect.DictType)) for choice in _choices(field.type)):
            kept_fields[field_name] = _zero(field.type)
    return kept_fields


def _choices(type_: inspect.Type) -> tuple[inspect.Type, ...]:
    """Return the members of a union, or the type itself."""
    return type_.types if isinstance(type_, inspect.UnionType) else (type_,)


def _admits_null(type_: inspect.Type) -> bool:
    return any(isinstance(choice, inspect.NoneType | inspect.AnyType | inspect.RawType) for choice in _choices(type_))


def _zero(type_: inspect.Type) -> Any:  # noqa: ANN401 - any JSON value
    """Return the zero value of a type; None, which msgspec then refuses, for a type without one such as an enum."""
    kinds = {type(choice) for choice in _choices(type_)}
    return next((zero for kind, zero in _ZEROS.items() if kind in kinds), None)
