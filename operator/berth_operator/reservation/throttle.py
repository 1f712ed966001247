"""Delays of work that may wait: placeholder progress, probes and hand-overs.

A status that other components act on is written at once.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from berth_core import Pod, Reservation, ReservationPhase, ReservationStatus, SlotState
from berth_operator.reservation.pod_state import has_started
from berth_operator.reservation.slots import is_starting
from berth_operator.schedulers.kube_scheduler import SCHEDULER

PATIENCE_SECONDS: Final = 0.5
"""Minimum lag of the status of a Reservation that is not Available yet."""

LONGEST_PATIENCE_SECONDS: Final = 15.0
"""The maximum, whatever the load: acting comes before reporting."""

LONGEST_PATIENCE_OF_MANY_SECONDS: Final = 45.0
"""So much more beside hundreds of others: most are Available by then, and report nothing else."""

_PATIENCE_PER_LATENESS: Final = 10.0
_PATIENCE_PER_USUAL_TIME: Final = 2.0
_PATIENCE_PER_OTHER: Final = 0.02
"""For each other Reservation that is under way."""
_PATIENCE_PER_OF_MANY: Final = 0.1
"""For each that is under way beyond `_MANY_ON_THE_WAY`."""
_WEIGHT_OF_NEWS: Final = 0.1
_BEHIND_SECONDS: Final = 0.3
"""When workers are this late, places are taken first and probed later."""
_MANY_ON_THE_WAY: Final = 50
_LONGEST_UNPROVEN_SECONDS: Final = 30.0
_START_SECONDS: Final = 1.0
"""Between two reconciles of a Reservation whose placeholders are starting: each step is an event."""

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
        self._unproven_since: dict[str, float] = {}
        self._reconciled_at: dict[str, float] = {}
        self._usual_seconds = 0.0
        """How long recent Reservations took to become Available while their status waited."""

    def status_delay(self, uid: str, prior: ReservationStatus, status: ReservationStatus) -> float:
        """Return how many seconds a status may still wait.

        0 means that it is due now.
        """
        now = time.monotonic()
        with self._lock:
            if prior == status or not may_wait(prior, status):
                self._learn(now - self._since.pop(uid, now), status)
                return 0.0
            seconds_left = self._since.setdefault(uid, now) + self._patience() - now
            if seconds_left <= 0:
                del self._since[uid]
            return max(0.0, seconds_left)

    def reconcile_delay(self, uid: str, *, only_starts: bool) -> float:
        """Return how many seconds a reconcile may still wait.

        0 means that it is due now.
        """
        now = time.monotonic()
        with self._lock:
            if not only_starts:
                self._reconciled_at.pop(uid, None)
                return 0.0
            seconds_left = self._reconciled_at.get(uid, -_START_SECONDS) + _START_SECONDS - now
            if seconds_left <= 0:
                self._reconciled_at[uid] = now
            return max(0.0, seconds_left)

    def _learn(self, took_seconds: float, status: ReservationStatus) -> None:
        """Record how long a Reservation took to become Available."""
        if took_seconds and status.state is not None and status.state.phase is ReservationPhase.AVAILABLE:
            self._usual_seconds += _WEIGHT_OF_NEWS * (took_seconds - self._usual_seconds)

    def _patience(self) -> float:
        """Return how many seconds statuses may wait.

        They wait longer on a slow cluster, beside many others or when late.
        """
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
        """Return whether a Reservation may be probed now.

        None waits more than 30 seconds.
        """
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


# --- fair sharing ----------------------------------------------------------------------------------------------------
# When a hand-over may begin: a fair share of all under way, and a pause after failures.
#
# A hand-over that no scheduler completes keeps its node guarded for its whole time. The pods of one namespace, which
# may be unschedulable, must neither take all turns nor keep nodes guarded most of the time:
#
#     share   a namespace has at most as many slots change hands as it leaves to the others
#     pause   after failures the next one waits as long as they took, and twice as long each time in a row
#     node    on a node where hand-overs failed it waits three times as long as they kept it guarded, one by one
#
# A namespace without recent failures waits only for its share. The record is in memory only: losing it costs one
# more failed hand-over.

_LONGEST_PAUSE_SECONDS: Final = 300.0
_LONGEST_NODE_PAUSE_SECONDS: Final = 1200.0
_NODE_PAUSE_PER_GUARD: Final = 3.0
_REMEMBERED_SECONDS: Final = 900.0
"""How long failures count after the end of the last pause."""
_MOST_DOUBLINGS: Final = 10
_ONE_BY_ONE_SECONDS: Final = 1.0
"""Delay while a hand-over of such a namespace is under way on the node."""

_SlotKey = tuple[str, str, int]
"""Uid of a Reservation, task and index."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A hand-over under way."""

    namespace: str
    node: str
    since: float
    owner: str
    """Uid of the pod; one that takes several slots is in one hand-over."""


