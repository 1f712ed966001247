"""Owns the objects of a kind as a watch has shown them last: what each of its events changes.

It does not watch, nor own what follows from a change.
"""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from berth_core.objects import ObjectMeta
from berth_kube.watching import Bookmark, Changed, Listed, Removed, WatchItem


class HasMetadata(Protocol):
    """An object of the API server."""

    @property
    def metadata(self) -> ObjectMeta:
        """Return its metadata."""
        ...


T = TypeVar("T", bound=HasMetadata)


class SeenObjects(Generic[T]):
    """The objects of one watch that `keep` accepts, by UID; thread-safe. A change costs the same however many they are.

    One that `keep` accepts no longer stays as it was last, until it is removed or everything is listed again.
    """

    def __init__(self, keep: Callable[[T], bool] = lambda _: True) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._by_uid: dict[str, T] = {}
        self.listed = threading.Event()
        """Set once everything has been seen."""

    def take_in(self, event: WatchItem[T]) -> bool:
        """Take in an event of the watch and tell whether it changed anything that is kept; a list always counts."""
        match event:
            case Listed(items):
                self._replace({one.metadata.uid: one for one in items if self._keep(one)})
                return True
            case Changed(changed):
                return self._keep(changed) and self._put(changed)
            case Removed(removed):
                return self._forget(removed.metadata.uid)
            case Bookmark():
                return False

    def objects(self) -> tuple[T, ...]:
        """Return what is kept, in no particular order."""
        with self._lock:
            return tuple(self._by_uid.values())

    def _replace(self, by_uid: dict[str, T]) -> None:
        with self._lock:
            self._by_uid = by_uid
        self.listed.set()

    def _put(self, one: T) -> bool:
        with self._lock:
            self._by_uid[one.metadata.uid] = one
        return True

    def _forget(self, uid: str) -> bool:
        with self._lock:
            return self._by_uid.pop(uid, None) is not None
