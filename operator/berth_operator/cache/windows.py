"""Cached ReservationWindows.

The store is not thread-safe: `cache.cache` locks it.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from berth_core import ReservationWindow
from berth_operator.cache.reservations import Tombstones, is_newer
from berth_operator.workqueue import Key, KeyKind


class WindowStore:
    """All known windows by uid; a change returns the keys that it concerns."""

    def __init__(self, tombstones: Tombstones) -> None:
        self._tombstones = tombstones
        self._by_uid: dict[str, ReservationWindow] = {}

    def __iter__(self) -> Iterator[ReservationWindow]:
        return iter(tuple(self._by_uid.values()))

    def uids(self) -> AbstractSet[str]:
        return self._by_uid.keys()

    def get(self, uid: str) -> ReservationWindow | None:
        return self._by_uid.get(uid)

    def put(self, window: ReservationWindow) -> tuple[Key, ...]:
        """Store a window that is neither gone nor outdated."""
        uid = window.metadata.uid
        known = self._by_uid.get(uid)
        if self._tombstones.covers(window.metadata) or (known and not is_newer(window.metadata, known.metadata)):
            return ()
        self._by_uid[uid] = window
        return (Key(KeyKind.WINDOW, uid),)

    def remove(self, uid: str) -> tuple[Key, ...]:
        self._tombstones.add(uid)
        self._by_uid.pop(uid, None)
        return (Key(KeyKind.WINDOW, uid),)
