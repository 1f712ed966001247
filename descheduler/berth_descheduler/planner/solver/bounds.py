"""Bounds on any plan: the most nodes freed, the fewest moves.

By volume: whatever is moved where, a node that is kept holds at most what it has for movable pods (or what it holds of
them now, if it is over-booked or takes no pods), so the nodes that are empty at the end cannot have more than all nodes
have together less what the movable pods ask for. This is a bound per resource, for ejections too. A pod beside which no
other fits, as it takes all of one resource of any node, counts for as much of the others as the smallest such node has.
By number: each freed node's pods each take a move of their own, so the nodes with the fewest pods are the cheapest.

Where nodes have weights, what counts is the worth of the freed ones, not their number. Each bound on the number says
that a cost of the freed nodes, added up, stays within a limit: their volume, their pods, their values. So the worth
is at most that of the best choice of nodes within the limit, wherever their pods would go. The best choice is counted
where the nodes have few distinct weights. Elsewhere any exchange rate of worth against cost gives a bound.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from berth_descheduler.planner.solver.model import Ints, PackingModel


def holds(packing: PackingModel, taken: Ints | None = None) -> Ints:
    """Return each node's capacity for movable pods, or for those that take `taken` of it; (resources, nodes)."""
    taken = taken_by_movable(packing) if taken is None else taken
    holdable: Ints = np.where(packing.takes, np.maximum(packing.room + taken, taken), taken)
    return holdable


def usual_size(packing: PackingModel) -> int:
    """Return the size of all that the median node which takes pods can hold of movable ones, at least 1."""
    sizes = (packing.weight @ holds(packing))[packing.takes]
    return max(1, int(np.median(sizes))) if len(sizes) else 1


def taken_by_movable(packing: PackingModel) -> Ints:
    """Return what the movable pods take of each node; (resources, nodes)."""
    movable = np.flatnonzero(packing.pod_kind >= 0)
    kinds, nodes = packing.pod_kind[movable], packing.pod_node[movable]
    taken = np.zeros_like(packing.room)
    for column in range(len(taken)):
        amounts = packing.need[kinds, column].astype(np.float64)  # whole numbers below 2**53 are exact
        taken[column] = np.bincount(nodes, weights=amounts, minlength=packing.nodes).astype(np.int64)
    return taken


def _spare_amounts(packing: PackingModel, hold: Ints, taken: Ints) -> Ints:
    """Return how much of each resource all nodes hold beyond what movable pods take wherever they go; (resources,)."""
    spare: Ints = (hold - taken)[:, packing.takes].sum(axis=1)
    counts = np.bincount(packing.pod_kind[packing.pod_kind >= 0], minlength=packing.kinds)
    movable_kinds = np.flatnonzero(counts)
    if not len(movable_kinds):
        return spare
    least = packing.need[movable_kinds].min(axis=0)
    most_by_profile = {
        profile: (hold * (allowed & packing.takes)).max(axis=1)
        for profile, allowed in packing.allowed_by_profile.items()
    }
    most = np.array([most_by_profile[profile] for profile in packing.profile[movable_kinds].tolist()])
    is_filling = ((least > 0) & (packing.need[movable_kinds] + least > most)).any(axis=1)
    for kind in movable_kinds[is_filling].tolist():
        need = packing.need[kind]
        homes = np.unique(packing.pod_node[packing.pod_kind == kind])
        # Over-booked nodes, and those that no longer take pods, may hold it beside others as they do now.
        may_hold = packing.allowed(kind) & packing.takes & (hold >= need[:, None])[need > 0].all(axis=0)
        may_hold[homes] = True
        is_alone = ((least > 0)[:, None] & (hold[:, may_hold] < (need + least)[:, None])).any(axis=0).all()
        if is_alone:
            spare -= counts[kind] * np.maximum(hold[:, may_hold].min(axis=1) - need, 0)
    return spare


def most_freed_by_volume(packing: PackingModel, to_empty: Sequence[int], empty: Sequence[int]) -> int:
    """Return how many more nodes than now can be empty at most."""
    hold, taken = holds(packing), taken_by_movable(packing)
    clearable = np.array([*to_empty, *empty], dtype=np.int64)
    most_empty = len(clearable)
    spare = _spare_amounts(packing, hold, taken)
    for column in np.flatnonzero(packing.need.max(axis=0, initial=0)):
        spare_amount = int(spare[column])
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


_MOST_CHOICES: Final = 1 << 18

Choices: TypeAlias = tuple[Ints, Ints]
"""What a choice of nodes can be worth, ascending, and the least cost of that much."""


def worth_by_volume(packing: PackingModel, nodes: Ints, empty: Ints, worth: Ints) -> int:
    """Return the most that freed nodes can be worth, while the empty ones stay empty."""
    hold, taken = holds(packing), taken_by_movable(packing)
    worth_bound = int(worth.sum())
    spare = _spare_amounts(packing, hold, taken) - hold[:, empty].sum(axis=1)
    for column in np.flatnonzero(packing.need.max(axis=0, initial=0)):
        worth_bound = min(worth_bound, most_worth(worth, hold[column, nodes], int(spare[column])))
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
