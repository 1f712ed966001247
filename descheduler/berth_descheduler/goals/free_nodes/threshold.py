"""The strategy `Threshold`, which moves pods off nodes below a threshold.

By the classic rules the pods go to well-used nodes.

The rules, in the words of the proposal:
- A source's utilisation, the sum of its pods' requests through its allocatable, is below every low threshold; it is
  not labelled `critical=true` and not cooling down. Sources are taken in ascending order of utilisation.
- A pod with larger requests is placed before a smaller one.
- A target's utilisation is above every defragment threshold and below every protection threshold, and a move does not
  take it above one. Targets are tried in descending order of utilisation, as the snapshot has it.
- Each pod of a source that may be moved goes to the first target that takes it; one that finds none stays.
Comparisons are strict and exact: a node that is just at a threshold is neither below nor above it. A node without one
of the resources is neither source nor target. A node below the low thresholds is no target, whatever the others say.
What the proposal leaves open: nodes of equal utilisation are taken by name; of pods that ask for as much of the
resource type, one that asks for more cpu, then memory, then the others by name is larger, and of equal ones the first
by namespace and name. Nothing is done unless more than `numberOfNodes` nodes are low, as the upstream plugin
HighNodeUtilization has it; critical and cooling nodes count among the low ones.
What is not in the proposal: with `wholeNodes` a node is emptied whole or left alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from berth_core import Pod, Snapshot, count, readable_quantities
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, Proposal, State, Thresholds
from berth_descheduler.planner.explanations import Blockers, NodeRefusalSummary
from berth_descheduler.planner.problem import drain_refusal, holding_refusal, source_refusal
from berth_descheduler.planner.settings import WHOLE
from berth_descheduler.planner.simulation import ClassIndex, PodPresence, node_refusal, protected_amounts

_ABOVE_PROTECTION: Final = Refusal(RefusalReason.ABOVE_PROTECTION, "would go above its protection threshold")


@dataclass(frozen=True, slots=True)
class ThresholdRules:
    """The rules for sources and targets, and whether a source is emptied whole."""

    low: Thresholds
    """A source is below all of these."""

    defragment: Thresholds
    """A target is above all of these."""

    number_of_nodes: int = 0
    """Nothing is moved unless more nodes than this are low."""

    whole_nodes: bool = False


@dataclass(frozen=True, slots=True)
class _Usage:
    """The utilisation of a node in percent, per resource; None where the node has nothing of it."""

    percent: tuple[Fraction | None, ...]


class _NodeTable:
    """The nodes' utilisation in the snapshot, the low nodes and the targets."""

    def __init__(self, problem: Problem, rules: ThresholdRules) -> None:
        self._problem = problem
        self._rules = rules
        self._resource_type = problem.settings.resource_type
        self._protection = problem.settings.protection
        self._column = problem.cluster.column
        nodes = range(len(problem.cluster.nodes))
        self.usage = [_usage(problem, NodeIndex(node)) for node in nodes]
        usable = [NodeIndex(node) for node in nodes if node_refusal(problem.cluster, NodeIndex(node)) is None]
        self.low = sorted((node for node in usable if self._is_low(node)), key=self._rank)
        is_low = frozenset(self.low)
        targets = (node for node in usable if node not in is_low and self._is_target(node))
        ranks = problem.target_ranks
        self.targets = sorted(targets, key=lambda node: (ranks[node], -self.utilisation(node), node))

    def utilisation(self, node: NodeIndex) -> Fraction:
        """Return the requested percentage of a node's resource type, 0 where the node has none."""
        return self.percent(node, self._resource_type) or Fraction(0)

    def percent(self, node: NodeIndex, resource: str) -> Fraction | None:
        """Return the requested percentage of a resource, None if there is none."""
        column = self._column.get(resource)
        return None if column is None else self.usage[node].percent[column]

    def why_not_low(self, node: NodeIndex) -> Refusal:
        """Return which resource of a node is missing or not low."""
        for resource, threshold in self._rules.low.percentages:
            percent = self.percent(node, resource)
            if percent is None:
                return Refusal(RefusalReason.RESOURCE_MISSING, f"the node has no {resource}", resource=resource)
            if percent >= threshold:
                text = f"{resource} is {_shown(percent)} % requested, not below {_shown(threshold)} %"
                return Refusal(RefusalReason.NOT_LOW, text, resource=resource)
        return Refusal(RefusalReason.NOT_LOW, "the node is not low")

    def _rank(self, node: NodeIndex) -> tuple[Fraction, NodeIndex]:
        return self.utilisation(node), node

    def _is_low(self, node: NodeIndex) -> bool:
        pairs = ((self.percent(node, name), limit) for name, limit in self._rules.low.percentages)
        return all(percent is not None and percent < limit for percent, limit in pairs)

    def _is_target(self, node: NodeIndex) -> bool:
        above = ((self.percent(node, name), limit) for name, limit in self._rules.defragment.percentages)
        below = ((self.percent(node, name), limit) for name, limit in self._protection.percentages)
        return all(percent is not None and percent > limit for percent, limit in above) and all(
            percent is not None and percent < limit for percent, limit in below
        )


