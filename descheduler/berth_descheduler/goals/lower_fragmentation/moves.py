"""The fragmentation of nodes, and the moves that change it with their gains, kept up to date move by move."""

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from berth_core import PODS, Deadline, is_over
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, State
from berth_descheduler.planner.disruption_cost import DisruptionCost
from berth_descheduler.planner.problem import find_sources
from berth_descheduler.planner.solver import Ints, PackingModel
from berth_descheduler.planner.workload_mix import WorkloadMix

_MAX_CELLS: Final = 1 << 22
"""How many pairs of a kind of pods and a node are weighed, the most frequent kinds first."""
_EXACT_BITS: Final = 60
_LARGE: Final = 1 << 61
"""More than any amount."""
_UPHILL_NODES: Final = 6
_ALMOST: Final = 8
"""A gain that lacks less than this part of the greatest is almost as great."""


class FragmentationMeasure:
    """The fragmentation of single nodes, in amounts times pods of the mix."""

    def __init__(self, problem: Problem, mix: WorkloadMix) -> None:
        cluster = problem.cluster
        self.column = cluster.column[problem.settings.resource_type]
        resource = problem.settings.resource_type
        asking = [mix_shape for mix_shape in mix.shapes if mix_shape.amounts.get(resource) > 0]
        shapes = [
            asking_shape for asking_shape in asking if all(name in cluster.column for name in asking_shape.amounts)
        ]
        self.pods = mix.pods
        self.weights = np.array([known_shape.pods for known_shape in shapes], dtype=np.int64)
        self.allowed = np.zeros((len(shapes), len(cluster.nodes)), dtype=bool)
        self.needs: Ints = np.zeros((len(shapes), cluster.columns), dtype=np.int64)
        for row, shape in enumerate(shapes):
            self.allowed[row, list(shape.nodes)] = True
            for name, amount in shape.amounts.items():
                self.needs[row, cluster.column[name]] = amount
            # Each pod takes one of the node's pod slots (`allocatable.pods`), which no container asks for.
            self.needs[row, cluster.column[PODS]] = 1
        self._asked = [
            (column, np.where(self.needs[:, column] > 0, self.needs[:, column], -_LARGE)[:, None])
            for column in np.flatnonzero(self.needs.max(axis=0, initial=0)).tolist()
        ]
        largest = max((abs(row[self.column]) for rows in (cluster.capacity, cluster.taken) for row in rows), default=0)
        # Python's integers where products of amounts and pods could exceed int64: slower, but exact for any quantity.
        is_wide = (2 * largest * max(1, mix.pods)).bit_length() > _EXACT_BITS
        self.dtype = object if is_wide else np.int64
        self.none = _LARGE * _LARGE * _LARGE if is_wide else _LARGE
        """More than any gain or cost: there is no such pod, or the node does not take it."""

    def popularity(self, free: Ints, nodes: Ints) -> Ints:
        """Return how many pods of the mix fit; `free` is (resources, len(nodes))."""
        fits = self.allowed[:, nodes]
        for column, needs in self._asked:
            fits &= free[column] >= needs
        return self.weights @ fits

    def fragmented(self, free: Ints, nodes: Ints) -> Ints:
        """Return the fragmentation of nodes that would have so much free; `free` is (resources, len(nodes))."""
        piece = np.maximum(free[self.column], 0).astype(self.dtype)
        return np.asarray(piece * (self.pods - self.popularity(free, nodes)))


@dataclass(frozen=True, slots=True)
class FragmentationMove:
    """A pod of a kind that goes from one node to another, and what that brings."""

    kind: int
    source: int
    target: int
    gain: int


