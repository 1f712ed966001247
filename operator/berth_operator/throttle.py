"""Owns what may wait a moment: the steps of placeholders on their way, written as one, and proofs while much is to do.

It does not own what a status says. Whatever anybody acts on is written at once.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationPhase, ReservationStatus, SlotState
from berth_operator.reconcile.observation import has_started

PATIENCE_SECONDS: Final = 0.5
"""How long a status of a Reservation that is not Available yet may at least be behind."""

LONGEST_PATIENCE_SECONDS: Final = 15.0
"""The same while thousands are on their way: what is to be done comes before what is to be told."""

_PATIENCE_PER_LATENESS: Final = 10.0
_PATIENCE_PER_USUAL_TIME: Final = 2.0
_WEIGHT_OF_NEWS: Final = 0.1
_BEHIND_SECONDS: Final = 0.3
"""So late the workers are behind: places are taken first, and proven when all are."""
_MANY_ON_THE_WAY: Final = 50
_LONGEST_UNPROVEN_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
"""Between two looks at a Reservation whose placeholders have only to start: each of their steps is an event."""

_ON_THE_WAY: Final = frozenset({ReservationPhase.PENDING, ReservationPhase.WAITING})
_QUIET: Final = frozenset({SlotState.PENDING, SlotState.HELD})


def may_wait(prior: ReservationStatus, status: ReservationStatus) -> bool:
    """Tell whether nothing but the progress of placeholders is new, before as many are held as are wanted."""
    phases = {state.phase for state in (prior.state, status.state) if state is not None}
    return phases <= _ON_THE_WAY and all(slot.state in _QUIET for slot in status.slots)


def only_starts(reservation: Reservation, placeholders: Collection[Pod]) -> bool:
    """Tell whether all that a Reservation without owner pods waits for is that more pods of its slots start."""
    if len(placeholders) != reservation.spec.replicas or not reservation.is_live:
        return False
    undisturbed = all(
        not pod.is_terminating and not pod.is_terminal and pod.condition("PodScheduled") != "False"
        for pod in placeholders
    )
    return undisturbed and sum(map(has_started, placeholders)) < reservation.spec.wanted


class Throttle:
    """Remembers since when a status waits, by the uid of its Reservation; thread-safe."""

    def __init__(self, late_seconds: Callable[[], float]) -> None:
        self._late_seconds = late_seconds
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._unproven_since: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}
        self._usual_seconds = 0.0
        """How long those took lately that became Available while their status waited."""

    def status_delay(self, uid: str, prior: ReservationStatus, status: ReservationStatus) -> float:
        """Return for how long a status may still wait; 0 where it is to be written now."""
        now = time.monotonic()
        with self._lock:
            if prior == status or not may_wait(prior, status):
                self._learn(now - self._since.pop(uid, now), status)
                return 0.0
            left = self._since.setdefault(uid, now) + self._patience() - now
            if left <= 0:
                del self._since[uid]
            return max(0.0, left)

    def reconcile_delay(self, uid: str, *, only_starts: bool) -> float:
        """Return for how long a Reservation need not be looked at; 0 where it is to be now."""
        now = time.monotonic()
        with self._lock:
            if not only_starts:
                self._looked_at.pop(uid, None)
                return 0.0
            left = self._looked_at.get(uid, -_LOOK_SECONDS) + _LOOK_SECONDS - now
            if left <= 0:
                self._looked_at[uid] = now
            return max(0.0, left)

    def _learn(self, took_seconds: float, status: ReservationStatus) -> None:
        """Remember how long it took until a Reservation whose status waited was Available."""
        if took_seconds and status.state is not None and status.state.phase is ReservationPhase.AVAILABLE:
            self._usual_seconds += _WEIGHT_OF_NEWS * (took_seconds - self._usual_seconds)

    def _patience(self) -> float:
        """Return for how long statuses may wait: the longer the slower the cluster, and the further behind we are."""
        usual = _PATIENCE_PER_USUAL_TIME * self._usual_seconds
        return min(
            LONGEST_PATIENCE_SECONDS, max(PATIENCE_SECONDS, usual) + _PATIENCE_PER_LATENESS * self._late_seconds()
        )

    @property
    def is_busy(self) -> bool:
        """Tell whether so much is to be done that what nobody acts on comes later."""
        with self._lock:
            return len(self._since) > _MANY_ON_THE_WAY or self._late_seconds() > _BEHIND_SECONDS

    def may_probe(self, uid: str) -> bool:
        """Tell whether the path of a Reservation may be proven now; none is put off for more than 30 seconds."""
        now, late = time.monotonic(), self._late_seconds() > _BEHIND_SECONDS
        with self._lock:
            if late or len(self._since) > _MANY_ON_THE_WAY:
                ready = now - self._unproven_since.setdefault(uid, now) >= _LONGEST_UNPROVEN_SECONDS
            else:
                ready = True
            if ready:
                self._unproven_since.pop(uid, None)
        return ready

    def forget(self, uid: str) -> None:
        """Forget a Reservation that is gone."""
        with self._lock:
            for times in (self._since, self._unproven_since, self._looked_at):
                times.pop(uid, None)


# --- handover shares -------------------------------------------------------------------------------------------------
# When a hand-over may begin: fair shares of those under way, and pauses after those that came to nothing.
#
# A hand-over that no scheduler ends keeps its node guarded for its whole time. So that the pods of one namespace,
# which may be such that no scheduler can place them, neither take all turns nor keep nodes guarded most of the time:
#
# share   a namespace has at most as many hand-overs under way as are left for the others
#     pause   after some that came to nothing its next one waits as long as they took, twice as long each time in a row
#     node    and on a node where hand-overs came to nothing three times as long as they kept it guarded, one by one
#
# A namespace without such hand-overs lately waits for nothing but its share. What is remembered is the process's own:
# forgotten, it costs one more hand-over that comes to nothing.

_LONGEST_PAUSE_SECONDS: Final = 300.0
_LONGEST_NODE_PAUSE_SECONDS: Final = 1200.0
_NODE_PAUSE_PER_GUARD: Final = 3.0
_REMEMBERED_SECONDS: Final = 900.0
"""How long a namespace's past counts after the end of its last pause."""
_MOST_DOUBLINGS: Final = 10
_ONE_BY_ONE_SECONDS: Final = 1.0
"""How soon to look again at a node on which one of those hand-overs goes on."""