class Threshold:
    """Moves pods off low nodes by the rules of the proposal."""

    def __init__(self, rules: ThresholdRules) -> None:
        self._rules = rules

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the low nodes."""
        return tuple(_NodeTable(problem, self._rules).low)

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        return ()

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the moves off the low nodes, least used first; with `wholeNodes` each node is emptied whole or not."""
        return _ThresholdRun(problem, state, self._rules).propose()


class _ThresholdRun:
    """One run of the strategy over a state that it changes."""

    def __init__(self, problem: Problem, state: State, rules: ThresholdRules) -> None:
        self._problem = problem
        self._settings = problem.settings
        self._state = state
        self._rules = rules
        self._table = _NodeTable(problem, rules)
        self._protected = protected_amounts(problem.cluster, problem.settings.protection)
        self._first_target: dict[ClassIndex, int] = {}
        """Per class the position of the first target that may have room for it."""
        self._why_kept: dict[ClassIndex, Refusal] = {}
        """Per class why no target took its last pod, which is the answer for the next one, too."""
        self._refused: list[Refused] = []
        self._reasons: dict[PodIndex, str] = {}

    def propose(self) -> Proposal:
        """Return the moves and why not more."""
        low = frozenset(self._table.low)
        for node in range(len(self._problem.cluster.nodes)):
            if NodeIndex(node) not in low:
                self._refuse_node(NodeIndex(node), self._why_no_source(NodeIndex(node)))
        if len(low) <= self._rules.number_of_nodes:
            text = f"{len(low)} nodes are low, and more than {self._rules.number_of_nodes} are asked for"
            for node in self._table.low:
                self._refuse_node(node, Refusal(RefusalReason.TOO_FEW_LOW_NODES, text))
        else:
            take_from = self._empty if self._rules.whole_nodes else self._relieve
            for node in self._table.low:
                take_from(node)
        return Proposal(self._state.steps, tuple(sorted(self._refused)), reasons=self._reasons)

    def _why_no_source(self, node: NodeIndex) -> Refusal:
        return node_refusal(self._problem.cluster, node) or self._table.why_not_low(node)

    def _empty(self, source: NodeIndex) -> None:
        """Move every pod off a low node, or move none and note the reason."""
        pods = self._problem.pods_to_move(source)
        refusal = self._source_refusal(source, pods)
        if refusal is not None:
            self._refuse_node(source, refusal)
            self._refuse_immovable(pods)
            return
        # What is known of full targets is taken back with the moves: without them there may be room again.
        mark, first_target = self._state.mark(), dict(self._first_target)
        for pod in sorted(pods, key=self._size, reverse=True):
            target = self._find_target(pod)
            if target is None:
                self._refuse_node(source, self._refuse_without_target(pod))
                self._state.undo_to(mark)
                self._first_target = first_target
                return
            self._state.move(pod, target)

    def _source_refusal(self, source: NodeIndex, pods: tuple[PodIndex, ...]) -> Refusal | None:
        refusal = self._why_untouched(source, pods) or drain_refusal(self._problem, source)
        if refusal is not None:
            return refusal
        moves_left = self._moves_left()
        if moves_left is not None and len(pods) > moves_left:
            return Refusal(RefusalReason.MOVE_LIMIT, f"{len(pods)} moves are needed and {moves_left} are left")
        return None

    def _why_untouched(self, source: NodeIndex, pods: tuple[PodIndex, ...]) -> Refusal | None:
        """Return why no pod is taken off a low node at all."""
        if not pods:
            return Refusal(RefusalReason.ALREADY_EMPTY, "nothing on the node has to be moved")
        return source_refusal(self._problem, source) or self._problem.no_gain.get(source)

    def _moves_left(self) -> int | None:
        max_moves = self._settings.limits.max_moves
        return None if max_moves is None else max_moves - self._state.mark()

    def _relieve(self, source: NodeIndex) -> None:
        """Move the pods off a low node that may move and fit, and note why the others stay."""
        pods = self._problem.pods_to_move(source)
        self._refuse_immovable(pods)
        refusal = self._why_untouched(source, pods)
        if refusal is not None:
            self._refuse_node(source, refusal)
            return
        begun_at, reason = self._state.mark(), self._why_low(source)
        movable = [pod for pod in pods if pod not in self._problem.pod_refusals]
        refusals = [self._take(pod, reason) for pod in sorted(movable, key=self._size, reverse=True)]
        holding = holding_refusal(self._problem, source)
        refusal = next((pod_refusal for pod_refusal in (holding, *refusals) if pod_refusal is not None), None)
        if refusal is not None:
            moves = self._state.mark() - begun_at
            text = f"{moves} of its {count(len(pods), 'pod')} {'is' if moves == 1 else 'are'} moved; {refusal.message}"
            self._refuse_node(source, replace(refusal, message=text) if moves else refusal)

    def _take(self, pod: PodIndex, reason: str) -> Refusal | None:
        """Move one pod to the first target that takes it; return what keeps the pod, as its node has it."""
        if self._moves_left() == 0:
            text = f"no more than {count(self._settings.limits.max_moves or 0, 'move')} may be made"
            return Refusal(RefusalReason.MOVE_LIMIT, text)
        target = self._find_target(pod)
        if target is None:
            return self._refuse_without_target(pod)
        self._state.move(pod, target)
        self._reasons[pod] = reason
        return None

    def _why_low(self, source: NodeIndex) -> str:
        """Return why single pods are moved off a node, for people."""
        resource, name = self._settings.resource_type, self._problem.cluster.node_name(source)
        return f"{name} is low: {_shown(self._table.utilisation(source))} % of its {resource} is requested"

    def _find_target(self, pod: PodIndex) -> NodeIndex | None:
        """Return the most used target that takes the pod."""
        class_index = self._problem.cluster.pods[pod].class_index
        state, targets = self._state, self._table.targets
        position = self._first_target.get(class_index, 0)
        # Targets are only filled, so one without room for a class has none for its later pods either: the next search
        # begins after it. A refusal that depends on other pods may be over by then.
        lasting = True
        for index in range(position, len(targets)):
            target = targets[index]
            roomy = state.fits(class_index, target) and self._stays_protected(class_index, target)
            if roomy and state.refusal(pod, target) is None:
                return target
            lasting = lasting and (not roomy or not state.depends_on_others(class_index))
            if lasting:
                self._first_target[class_index] = index + 1
        return None

    def _stays_protected(self, class_index: ClassIndex, target: NodeIndex) -> bool:
        """Return whether a pod takes a target above no protection threshold."""
        free, needs = self._state.free[target], self._problem.cluster.requests[class_index]
        return all(free[column] - needs[column] >= least_free[target] for column, least_free in self._protected.items())

    def _size(self, pod: PodIndex) -> tuple[int, tuple[int, ...], PodIndex]:
        """Return the sort key of a pod's size: the resource type first; of equal pods the first in order is larger."""
        needs = self._problem.cluster.requests[self._problem.cluster.pods[pod].class_index]
        column = self._problem.cluster.column.get(self._settings.resource_type)
        return (0 if column is None else needs[column], needs, PodIndex(-pod))

    def _why_no_target(self, pod: PodIndex) -> Refusal:
        """Return how many targets refuse a pod for each reason."""
        class_index = self._problem.cluster.pods[pod].class_index
        if class_index in self._why_kept and not self._state.depends_on_others(class_index):
            return self._why_kept[class_index]
        refusing = NodeRefusalSummary(pod)
        for target in self._table.targets:
            refusing.count(target, self._state.refusal(pod, target) or _ABOVE_PROTECTION)
        if not refusing:
            return Refusal(RefusalReason.NO_TARGET, "no node lies between the defragment and the protection thresholds")
        request = readable_quantities(self._problem.cluster.classes[class_index].amounts)
        requested = ", ".join(f"{name} {amount}" for name, amount in request.items()) or "no resources"
        text = f"no target takes a pod of {requested}: {refusing.in_words()}"
        self._why_kept[class_index] = refusing.summary(text, Blockers(self._state))
        return self._why_kept[class_index]

    def _refuse_node(self, node: NodeIndex, refusal: Refusal) -> None:
        self._refused.append(Refused.of_node(self._problem.cluster.node_name(node), refusal))

    def _refuse_pod(self, pod: PodIndex, refusal: Refusal) -> None:
        placed_pod = self._problem.cluster.pods[pod]
        meta = placed_pod.pod.metadata
        name = self._problem.cluster.node_name(placed_pod.node)
        self._refused.append(Refused.of_pod(name, meta.namespace, meta.name, refusal))

    def _refuse_immovable(self, pods: Iterable[PodIndex]) -> None:
        refusals = self._problem.pod_refusals
        for pod in pods:
            if pod in refusals:
                self._refuse_pod(pod, refusals[pod])

    def _refuse_without_target(self, pod: PodIndex) -> Refusal:
        """Note why no target takes a pod, and return its node's refusal."""
        key, blocked = self._problem.cluster.pods[pod].pod.key, self._why_no_target(pod)
        self._refuse_pod(pod, blocked)
        return replace(blocked, message=f"pod {key} finds no target", blocking_pod=key)


def _usage(problem: Problem, node: NodeIndex) -> _Usage:
    """Return the utilisation of a node by the requests of its pods, those that are still leaving included."""
    cluster = problem.cluster
    pods = [cluster.pods[pod] for pod in cluster.pods_on[node]]
    rows = [
        cluster.requests[placed_pod.class_index]
        for placed_pod in pods
        # Expected pods are those to come, for which room is kept; the proposal measures what is requested now.
        if placed_pod.presence is not PodPresence.EXPECTED
    ]
    used = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * cluster.columns
    capacity = cluster.capacity[node]
    return _Usage(
        tuple(
            Fraction(WHOLE * used_amount, capacity_amount) if capacity_amount > 0 else None
            for used_amount, capacity_amount in zip(used, capacity, strict=True)
        )
    )


def _shown(percent: Fraction) -> str:
    """Return a percentage for people, with at most one decimal."""
    return str(percent.numerator) if percent.denominator == 1 else f"{float(percent):.1f}"
