"""Owns which controllers have to wait: those of whose pods earlier waves took more away than are Ready again.

It does not own the pods of one controller within a wave: their places are counted by `facts`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from berth_core.migration_plans import MoveReason, MoveState
from berth_descheduler.execution.facts import Kinship, MoveProgress, kin_of
from berth_descheduler.execution.moves import Eviction
from berth_descheduler.execution.observation import Observed

_PAUSE_SECONDS: Final = 0.2
"""Between two counts of the pods of the controllers, which are all to be gone through for it."""

_AFTER_EVICTION = frozenset({MoveReason.REPLACEMENT_TIMEOUT, MoveReason.INTERRUPTED, MoveReason.ABORTED})


class Siblings:
    """Counts for one run of a plan; `known` are the uids of the pods that were there before it."""

    def __init__(self, moves: Sequence[MoveProgress], *, since: str, known: Collection[str]) -> None:
        self._moves = moves
        self._since = since
        self._known = known
        self._unready: frozenset[Kinship] = frozenset()
        self._wave = -1
        self._until = 0.0

    def unready(self, wave: int, observed: Observed, now: float) -> frozenset[Kinship]:
        """Return the controllers that a wave has to wait for; counted anew with each wave, and now and then in it."""
        if now >= self._until or self._wave != wave:
            self._until, self._wave = now + _PAUSE_SECONDS, wave
            waiting = {one.kin for one in self._moves if one.move.wave == wave and not one.finished}
            earlier = (one for one in self._moves if one.move.wave < wave and one.kin in waiting)
            self._unready = find_unready(earlier, observed, since=self._since, known=self._known)
        return self._unready


def find_unready(
    earlier: Iterable[MoveProgress], observed: Observed, *, since: str, known: Collection[str]
) -> frozenset[Kinship]:
    """Return the controllers with fewer Ready pods made for this plan than the earlier moves took Ready pods away.

    Made for it is what was created since then (RFC 3339) and not known, by its uid, when the run began.
    """
    taken = Counter(one.kin for one in earlier if one.was_ready and _took_its_pod_away(one))
    if not taken:
        return frozenset()
    ready: Counter[Kinship] = Counter()
    for uid, pod in observed.pods.items():
        lives = pod.status.phase == "Succeeded" or (pod.is_ready and not pod.is_terminating)
        if lives and uid not in known and (pod.metadata.creation_timestamp or "") >= since:
            ready[kin_of(pod)] += 1
    return frozenset(kin for kin, count in taken.items() if ready[kin] < count)


def _took_its_pod_away(progress: MoveProgress) -> bool:
    """Tell whether a move that is over has taken its pod away, in this run or in one before it."""
    status = progress.status
    if not progress.finished or status.state is MoveState.SKIPPED:
        return False
    if status.state in {MoveState.LANDED, MoveState.ELSEWHERE} or progress.eviction is Eviction.SENT:
        return True
    return bool(status.replacement) or status.reason in _AFTER_EVICTION
