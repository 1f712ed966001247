"""Decides when a hand-over may begin, by fair shares of those under way and a pause after failures.

A hand-over that no scheduler completes keeps its node guarded for its whole time. The pods of one namespace, which may
be unschedulable, must neither take all turns nor keep nodes guarded most of the time:

    share   a namespace has at most as many slots change hands as it leaves to the others
    pause   after failures the next one waits as long as they took, and twice as long each time in a row
    node    on a node where hand-overs failed it waits three times as long as they kept it guarded, one by one

A namespace without recent failures waits only for its share. The record is in memory only: losing it costs one more
failed hand-over.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from berth_core import Reservation, ReservationStatus, SlotState
from berth_operator.reservation.slots import is_starting

_LONGEST_PAUSE_SECONDS: Final = 300.0
_LONGEST_NODE_PAUSE_SECONDS: Final = 1200.0
_NODE_PAUSE_PER_GUARD: Final = 3.0
_REMEMBERED_SECONDS: Final = 900.0
"""How long failures count after the end of the last pause."""
_MAX_DOUBLINGS: Final = 10
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
    """Return whether a namespace may have one more hand-over under way; `under_way` counts slots."""
    # The slots of the next pod do not count: one that needs more than the share would never have its turn.
    return under_way.get(namespace, 0) < at_once - sum(under_way.values())


class FairSharing:
    """Delays hand-overs by the results of earlier ones; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[_SlotKey, _Begun] = {}
        self._failures: dict[str, _Failures] = {}
        self._nodes: dict[str, float] = {}
        """Node to the time from which namespaces with failures may use it again."""

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
        """End the hand-overs of slots, given with whether each failed; those of one pod count once."""
        for begun, failed in {(begun.owner, failed): (begun, failed) for begun, failed in ended}.values():
            self._end(begun, failed=failed)

    def _end(self, begun: _Begun, *, failed: bool) -> None:
        now = self._clock()
        record = self._failures_of(begun.namespace, now)
        if not failed:
            if record is not None:
                self._failures[begun.namespace] = _Failures(record.in_a_row - 1, record.last_end, record.free_from)
            return
        # The pause grows with what the failure cost: a hand-over that held a guard for a minute is paid for with a
        # longer pause than one that failed at once.
        seconds = now - begun.since
        in_a_row = 1 if record is None else record.in_a_row
        if record is not None and begun.since >= record.last_end:
            in_a_row += 1  # it began after the earlier ones had failed, not beside them
        pause = min(seconds * 2 ** min(in_a_row - 1, _MAX_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
        free_from = max(now + pause, record.free_from if record is not None else 0.0)
        self._failures[begun.namespace] = _Failures(max(1, in_a_row), now, free_from)
        node_pause = min(seconds * _NODE_PAUSE_PER_GUARD, _LONGEST_NODE_PAUSE_SECONDS)
        # Expired entries go here, as nothing else would ever remove those of nodes that are gone.
        self._nodes = {node_name: paused_until for node_name, paused_until in self._nodes.items() if paused_until > now}
        self._nodes[begun.node] = max(now + node_pause, self._nodes.get(begun.node, now))

    def _failures_of(self, namespace: str, now: float) -> _Failures | None:
        """Return the failures that still count, and forget the others."""
        record = self._failures.get(namespace)
        if record is not None and (record.in_a_row <= 0 or now >= record.free_from + _REMEMBERED_SECONDS):
            del self._failures[namespace]
            return None
        return record
