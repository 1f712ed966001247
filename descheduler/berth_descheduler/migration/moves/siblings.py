"""Controllers that have to wait while fewer of their pods are Ready again than earlier waves evicted."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from berth_core import MoveReason, MoveState
from berth_descheduler.migration.moves.memory import Eviction, MoveMemory, OwnerKey
from berth_descheduler.migration.plans.watch import ObservedPlan, owner_key

_PAUSE_SECONDS: Final = 0.2
"""Between two counts of the controllers' pods: each count reads all of them."""

_AFTER_EVICTION: Final = frozenset(
    {MoveReason.REPLACEMENT_TIMEOUT, MoveReason.POD_STAYS, MoveReason.INTERRUPTED, MoveReason.ABORTED}
)


class ReplicaTracker:
    """Tracks controllers with unready replacements; `known` are the uids of the pods before the plan."""

    def __init__(self, moves: Sequence[MoveMemory], *, since: str, known: Collection[str]) -> None:
        self._moves = moves
        self._since = since
        self._known = known
        self._unready: frozenset[OwnerKey] = frozenset()
        self._waves: dict[OwnerKey, int] = {}
        self._until = 0.0

    def unready(self, under_way: Iterable[MoveMemory], observed: ObservedPlan, now: float) -> frozenset[OwnerKey]:
        """Return the controllers that moves under way wait for.

        They are counted anew when a controller comes to its next wave, and at intervals.
        """
        live = (memory for memory in under_way if not memory.finished)
        waves = {memory.replicas: memory.move.wave for memory in sorted(live, key=lambda memory: -memory.move.wave)}
        if now >= self._until or self._waves != waves:
            self._until, self._waves = now + _PAUSE_SECONDS, waves
            earlier_moves = (memory for memory in self._moves if memory.move.wave < waves.get(memory.replicas, 0))
            self._unready = find_unready(earlier_moves, observed, since=self._since, known=self._known)
        return self._unready


def find_unready(
    earlier: Iterable[MoveMemory], observed: ObservedPlan, *, since: str, known: Collection[str]
) -> frozenset[OwnerKey]:
    """Return the controllers with fewer Ready replacements than Ready pods that the earlier moves evicted.

    A replacement was created after `since` (RFC 3339), and its uid was not known when the run began.
    """
    taken = Counter(memory.replicas for memory in earlier if memory.pod.was_ready and _was_evicted_earlier(memory))
    if not taken:
        return frozenset()
    ready: Counter[OwnerKey] = Counter()
    for uid, pod in observed.pods.items():
        # By uid as well, since creation times have whole seconds: a pod may have come in the very second of the plan.
        if uid in known or (pod.metadata.creation_timestamp or "") < since:
            continue
        # A pod of a Job that is done has done its part; it will never be Ready again.
        if pod.status.phase == "Succeeded" or (pod.is_ready and not pod.is_terminating):
            ready[owner_key(pod)] += 1
    return frozenset(replicas for replicas, count in taken.items() if ready[replicas] < count)


def _was_evicted_earlier(memory: MoveMemory) -> bool:
    """Return whether a finished move evicted its pod, in any run."""
    status = memory.status
    is_unmade = status.reason == MoveReason.REPLACEMENT_GONE and not status.replacement
    if not memory.finished or status.state is MoveState.SKIPPED or memory.move.is_eviction or is_unmade:
        return False  # a pod without a place may wait for long, and one that is not made again for ever
    if status.state in {MoveState.LANDED, MoveState.ELSEWHERE} or memory.pod.answer is Eviction.SENT:
        return True
    return bool(status.replacement) or status.reason in _AFTER_EVICTION
