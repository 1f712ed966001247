"""The queue of keys to reconcile.

Each key is queued once and never handled twice at a time; some are delayed. Keys of nodes come first: a hand-over waits
for its guard, and a place that stays free longer than its guard is lost. Of the others namespaces take turns, so that a
thousand Reservations of one keep those of another waiting for no longer than one of them takes.
"""

import heapq
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_IN_TIME_SECONDS: Final = 0.001
_FEW_STALE: Final = 100


class KeyKind(StrEnum):
    """What the kernel reconciles; capabilities have kinds of their own."""

    RESERVATION = "reservation"
    """A Reservation, whose uid is the name of the key."""
    NODE = "node"
    """A node, whose guard must match the hand-overs on it."""
    SCOPE = "scope"
    """The webhook's registration."""
    STRAYS = "strays"
    """Pods with our gate that name no Reservation."""
    WAITING = "waiting"
    """Pods that wait for a place and could take a slot."""
    ENDING = "ending"
    """Reservations of namespaces that are being deleted."""
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
ENDING_KEY = Key(KeyKind.ENDING)
BEST_EFFORT_KEY = Key(KeyKind.BEST_EFFORT)


Heap = list[tuple[float, int, Key]]
"""Keys by due time, then by order; a rescheduled key is in it twice."""


class WorkQueue:
    """Thread-safe queue; a key added while it is handled comes back afterwards."""

    def __init__(self, namespace_of: Callable[[Key], str] = lambda _: "") -> None:
        """`namespace_of` returns in whose turn a key is taken, "" for what is of no namespace."""
        self._namespace_of = namespace_of
        self._condition = threading.Condition()
        self._due: dict[Key, float] = {}
        self._namespaces: dict[Key, str] = {}
        """Of the keys in `_due`."""
        self._guards: Heap = []
        self._later: Heap = []
        self._turns: OrderedDict[str, deque[tuple[float, Key]]] = OrderedDict()
        """Keys that are due, with their times, by namespace; the first namespace is the next in turn."""
        self._serial = 0
        self._working: set[Key] = set()
        self._alarms: list[float] = []
        """When each waiting taker wakes by itself; infinite if only a notification wakes it."""
        self._stopped = False
        self._late_seconds = 0.0

    def add(self, key: Key, delay_seconds: float = 0.0) -> None:
        """Queue a key; the earliest of several times counts."""
        due_at = time.monotonic() + max(0.0, delay_seconds)
        namespace = self._namespace_of(key)
        with self._condition:
            # Many events of one object become one reconcile, as in client-go: what it finds then includes them all.
            if self._due.get(key, float("inf")) <= due_at:
                return
            self._due[key], self._namespaces[key] = due_at, namespace
            self._push(key)
            self._notify_next()

    def _push(self, key: Key) -> None:
        self._serial += 1
        # A guard keeps everyone off its node, so taking it away late costs other tenants; and it is done in a single
        # call.
        heap = self._guards if key.kind == KeyKind.NODE else self._later
        heapq.heappush(heap, (self._due[key], self._serial, key))
        if len(heap) > _FEW_STALE + 2 * len(self._due):
            self._drop_stale(heap)

    def _drop_stale(self, heap: Heap) -> None:
        """Drop the entries that a later time has replaced: their own may be hours away."""
        live = {key: (due_at, serial, key) for due_at, serial, key in heap if self._due.get(key) == due_at}
        heap[:] = live.values()
        heapq.heapify(heap)

    def take(self) -> Key | None:
        """Wait for a due key and return it, None once the queue is stopped."""
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
        if not self._alarms:
            return
        heads = [heap[0][0] for heap in (self._guards, self._later) if heap]
        if self._turns:
            heads.append(-math.inf)  # what waits for its turn is due
        if not heads:
            return
        # One taker is notified and not all: every event would otherwise wake all workers for a single key.
        if min(self._alarms) > max(min(heads), time.monotonic()) + _IN_TIME_SECONDS:
            self._condition.notify()

    def done(self, key: Key) -> None:
        """End the work on a key."""
        with self._condition:
            # A key that was added meanwhile is pushed now, as in client-go's workqueue: two workers never have the same
            # key.
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
        """Return how late the last key was taken, which is how far behind the workers are."""
        return self._late_seconds

    def __len__(self) -> int:
        with self._condition:
            return len(self._due)

    def _seconds_to_next(self) -> float | None:
        """Return the seconds until a key can be taken, None for never; called where none can be taken now."""
        dues = [due for due in map(self._next_due, (self._guards, self._later)) if due is not None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _next_due(self, heap: Heap) -> float | None:
        """Return when a heap's first free key is due; drops stale entries."""
        # A key that was moved to an earlier time is in the heap twice; the later entry is recognised by its time.
        while heap:
            due_at, _, key = heap[0]
            if self._is_free(due_at, key):
                return due_at
            heapq.heappop(heap)
        return None

    def _is_free(self, due_at: float, key: Key) -> bool:
        """Return whether that is when a key is due, and nothing handles it already."""
        return self._due.get(key) == due_at and key not in self._working

    def _pop_due(self) -> Key | None:
        """Remove and return a due key, a node's before any other."""
        now = time.monotonic()
        due_at = self._next_due(self._guards)
        if due_at is not None and due_at <= now:
            _, _, key = heapq.heappop(self._guards)
            self._forget_time(key)
            return key
        while (due_at := self._next_due(self._later)) is not None and due_at <= now:
            _, _, key = heapq.heappop(self._later)
            self._turns.setdefault(self._namespaces[key], deque()).append((due_at, key))
        return self._pop_in_turn(now)

    def _pop_in_turn(self, now: float) -> Key | None:
        """Remove and return the first key of the namespace whose turn it is, which is the last one then."""
        while self._turns:
            namespace, keys = next(iter(self._turns.items()))
            due_at, key = keys.popleft()
            is_free = self._is_free(due_at, key)
            if not keys:
                del self._turns[namespace]
            elif is_free:
                self._turns.move_to_end(namespace)
            if is_free:
                self._forget_time(key)
                self._late_seconds = now - due_at  # guards are never late, however long the queue is
                return key
        return None

    def _forget_time(self, key: Key) -> None:
        del self._due[key], self._namespaces[key]