@dataclass(frozen=True, slots=True)
class _Failures:
    """The failed hand-overs of a namespace."""

    in_a_row: int
    last_end: float
    free_from: float


def has_share(namespace: str, under_way: Mapping[str, int], at_once: int) -> bool:
    """Return whether a namespace may have one more hand-over under way; `under_way` counts slots.

    A pod that takes several slots may go beyond the share: it would never have its turn if it needs more.
    """
    return under_way.get(namespace, 0) < at_once - sum(under_way.values())


class FairSharing:
    """Delays hand-overs by the results of earlier ones; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[_SlotKey, _Begun] = {}
        self._failures: dict[str, _Failures] = {}
        self._nodes: dict[str, float] = {}
        """Node to when namespaces with failures may use it again."""

    def observe(self, reservation: Reservation, status: ReservationStatus) -> None:
        """Record the progress of a Reservation's hand-overs."""
        uid, namespace = reservation.metadata.uid, reservation.metadata.namespace
        ended: list[tuple[_Begun, bool]] = []
        with self._lock:
            for slot in status.slots:
                key = (uid, slot.task, slot.index)
                has_its_owner = slot.state is SlotState.TAKEN or is_starting(slot)
                if slot.state is SlotState.HANDING_OVER and not has_its_owner:
                    begun = self._begun.get(key)
                    since = self._clock() if begun is None else begun.since
                    owner = slot.owner.uid if slot.owner is not None else f"{slot.task}/{slot.index}"
                    self._begun[key] = _Begun(namespace, slot.node, since, owner)
                elif key in self._begun:
                    ended.append((self._begun.pop(key), not has_its_owner))
            self._end_each(ended)

    def forget(self, uid: str) -> None:
        """Count the hand-overs of a deleted Reservation as failed."""
        with self._lock:
            self._end_each([(self._begun.pop(key), True) for key in list(self._begun) if key[0] == uid])

    def delay(self, namespace: str, node: str) -> float:
        """Return the seconds until a namespace may hand over on a node."""
        now = self._clock()
        with self._lock:
            record = self._failures_of(namespace, now)
            if record is None:
                return 0.0
            if any(
                handover.node == node and self._failures_of(handover.namespace, now)
                for handover in self._begun.values()
            ):
                return _ONE_BY_ONE_SECONDS
            return max(0.0, record.free_from - now, self._nodes.get(node, now) - now)

    def _end_each(self, ended: Iterable[tuple[_Begun, bool]]) -> None:
        """End slots' hand-overs, each with whether it failed; those of one pod count once."""
        for begun, failed in {(begun.owner, failed): (begun, failed) for begun, failed in ended}.values():
            self._end(begun, failed=failed)

    def _end(self, begun: _Begun, *, failed: bool) -> None:
        now = self._clock()
        record = self._failures_of(begun.namespace, now)
        if not failed:
            if record is not None:
                self._failures[begun.namespace] = _Failures(record.in_a_row - 1, record.last_end, record.free_from)
            return
        seconds = now - begun.since
        in_a_row = 1 if record is None else record.in_a_row
        if record is not None and begun.since >= record.last_end:
            in_a_row += 1  # it began after the earlier ones had failed, not beside them
        pause = min(seconds * 2 ** min(in_a_row - 1, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
        free_from = max(now + pause, record.free_from if record is not None else 0.0)
        self._failures[begun.namespace] = _Failures(max(1, in_a_row), now, free_from)
        node_pause = min(seconds * _NODE_PAUSE_PER_GUARD, _LONGEST_NODE_PAUSE_SECONDS)
        self._nodes = {node_name: paused_until for node_name, paused_until in self._nodes.items() if paused_until > now}
        self._nodes[begun.node] = max(now + node_pause, self._nodes.get(begun.node, now))

    def _failures_of(self, namespace: str, now: float) -> _Failures | None:
        """Return the failures that still count, and forget the others."""
        record = self._failures.get(namespace)
        if record is not None and (record.in_a_row <= 0 or now >= record.free_from + _REMEMBERED_SECONDS):
            del self._failures[namespace]
            return None
        return record
