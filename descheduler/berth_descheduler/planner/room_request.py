"""Owns what `MakeRoom` is asked to make room for: shapes as people write them, and names of pending pods.

It does not own whether that is possible.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth_core.errors import InputError
from berth_core.objects import LabelSelector
from berth_core.resources import PODS, ResourceAmounts, read_whole_number
from berth_core.selectors import parse_selector

_COUNT: Final = "count"
_LARGEST_COUNT: Final = 1_000_000
_SHAPE_EXPECTED: Final = "amounts such as cpu=16 or cpu=12,memory=48Gi,count=3"
_OWNERS_EXPECTED: Final = "a mapping with namespace and selector, such as {namespace: ml, selector: app=train}"
_POD_EXPECTED: Final = "the namespace and the name of a pod, such as shop/web-0"


@dataclass(frozen=True, slots=True)
class Shape:
    """A pod that does not exist: what it would ask for, and how many of it are to fit."""

    amounts: ResourceAmounts
    count: int | None
    """None: as many as the moves allow."""

    text: str
    """As it was written, without the count."""

    @classmethod
    def parse(cls, text: object) -> "Shape":
        """Return the shape that a text such as `cpu=12,memory=48Gi,count=3` means; raises `InputError`."""
        pairs = [part.partition("=") for part in text.split(",")] if isinstance(text, str) else []
        found = {name.strip(): amount.strip() for name, equals, amount in pairs if equals}
        if not found or len(found) != len(pairs) or PODS in found or not all(found.keys()):
            raise InputError("shape", text, _SHAPE_EXPECTED)
        count = _read_count(text, found.pop(_COUNT, None))
        try:
            amounts = ResourceAmounts.from_quantities(found)
        except InputError as error:
            raise InputError("shape", text, _SHAPE_EXPECTED) from error
        if not amounts:
            raise InputError("shape", text, _SHAPE_EXPECTED)
        if excess := amounts.why_too_large():
            raise InputError("shape", text, f"amounts that a node can have: {excess}")
        return cls(amounts, count, ",".join(f"{name}={amount}" for name, amount in found.items()))

    def written(self) -> str:
        """Return what `parse` reads."""
        return self.text if self.count is None else f"{self.text},{_COUNT}={self.count}"


@dataclass(frozen=True, slots=True)
class RoomOwners:
    """Whose pods may take the room that is made for shapes."""

    namespace: str
    selector: str
    """The pods' labels, as a label selector."""

    @classmethod
    def parse(cls, raw: object) -> "RoomOwners | None":
        """Return the owners of a mapping with `namespace` and `selector`, None of nothing; raises `InputError`."""
        if raw is None:
            return None
        if not isinstance(raw, Mapping) or set(raw) != {"namespace", "selector"}:
            raise InputError("room.owners", raw, _OWNERS_EXPECTED)
        namespace, selector = raw["namespace"], raw["selector"]
        if not isinstance(namespace, str) or not namespace:
            raise InputError("room.owners.namespace", namespace, "the name of a namespace")
        try:
            selects_all = parse_selector(selector) == LabelSelector()
        except InputError as error:
            raise InputError("room.owners.selector", selector, error.expected) from error
        if selects_all:
            raise InputError("room.owners.selector", selector, "a label selector such as app=train")
        return cls(namespace, str(selector))

    def to_mapping(self) -> dict[str, str]:
        """Return what `parse` reads."""
        return {"namespace": self.namespace, "selector": self.selector}


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """What room is to be made for; nothing named means every pending pod, as many as can be."""

    shapes: tuple[Shape, ...] = ()
    pods: tuple[tuple[str, str], ...] = ()
    """Namespaces and names."""

    owners: RoomOwners | None = None
    """Whose pods may take the room of the shapes; None: nobody's, it is only kept free."""

    def __post_init__(self) -> None:
        """Refuse owners without shapes, and an open count beside something else: which would go first?"""
        if self.owners is not None and not self.shapes:
            raise InputError("room.owners", self.owners.to_mapping(), "shapes beside it: a pod is its own owner")
        if any(shape.count is None for shape in self.shapes) and len(self.shapes) + len(self.pods) > 1:
            raise InputError("shape", self.shapes[0].text, "a count where more than one thing is to fit")

    @classmethod
    def parse(cls, raw: object) -> "RoomRequest":
        """Return the request of a mapping with lists `shapes` and `pods`; raises `InputError`."""
        if raw is None:
            return cls()
        if not isinstance(raw, Mapping) or not set(raw) <= {"shapes", "pods", "owners"}:
            raise InputError("room", raw, "a mapping with a list shapes, a list pods, or both; owners beside shapes")
        return cls(
            tuple(map(Shape.parse, _listed(raw, "shapes"))),
            tuple(map(_pod_key, _listed(raw, "pods"))),
            RoomOwners.parse(raw.get("owners")),
        )

    @property
    def names_nothing(self) -> bool:
        """Tell whether nothing is named."""
        return not self.shapes and not self.pods

    @property
    def all_or_none(self) -> bool:
        """Tell whether a part of it is of no use."""
        return not self.names_nothing and all(shape.count is not None for shape in self.shapes)

    def to_mapping(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        parts = {
            "shapes": [shape.written() for shape in self.shapes],
            "pods": ["/".join(pod) for pod in self.pods],
            "owners": self.owners.to_mapping() if self.owners else None,
        }
        return {name: value for name, value in parts.items() if value}


def _read_count(text: object, raw: str | None) -> int | None:
    if raw is None:
        return None
    count = read_whole_number(raw, most=_LARGEST_COUNT)
    if not count:
        raise InputError("shape", text, f"a count from 1 to {_LARGEST_COUNT}")
    return count


def _pod_key(text: object) -> tuple[str, str]:
    namespace, slash, name = text.partition("/") if isinstance(text, str) else ("", "", "")
    if not slash or not namespace or not name or "/" in name:
        raise InputError("pod", text, _POD_EXPECTED)
    return namespace, name


def _listed(raw: Mapping[str, Any], key: str) -> Iterable[object]:
    found = raw.get(key) or []
    if not isinstance(found, list | tuple):
        raise InputError(f"room.{key}", found, "a list")
    return found
