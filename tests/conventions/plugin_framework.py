"""The names that the authors of plugins import, with their signatures and the fields of every type that they see."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, get_args, get_type_hints

import msgspec

from berth_core.objects.metadata import ApiStruct
from berth_descheduler import framework as face

_MODULES: Final = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])")


def framework() -> Iterator[str]:
    """List the names of the framework, and below them the types that their fields have."""
    queue = [getattr(face, name) for name in face.__all__]
    titles = dict(zip(map(id, queue), face.__all__, strict=True))
    seen: set[int] = set()
    while queue:
        one = queue.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        title = titles.get(id(one))
        yield from ("", f"# {title or f'{one.__name__}, of a field'}")
        if not isinstance(one, type):
            yield _brief(one)
            continue
        yield from sorted(_members(one))
        queue += [found for hint in _field_types(one).values() for found in _structs(hint)]


def _members(one: type) -> Iterator[str]:
    """List what a class offers: fields, properties, methods; of an enumeration its base alone."""
    if issubclass(one, Enum):
        yield "an enumeration; its values stand among the reasons"
        return
    yield from (f"{name}: {_brief(hint)}" for name, hint in _field_types(one).items())
    for name, member in vars(one).items():
        kind = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") and (name != "__init__" or getattr(one, "_is_protocol", False)):
            continue
        if inspect.isfunction(kind):
            yield f"{name}{_brief(inspect.signature(kind))}"
        elif isinstance(kind, property) or type(kind).__name__ == "cached_property":
            made = kind.fget if isinstance(kind, property) else kind.func
            yield f"{name} -> {_brief(get_type_hints(made)['return'])}"


def _field_types(one: type) -> dict[str, Any]:
    hints = get_type_hints(one) if issubclass(one, msgspec.Struct) or is_dataclass(one) else {}
    names = one.__struct_fields__ if issubclass(one, msgspec.Struct) else [f.name for f in fields(one)] if hints else ()
    return {name: hints[name] for name in names}


def _structs(hint: Any) -> Iterator[type]:  # noqa: ANN401 - any annotation
    if isinstance(hint, type) and issubclass(hint, ApiStruct):
        yield hint
    for inner in get_args(hint):
        yield from _structs(inner)


def _brief(hint: object) -> str:
    """Return an annotation or signature without the modules that its types are in."""
    return _MODULES.sub("", hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint))
