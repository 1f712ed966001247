"""Cached ReservationWindows."""

import threading
from collections.abc import Callable, Iterable

from berth_core import ReservationWindow
from berth_operator.cache.reservations import Tombstones, is_newer, was_due
from berth_operator.workqueue import Key, KeyKind


class WindowStore:
    """All known windows by uid; each change queues the window. Thread-safe."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self._lock = threading.Lock()
        self._tombstones = Tombstones()
        self._by_uid: dict[str, ReservationWindow] = {}

    def all(self) -> tuple[ReservationWindow, ...]:
        with self._lock:
            return tuple(self._by_uid.values())

    def get(self, uid: str) -> ReservationWindow | None:
        with self._lock:
            return self._by_uid.get(uid)

    def put(self, window: ReservationWindow) -> None:
        """Store a window as the API server returned it; ignore older versions."""
        uid = window.metadata.uid
        with self._lock:
            known = self._by_uid.get(uid)
            if self._tombstones.covers(window.metadata) or (known and not is_newer(window.metadata, known.metadata)):
                return
            self._by_uid[uid] = window
        self._enqueue(Key(KeyKind.WINDOW, uid))

    def remove(self, uid: str) -> None:
        with self._lock:
            self._tombstones.add(uid)
            self._by_uid.pop(uid, None)

    def replace(self, listed: Iterable[ReservationWindow], version: str) -> None:
        """Store a complete list, and remove the windows that it lacks."""
        present = {window.metadata.uid: window for window in listed}
        for window in present.values():
            self.put(window)
        for known in self.all():
            if known.metadata.uid not in present and was_due(known.metadata, version):
                self.remove(known.metadata.uid)
