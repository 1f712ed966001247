"""Owns the second look at a plan: whether its moves still hold on a snapshot taken later.

It does not own what follows: the executor skips what does not hold and says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from berth_core.migration_plans import MoveReason, PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.problems import Problem
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.state import State
from berth_descheduler.plugins.defragmentation import EvictableNamespaces
from berth_descheduler.refusals import Refusal, RefusalReason


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a planned move does not hold any more."""

    reason: MoveReason
    message: str


def revalidate(
    snapshot: Snapshot,
    moves: Sequence[PlannedMove],
    settings: PlannerSettings | None = None,
    *,
    emptied: Sequence[str] | None = None,
) -> Mapping[int, Invalid]:
    """Return the moves that do not hold on a fresh snapshot, by their position, each with the reason.

    The moves that are still to be made, in order; the snapshot is taken before their places are reserved. A node is
    emptied whole or left alone: with one move of a source all of its moves fall, and so do those of a source that now
    holds something else that has to leave. `emptied` names the sources that are to be emptied (None: all sources); a
    source that is not among them may keep pods. Which namespaces a plan takes pods from was decided when it was made.
    """
    settings = settings or PlannerSettings()
    args = replace(settings.args, evictable_namespaces=EvictableNamespaces())
    return _Review(Problem.from_snapshot(snapshot, replace(settings, args=args)), moves, emptied).run()


class _Review:
    """One second look; falls are found until no more moves fall, as each fall keeps pods where they are."""

    def __init__(self, problem: Problem, moves: Sequence[PlannedMove], emptied: Sequence[str] | None) -> None:
        self._problem = problem
        self._moves = moves
        self._emptied = frozenset((move.source for move in moves) if emptied is None else emptied)
        self._invalid: dict[int, Invalid] = {}
        self._reached: dict[tuple[str, str], str] = {}
        """Where the moves looked at so far bring each pod."""

    def run(self) -> Mapping[int, Invalid]:
        """Return what does not hold."""
        for index, move in enumerate(self._moves):
            self._note(index, self._why_not_movable(move))
            self._reached[move.namespace, move.pod] = move.target
        for source in sorted(self._emptied):
            self._check_source(source)
        while self._walk():
            pass
        return dict(sorted(self._invalid.items()))

    def _note(self, index: int, invalid: Invalid | None) -> None:
        if invalid is not None and index not in self._invalid:
            self._invalid[index] = invalid
            self._fall_with(self._moves[index])
            self._fall_after(index)

    def _fall_with(self, fallen: PlannedMove) -> None:
        """Let every other move of the same source fall, as it cannot be emptied; pods that are gone do not count."""
        if fallen.source not in self._emptied or self._pod(fallen) is None:
            return
        text = f"{fallen.namespace}/{fallen.pod} stays, so {fallen.source} cannot be emptied"
        for index, move in enumerate(self._moves):
            if move.source == fallen.source and not move.stands_alone:
                self._invalid.setdefault(index, Invalid(MoveReason.SOURCE_NOT_EMPTIABLE, text))

    def _fall_after(self, index: int) -> None:
        """Let the later moves of the same pod fall, which would take it from where it never comes to."""
        fallen = self._moves[index]
        for later, move in enumerate(self._moves[index + 1 :], index + 1):
            if (move.namespace, move.pod) == (fallen.namespace, fallen.pod):
                text = f"the pod does not come to {move.source}"
                self._invalid.setdefault(later, Invalid(MoveReason.POD_CHANGED, text))

    def _pod(self, move: PlannedMove) -> PodIndex | None:
        return self._problem.cluster.pod_numbers.get((move.namespace, move.pod))

    def _why_not_movable(self, move: PlannedMove) -> Invalid | None:
        if move.fault is not None:
            return Invalid(MoveReason.INVALID_NAME, str(move.fault))
        cluster = self._problem.cluster
        pod = self._pod(move)
        if pod is None:
            return Invalid(MoveReason.POD_GONE, "the pod is not there any more")
        placed = cluster.pods[pod]
        if move.pod_uid and placed.pod.metadata.uid != move.pod_uid:
            return Invalid(MoveReason.POD_CHANGED, "another pod has the name now")
        place = self._reached.get((move.namespace, move.pod), cluster.node_name(placed.node))
        if place != move.source:
            return Invalid(MoveReason.POD_CHANGED, f"the pod is on {place}")
        refusal = self._problem.pod_refusals.get(pod)
        if refusal is None:
            return None
        budgets = {RefusalReason.BUDGET_EXHAUSTED, RefusalReason.SEVERAL_BUDGETS}
        reason = MoveReason.EVICTION_BLOCKED if refusal.reason in budgets else MoveReason.POD_CHANGED
        return Invalid(reason, refusal.sentences)

    def _check_source(self, source: str) -> None:
        """Let the moves of a source fall that holds a pod which has to leave and is not among the moves."""
        node = self._problem.cluster.node_numbers.get(source)
        if node is None:
            return
        planned = {(move.namespace, move.pod) for move in self._moves if move.source == source}
        for pod in self._problem.pods_to_move(node):
            found = self._problem.cluster.pods[pod].pod
            if (found.metadata.namespace, found.metadata.name) in planned or found.is_terminating:
                continue
            for index, move in enumerate(self._moves):
                if move.source == source and not move.stands_alone:
                    text = f"{found.key} is on {source} now and is not in the plan"
                    self._invalid.setdefault(index, Invalid(MoveReason.SOURCE_NOT_EMPTIABLE, text))
            return

    def _walk(self) -> bool:
        """Make the moves that hold so far, in order; note the first that does not and tell whether there was one."""
        cluster = self._problem.cluster
        sources = {cluster.node_numbers[move.source] for move in self._moves if move.source in cluster.node_numbers}
        state = State(cluster, sources)
        for index, move in enumerate(self._moves):
            pod = self._pod(move)
            if index in self._invalid or pod is None:
                continue
            target = cluster.node_numbers.get(move.target)
            refusal = self._refusal(state, pod, target)
            if refusal is not None or target is None:
                message = refusal.message if refusal else f"{move.target} is not in the cluster any more"
                self._note(index, Invalid(MoveReason.TARGET_UNFIT, message))
                return True
            state.move(pod, target)
        return False

    @staticmethod
    def _refusal(state: State, pod: PodIndex, target: NodeIndex | None) -> Refusal | None:
        return None if target is None else state.refusal(pod, target)
