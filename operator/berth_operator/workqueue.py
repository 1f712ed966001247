"""Owns the queue of keys to reconcile: each at most once in it, never worked on twice at a time, some only later.

Guards come first: of the keys that are due, those of nodes are taken before all others, for a hand-over waits for its
guard, and a place that is free for a moment longer than its guard is gone. Apart from that, it does not know what a key
means.
"""

import heapq
import math
import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import Final

_IN_TIME_SECONDS: Final = 0.001


class KeyKind(Enum):
    """What is to be looked at."""

    RESERVATION = "reservation"
    """Name: the Reservation's uid."""
    NODE = "node"
    """Name: the node's name; its guard is compared with the hand-overs on it."""
    SCOPE = "scope"
    """The webhook's registration."""
    STRAYS = "strays"
    """Pods with our gate that name no Reservation."""
    WAITING = "waiting"
    """Pods that wait for a place and could take a slot."""


@dataclass(frozen=True, slots=True)
class Key:
    """One thing to reconcile."""

    kind: KeyKind
    name: str = ""


SCOPE_KEY = Key(KeyKind.SCOPE)
STRAYS_KEY = Key(KeyKind.STRAYS)
WAITING_KEY = Key(KeyKind.WAITING)


Heap = list[tuple[float, int, Key]]
"""Keys by when they are due, and of those by when they were added; one whose time was changed is in it twice."""


class WorkQueue:
    """A thread-safe queue of keys; a key added while it is worked on comes back when that is done."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due: dict[Key, float] = {}
        self._guards: Heap = []
        self._others: Heap = []
        self._serial = 0
        self._working: set[Key] = set()
        self._alarms: list[float] = []
        """When those who wait for a key will look by themselves; infinite where only a call makes them."""
        self._stopped = False
        self._late_seconds = 0.0

    def add(self, key: Key, delay_seconds: float = 0.0) -> None:
        """Queue a key; of several times asked for, the earliest counts."""
        due = time.monotonic() + max(0.0, delay_seconds)
        with self._condition:
            if self._due.get(key, float("inf")) <= due:
                return
            self._due[key] = due
            self._push(key)
            self._call_for_next()

    def _push(self, key: Key) -> None:
        self._serial += 1
        heap = self._guards if key.kind is KeyKind.NODE else self._others
        heapq.heappush(heap, (self._due[key], self._serial, key))

    def take(self) -> Key | None:
        """Wait for a key that is due and not worked on, and return it; None once the queue is stopped."""
        with self._condition:
            while not self._stopped:
                key = self._pop_due()
                if key is not None:
                    self._working.add(key)
                    self._call_for_next()
                    return key
                self._wait(self._seconds_to_next())
            return None

    def _wait(self, seconds: float | None) -> None:
        """Wait until called, at most for so many seconds."""
        alarm = math.inf if seconds is None else time.monotonic() + seconds
        self._alarms.append(alarm)
        self._condition.wait(seconds)
        self._alarms.remove(alarm)

    def _call_for_next(self) -> None:
        """Call one that waits for a key if none of them will look by itself in time for the next one."""
        heads = [heap[0][0] for heap in (self._guards, self._others) if heap]
        if not heads or not self._alarms:
            return
        if min(self._alarms) > max(min(heads), time.monotonic()) + _IN_TIME_SECONDS:
            self._condition.notify()

    def done(self, key: Key) -> None:
        """Say that the work on a key is over."""
        with self._condition:
            self._working.discard(key)
            if key in self._due:
                self._push(key)
            self._call_for_next()

    def stop(self) -> None:
        """Let all waiting takers go."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    @property
    def late_seconds(self) -> float:
        """Return by how much the key that was taken last was late: how far behind the workers are."""
        return self._late_seconds

    def __len__(self) -> int:
        with self._condition:
            return len(self._due)

    def _seconds_to_next(self) -> float | None:
        """Return the seconds until a key is due, None where none can be taken."""
        dues = [due for due in map(self._next_due, (self._guards, self._others)) if due is not None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _next_due(self, heap: Heap) -> float | None:
        """Return when the first key of a heap that can be taken is due; drops stale entries."""
        while heap:
            due, _, key = heap[0]
            if self._due.get(key) == due and key not in self._working:
                return due
            heapq.heappop(heap)
        return None

    def _pop_due(self) -> Key | None:
        """Take out a key that is due, a node's before any other; None where none is."""
        now = time.monotonic()
        for heap in (self._guards, self._others):
            due = self._next_due(heap)
            if due is None or due > now:
                continue
            _, _, key = heapq.heappop(heap)
            del self._due[key]
            if heap is self._others:  # guards are never late, however much else there is to do
                self._late_seconds = now - due
            return key
        return None
