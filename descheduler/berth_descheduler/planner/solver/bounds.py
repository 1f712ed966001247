"""Bounds on any plan: the most nodes freed, the fewest moves.

By volume: whatever is moved where, a node that is kept holds at most what it has for movable pods (or what it holds of
them now, if it is over-booked or takes no pods), so the nodes that are empty at the end cannot have more than all nodes
have together less what the movable pods ask for. This is a bound per resource, for ejections too.
By number: each freed node's pods each take a move of their own, so the nodes with the fewest pods are the cheapest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from berth_descheduler.planner.solver.filling import MOVE
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel


def holds(packing: PackingModel) -> Ints:
    """Return each node's capacity for movable pods; (resources, nodes)."""
    taken = taken_by_movable(packing)
    holdable: Ints = np.where(packing.takes, np.maximum(packing.room + taken, taken), taken)
    return holdable


def taken_by_movable(packing: PackingModel) -> Ints:
    """Return what the movable pods take of each node; (resources, nodes)."""
    movable = np.flatnonzero(packing.pod_kind >= 0)
    kinds, nodes = packing.pod_kind[movable], packing.pod_node[movable]
    taken = np.zeros_like(packing.room)
    for column in range(len(taken)):
        amounts = packing.need[kinds, column].astype(np.float64)  # whole numbers below 2**53 are exact
        taken[column] = np.bincount(nodes, weights=amounts, minlength=packing.nodes).astype(np.int64)
    return taken


def most_freed_by_volume(packing: PackingModel, to_empty: Sequence[int], empty: Sequence[int]) -> int:
    """Return how many more nodes than now can be empty at most."""
    hold, taken = holds(packing), taken_by_movable(packing)
    clearable = np.array([*to_empty, *empty], dtype=np.int64)
    most_empty = len(clearable)
    for column in np.flatnonzero(packing.need.max(axis=0, initial=0)):
        spare_amount = int((hold[column] - taken[column])[packing.takes].sum())
        most_empty = min(most_empty, int((np.cumsum(np.sort(hold[column, clearable])) <= spare_amount).sum()))
    return max(0, most_empty - len(empty))


def most_freed_by_number(pod_counts: Ints, budget: int | None) -> int:
    """Return an upper bound on the nodes freed with `budget` moves.

    `pod_counts` are the pods of each node; without a budget all nodes count.
    """
    if budget is None:
        return len(pod_counts)
    return int((np.cumsum(np.sort(pod_counts)) <= budget).sum())


def fewest_moves(pod_counts: Ints, freed: int) -> int:
    """Return a lower bound on the moves that free so many nodes."""
    return int(np.sort(pod_counts)[:freed].sum())


# Where nodes have weights, what counts is the worth of the freed ones, not their number. Each bound on the number says
# that a cost of the freed nodes, added up, stays within a limit: their volume, their pods, their values. So the worth
# is at most that of the best choice of nodes within the limit, wherever their pods would go. The best choice is counted
# where the nodes have few distinct weights. Elsewhere any exchange rate of worth against cost gives a bound.

_MOST_CHOICES: Final = 1 << 18

Choices: TypeAlias = tuple[Ints, Ints]
"""What a choice of nodes can be worth, ascending, and the least cost of that much."""


def worth_by_volume(packing: PackingModel, nodes: Ints, empty: Ints, worth: Ints) -> int:
    """Return the most that freed nodes can be worth, while the empty ones stay empty."""
    hold, taken = holds(packing), taken_by_movable(packing)
    worth_bound = int(worth.sum())
    for column in np.flatnonzero(packing.need.max(axis=0, initial=0)):
        spare = int((hold[column] - taken[column])[packing.takes].sum() - hold[column, empty].sum())
        worth_bound = min(worth_bound, most_worth(worth, hold[column, nodes], spare))
    return worth_bound


