"""What was read of the objects of one snapshot, for a later one that has most of them as well.

Objects are never changed, so what was read of an object holds for every snapshot that has it. A later look at a cluster
then reads only the objects that are new, beside one pass over all.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_Object = TypeVar("_Object")
_Value = TypeVar("_Value")


class KeptValues(Generic[_Object, _Value]):
    """Values that are read of objects, kept for the objects of the last call; not thread-safe."""

    def __init__(self, read: Callable[[_Object], _Value]) -> None:
        """`read` depends on nothing but the object."""
        self._read = read
        self._objects: Sequence[_Object] = ()
        self._values: dict[int, _Value] = {}
        """By the object's identity, which is its own as long as `_objects` holds it."""

    def of(self, objects: Sequence[_Object]) -> list[_Value]:
        """Return the value of each object, in their order."""
        known, read = self._values, self._read
        identities = list(map(id, objects))
        values = [
            known[identity] if identity in known else read(obj)
            for identity, obj in zip(identities, objects, strict=True)
        ]
        self._objects, self._values = tuple(objects), dict(zip(identities, values, strict=True))
        return values
