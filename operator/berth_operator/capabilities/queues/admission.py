"""Decides which gated pods queues admit, and in which order.

Pods within what their queue deserves go by priority, then by age. A queue gets more than that only where it takes
nothing from another one whose next pod waits for a part of its own share. Among several such queues the one comes first
that uses the smallest part of its share afterwards, which is the order of Volcano's plugin `proportion` (`QueueOrderFn`
in `pkg/scheduler/plugins/proportion/proportion.go`).

The first pod of a queue that does not fit holds back the later ones of that queue, as with Kueue's `StrictFIFO`, so
that large pods do not starve behind small ones; other queues go on. A pod that could never fit holds back nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from typing import Protocol

from berth_core import QueueRoom, ResourceAmounts
from berth_operator.capabilities.queues.places import QueuePod


class Costs(Protocol):
    """What admissions add to what queues use."""

    def cost(self, pod: QueuePod) -> ResourceAmounts:
        """Return what the admission of a pod adds: less if a placeholder holds its place already."""

    def take(self, pod: QueuePod) -> None:
        """Count a pod as admitted."""


@dataclass(slots=True)
class QueueAdmission:
    """Which pods are admitted, and which could never be."""

    admits: list[QueuePod] = field(default_factory=list)
    too_large: list[tuple[QueuePod, str]] = field(default_factory=list)
    """Each with the reason."""
    is_whole: bool = True
    """Whether all pods that fit are among those admitted."""


@dataclass(frozen=True, slots=True, order=True)
class _Head:
    """The next pod of a queue, in the order in which queues are asked."""

    is_beyond_share: bool
    share_used: Fraction
    """The fraction of the queue's share in use after the admission, or 0 within it, where priority and age decide."""
    turn: tuple[int, str, str, str]
    queue: str


def admit(
    waiting: Sequence[QueuePod], queue_of: Mapping[str, str], room: QueueRoom, costs: Costs, limit: int
) -> QueueAdmission:
    """Return the pods to admit now, no more than `limit`; `room` shrinks with each.

    `queue_of` has the name of the queue by namespace.
    """
    admission = QueueAdmission()
    lines = {
        queue: _Line(queue, pods, room, costs, admission, limit) for queue, pods in _by_queue(waiting, queue_of).items()
    }
    heads: list[_Head] = []
    contested: frozenset[str] = frozenset()
    """Resources for which pods wait that are within the share of their queue."""
    for line in lines.values():
        _push(heads, line.head())
    while heads:
        if len(admission.admits) >= limit:
            admission.is_whole = False
            break
        head = heappop(heads)
        line = lines[head.queue]
        pod, cost = line.first
        if room.lacking(head.queue, cost):
            # What keeps a pod out that is within its queue's share is the borrowing of others: they must not borrow
            # more of it.
            if not head.is_beyond_share and not room.is_capped(head.queue, cost):
                contested |= frozenset(cost)
            line.stop()
        elif room.beyond_share(head.queue, cost) & contested:
            line.stop()
        else:
            line.admit(pod, cost)
            _push(heads, line.head())
    return admission


def _push(heads: list[_Head], head: _Head | None) -> None:
    if head is not None:
        # Only the heads are compared: a heap of queues instead of a sort of all pods, as in Volcano's allocate action.
        heappush(heads, head)


def _by_queue(waiting: Sequence[QueuePod], queue_of: Mapping[str, str]) -> dict[str, list[QueuePod]]:
    """Return the pods of each queue in the order in which they are admitted."""
    pods_by_queue: dict[str, list[QueuePod]] = {}
    for pod in sorted(waiting, key=lambda pod: pod.turn):
        pods_by_queue.setdefault(queue_of[pod.namespace], []).append(pod)
    return pods_by_queue


class _Line:
    """The waiting pods of a queue, in the order in which they are admitted."""

    def __init__(
        self, queue: str, pods: Sequence[QueuePod], room: QueueRoom, costs: Costs, admission: QueueAdmission, limit: int
    ) -> None:
        self._queue = queue
        self._limit = limit
        self._room = room
        self._costs = costs
        self._admission = admission
        self._limited = self._pass_others(pods)
        self.first: tuple[QueuePod, ResourceAmounts]
        """The next pod, and what its admission adds to what the queue uses."""

    def head(self) -> _Head | None:
        """Go on to the next pod that needs room, and return its place among the queues; None at the end."""
        next_pod = next(self._limited, None)
        if next_pod is None:
            return None
        self.first = pod, cost = next_pod
        is_beyond_share = bool(self._room.beyond_share(self._queue, cost))
        share_used = self._room.share_used(self._queue, cost) if is_beyond_share else Fraction(0)
        return _Head(is_beyond_share, share_used, pod.turn, self._queue)

    def admit(self, pod: QueuePod, cost: ResourceAmounts) -> None:
        self._room.take(self._queue, cost)
        self._costs.take(pod)
        self._admission.admits.append(pod)

    def stop(self) -> None:
        """Hold back the rest, except for the pods that nothing limits, which are admitted on the way."""
        for _ in self._limited:
            pass

    def _pass_others(self, pods: Sequence[QueuePod]) -> Iterator[tuple[QueuePod, ResourceAmounts]]:
        """Yield the pods that need room; on the way admit those that nothing limits, and record those too large."""
        for pod in pods:
            if len(self._admission.admits) >= self._limit:
                self._admission.is_whole = False
                return
            cost = self._costs.cost(pod)
            if not self._room.limited(self._queue, cost):
                self.admit(pod, cost)
            elif excess := self._room.never_fits(self._queue, cost):
                text = f"asks for more {' and '.join(excess)} than queue {self._queue} may ever use"
                self._admission.too_large.append((pod, text))
            else:
                yield pod, cost