def most_worth(worth: Ints, cost: Ints, limit: int) -> int:
    """Return an upper bound on the worth of nodes whose cost is within a limit."""
    if limit < 0 or not len(worth):
        return 0
    choices = _list_choices(worth, cost)
    if choices is not None:
        choice_worths, choice_costs = choices
        return int(choice_worths[choice_costs <= limit].max(initial=0))
    order = np.argsort(cost / worth, kind="stable")
    # Dantzig's bound for the knapsack problem: the linear relaxation, whose multiplier is the rate of the first item
    # that does not fit whole (Martello and Toth, "Knapsack Problems", 1990). In integers, so that no rounding makes it
    # too low.
    critical = order[min(int((np.cumsum(cost[order]) <= limit).sum()), len(order) - 1)]
    per, rate = max(1, int(cost[critical])), int(worth[critical])
    return min(int(worth.sum()), (_gain(worth, cost, per, rate) + rate * limit) // per)


def least_cost(worth: Ints, cost: Ints, wanted: int) -> int:
    """Return a lower bound on the cost of nodes that are worth so much."""
    if wanted <= 0 or not len(worth):
        return 0
    choices = _list_choices(worth, cost)
    if choices is not None:
        choice_worths, choice_costs = choices
        return int(choice_costs[min(int(np.searchsorted(choice_worths, wanted)), len(choice_costs) - 1)])
    order = np.argsort(cost / worth, kind="stable")
    critical = order[min(int(np.searchsorted(np.cumsum(worth[order]), wanted)), len(order) - 1)]
    per, rate = int(cost[critical]), int(worth[critical])
    return max(0, -((_gain(worth, cost, per, rate) - per * wanted) // rate))


def _gain(worth: Ints, cost: Ints, per: int, rate: int) -> int:
    """Return what the nodes gain together whose worth is more than their cost, at `rate` for `per` of cost."""
    worth_and_cost: list[tuple[int, int]] = list(zip(worth.tolist(), cost.tolist(), strict=True))
    return sum(max(0, node_worth * per - rate * node_cost) for node_worth, node_cost in worth_and_cost)


def _list_choices(worth: Ints, cost: Ints) -> Choices | None:
    """Return what the choices of nodes can be worth; None if there are too many."""
    choice_worths = choice_costs = np.zeros(1, dtype=np.int64)
    for node_worth in np.unique(worth):
        cheapest = np.concatenate([[0], np.cumsum(np.sort(cost[worth == node_worth]))])
        if len(choice_worths) * len(cheapest) > _MOST_CHOICES:
            return None
        values = (choice_worths[:, None] + node_worth * np.arange(len(cheapest))).ravel()
        costs = (choice_costs[:, None] + cheapest).ravel()
        order = np.lexsort((costs, -values))
        values, costs = values[order], costs[order]
        # Only choices that none beats in both worth and cost (Horowitz and Sahni, 1974): with few prices there are few
        # of them.
        cheapest_before = np.concatenate([[np.iinfo(np.int64).max], np.minimum.accumulate(costs)[:-1]])
        choice_worths, choice_costs = values[costs < cheapest_before][::-1], costs[costs < cheapest_before][::-1]
    return choice_worths, choice_costs


def most_that_fit(packing: PackingModel, kind: int) -> int:
    """Return an upper bound on the pods of a kind that fit, where the movable pods may go anywhere."""
    hold, taken, need = holds(packing), taken_by_movable(packing), packing.need[kind]
    asked_columns = np.flatnonzero(need)
    if not len(asked_columns):
        return int(hold.max(initial=0))
    nodes = packing.allowed(kind) & packing.takes
    fits_per_node = np.maximum(hold[np.ix_(asked_columns, np.flatnonzero(nodes))], 0) // need[asked_columns, None]
    fitting_pods = int(fits_per_node.min(axis=0).sum())
    for column in asked_columns:
        spare = int((hold[column] - taken[column])[packing.takes].sum())
        fitting_pods = min(fitting_pods, max(0, spare) // int(need[column]))
    return fitting_pods


# The bound by costs: how many nodes a budget of moves can free at most if large pods need holes that are rare.
#
# Let every kind have a cost, what it is worth to have such a pod taken in, in moves. A pod that stays where it is
# counts a move and its cost, a pod that comes counts its cost. What a kept node holds at the end counts at most the
# value of the best filling of it, `values[node]`; what all nodes hold now counts M. A pod that moves turns a move and
# its cost into its cost, so what is held at the end counts M less the moves. All of it is on kept nodes. So for any
# costs
#
# sum of the values of the freed nodes <= sum of all values - M + moves,
#
# and the freed nodes are at most as many as the nodes of the smallest values that keep to this. Without costs a value
# is a node's number of pods, and this is the bound by number. The search for good costs is on a part of the nodes;
# that the bound holds does not depend on them, nor on what is left aside here (all resources but the scarcest, ties to
# nodes). Pods that take less than a sixteenth of a node have no cost: for them there are always holes.

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


# The bound on room: for how many pods of a kind a number of moves makes room at most, by where the free pieces lie.
#
# For a node to hold h pods to come, so many pods have to leave it that their amounts make up for what it lacks. How
# many that are at least is counted for several weightings of the resources, the largest pods first, as any set of pods
# that is enough is enough in every weighting. A node's gain for its moves is then known, and for any rate
#
# room <= room now + rate * moves + sum over the nodes of the greatest (gain - rate * its moves).
#
# A pod that leaves lands somewhere. Where it could hold v of the pods to come in its own amounts, it takes the room of
# v again: it counts with what is left of its amounts without them. That needs every node that takes pods to be counted,
# also those on which the pods to come may not be; another bound counts these not at all. As what holds for some of the
# resources holds for all, v is counted for the amounts together, without the places on nodes, and for each by itself,
# where it is larger. The least of the bounds holds.

_MOST_LEVELS: Final = 32
"""A node's gains beyond so many come with the moves of the next one."""

_FINEST: Final = 6
"""Rates are fractions of numbers up to this, and the ratios of gains to moves that nodes have."""

_MOST_RATES: Final = 64
_SLACK: Final = 1e-9
_BESIDE: Final = (1, 2, 4)


@dataclass(frozen=True)
class RoomBound:
    """What moves can bring at most."""

    now: int
    """The pods that fit without a move."""

    by_rate: tuple[tuple[int, int, int], ...]
    """Moves cost `gain` for each `moves`; with that nodes bring `total / moves` above the cost of their moves."""

    def most(self, moves: int) -> int:
        """Return how many pods fit at most after so many moves."""
        return self.now + min((gain * moves + total) // cost_per_pod for gain, cost_per_pod, total in self.by_rate)

    def fewest_moves(self, reached: int) -> int:
        """Return how many moves it takes at least to let so many fit."""
        further_pods = reached - self.now
        return (
            max(0, *(-((total - cost_per_pod * further_pods) // gain) for gain, cost_per_pod, total in self.by_rate))
            if further_pods > 0
            else 0
        )


def bound_room(packing: PackingModel, may_leave: Mask, kind: int) -> tuple[RoomBound, ...]:
    """Return the bounds on a kind's room; each of them holds."""
    taking_nodes, allowed_nodes = packing.takes, packing.allowed(kind) & packing.takes
    asked_columns = np.flatnonzero(packing.need[kind])
    amounts = _amounts(packing, asked_columns)
    landing = [_Pieces(packing, may_leave, kind, (amounts, taking_nodes), lands=True)]
    if len(amounts) > 1:
        single_columns = (amounts[[row]] for row in range(len(amounts)))
        landing += [
            _Pieces(packing, may_leave, kind, (single_column, taking_nodes), lands=True)
            for single_column in single_columns
        ]
    plain = _Pieces(packing, may_leave, kind, (asked_columns, allowed_nodes), lands=False)
    needed = bool((allowed_nodes != taking_nodes).any() or (plain.now != landing[0].now).any())
    return tuple(pieces.bound() for pieces in (*landing, *([plain] if needed else [])))


def _amounts(packing: PackingModel, asked: Ints) -> Ints:
    """Return the resources of which not all pods ask for the same, as they do for a place on the node."""
    differs = packing.need.min(axis=0) < packing.need.max(axis=0)
    return asked[differs[asked]] if differs[asked].any() else asked


class _Pieces:
    """The gains of nodes and the fewest pods that have to leave for them."""

    def __init__(
        self, packing: PackingModel, may_leave: Mask, kind: int, seen: tuple[Ints, Mask], *, lands: bool
    ) -> None:
        """Prepare; `seen` are the resources and the nodes that count."""
        self._asked, counted_nodes = seen
        self._need = packing.need[kind, self._asked][:, None]
        nodes = np.flatnonzero(counted_nodes)
        place = np.full(packing.nodes, -1, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        pods = np.flatnonzero((packing.pod_kind >= 0) & (may_leave & counted_nodes)[packing.pod_node])
        self._place = place[packing.pod_node[pods]]
        self._gone = packing.need[packing.pod_kind[pods]][:, self._asked].T  # (asked, pods)
        if lands and len(self._asked):
            self._gone = self._gone - self._need * (self._gone // self._need).min(axis=0)
        self._room = packing.room[np.ix_(self._asked, nodes)]  # (asked, counted nodes)
        self.now = self._count(self._room)

    def bound(self) -> RoomBound:
        """Return what follows for the room of all nodes together."""
        moves, gains = self._moves_for_gains()
        rates = {(gain, moves_per_gain) for gain in range(1, _FINEST + 1) for moves_per_gain in range(1, _FINEST + 1)}
        gains_and_moves = np.unique(np.stack([gains[moves > 0], moves[moves > 0]]), axis=1).T.tolist()
        rates |= {
            (gain, moves_per_gain)
            for gain, moves_per_gain in gains_and_moves[:: 1 + len(gains_and_moves) // _MOST_RATES]
            if gain
        }
        by_rate = (
            (gain, moves_per_gain, int((moves_per_gain * gains - gain * moves).max(axis=0).sum()))
            for gain, moves_per_gain in rates
        )
        return RoomBound(int(self.now.sum()), tuple(sorted(by_rate)))

    def _count(self, room: Ints) -> Ints:
        """Return how many of the pods to come fit into the room of each node."""
        if not len(self._asked):
            return np.zeros(room.shape[1], dtype=np.int64)
        fits: Ints = np.maximum((room // self._need).min(axis=0), 0)
        return fits

    def _moves_for_gains(self) -> tuple[Ints, Ints]:  # (levels, nodes) each
        """Return the fewest moves for each gain; a gain that is impossible costs and brings nothing."""
        freed = np.zeros_like(self._room)
        for column in range(len(self._room)):
            np.add.at(freed[column], self._place, self._gone[column])
        most_gains = self._count(self._room + freed) - self.now
        levels = np.arange(min(_MOST_LEVELS, int(most_gains.max(initial=0))) + 1)[:, None]
        gains = np.where(levels <= most_gains, levels, 0)
        gains[-1] = np.where(levels[-1] <= most_gains, most_gains, 0)
        lack = self._need[None] * (self.now + levels)[:, None, :] - self._room  # (levels, asked, nodes)
        moves = np.where(gains > 0, np.maximum(self._least(lack), 1), 0)
        return np.maximum.accumulate(moves, axis=0) * (gains > 0), gains

    def _least(self, lack: Ints) -> Ints:
        """Return how many pods have to leave each node at least; (levels, nodes)."""
        least_pods = np.zeros((len(lack), lack.shape[2]), dtype=np.int64)
        order = np.argsort(self._place, kind="stable")
        place = self._place[order]
        rank = np.arange(len(place)) - np.searchsorted(place, place)
        shape = lack.shape[2], int(rank.max(initial=-1)) + 1
        for weights in self._weightings():
            worth = weights @ self._gone
            largest = np.zeros(shape)
            largest[place, rank] = worth[np.lexsort((-worth, self._place))]
            together = np.cumsum(largest, axis=1)
            for level, missing in enumerate(weights @ lack):
                enough = missing - _SLACK * (1 + np.abs(missing))
                pods_to_leave = (together < enough[:, None]).sum(axis=1) + 1
                least_pods[level] = np.maximum(least_pods[level], np.where(enough > 0, pods_to_leave, 0))
        return least_pods

    def _weightings(self) -> Iterator[npt.NDArray[np.float64]]:
        """Yield how much each resource counts: alone, all alike, and two beside each other."""
        unit_weights = 1 / self._need[:, 0]
        yield from np.diag(unit_weights)
        yield unit_weights
        for first, second in permutations(range(len(unit_weights)), 2):
            for times in _BESIDE if first < second else _BESIDE[1:]:
                weights = np.zeros(len(unit_weights))
                weights[first], weights[second] = times * unit_weights[first], unit_weights[second]
                yield weights
