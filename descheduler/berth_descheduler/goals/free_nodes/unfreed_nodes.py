"""Says why each node was not freed, and which pod stands in the way."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from berth_core import PODS, Deadline, is_over, readable_quantities
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, Quality, State
from berth_descheduler.planner.explanations import Blockers, NodeRefusalSummary
from berth_descheduler.planner.problem import Sources
from berth_descheduler.planner.solver import PackingModel
from berth_descheduler.planner.weights import format_weight

_MOST_ASKED: Final = 2_000_000
"""The most checks of a pod on a node; after that nodes get the general reason."""

_ASKED_LATE: Final = 2_000
"""The most checks after the time limit."""

_STAYS_EMPTY: Final = Refusal(RefusalReason.ALREADY_EMPTY, "is empty and stays so")


class UnfreedNodes:
    """Explains why nodes were not freed, and why blocking pods stay.

    The state is that after the moves; `outcome` is what was freed and how good that is. A pod that is not named stays
    because its node does. Little is asked after the deadline; the nodes that are left get the time limit as their
    reason.
    """

    def __init__(
        self,
        problem: Problem,
        state: State,
        packing: PackingModel,
        sources: Sources,
        outcome: tuple[frozenset[NodeIndex], Quality],
        deadline: Deadline,
    ) -> None:
        self._problem = problem
        self._state = state
        self._packing = packing
        self._sources = sources
        self._freed, self._quality = outcome
        self._why_kind: dict[int, Refusal | None] = {}
        self._asks_left = _MOST_ASKED
        self._deadline = deadline
        self._is_late = False
        self._left_out = False
        self._blockers = Blockers(state)
        self._empty = frozenset(sources.empty) - {step.target for step in state.steps}
        self._targets = [node for node in range(packing.nodes) if NodeIndex(node) not in self._freed]

    def explain(self) -> tuple[Refused, ...]:
        """Return every reason, sorted."""
        return tuple(sorted(self._reasons()))

    def _reasons(self) -> Iterable[Refused]:
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
        """Yield why no plan can empty a node, with the pod that fits on no other node, if there is one."""
        blocked = self._blocked(node)
        yield from blocked or (self._of_node(node, refusal),)

    def _left(self, node: NodeIndex) -> Iterable[Refused]:
        """Yield why a node that might have been emptied was not."""
        pods = self._sources.pods_of[node]
        moves_left = self._moves_left()
        if moves_left is not None and len(pods) > moves_left:
            text = f"{len(pods)} moves are needed and {moves_left} are left"
            yield self._of_node(node, Refusal(RefusalReason.MOVE_LIMIT, text))
            return
        pods_here = [pod for pod in pods if self._state.node_of[pod] == node]
        self._left_out = False
        blocked = self._blocked(node)
        yield from blocked or (self._of_node(node, self._why_not_together(len(pods_here))),)

    def _blocked(self, node: NodeIndex) -> tuple[Refused, ...]:
        """Return why the largest pod that fits nowhere blocks its node: the refusals of both; () if every pod fits."""
        pods_here = [pod for pod in self._problem.pods_to_move(node) if self._state.node_of[pod] == node]
        # The largest is the likeliest to fit nowhere, and one such pod is reason enough.
        for pod in sorted(pods_here, key=self._size, reverse=True):
            blocked = self._why_nowhere(pod)
            if blocked is not None:
                key = self._problem.cluster.pods[pod].pod.key
                of_node = replace(blocked, message=f"pod {key} finds no target: {blocked.message}", blocking_pod=key)
                return self._of_pod(pod, blocked), self._of_node(node, of_node)
        return ()

    def _why_not_together(self, pods: int) -> Refusal:
        name = self._problem.cluster.resources[self._packing.binding]
        if self._quality.reaches_bound:
            weight = self._quality.weight
            upper_bound = (
                f"{self._quality.upper_bound} nodes"
                if weight is None
                else f"{format_weight(weight.upper_bound)} an hour"
            )
            text = f"no plan{self._quality.bounded_plans} frees more than {upper_bound}"
            return Refusal(RefusalReason.BOUND_REACHED, text)
        if self._left_out:
            text = "the time limit ended before it was asked where all of its pods fit"
            return Refusal(RefusalReason.TIME_LIMIT, text)
        if self._quality.out_of_time:
            text = f"the time limit ended the search; at most {self._quality.gap} more nodes could be freed"
            return Refusal(RefusalReason.TIME_LIMIT, text)
        text = f"each of its {pods} pods fits somewhere, but not all of them together; {name} is the scarcest"
        return Refusal(RefusalReason.NO_ROOM_TOGETHER, text, resource=name)

    def _moves_left(self) -> int | None:
        limit = self._problem.settings.limits.max_moves
        return None if limit is None else limit - self._state.mark()

    def _size(self, pod: PodIndex) -> tuple[int, int]:
        return int(self._packing.size[self._packing.pod_kind[pod]]), -pod

    def _why_nowhere(self, pod: PodIndex) -> Refusal | None:
        """Return why a pod fits nowhere now, None if it fits; pods alike that depend on no others share one answer."""
        kind = int(self._packing.pod_kind[pod])
        if kind in self._why_kind:
            return self._why_kind[kind]
        if not self._may_ask():
            self._left_out = True
            return None
        refusal = self._ask(pod)
        # What other pods forbid one pod they need not forbid another of its kind, for instance on the node where that
        # runs.
        if not self._packing.dependent[kind]:
            self._why_kind[kind] = refusal
        return refusal

    def _may_ask(self) -> bool:
        if not self._is_late and is_over(self._deadline):
            self._is_late, self._asks_left = True, min(self._asks_left, _ASKED_LATE)
        return self._asks_left > 0

    def _ask(self, pod: PodIndex) -> Refusal | None:
        home = self._state.node_of[pod]
        refusing = NodeRefusalSummary(pod)
        for target in self._targets:
            if target == home:
                continue
            self._asks_left -= 1
            refusal = self._state.refusal(pod, NodeIndex(target))
            if refusal is None and target not in self._empty:
                return None
            refusing.count(NodeIndex(target), refusal or _STAYS_EMPTY)
        text = f"{self._asked(pod)} {refusing.in_words() or 'there is no other node'}"
        return refusing.summary(text, self._blockers)

    def _asked(self, pod: PodIndex) -> str:
        amounts = readable_quantities(self._problem.cluster.amounts_of(pod))
        requested = ", ".join(f"{name} {amount}" for name, amount in amounts.items() if name != PODS)
        return f"asks for {requested or 'no resources'}:"

    def _of_node(self, node: NodeIndex, refusal: Refusal) -> Refused:
        return Refused.of_node(self._problem.cluster.node_name(node), refusal)

    def _of_pod(self, pod: PodIndex, refusal: Refusal) -> Refused:
        placed_pod = self._problem.cluster.pods[pod]
        meta = placed_pod.pod.metadata
        return Refused.of_pod(self._problem.cluster.node_name(placed_pod.node), meta.namespace, meta.name, refusal)
