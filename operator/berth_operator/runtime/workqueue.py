"""The queue of keys to reconcile.

Each key is queued once and never handled twice at a time; some are delayed. Keys of nodes come first: a hand-over waits
for its guard, and a place that stays free longer than its guard is lost.
"""

import heapq
import math
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_IN_TIME_SECONDS: Final = 0.001


class KeyKind(StrEnum):
    """What the kernel reconciles; capabilities have kinds of their own."""

    RESERVATION = "reservation"
    """Name: the Reservation's uid."""
    NODE = "node"
    """Name: the node's name; its guard must match the hand-overs on it."""
    SCOPE = "scope"
    """The webhook's registration."""
    STRAYS = "strays"
    """Pods with our gate that name no Reservation."""
    WAITING = "waiting"
    """Pods that wait for a place and could take a slot."""
    BEST_EFFORT = "best-effort"
    """Pods without requests that wait although standing fences may admit them."""


@dataclass(frozen=True, slots=True)
class Key:
    """One object to reconcile."""

    kind: str
    name: str = ""


SCOPE_KEY = Key(KeyKind.SCOPE)
STRAYS_KEY = Key(KeyKind.STRAYS)
WAITING_KEY = Key(KeyKind.WAITING)
BEST_EFFORT_KEY = Key(KeyKind.BEST_EFFORT)


Heap = list[tuple[float, int, Key]]
"""Keys by due time, then by order; a rescheduled key is in it twice."""


class WorkQueue:
    """Thread-safe queue; a key added while it is handled comes back afterwards."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due: dict[Key, float] = {}
        self._guards: Heap = []
        self._others: Heap = []
        self._serial = 0
        self._working: set[Key] = set()
        self._alarms: list[float] = []
        """When each waiting taker wakes by itself; infinite if only a notification wakes it."""
        self._stopped = False
        self._late_seconds = 0.0

    def add(self, key: Key, delay_seconds: float = 0.0) -> None:
        """Queue a key; the earliest of several times counts."""
        due_at = time.monotonic() + max(0.0, delay_seconds)
        with self._condition:
            if self._due.get(key, float("inf")) <= due_at:
                return
            self._due[key] = due_at
            self._push(key)
            self._notify_next()

    def _push(self, key: Key) -> None:
        self._serial += 1
        heap = self._guards if key.kind == KeyKind.NODE else self._others
        heapq.heappush(heap, (self._due[key], self._serial, key))

    def take(self) -> Key | None:
        """Wait for a due key and return it.

        None once the queue is stopped.
        """
        with self._condition:
            while not self._stopped:
                key = self._pop_due()
                if key is not None:
                    self._working.add(key)
                    self._notify_next()
                    return key
                self._wait(self._seconds_to_next())
            return None

    def _wait(self, seconds: float | None) -> None:
        """Wait for a notification, at most this many seconds."""
        alarm = math.inf if seconds is None else time.monotonic() + seconds
        self._alarms.append(alarm)
        self._condition.wait(seconds)
        self._alarms.remove(alarm)

    def _notify_next(self) -> None:
        """Notify one taker if none wakes in time for the next key."""
        heads = [heap[0][0] for heap in (self._guards, self._others) if heap]
        if not heads or not self._alarms:
            return
        if min(self._alarms) > max(min(heads), time.monotonic()) + _IN_TIME_SECONDS:
            self._condition.notify()

    def done(self, key: Key) -> None:
        """End the work on a key."""
        with self._condition:
            self._working.discard(key)
            if key in self._due:
                self._push(key)
            self._notify_next()

    def stop(self) -> None:
        """Release all waiting takers."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    @property
    def late_seconds(self) -> float:
        """Return how late the last key was taken.

        This is how far behind the workers are.
        """
        return self._late_seconds

    def __len__(self) -> int:
        with self._condition:
            return len(self._due)

    def _seconds_to_next(self) -> float | None:
        """Return the seconds until a key can be taken, None for never."""
        dues = [due for due in map(self._next_due, (self._guards, self._others)) if due is not None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _next_due(self, heap: Heap) -> float | None:
        """Return when a heap's first free key is due; drops stale entries."""
        while heap:
            due_at, _, key = heap[0]
            if self._due.get(key) == due_at and key not in self._working:
                return due_at
            heapq.heappop(heap)
        return None

    def _pop_due(self) -> Key | None:
        """Remove and return a due key, a node's before any other."""
        now = time.monotonic()
        for heap in (self._guards, self._others):
            due_at = self._next_due(heap)
            if due_at is None or due_at > now:
                continue
            _, _, key = heapq.heappop(heap)
            del self._due[key]
            if heap is self._others:  # guards are never late, however long the queue is
                self._late_seconds = now - due_at
            return key
        return None
