"""Decides which gated pods queues admit, and in which order.

Within what its queue deserves, pods go by priority, then age. A queue gets more only where that takes nothing from
another one whose next pod waits for a part of its own share; then the queue goes first that has the least of its share
afterwards, as with Volcano's plugin `proportion`.

A queue's first pod that does not fit holds back the later ones of its queue, so that large pods do not starve behind
small ones; other queues go on. One that could never fit holds back nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from typing import Protocol

from berth_core import QueueRoom, ResourceAmounts
from berth_operator.capabilities.queues.places import QueuePod


class Costs(Protocol):
    """What admissions add to what queues use: less where a placeholder holds a pod's place already."""

    def cost(self, pod: QueuePod) -> ResourceAmounts: ...

    def take(self, pod: QueuePod) -> None: ...


@dataclass(slots=True)
class Admission:
    """Who is admitted, and who never could be."""

    admits: list[QueuePod] = field(default_factory=list)
    too_large: list[tuple[QueuePod, str]] = field(default_factory=list)
    is_whole: bool = True
    """Whether no more could be admitted."""


@dataclass(frozen=True, slots=True, order=True)
class _Head:
    """The next pod of a queue, in the order in which queues are asked."""

    is_beyond_share: bool
    share_used: Fraction
    """Afterwards; 0 within the share, where priority and age decide."""
    turn: tuple[int, str, str, str]
    queue: str


def admit(
    waiting: Sequence[QueuePod], queue_of: Mapping[str, str], room: QueueRoom, costs: Costs, most: int
) -> Admission:
    """Return the pods that are admitted now, at most so many; the room shrinks with each one.

    `queue_of` is the queue by namespace.
    """
    admission = Admission()
    lines = {
        queue: _Line(queue, pods, room, costs, admission, most) for queue, pods in _by_queue(waiting, queue_of).items()
    }
    heads: list[_Head] = []
    contested: frozenset[str] = frozenset()
    """What pods wait for that are within the share of their queue."""
    for line in lines.values():
        _push(heads, line.head())
    while heads:
        if len(admission.admits) >= most:
            admission.is_whole = False
            break
        head = heappop(heads)
        line = lines[head.queue]
        pod, cost = line.first
        if room.lacking(head.queue, cost):
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
        heappush(heads, head)


def _by_queue(waiting: Sequence[QueuePod], queue_of: Mapping[str, str]) -> dict[str, list[QueuePod]]:
    """Return the pods of each queue in their order."""
    pods_by_queue: dict[str, list[QueuePod]] = {}
    for pod in sorted(waiting, key=lambda pod: pod.turn):
        pods_by_queue.setdefault(queue_of[pod.namespace], []).append(pod)
    return pods_by_queue


class _Line:
    """The pods of a queue that wait, in their order."""

    def __init__(
        self, queue: str, pods: Sequence[QueuePod], room: QueueRoom, costs: Costs, admission: Admission, most: int
    ) -> None:
        self._queue = queue
        self._most = most
        self._room = room
        self._costs = costs
        self._admission = admission
        self._limited = self._pass_others(pods)
        self.first: tuple[QueuePod, ResourceAmounts]
        """The next pod, and what its admission adds to what the queue uses."""

    def head(self) -> _Head | None:
        """Go on to the next pod that has to wait for room; return None at the end."""
        following = next(self._limited, None)
        if following is None:
            return None
        self.first = pod, cost = following
        is_beyond_share = bool(self._room.beyond_share(self._queue, cost))
        share_used = self._room.share_used(self._queue, cost) if is_beyond_share else Fraction(0)
        return _Head(is_beyond_share, share_used, pod.turn, self._queue)

    def admit(self, pod: QueuePod, cost: ResourceAmounts) -> None:
        self._room.take(self._queue, cost)
        self._costs.take(pod)
        self._admission.admits.append(pod)

    def stop(self) -> None:
        """Hold back the rest, but for pods that nothing limits."""
        for _ in self._limited:
            pass

    def _pass_others(self, pods: Sequence[QueuePod]) -> Iterator[tuple[QueuePod, ResourceAmounts]]:
        """Yield the pods that need room; admit on the way those that nothing limits, and note those too large."""
        for pod in pods:
            if len(self._admission.admits) >= self._most:
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
