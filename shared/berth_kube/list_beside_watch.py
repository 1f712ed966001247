"""A list that is read while a watch brings the changes.

A list shows a collection as it was when its first page was read. Where reading it takes longer than the API server
keeps events, no watch can go on from it, however often it is read again. client-go's reflector relies on lists by
streaming there (KEP-3157); here the watch is opened first, from the version of the moment, and what it brings waits for
the list.
"""

import threading
from collections.abc import Callable
from typing import Final, Generic

from berth_kube.decoding import ObjectKey, ObjectVersion, T, version_number
from berth_kube.listing import LooseListing
from berth_kube.watch_items import Bookmark, Changed, Listed, Removed, WatchItem

_NEVER: Final = -1


class ListBesideWatch(Generic[T]):
    """Passes on a list and then the changes that it does not have; thread-safe.

    Only the last change of an object waits, so that the number of objects bounds the memory for changes. An object that
    is created again under its name is another one: the end of the first waits as well.
    """

    def __init__(self, emit: Callable[[WatchItem[T]], object], *, restored: bool = False) -> None:
        self.is_restored = restored
        """Whether the list belongs to another history than what the caller has."""

        self._emit = emit
        self._lock = threading.Lock()
        self._waiting: dict[tuple[ObjectKey, str], tuple[int, Changed[T] | Removed[T]]] = {}
        """By name and uid."""

        self._is_closed = False
        self._list_version = _NEVER
        self._newer_versions: dict[ObjectKey, int] = {}

    @property
    def is_listed(self) -> bool:
        return self._list_version != _NEVER

    def put_change(self, changed: ObjectVersion, item: Changed[T] | Removed[T]) -> None:
        """Pass on a change, or keep it until the list is there."""
        with self._lock:
            if self.is_listed:
                self._pass_on(changed.key, changed.version, item)
            else:
                self._waiting.pop(changed[:2], None)  # they are passed on in the order of their versions
                self._waiting[changed[:2]] = changed.version, item

    def put_bookmark(self, bookmark: Bookmark) -> None:
        """Pass on a bookmark; drop it before the list is there, since it promises what the caller has yet to get."""
        with self._lock:
            if self.is_listed:
                self._emit(bookmark)

    def put_later_list(self, listed: Listed[T]) -> bool:
        """Pass on a list that the watch has made itself, if the own list is there; return whether it is.

        All changes after it are new, though its version may be lower: etcd may have been restored from a backup.
        """
        with self._lock:
            if self.is_listed:
                self._emit(listed)
                self._list_version, self._newer_versions = version_number(listed.resource_version), {}
            return self.is_listed

    def put_list(self, loose: LooseListing[T]) -> None:
        """Pass on the list, and what has changed since."""
        listing = loose.listing
        with self._lock:
            if self._is_closed:
                return
            self._emit(Listed(listing.items, listing.resource_version, listing.began, self.is_restored))
            self._list_version = version_number(listing.resource_version)
            self._newer_versions = dict(loose.newer_versions)
            waiting, self._waiting = self._waiting, {}
            for (key, _), (version, item) in waiting.items():
                self._pass_on(key, version, item)

    def close(self) -> None:
        """Drop the list if it is still being read."""
        with self._lock:
            self._is_closed = True

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _pass_on(self, key: ObjectKey, version: int, item: Changed[T] | Removed[T]) -> None:
        if not version or version > max(self._list_version, self._newer_versions.get(key, _NEVER)):
            self._newer_versions.pop(key, None)
            self._emit(item)
