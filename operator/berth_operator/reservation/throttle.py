"""Delays of work that may wait: statuses on the progress of placeholders, reconciles of those that start, and probes.

A status that other components act on is written at once.
"""

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from berth_core import Pod, Reservation, ReservationPhase, ReservationStatus, SlotState
from berth_operator.reservation.pod_state import has_started
from berth_operator.schedulers.kube_scheduler import SCHEDULER

PATIENCE_SECONDS: Final = 0.5
"""Minimum lag of the status of a Reservation that is not Available yet."""

LONGEST_PATIENCE_SECONDS: Final = 15.0
"""The maximum, whatever the load: acting comes before reporting."""

LONGEST_PATIENCE_OF_MANY_SECONDS: Final = 45.0
"""How much longer it may be beside hundreds of others: most are Available by then, and report nothing else."""

_PATIENCE_PER_LATENESS: Final = 10.0
_PATIENCE_PER_USUAL_TIME: Final = 2.0
_PATIENCE_PER_OTHER: Final = 0.02
"""Seconds for each other Reservation that is under way."""
_PATIENCE_PER_OF_MANY: Final = 0.1
"""Seconds for each that is under way beyond `_MANY_ON_THE_WAY`."""
_WEIGHT_OF_NEWS: Final = 0.1
_BEHIND_SECONDS: Final = 0.3
"""When workers are this late, places are taken first and probed later."""
_MANY_ON_THE_WAY: Final = 50
_LONGEST_UNPROVEN_SECONDS: Final = 30.0
_START_SECONDS: Final = 1.0
"""Between two reconciles of a Reservation whose placeholders are starting: each step of each one is a watch event."""
_START_SECONDS_OF_MANY: Final = 5.0
"""The same beside `_MANY_ON_THE_WAY` others, whose places come first; what has started is seen at once."""

_ON_THE_WAY: Final = frozenset({ReservationPhase.PENDING, ReservationPhase.WAITING})
_QUIET: Final = frozenset({SlotState.PENDING, SlotState.HELD})


def may_wait(prior: ReservationStatus, status: ReservationStatus) -> bool:
    """Return whether only placeholders progressed, before enough are held."""
    phases = {state.phase for state in (prior.state, status.state) if state is not None}
    return phases <= _ON_THE_WAY and all(slot.state in _QUIET for slot in status.slots)


def only_starts(reservation: Reservation, placeholders: Collection[Pod]) -> bool:
    """Return whether a Reservation without owners only waits for placeholders to start."""
    if len(placeholders) != reservation.spec.replicas or not reservation.is_live:
        return False
    are_undisturbed = all(
        not pod.is_terminating and not pod.is_terminal and not SCHEDULER.is_refused(pod) for pod in placeholders
    )
    return are_undisturbed and sum(map(has_started, placeholders)) < reservation.spec.wanted


class Throttle:
    """Delays statuses, reconciles and probes by Reservation uid; thread-safe."""

    def __init__(self, late_seconds: Callable[[], float]) -> None:
        self._late_seconds = late_seconds
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._hurried: set[str] = set()
        self._unproven_since: dict[str, float] = {}
        self._reconciled_at: dict[str, float] = {}
        self._usual_seconds = 0.0
        """How long recent Reservations took to become Available while their status waited."""

    def status_delay(self, uid: str, prior: ReservationStatus, status: ReservationStatus) -> float:
        """Return how many seconds a status may still wait, 0 if it is due now."""
        now = time.monotonic()
        with self._lock:
            if uid in self._hurried:
                self._hurried.discard(uid)
                self._since.pop(uid, None)
                return 0.0
            if prior == status or not may_wait(prior, status):
                self._learn(now - self._since.pop(uid, now), status)
                return 0.0
            seconds_left = self._since.setdefault(uid, now) + self._patience() - now
            if seconds_left <= 0:
                del self._since[uid]
            return max(0.0, seconds_left)

    def hurry(self, uid: str) -> None:
        """Have the next status of a Reservation written without a delay."""
        with self._lock:
            self._hurried.add(uid)

    def reconcile_delay(self, uid: str, *, only_starts: bool) -> float:
        """Return how many seconds a reconcile may still wait, 0 if it is due now."""
        now = time.monotonic()
        with self._lock:
            if not only_starts:
                self._reconciled_at[uid] = now
                return 0.0
            start_seconds = _START_SECONDS_OF_MANY if len(self._since) > _MANY_ON_THE_WAY else _START_SECONDS
            seconds_left = self._reconciled_at.get(uid, -start_seconds) + start_seconds - now
            if seconds_left <= 0:
                self._reconciled_at[uid] = now
            return max(0.0, seconds_left)

    def _learn(self, took_seconds: float, status: ReservationStatus) -> None:
        """Record how long a Reservation took to become Available."""
        # An exponential moving average, so that one slow image pull does not delay every status.
        if took_seconds and status.state is not None and status.state.phase is ReservationPhase.AVAILABLE:
            self._usual_seconds += _WEIGHT_OF_NEWS * (took_seconds - self._usual_seconds)

    def _patience(self) -> float:
        """Return how many seconds statuses may wait: more on a slow cluster, beside many others, and when late."""
        usual = _PATIENCE_PER_USUAL_TIME * self._usual_seconds
        load = _PATIENCE_PER_LATENESS * self._late_seconds() + _PATIENCE_PER_OTHER * (len(self._since) - 1)
        extra_seconds = _PATIENCE_PER_OF_MANY * max(0, len(self._since) - 1 - _MANY_ON_THE_WAY)
        patience = min(LONGEST_PATIENCE_SECONDS, max(PATIENCE_SECONDS, usual) + load)
        return patience + min(LONGEST_PATIENCE_OF_MANY_SECONDS, extra_seconds)

    @property
    def is_busy(self) -> bool:
        """Return whether deferrable work must wait."""
        with self._lock:
            return len(self._since) > _MANY_ON_THE_WAY or self._late_seconds() > _BEHIND_SECONDS

    def may_probe(self, uid: str) -> bool:
        """Return whether a Reservation may be probed now; none waits more than 30 seconds."""
        now, is_behind = time.monotonic(), self._late_seconds() > _BEHIND_SECONDS
        with self._lock:
            if is_behind or len(self._since) > _MANY_ON_THE_WAY:
                ready = now - self._unproven_since.setdefault(uid, now) >= _LONGEST_UNPROVEN_SECONDS
            else:
                ready = True
            if ready:
                self._unproven_since.pop(uid, None)
        return ready

    def forget(self, uid: str) -> None:
        with self._lock:
            for times_by_uid in (self._since, self._unproven_since, self._reconciled_at):
                times_by_uid.pop(uid, None)
            self._hurried.discard(uid)
