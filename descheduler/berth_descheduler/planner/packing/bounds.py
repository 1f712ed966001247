"""Owns bounds that hold for any plan: how many nodes can be freed, and how many moves that takes at least.

It does not own the bounds that the integer program finds.

By volume: whatever is moved where, a node that is kept holds at most what it has for movable pods (or what it holds of
them now, if it is over-booked or takes no pods), so the nodes that are empty at the end cannot have more than all nodes
have together less what the movable pods ask for. This is a bound per resource, for ejections too.
By number: each freed node's pods each take a move of their own, so the nodes with the fewest pods are the cheapest.
"""

from collections.abc import Sequence

import numpy as np

from berth_descheduler.planner.packing.columns import Columns, Ints


def holds(columns: Columns) -> Ints:
    """Return what each node can hold of movable pods at most; (resources, nodes)."""
    taken = taken_by_movable(columns)
    most: Ints = np.where(columns.takes, np.maximum(columns.room + taken, taken), taken)
    return most


def taken_by_movable(columns: Columns) -> Ints:
    """Return what the movable pods take of each node; (resources, nodes)."""
    movable = np.flatnonzero(columns.pod_kind >= 0)
    kinds, nodes = columns.pod_kind[movable], columns.pod_node[movable]
    taken = np.zeros_like(columns.room)
    for column in range(len(taken)):
        amounts = columns.need[kinds, column].astype(np.float64)  # whole numbers below 2**53 are exact
        taken[column] = np.bincount(nodes, weights=amounts, minlength=columns.nodes).astype(np.int64)
    return taken


def most_freed_by_volume(columns: Columns, to_empty: Sequence[int], empty: Sequence[int]) -> int:
    """Return how many more nodes than now can be empty at most."""
    hold, taken = holds(columns), taken_by_movable(columns)
    may = np.array([*to_empty, *empty], dtype=np.int64)
    most = len(may)
    for column in np.flatnonzero(columns.need.max(axis=0, initial=0)):
        spare = int((hold[column] - taken[column])[columns.takes].sum())
        most = min(most, int((np.cumsum(np.sort(hold[column, may])) <= spare).sum()))
    return max(0, most - len(empty))


def most_freed_by_number(pod_counts: Ints, budget: int | None) -> int:
    """Return how many nodes can be freed with so many moves at most, given how many pods each of them has."""
    if budget is None:
        return len(pod_counts)
    return int((np.cumsum(np.sort(pod_counts)) <= budget).sum())


def fewest_moves(pod_counts: Ints, freed: int) -> int:
    """Return how many moves it takes at least to free so many of the nodes."""
    return int(np.sort(pod_counts)[:freed].sum())


def most_that_fit(columns: Columns, kind: int) -> int:
    """Return how many pods of a kind can find room at most, wherever the movable pods go."""
    hold, taken, need = holds(columns), taken_by_movable(columns), columns.need[kind]
    asked = np.flatnonzero(need)
    if not len(asked):
        return int(hold.max(initial=0))
    nodes = columns.allowed(kind) & columns.takes
    each = np.maximum(hold[np.ix_(asked, np.flatnonzero(nodes))], 0) // need[asked, None]
    most = int(each.min(axis=0).sum())
    for column in asked:
        spare = int((hold[column] - taken[column])[columns.takes].sum())
        most = min(most, max(0, spare) // int(need[column]))
    return most
