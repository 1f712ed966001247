"""Owns the reasons for what `Consolidate` left: why each node was not freed, and which pod stands in the way.

It does not own the bounds that some of the reasons rest on.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from berth_core.resources import PODS
from berth_descheduler.planner.blockers import Blockers
from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.packing.columns import Columns
from berth_descheduler.planner.problems import Problem
from berth_descheduler.planner.quality import Quality
from berth_descheduler.planner.refusing_nodes import RefusingNodes
from berth_descheduler.planner.sources import Sources
from berth_descheduler.planner.state import State
from berth_descheduler.refusals import Refusal, RefusalReason, Refused

_MOST_ASKED: Final = 2_000_000
"""So often is asked about a pod and a node; after that nodes get the general reason."""

_STAYS_EMPTY: Final = Refusal(RefusalReason.ALREADY_EMPTY, "is empty and stays so")


def why_not_freed(
    problem: Problem, state: State, columns: Columns, sources: Sources, outcome: tuple[frozenset[NodeIndex], Quality]
) -> tuple[Refused, ...]:
    """Return why each node that was not freed was not, and for the pods that keep it so, why they stay.

    `state` is after the moves; `outcome` is what was freed and how good that is. A pod that is not named stays because
    its node does.
    """
    return tuple(sorted(_Reasons(problem, state, columns, sources, outcome).all()))


class _Reasons:
    """The reasons after one plan."""

    def __init__(
        self,
        problem: Problem,
        state: State,
        columns: Columns,
        sources: Sources,
        outcome: tuple[frozenset[NodeIndex], Quality],
    ) -> None:
        self._problem = problem
        self._state = state
        self._columns = columns
        self._sources = sources
        self._freed, self._quality = outcome
        self._why_kind: dict[int, Refusal | None] = {}
        self._asks_left = _MOST_ASKED
        self._blockers = Blockers(state)
        self._targets = [node for node in range(columns.nodes) if NodeIndex(node) not in self._freed]

    def all(self) -> Iterable[Refused]:
        """Yield every reason."""
        for node, refusal in self._sources.refusals.items():
            if refusal.reason is RefusalReason.NO_TARGET:
                yield from self._stuck(node, refusal)
            else:
                yield self._of_node(node, refusal)
                yield from self._immovable(node)
        for node in self._sources.to_empty:
            if node not in self._freed:
                yield from self._left(node)

    def _immovable(self, node: NodeIndex) -> Iterable[Refused]:
        for pod in self._problem.pods_to_move(node):
            if pod in self._problem.pod_refusals:
                yield self._of_pod(pod, self._problem.pod_refusals[pod])

    def _stuck(self, node: NodeIndex, refusal: Refusal) -> Iterable[Refused]:
        """Yield why a node that no plan can empty cannot be, and which pod fits on no other node."""
        blocked = self._blocked(node)
        yield from blocked or (self._of_node(node, refusal),)

    def _left(self, node: NodeIndex) -> Iterable[Refused]:
        """Yield why a node that might have been emptied was not."""
        pods = self._sources.pods_of[node]
        left = self._moves_left()
        if left is not None and len(pods) > left:
            text = f"{len(pods)} moves are needed and {left} are left"
            yield self._of_node(node, Refusal(RefusalReason.MOVE_LIMIT, text))
            return
        here = [pod for pod in pods if self._state.node_of[pod] == node]
        yield from self._blocked(node) or (self._of_node(node, self._why_not_together(len(here))),)

    def _blocked(self, node: NodeIndex) -> tuple[Refused, ...]:
        """Return the largest pod of a node that fits nowhere now and the node, each with the reason; or nothing."""
        here = [pod for pod in self._problem.pods_to_move(node) if self._state.node_of[pod] == node]
        for pod in sorted(here, key=self._size, reverse=True):
            blocked = self._why_nowhere(pod)
            if blocked is not None:
                key = self._problem.cluster.pods[pod].pod.key
                of_node = replace(blocked, message=f"pod {key} finds no target: {blocked.message}", blocking_pod=key)
                return self._of_pod(pod, blocked), self._of_node(node, of_node)
        return ()

    def _why_not_together(self, pods: int) -> Refusal:
        name = self._problem.cluster.resources[self._columns.binding]
        if self._quality.proven_optimal:
            text = f"no plan frees more than {self._quality.upper_bound} nodes"
            return Refusal(RefusalReason.BOUND_REACHED, text)
        if self._quality.out_of_time:
            text = f"the time limit ended the search; at most {self._quality.gap} more nodes could be freed"
            return Refusal(RefusalReason.TIME_LIMIT, text)
        text = f"each of its {pods} pods fits somewhere, but not all of them together; {name} is the scarcest"
        return Refusal(RefusalReason.NO_ROOM_TOGETHER, text, resource=name)

    def _moves_left(self) -> int | None:
        limit = self._problem.settings.max_moves
        return None if limit is None else limit - self._state.mark()

    def _size(self, pod: PodIndex) -> tuple[int, int]:
        return int(self._columns.size[self._columns.pod_kind[pod]]), -pod

    def _why_nowhere(self, pod: PodIndex) -> Refusal | None:
        """Return why a pod fits nowhere now, None if it does; one answer for all pods alike that stand alone."""
        kind = int(self._columns.pod_kind[pod])
        if self._columns.tied[kind]:
            return self._ask(pod) if self._asks_left > 0 else None
        if kind not in self._why_kind:
            self._why_kind[kind] = self._ask(pod)
        return self._why_kind[kind]

    def _ask(self, pod: PodIndex) -> Refusal | None:
        home = self._state.node_of[pod]
        refusing = RefusingNodes(pod)
        empty = frozenset(self._sources.empty)
        for target in self._targets:
            if target == home:
                continue
            self._asks_left -= 1
            refusal = self._state.refusal(pod, NodeIndex(target))
            if refusal is None and target not in empty:
                return None
            refusing.count(NodeIndex(target), refusal or _STAYS_EMPTY)
        text = f"{self._asked(pod)} {refusing.in_words() or 'there is no other node'}"
        return refusing.summary(text, self._blockers)

    def _asked(self, pod: PodIndex) -> str:
        amounts = self._problem.cluster.amounts_of(pod).to_quantities()
        asked = ", ".join(f"{name} {amount}" for name, amount in amounts.items() if name != PODS)
        return f"asks for {asked or 'no resources'}:"

    def _of_node(self, node: NodeIndex, refusal: Refusal) -> Refused:
        return Refused.of_node(self._problem.cluster.node_name(node), refusal)

    def _of_pod(self, pod: PodIndex, refusal: Refusal) -> Refused:
        placed = self._problem.cluster.pods[pod]
        meta = placed.pod.metadata
        return Refused.of_pod(self._problem.cluster.node_name(placed.node), meta.namespace, meta.name, refusal)
