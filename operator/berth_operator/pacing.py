"""Owns what may wait a moment: the steps of placeholders on their way, written as one, and proofs while much is to do.

It does not own what a status says. Whatever anybody acts on is written at once.
"""

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationPhase, ReservationStatus, SlotState
from berth_operator.decisions.observation import has_started

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


class Pacing:
    """Remembers since when a status waits, by the uid of its Reservation; thread-safe."""

    def __init__(self, late_seconds: Callable[[], float]) -> None:
        self._late_seconds = late_seconds
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._unproven_since: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}
        self._usual_seconds = 0.0
        """How long those took lately that became Available while their status waited."""

    def seconds_left(self, uid: str, prior: ReservationStatus, status: ReservationStatus) -> float:
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

    def seconds_to_look(self, uid: str, *, only_starts: bool) -> float:
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

    def may_prove(self, uid: str) -> bool:
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