class PossibleMoves:
    """The moves that can be made next, with their gains, over a state that they change."""

    def __init__(
        self, problem: Problem, state: State, packing: PackingModel, measure: FragmentationMeasure, deadline: Deadline
    ) -> None:
        self._state, self._packing, self._measure = state, packing, measure
        self.budget = problem.settings.limits.max_moves
        columns = problem.cluster.columns
        self.free: Ints = np.array(state.free, dtype=np.int64).reshape(packing.nodes, columns).T.copy()
        self._room = packing.room.copy()
        self._pods = _movable_pods(problem, packing)
        self.kinds, self.out_of_time = _frequent_kinds(packing, self._pods), False
        rows = [problem.cluster.requests[packing.class_of[kind]] for kind in self.kinds]
        self._asks: Ints = np.array(rows, dtype=np.int64).reshape(len(rows), columns)
        need = packing.need[np.array(self.kinds, dtype=np.int64)]
        # A resource that is not asked for never keeps a pod off, even where less than nothing of it is free.
        self._needs: Ints = np.where(need > 0, need, -_LARGE)
        self._left = np.zeros((len(rows), packing.nodes), dtype=np.int64)
        for row, kind in enumerate(self.kinds):
            for node, pods in self._pods[kind].items():
                self._left[row, node] = len(pods)
        self.before: Ints = measure.fragmented(self.free, np.arange(packing.nodes))
        self._now = self.before.copy()
        self.made: list[FragmentationMove] = []
        allowed_nodes = [packing.allowed(kind) & packing.takes for kind in self.kinds]
        self._allowed = np.array(allowed_nodes, dtype=bool).reshape(self._left.shape)
        self._banned = np.zeros(self._left.shape, dtype=bool)
        self._off = np.full(self._left.shape, -measure.none, dtype=measure.dtype)
        self._cost = np.full(self._left.shape, measure.none, dtype=measure.dtype)
        self._in_order = np.argsort(packing.rank, kind="stable") if packing.is_ranked else None
        """The nodes in the order in which equally good ones are filled; None: as they are."""
        for row in range(len(rows)):
            if is_over(deadline):
                self.out_of_time = True
                break
            self._weigh_kind(row)

    @property
    def gained(self) -> int:
        """Return by how much the moves lower the fragmentation."""
        return sum(move.gain for move in self.made)

    @property
    def may_go_on(self) -> bool:
        """Return whether the budget allows one more move."""
        return self.budget is None or len(self.made) < self.budget

    def best(self, chance: Random | None = None) -> FragmentationMove | None:
        """Return a move of the greatest gain, None if none lowers the fragmentation.

        With `chance` it is a random one of the kinds whose gain is almost as great.
        """
        if not self._off.size:
            return None
        sources, targets = self._off.argmax(axis=1), self._cheapest(self._cost)
        rows = np.arange(len(sources))
        gains = self._off[rows, sources] - self._cost[rows, targets]
        # A pod cannot move to its own node, though leaving and entering it may both look best.
        for row in np.flatnonzero((sources == targets) & (gains > 0)).tolist():
            sources[row], targets[row], gains[row] = self._apart(row, int(sources[row]))
        row = int(gains.argmax())
        if gains[row] <= 0:
            return None
        if chance is not None:
            # A restricted candidate list, as in GRASP (Feo and Resende, 1995): the same climb ends elsewhere.
            row = chance.choice(np.flatnonzero(gains >= gains[row] - gains[row] // _ALMOST).tolist())
        return FragmentationMove(row, int(sources[row]), int(targets[row]), int(gains[row]))

    def uphill(self, chance: Random) -> FragmentationMove | None:
        """Return a random move of a random kind between its `_UPHILL_NODES` best nodes; None if no pod can be moved."""
        if not self._off.size:
            return None
        row = chance.randrange(len(self._off))
        sources, targets = np.flatnonzero(self._left[row] > 0), self._cost[row].argsort(kind="stable")[:_UPHILL_NODES]
        targets = targets[self._cost[row, targets] < self._measure.none]
        if not len(sources) or not len(targets):
            return None
        sources = sources[(-self._off[row, sources]).argsort(kind="stable")[:_UPHILL_NODES]]
        source, target = int(chance.choice(sources.tolist())), int(chance.choice(targets.tolist()))
        return FragmentationMove(row, source, target, int(self._off[row, source] - self._cost[row, target]))

    def make(self, move: FragmentationMove, *, may_raise: bool = False) -> bool:
        """Make a move if it is possible and lowers the fragmentation, or may raise it; return whether it was made."""
        kind, source, target = move.kind, move.source, move.target
        if self._left[kind, source] <= 0 or self._cost[kind, target] >= self._measure.none:
            return False
        gain = int(self._off[kind, source] - self._cost[kind, target])
        if source == target or (gain <= 0 and not may_raise) or not self.may_go_on:
            return False
        pods = self._pods[self.kinds[kind]][source]
        pod = pods[len(pods) - int(self._left[kind, source])]
        # Gains are kept for amounts only: what affinities, spread constraints and ports forbid depends on the pods that
        # are there by now, and is asked of the rules only where a move is about to be made.
        if self._state.refusal(pod, NodeIndex(target)) is not None:
            self._banned[kind, target] = True
            self._cost[kind, target] = self._measure.none
            return False
        self._state.move(pod, NodeIndex(target))
        self.made.append(FragmentationMove(kind, source, target, gain))
        self._carry(kind, source, target, 1)
        return True

    def undo_to(self, mark: int) -> None:
        """Take back every move after a mark."""
        self._state.undo_to(mark)
        while len(self.made) > mark:
            move = self.made.pop()
            self._carry(move.kind, move.source, move.target, -1)

    def allow_again(self) -> bool:
        """Forget which places other pods have refused; return whether there is such a place."""
        nodes = np.flatnonzero(self._banned.any(axis=0)).tolist()
        self._banned[:] = False
        for node in nodes:
            self._weigh_node(node)
        return bool(nodes)

    def has_target(self, node: int) -> bool | None:
        """Return whether a pod of a node fits elsewhere; None if none may leave it."""
        kinds = np.flatnonzero(self._left[:, node] > 0)
        if not len(kinds):
            return None
        other_kinds = self._cost[kinds] < self._measure.none
        other_kinds[:, node] = False
        return bool(other_kinds.any())

    def ceiling(self) -> Ints:
        """Return what would be free on each node without the pods that may leave it; (resources, nodes)."""
        ceiling: Ints = self.free.copy()
        for kind, nodes in self._pods.items():
            asks = np.array(self._state.cluster.requests[self._packing.class_of[kind]], dtype=np.int64)
            for node, pods in nodes.items():
                ceiling[:, node] += len(pods) * asks
        return ceiling

    def _cheapest(self, cost: Ints) -> Ints:
        """Return the nodes of the lowest costs, which are (..., nodes); of equal ones those that are filled first."""
        order = self._in_order
        cheapest: Ints = cost.argmin(axis=-1) if order is None else order[cost[..., order].argmin(axis=-1)]
        return cheapest

    def _apart(self, row: int, node: int) -> tuple[int, int, int]:
        """Return the best of another source and another target than one node."""
        off, cost = self._off[row].copy(), self._cost[row].copy()
        off[node], cost[node] = -self._measure.none, self._measure.none
        source, target = int(off.argmax()), int(self._cheapest(cost))
        off_node, onto_node = int(off[source] - self._cost[row, node]), int(self._off[row, node] - cost[target])
        return (source, node, off_node) if off_node >= onto_node else (node, target, onto_node)

    def _carry(self, kind: int, source: int, target: int, times: int) -> None:
        asks, need = times * self._asks[kind], times * self._packing.need[self.kinds[kind]]
        self.free[:, source] += asks
        self.free[:, target] -= asks
        self._room[:, source] += need
        self._room[:, target] -= need
        self._left[kind, source] -= times
        for node in (source, target):
            self._now[node] = self._measure.fragmented(self.free[:, node : node + 1], np.array([node]))[0]
            self._weigh_node(node)

    def _weigh_kind(self, row: int) -> None:
        kind, asks = self.kinds[row], self._asks[row][:, None]
        nodes = np.flatnonzero(self._left[row])
        self._off[row, nodes] = self._now[nodes] - self._measure.fragmented(self.free[:, nodes] + asks, nodes)
        takes = self._allowed[row]
        for column in self._packing.asked[kind]:
            takes = takes & (self._room[column] >= self._packing.need[kind, column])
        nodes = np.flatnonzero(takes)
        self._cost[row, nodes] = self._measure.fragmented(self.free[:, nodes] - asks, nodes) - self._now[nodes]

    def _weigh_node(self, node: int) -> None:
        """Weigh every kind on a node anew."""
        free, now = self.free[:, node : node + 1], self._now[node]
        rows = np.flatnonzero(self._left[:, node] > 0)
        self._off[:, node] = -self._measure.none
        self._off[rows, node] = now - self._measure.fragmented(free + self._asks[rows].T, np.full(len(rows), node))
        takes = (self._needs <= self._room[:, node]).all(axis=1) & self._allowed[:, node] & ~self._banned[:, node]
        rows = np.flatnonzero(takes)
        self._cost[:, node] = self._measure.none
        self._cost[rows, node] = self._measure.fragmented(free - self._asks[rows].T, np.full(len(rows), node)) - now


def _movable_pods(problem: Problem, packing: PackingModel) -> dict[int, dict[int, list[PodIndex]]]:
    """Return the pods that may be moved, by kind and node, those whose moving disturbs least first."""
    may_leave = np.zeros(packing.nodes, dtype=bool)
    may_leave[list(find_sources(problem).to_take_from)] = True
    pods_by_kind: dict[int, dict[int, list[PodIndex]]] = defaultdict(lambda: defaultdict(list))
    for pod in DisruptionCost(problem).cheapest_first(
        [PodIndex(movable_pod) for movable_pod in packing.movable_on(may_leave)]
    ):
        pods_by_kind[int(packing.pod_kind[pod])][int(packing.pod_node[pod])].append(pod)
    return pods_by_kind


def _frequent_kinds(packing: PackingModel, pods: dict[int, dict[int, list[PodIndex]]]) -> list[int]:
    most_kinds = max(1, _MAX_CELLS // max(1, packing.nodes))
    return sorted(pods, key=lambda kind: (-sum(map(len, pods[kind].values())), kind))[:most_kinds]