_SlotKey = tuple[str, str, int]
"""Uid of a Reservation, task and index."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A hand-over under way; times are of the clock."""

    namespace: str
    node: str
    since: float


@dataclass(frozen=True, slots=True)
class _Record:
    """What hand-overs of a namespace that came to nothing have led to."""

    in_a_row: int
    last_end: float
    free_from: float


def has_share(namespace: str, under_way: Mapping[str, int], at_once: int) -> bool:
    """Return whether a namespace may have one more hand-over under way."""
    return under_way.get(namespace, 0) < at_once - sum(under_way.values())


class FairSharing:
    """Remembers how hand-overs ended; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[_SlotKey, _Begun] = {}
        self._records: dict[str, _Record] = {}
        self._nodes: dict[str, float] = {}
        """Node to when it is free again for namespaces with a record."""

    def note(self, reservation: Reservation, status: ReservationStatus) -> None:
        """Take in what became of the hand-overs of a Reservation."""
        uid, namespace = reservation.metadata.uid, reservation.metadata.namespace
        with self._lock:
            for slot in status.slots:
                key = (uid, slot.task, slot.index)
                if slot.state is SlotState.HANDING_OVER:
                    self._begun.setdefault(key, _Begun(namespace, slot.node, self._clock()))
                elif key in self._begun:
                    self._end(self._begun.pop(key), came_to_nothing=slot.state is not SlotState.TAKEN)

    def forget(self, uid: str) -> None:
        """Take in that a Reservation is gone, and its hand-overs with it."""
        with self._lock:
            for key in [key for key in self._begun if key[0] == uid]:
                self._end(self._begun.pop(key), came_to_nothing=True)

    def delay(self, namespace: str, node: str) -> float:
        """Return in how many seconds a namespace may begin a hand-over on a node; 0 for now."""
        now = self._clock()
        with self._lock:
            record = self._record(namespace, now)
            if record is None:
                return 0.0
            if any(one.node == node and self._record(one.namespace, now) for one in self._begun.values()):
                return _ONE_BY_ONE_SECONDS
            return max(0.0, record.free_from - now, self._nodes.get(node, now) - now)

    def _end(self, begun: _Begun, *, came_to_nothing: bool) -> None:
        now = self._clock()
        record = self._record(begun.namespace, now)
        if not came_to_nothing:
            if record is not None:
                self._records[begun.namespace] = _Record(record.in_a_row - 1, record.last_end, record.free_from)
            return
        seconds = now - begun.since
        in_a_row = 1 if record is None else record.in_a_row
        if record is not None and begun.since >= record.last_end:
            in_a_row += 1  # it began in spite of the ones before, and not beside them
        pause = min(seconds * 2 ** min(in_a_row - 1, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
        free_from = max(now + pause, record.free_from if record is not None else 0.0)
        self._records[begun.namespace] = _Record(max(1, in_a_row), now, free_from)
        node_pause = min(seconds * _NODE_PAUSE_PER_GUARD, _LONGEST_NODE_PAUSE_SECONDS)
        self._nodes = {name: until for name, until in self._nodes.items() if until > now}
        self._nodes[begun.node] = max(now + node_pause, self._nodes.get(begun.node, now))

    def _record(self, namespace: str, now: float) -> _Record | None:
        """Return what counts of a namespace's past, and forget what does not any more."""
        record = self._records.get(namespace)
        if record is not None and (record.in_a_row <= 0 or now >= record.free_from + _REMEMBERED_SECONDS):
            del self._records[namespace]
            return None
        return record
