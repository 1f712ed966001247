"""Of every field of every struct that is decoded: null, empty and absent are the same.

The structs are all those of both programs, not a list that is kept by hand.
"""
# ruff: noqa: ANN401 - any type, any JSON value

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
from msgspec import inspect

import berth_core
import berth_descheduler
import berth_kube
import berth_operator
import berth_sandbox
import berth_service
from berth_core import Pod
from berth_core.decoding import convert, decode_json

PACKAGES: Final = (berth_core, berth_kube, berth_service, berth_sandbox, berth_descheduler, berth_operator)
CONTAINERS: Final = (inspect.ListType, inspect.VarTupleType, inspect.DictType, inspect.StructType)
LISTS: Final = (inspect.ListType, inspect.VarTupleType)
SAMPLES: Final[dict[type[inspect.Type], Any]] = {
    inspect.StrType: "text",
    inspect.IntType: 7,
    inspect.FloatType: 0.5,
    inspect.BoolType: True,
    inspect.AnyType: {"free": [None]},
    inspect.RawType: {"raw": None},
}

Path = tuple[str | int, ...]


def structs() -> list[type[msgspec.Struct]]:
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    names = tuple(package.__name__ for package in PACKAGES)
    own = {one for one in below(msgspec.Struct) if one.__module__.startswith(names)}
    return sorted((one for one in own if not is_special(one)), key=lambda one: (one.__module__, one.__qualname__))


def below(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for one in struct.__subclasses__():
        yield one
        yield from below(one)


def is_special(struct: type[msgspec.Struct]) -> bool:
    """The record of a sandbox has dataclasses; what is generic is decoded with a type, as its own case below."""
    return any(isinstance(field.type, inspect.DataclassType) for field in described(struct).fields) or bool(
        getattr(struct, "__parameters__", ())
    )


def described(struct: Any) -> inspect.StructType:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info


def choices(type_: inspect.Type) -> tuple[inspect.Type, ...]:
    return type_.types if isinstance(type_, inspect.UnionType) else (type_,)


def may_be_none(type_: inspect.Type) -> bool:
    return any(isinstance(one, inspect.NoneType | inspect.AnyType | inspect.RawType) for one in choices(type_))


def sample(type_: inspect.Type) -> Any:
    """A value of a type with every field, one element in every list and one entry in every map."""
    match min(choices(type_), key=lambda one: not isinstance(one, CONTAINERS)):
        case inspect.StructType() as struct:
            return {field.encode_name: sample(field.type) for field in struct.fields}
        case inspect.DictType() as mapping:
            return {sample(mapping.key_type): sample(mapping.value_type)}
        case inspect.ListType() | inspect.VarTupleType() as items:
            return [sample(items.item_type)]
        case inspect.EnumType() as enum:
            return next(iter(enum.cls)).value
        case other:
            return SAMPLES[type(other)]


def places(
    type_: inspect.Type, path: Path = (), *, structs_deep: int
) -> Iterator[tuple[Path, inspect.Type, inspect.Field | None]]:
    """The places of a sample with their types, and the field if it is one."""
    match min(choices(type_), key=lambda one: not isinstance(one, CONTAINERS)):
        case inspect.StructType() as struct if structs_deep:
            for field in struct.fields:
                yield (*path, field.encode_name), field.type, field
                yield from places(field.type, (*path, field.encode_name), structs_deep=structs_deep - 1)
        case inspect.DictType() as mapping:
            key = sample(mapping.key_type)
            yield (*path, key), mapping.value_type, None
            yield from places(mapping.value_type, (*path, key), structs_deep=structs_deep)
        case inspect.ListType() | inspect.VarTupleType() as items:
            yield (*path, 0), items.item_type, None
            yield from places(items.item_type, (*path, 0), structs_deep=structs_deep)


def changed(body: Any, path: Path, value: Any) -> Any:
    first, *rest = path
    copy = list(body) if isinstance(body, list) else dict(body)
    copy[first] = changed(copy[first], tuple(rest), value) if rest else value
    return copy


def without(body: Any, path: Path) -> Any:
    first, *rest = path
    copy = list(body) if isinstance(body, list) else dict(body)
    if rest:
        copy[first] = without(copy[first], tuple(rest))
    else:
        del copy[first]
    return copy


def decoded(struct: type[msgspec.Struct], body: Any) -> Any:
    """What both ways of decoding make of a body; they agree."""
    found = decode_json(msgspec.json.encode(body), struct)
    if any(isinstance(one, inspect.RawType) for _, one, _ in places(described(struct), structs_deep=1)):
        return msgspec.json.encode(found)  # raw parts are compared by what they say
    assert convert(body, struct) == found
    return found


def empty(type_: inspect.Type) -> Any:
    (kind,) = (one for one in choices(type_) if isinstance(one, CONTAINERS))
    return [] if isinstance(kind, LISTS) else {}


@pytest.mark.parametrize("struct", structs(), ids=lambda one: f"{one.__module__}.{one.__qualname__}")
def test_null_is_the_default_of_every_field(struct: type[msgspec.Struct]) -> None:
    check_places(struct, structs_deep=1)


def test_null_is_the_default_at_any_depth() -> None:
    check_places(Pod, structs_deep=10)


def check_places(struct: type[msgspec.Struct], *, structs_deep: int) -> None:
    info = described(struct)
    full = sample(info)
    for path, type_, field in places(info, structs_deep=structs_deep):
        null = changed(full, path, None)
        if not may_be_none(type_) and has_no_default(type_, field):
            with pytest.raises(msgspec.ValidationError):
                decode_json(msgspec.json.encode(null), struct)
            continue
        if field is not None and not field.required and has_default(field):
            assert decoded(struct, null) == decoded(struct, without(full, path)), path
        if not may_be_none(type_) and any(isinstance(one, CONTAINERS) for one in choices(type_)):
            assert decoded(struct, null) == decoded(struct, changed(full, path, empty(type_))), path


def has_default(field: inspect.Field) -> bool:
    """Whether the field of a struct has one: UNSET tells what is absent from null."""
    return field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT


def has_no_default(type_: inspect.Type, field: inspect.Field | None) -> bool:
    """Whether a null stands for something that has to be there: an object without a name is no object."""
    if field is None:
        return any(isinstance(one, inspect.EnumType) or has_required(one) for one in choices(type_))
    return field.required and not any(isinstance(one, (*LISTS, inspect.DictType)) for one in choices(type_))


def has_required(type_: inspect.Type) -> bool:
    return isinstance(type_, inspect.StructType) and any(field.required for field in type_.fields)
