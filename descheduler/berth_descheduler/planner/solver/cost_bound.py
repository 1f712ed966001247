"""The bound by costs: how many nodes a budget of moves can free at most if large pods need holes that are rare.

Let every kind have a cost, what it is worth to have such a pod taken in, in moves. A pod that stays where it is
counts a move and its cost, a pod that comes counts its cost. What a kept node holds at the end counts at most the
value of the best filling of it, `values[node]`; what all nodes hold now counts M. A pod that moves turns a move and
its cost into its cost, so what is held at the end counts M less the moves. All of it is on kept nodes. So for any
costs

sum of the values of the freed nodes <= sum of all values - M + moves,

and the freed nodes are at most as many as the nodes of the smallest values that keep to this. Without costs a value
is a node's number of pods, and this is the bound by number. The search for good costs is on a part of the nodes;
that the bound holds does not depend on them, nor on what is left aside here (all resources but the scarcest, ties to
nodes). Pods that take less than a sixteenth of a node have no cost: for them there are always holes.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from berth_descheduler.planner.solver.bounds import holds, least_cost, most_worth
from berth_descheduler.planner.solver.filling import MOVE
from berth_descheduler.planner.solver.model import Ints, PackingModel

_LARGE: Final = 16
"""A pod is large if it takes one in so many parts of a node, or more."""

_MOST_CELLS: Final = 128
_MOST_GROUPS: Final = 12
_FINE_BITS: Final = 4
_SAMPLE: Final = 500
_ROUNDS: Final = 5
_NEVER: Final = -(1 << 40)

Costs: TypeAlias = tuple[int, ...]
"""Per group of large kinds, in thousandths of a move."""


@dataclass(frozen=True)
class CostBound:
    """What follows from the best costs that were found."""

    values: Ints  # (nodes,)
    openings: Ints  # (nodes,), values less what the pods of each node count now
    costs: Ints  # (kinds,), of a pod that is moved: a move and the cost of its kind

    def most_freed(self, to_empty: Ints, empty: Ints, budget: int) -> int:
        """Return an upper bound on the additional empty nodes with `budget` moves."""
        clearable_values = np.sort(self.values[np.concatenate([to_empty, empty])])
        return max(0, int((np.cumsum(clearable_values) <= budget * MOVE + int(self.openings.sum())).sum()) - len(empty))

    def most_worth(self, nodes: Ints, empty: Ints, worth: Ints, budget: int) -> int:
        """Return the most that freed nodes can be worth with `budget` moves, while the empty ones stay empty."""
        limit = budget * MOVE + int(self.openings.sum() - self.values[empty].sum())
        return most_worth(worth, self.values[nodes], limit)

    def fewest_moves_to(self, nodes: Ints, empty: Ints, worth: Ints, wanted: int) -> int:
        """Return a lower bound on the moves that free nodes worth so much."""
        needed = int(self.values[empty].sum()) + least_cost(worth, self.values[nodes], wanted)
        return max(0, -((int(self.openings.sum()) - needed) // MOVE))

    def fewest_moves(self, to_empty: Ints, empty: Ints, freed: int) -> int:
        """Return a lower bound on the moves for `freed` additional empty nodes."""
        clearable_values = np.sort(self.values[np.concatenate([to_empty, empty])])[: freed + len(empty)]
        return max(0, -((int(self.openings.sum()) - int(clearable_values.sum())) // MOVE))


def bound_by_costs(packing: PackingModel, to_empty: Ints, empty: Ints, budget: int) -> CostBound:
    """Return the bound with good costs; the same for the same problem."""
    groups = _group(packing)
    all_values = _Values(packing, groups, np.arange(packing.nodes), (to_empty, empty))
    sampled_nodes = np.unique(np.linspace(0, packing.nodes - 1, min(_SAMPLE, packing.nodes)).astype(np.int64))
    sample = _Values(packing, groups, sampled_nodes, (to_empty, empty))
    costs = _look_for_costs(sample, budget * MOVE * len(sampled_nodes) // max(1, packing.nodes))
    values = all_values.at(costs)
    cost_per_kind = np.full(packing.kinds, MOVE, dtype=np.int64)
    large = groups.of_kind < len(costs)
    cost_per_kind[large] += np.array(costs, dtype=np.int64)[groups.of_kind[large]]
    return CostBound(values, values - all_values.now(costs), cost_per_kind)


def _look_for_costs(sample: "_Values", budget: int) -> Costs:
    """Return the costs with the tightest bound, by coordinate search.

    The search begins where a pod is worth as many moves as smaller ones of some size need for its room, less one.
    """
    starts = [
        tuple(max(0, MOVE * small_weight // weight - MOVE) for small_weight in sample.weights)
        for weight in sample.weights
    ]
    least_freed, best_costs = min((sample.freed(start, budget), start) for start in starts) if starts else (0.0, ())
    steps = [MOVE // 4 for _ in best_costs]
    for _ in range(_ROUNDS):
        for group in range(len(best_costs)):
            for step in (steps[group], -steps[group]):
                tried_costs = (*best_costs[:group], max(0, best_costs[group] + step), *best_costs[group + 1 :])
                freed_bound = sample.freed(tried_costs, budget)
                if freed_bound < least_freed:
                    best_costs, least_freed = tried_costs, freed_bound
                    steps[group] = steps[group] * 3 // 2
                    break
            else:
                steps[group] = max(1, steps[group] // 2)
    return best_costs


@dataclass(frozen=True)
class _Groups:
    """Kinds grouped by similar size, the large ones first."""

    cell: int
    """The unit in which large pods are measured."""

    weights: tuple[int, ...]
    """Per group of large kinds how many cells a pod takes, rounded down."""

    sizes: tuple[int, ...]
    """Per group of small kinds what a pod takes, rounded down."""

    of_kind: Ints  # (kinds,)
    counts: Ints  # (nodes, groups), pods that may be moved


def _group(packing: PackingModel) -> _Groups:
    """Return the groups of the kinds by the scarcest resource."""
    binding_need, hold = packing.need[:, packing.binding], holds(packing)[packing.binding]
    usual = int(np.median(hold[packing.takes])) if packing.takes.any() else 0
    cell = _cell(binding_need[binding_need * _LARGE >= max(1, usual)], int(hold.max(initial=0)))
    large = binding_need >= max(cell, -(-usual // _LARGE))
    weights, sizes = np.unique(binding_need[large] // cell), np.unique(_rounded_down(binding_need[~large]))
    of_kind = np.empty(packing.kinds, dtype=np.int64)
    of_kind[large] = np.searchsorted(weights, binding_need[large] // cell)
    of_kind[~large] = len(weights) + np.searchsorted(sizes, _rounded_down(binding_need[~large]))
    pods, number = np.flatnonzero(packing.pod_kind >= 0), len(weights) + len(sizes)
    cells = packing.pod_node[pods] * number + of_kind[packing.pod_kind[pods]]
    counts = np.bincount(cells, minlength=packing.nodes * number).reshape(packing.nodes, number)
    return _Groups(cell, tuple(weights.tolist()), tuple(sizes.tolist()), of_kind, counts)


def _cell(large: Ints, most: int) -> int:
    """Return the unit of large pods' sizes, as fine as time allows."""
    cell = max(1, int(np.gcd.reduce(large)) if len(large) else 1, -(-most // _MOST_CELLS))
    while len(np.unique(large // cell)) > _MOST_GROUPS:
        cell *= 2
    return cell


class _Values:
    """The greatest value of nodes as a function of large kinds' costs."""

    def __init__(self, packing: PackingModel, groups: _Groups, nodes: Ints, roles: tuple[Ints, Ints]) -> None:
        self.weights = groups.weights
        self._hold = holds(packing)[packing.binding, nodes]
        self._takes = packing.takes[nodes]
        self._large = groups.counts[nodes, : len(self.weights)]
        self._small = groups.counts[nodes, len(self.weights) :]
        self._cells = int(self._hold.max(initial=0)) // groups.cell
        self._staying = self._count_staying(groups)
        may_be_empty, is_empty = np.zeros((2, packing.nodes), dtype=bool)
        may_be_empty[np.concatenate(roles)] = is_empty[roles[1]] = True
        self._may, self._empty = may_be_empty[nodes], int(is_empty[nodes].sum())

    def _count_staying(self, groups: _Groups) -> Ints:  # (cells + 1, nodes)
        """Return the most small pods that can stay beside large ones.

        A row stands for the cells that the large pods take.
        """
        amount_left = self._hold[None, :] - np.arange(self._cells + 1)[:, None] * groups.cell
        staying_pods = np.where(amount_left >= 0, 0, _NEVER)
        for size, pods_on_nodes in zip(groups.sizes, self._small.T, strict=True):
            stay = (
                np.minimum(pods_on_nodes, np.maximum(amount_left, 0) // size)
                if size
                else np.broadcast_to(pods_on_nodes, amount_left.shape)
            )
            staying_pods += stay
            amount_left = amount_left - stay * size
        return staying_pods

    def now(self, costs: Costs) -> Ints:
        """Return what the pods of each node count now."""
        counts: Ints = self._small.sum(axis=1) * MOVE + self._large @ (np.array(costs, dtype=np.int64) + MOVE)
        return counts

    def at(self, costs: Costs) -> Ints:
        """Return the values of the nodes."""
        table = np.repeat(self._worth_of_cells(costs)[:, None], len(self._hold), axis=1)
        for weight, cost, pods_on_nodes in zip(self.weights, costs, self._large.T, strict=True):
            for number in range(1, int(pods_on_nodes.max(initial=0)) + 1):
                rows = np.flatnonzero(pods_on_nodes >= number)
                rows_before = table[:, rows]
                rows_before[weight:] = np.maximum(rows_before[weight:], rows_before[:-weight] + (cost + MOVE))
                table[:, rows] = rows_before
        best_values: Ints = (table + self._staying * MOVE).max(axis=0)
        values: Ints = np.where(self._takes, best_values, self.now(costs))
        return values

    def _worth_of_cells(self, costs: Costs) -> Ints:
        """Return what pods that come can be worth in so many cells."""
        worth = [0] * (self._cells + 1)
        for weight, cost in zip(self.weights, costs, strict=True):
            for cell in range(weight, len(worth)):
                worth[cell] = max(worth[cell], worth[cell - weight] + cost)
        return np.array(worth, dtype=np.int64)

    def freed(self, costs: Costs, budget: int) -> float:
        """Return an upper bound on the additional nodes freed; a part of the next node counts as a fraction."""
        values = self.at(costs)
        budget_left = budget + int((values - self.now(costs)).sum())
        clearable_values = np.sort(values[self._may])
        spent = np.cumsum(clearable_values)
        whole_nodes = int(np.searchsorted(spent, budget_left, side="right"))
        if whole_nodes == len(clearable_values):
            return float(whole_nodes - self._empty)
        spent_before = int(spent[whole_nodes - 1]) if whole_nodes else 0
        return whole_nodes + (budget_left - spent_before) / max(1, int(clearable_values[whole_nodes])) - self._empty


def _rounded_down(asked: Ints) -> Ints:
    """Return amounts rounded down to their highest bits, for few distinct sizes."""
    bits = np.maximum(np.frexp(asked.astype(np.float64))[1] - _FINE_BITS, 0)
    rounded: Ints = asked >> bits << bits
    return rounded
