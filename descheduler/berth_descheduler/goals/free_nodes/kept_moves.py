"""Keeps to the plan before where that costs nothing.

Many plans free as much, and a cluster with one pod fewer would otherwise get quite another one: pods are sent to nodes
that were being emptied, and what was approved is no longer what is planned. So the moves of the plan before are made
first, as far as they are still possible, and the search goes on from there. What comes of it counts if it frees as much
as the plan that knows of none, with few moves more.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from berth_core import Deadline, PlannedMove, is_over
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused, RefusedKind
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, Proposal, Quality, State, Step
from berth_descheduler.planner.problem import find_sources
from berth_descheduler.planner.single_pods import problem_after

Run: TypeAlias = Callable[[Problem, State], Proposal]

_PARTS: Final = (4, 3, 2, 1)
"""So many quarters of the moves before are kept, the first of them, until that frees as much."""

_MORE_MOVES: Final = 3
"""One move in so many may be made beyond those of the plan that knows of none before."""

_FEW_MOVES: Final = 3
"""So many more may always be made."""

_MOST_PLACED: Final = 64
"""The most pods of a node that go elsewhere than before."""

_MOST_ASKED: Final = 256
"""So many nodes with room are asked about one pod, those with least room first."""

_KEPT_TO: Final = Refusal(
    RefusalReason.NOT_NEEDED, "the plan keeps to the one before it, which frees as much without this node"
)


def propose_like(problem: Problem, state: State, run: Run, min_savings: int, deadline: Deadline) -> Proposal:
    """Return a proposal with the moves of the plan before where it frees as much, else the one without regard to them.

    `min_savings` is what each move has to save, in millionths. Its moves are in the state afterwards.
    """
    # Planned without regard to the plan before, too: that is the measure of what keeping to it may cost.
    plain = run(problem, state)
    earlier = problem.settings.run.earlier
    if not earlier or plain.quality is None or not plain.steps:
        return plain
    keeping = _Keeping(problem, state, run, plain, plain.quality, min_savings)
    for quarters in _PARTS:
        # All of the moves are tried even after the deadline: repeating them takes no search, and a plan that changes at
        # every run is what this is against.
        if quarters < _PARTS[0] and is_over(deadline):
            break
        proposal = keeping.propose(earlier[: -(-len(earlier) * quarters // _PARTS[0])])
        if proposal is not None:
            return proposal
    keeping.go_back()
    return plain


@dataclass(frozen=True)
class _Keeping:
    """Tries with moves of the plan before; `plain` knows of none."""

    problem: Problem
    state: State
    run: Run
    plain: Proposal
    plain_quality: Quality
    min_savings: int

    def propose(self, earlier: Sequence[PlannedMove]) -> Proposal | None:
        """Return the proposal that begins with some moves, None if it frees less or takes too many moves."""
        useless: set[NodeIndex] = set()
        for _ in range(2):  # what leaves a node in vain is found out by trying
            proposal, useless = self._try(earlier, useless)
            if not useless:
                return proposal
        return None

    def go_back(self) -> None:
        """Make the moves of the plain proposal in the state."""
        self._make(self.plain.steps)

    def _try(self, earlier: Sequence[PlannedMove], useless: set[NodeIndex]) -> tuple[Proposal | None, set[NodeIndex]]:
        """Return a proposal, and the nodes that pods would leave in vain."""
        steps = self._repeat(earlier, useless)
        if not steps:
            return None, set()
        if self._is_as_good(quality := self._quality(steps)) and not self._left_in_vain(steps):
            return self._proposal(steps, quality), set()
        later_problem = problem_after(self.problem, Proposal(steps, ()), ())
        further = self.run(later_problem, State(later_problem.cluster, find_sources(later_problem).to_take_from))
        all_steps = (*steps, *further.steps)
        self._make(all_steps)
        # A pod that was moved for a node that is not emptied now would be evicted for nothing.
        if in_vain := self._left_in_vain(steps):
            return None, in_vain
        quality = self._quality(all_steps)
        return (self._proposal(all_steps, quality) if self._is_as_good(quality) else None), set()

    def _repeat(self, earlier: Sequence[PlannedMove], useless: set[NodeIndex]) -> tuple[Step, ...]:
        """Return the earlier moves that are still possible, in an order that is."""
        self.state.undo_to(0)
        sources = find_sources(self.problem)
        may_leave, empty = frozenset(sources.to_take_from) - useless, frozenset(sources.empty)
        closed = frozenset[NodeIndex]() if self.problem.weighs_nodes else empty  # what filling one costs is counted
        waiting = list(earlier)
        for _ in range(2):  # room may come later than before
            waiting = [move for move in waiting if not self._repeat_one(move, may_leave, closed)]
        self._finish(empty)
        return self.state.steps

    def _finish(self, empty: frozenset[NodeIndex]) -> None:
        """Place what is left on the nodes that were being emptied, all or none of each; none goes to an empty node."""
        targets = {step.target for step in self.state.steps}
        left = {step.source for step in self.state.steps} - targets
        closed = left | empty
        open_nodes = [NodeIndex(node) for node in range(len(self.problem.cluster.nodes)) if node not in closed]
        limit = self.problem.settings.limits.max_moves
        for node in sorted(left):
            pods = [pod for pod in self.problem.pods_to_move(node) if self.state.node_of[pod] == node]
            mark = self.state.mark()
            is_within = limit is None or mark + len(pods) <= limit
            if not (is_within and len(pods) <= _MOST_PLACED and all(self._place(pod, open_nodes) for pod in pods)):
                self.state.undo_to(mark)

    def _place(self, pod: PodIndex, open_nodes: Sequence[NodeIndex]) -> bool:
        """Move a pod to the node with least room that takes it; return whether there is one."""
        if pod in self.problem.pod_refusals:
            return False
        class_index = self.problem.cluster.pods[pod].class_index
        with_room = [node for node in open_nodes if self.state.fits(class_index, node)]
        with_room.sort(key=lambda node: (self.problem.target_ranks[node], self._free_share(node), node))
        target = next((node for node in with_room[:_MOST_ASKED] if self.state.refusal(pod, node) is None), None)
        if target is None:
            return False
        self.state.move(pod, target)
        return True

    def _free_share(self, node: NodeIndex) -> float:
        """Return what is free of a node, as the sum of its shares of all resources."""
        capacity = self.problem.cluster.capacity[node]
        return sum(free / whole for free, whole in zip(self.state.free[node], capacity, strict=True) if whole > 0)

    def _repeat_one(self, move: PlannedMove, may_leave: frozenset[NodeIndex], closed: frozenset[NodeIndex]) -> bool:
        """Make a move if it is possible; return whether it was."""
        cluster, limit = self.problem.cluster, self.problem.settings.limits.max_moves
        pod, target = cluster.pod_numbers.get((move.namespace, move.pod)), cluster.node_numbers.get(move.target)
        source = cluster.node_numbers.get(move.source)
        if pod is None or target is None or source not in may_leave or target in closed:
            return False
        uid = cluster.pods[pod].pod.metadata.uid
        # A StatefulSet's pod has the name of the one before: by its uid it may be another, which that plan knew nothing
        # of.
        is_same = self.state.node_of[pod] == source and (not move.pod_uid or not uid or move.pod_uid == uid)
        is_within = limit is None or self.state.mark() < limit
        if not is_same or not is_within or pod in self.problem.pod_refusals:
            return False
        if self.state.refusal(pod, target) is not None:
            return False
        self.state.move(pod, target)
        return True

    def _make(self, steps: Sequence[Step]) -> None:
        self.state.undo_to(0)
        for step in steps:
            self.state.move(step.pod, step.target)

    def _left_in_vain(self, steps: Sequence[Step]) -> set[NodeIndex]:
        """Return the nodes that pods leave although they are not emptied, nor make room for pods of those that are.

        Where a pod moves twice, moves can stand in a circle: then nothing but emptying a node is a reason to leave it.
        """
        useful, made = self._emptied(), self.state.steps
        targets_by_source: defaultdict[NodeIndex, set[NodeIndex]] = defaultdict(set)
        for step in made:
            targets_by_source[step.source].add(step.target)
        reached = list(useful) if len({step.pod for step in made}) == len(made) else []
        while reached:
            targets = targets_by_source[reached.pop()] - useful
            useful |= targets
            reached += targets
        return {step.source for step in steps} - useful

    def _emptied(self) -> set[NodeIndex]:
        """Return the nodes that all pods have left which have to, and to which none has come."""
        node_of, arrived = self.state.node_of, {self.state.node_of[step.pod] for step in self.state.steps}
        return {
            node
            for node in find_sources(self.problem).to_empty
            if node not in arrived and all(node_of[pod] != node for pod in self.problem.pods_to_move(node))
        }

    def _quality(self, steps: Sequence[Step]) -> Quality:
        """Return the quality of the moves in the state; bounds hold for all plans, so those of the plain one do."""
        plain, emptied = self.plain_quality, self._emptied()
        weight = plain.weight
        if weight is not None:
            filled = {step.target for step in steps}.intersection(find_sources(self.problem).empty)
            weigh = self.problem.node_weight
            reached_weight = sum(weigh(node) or 0 for node in emptied) - sum(weigh(node) or 0 for node in filled)
            weight = replace(weight, reached=reached_weight, upper_bound=max(weight.upper_bound, reached_weight))
        return replace(
            plain,
            reached=len(emptied),
            upper_bound=max(plain.upper_bound, len(emptied)),
            moves=len(steps),
            fewest_moves=min(plain.fewest_moves, len(steps)),
            weight=weight,
        )

    def _is_as_good(self, quality: Quality) -> bool:
        plain, limit = self.plain_quality, self.problem.settings.limits.max_moves
        moves_allowed = plain.moves + max(_FEW_MOVES, plain.moves // _MORE_MOVES)
        if limit is not None:
            moves_allowed = min(moves_allowed, limit)
        if quality.weight is not None and plain.weight is not None:
            is_worth_it = quality.weight.reached >= max(plain.weight.reached, self.min_savings * quality.moves)
        else:
            is_worth_it = quality.reached >= plain.reached
        return is_worth_it and quality.moves <= moves_allowed

    def _proposal(self, steps: tuple[Step, ...], quality: Quality) -> Proposal:
        """Return the proposal of the moves in the state; what is left has the reason that it has without them."""
        cluster = self.problem.cluster
        freed_nodes = {cluster.node_name(node) for node in self._emptied()}
        moved_keys = {cluster.pods[step.pod].pod.key for step in steps}
        is_node = RefusedKind.NODE
        refused = [
            refusal
            for refusal in self.plain.refused
            if (
                refusal.node not in freed_nodes
                if refusal.kind is is_node
                else f"{refusal.namespace}/{refusal.name}" not in moved_keys
            )
        ]
        explained = freed_nodes | {refusal.node for refusal in refused if refusal.kind is is_node}
        candidates = map(cluster.node_name, find_sources(self.problem).to_empty)
        refused += (Refused.of_node(name, _KEPT_TO) for name in candidates if name not in explained)
        return replace(self.plain, steps=steps, refused=tuple(sorted(refused)), quality=quality)
