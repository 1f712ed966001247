"""Decides by whole fillings of nodes how few nodes can hold all pods, where hardly anything may be left free.

A program over counts learns nothing from its relaxation there. But the nodes that are kept waste no more together than
they hold beyond what all pods ask for, so that every single one has to be nearly full. Few fillings are, and a program
with a column for each type of node and filling is solved at once (Gilmore and Gomory, "A Linear Programming Approach to
the Cutting-Stock Problem", 1961).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.solver.highs import LinearProgram, SolverStatus
from berth_descheduler.planner.solver.model import Ints

_MOST_STATES: Final = 50_000
_MOST_TRIED: Final = 500_000

FEW_FILLINGS: Final = 300
"""So many are decided at once."""

MOST_FILLINGS: Final = 1_000


@dataclass(frozen=True)
class NodeType:
    """Nodes that can be filled in the same ways."""

    limit: Ints  # (resources,)
    most: Ints  # (kinds,), pods of each kind on one of the nodes at most
    nodes: int
    may_be_empty: bool
    """Whether a node without pods counts as one that is not kept."""


@dataclass(frozen=True)
class KeptNodes:
    """How few nodes are kept."""

    fewest: int
    """No fewer hold all pods."""

    fillings: tuple[Ints, ...] | None
    """Per type the fillings of so many kept nodes, (nodes, kinds); None: it is not known whether so few do."""


def fewest_kept(
    need: Ints, totals: Ints, types: Sequence[NodeType], most_fillings: int, deadline: Deadline
) -> KeptNodes:
    """Return how few of the nodes that may be empty hold all pods together with those that may not.

    It ends without an answer once there are more than `most_fillings` to choose from, or the time is over.

    need: (kinds, resources), totals: (kinds,).
    """
    always = np.sum([node_type.limit * node_type.nodes for node_type in types if not node_type.may_be_empty], axis=0)
    limits = [node_type.limit for node_type in types if node_type.may_be_empty for _ in range(node_type.nodes)]
    largest_first = -np.sort(-np.array(limits, dtype=np.int64).reshape(-1, need.shape[1]), axis=0)
    demand = totals @ need
    kept = 0
    for kept in range(len(limits) + 1):
        slack = always + largest_first[:kept].sum(axis=0) - demand
        if (slack[demand > 0] < 0).any():
            continue
        fillings = None if is_over(deadline) else _list_fillings(need, totals, types, slack, most_fillings)
        if fillings is None:
            break
        status, chosen = _choose(fillings, totals, types, kept, deadline)
        if status is not SolverStatus.IMPOSSIBLE:
            return KeptNodes(kept, chosen)
    return KeptNodes(kept, None)


def _list_fillings(
    need: Ints, totals: Ints, types: Sequence[NodeType], slack: Ints, at_most: int
) -> tuple[Ints, ...] | None:
    """Return per type every filling that wastes no more than all nodes may; None if there are more than `at_most`."""
    fillings: list[Ints] = []
    for node_type in types:
        left = at_most - sum(map(len, fillings))
        fillings_of_type = _list_of_type(need, np.minimum(node_type.most, totals), node_type.limit, slack, left)
        if fillings_of_type is None:
            return None
        fillings.append(fillings_of_type)
    return tuple(fillings)


def _list_of_type(need: Ints, most: Ints, limit: Ints, slack: Ints, at_most: int) -> Ints | None:
    """Return the fillings of a node, (fillings, kinds), kind by kind, the largest first; None if there are too many."""
    asked = np.flatnonzero(need.max(axis=0, initial=0))
    need, limit, least = need[:, asked], limit[asked], (limit - slack)[asked]
    order = np.argsort(-(need / np.maximum(limit, 1)).max(axis=1, initial=0), kind="stable")
    still_to_come = (need * most[:, None]).sum(axis=0)
    used, fillings = np.zeros((1, len(asked)), dtype=np.int64), np.zeros((1, len(need)), dtype=np.int64)
    for kind in order.tolist():
        still_to_come = still_to_come - need[kind] * most[kind]
        counts = np.arange(most[kind] + 1)
        if len(used) * len(counts) > _MOST_TRIED:
            return None
        used_then = used[:, None, :] + counts[None, :, None] * need[kind]  # (fillings, counts, resources)
        fits = (used_then <= limit).all(axis=2) & (used_then + still_to_come >= least).all(axis=2)
        rows, chosen_counts = np.nonzero(fits)
        if len(rows) > _MOST_STATES:
            return None
        used, fillings = used_then[rows, chosen_counts], fillings[rows]
        fillings[:, kind] = counts[chosen_counts]
        # What is full enough already is a filling as it is, whatever comes.
        if int((used >= least).all(axis=1).sum()) > at_most:
            return None
    return fillings


def _choose(
    fillings: Sequence[Ints], totals: Ints, types: Sequence[NodeType], kept: int, deadline: Deadline
) -> tuple[SolverStatus, tuple[Ints, ...] | None]:
    """Return whether so many kept nodes have every pod once, and the fillings that do."""
    program = LinearProgram()
    all_fillings = np.concatenate(fillings)
    if ((totals > 0) & ~all_fillings.any(axis=0)).any():
        return SolverStatus.IMPOSSIBLE, None
    columns = [
        program.add_columns(np.full(len(of_type), node_type.nodes), whole=True)
        for of_type, node_type in zip(fillings, types, strict=True)
    ]
    all_columns = np.concatenate(columns)
    for kind in np.flatnonzero(totals).tolist():
        of_kind = np.flatnonzero(all_fillings[:, kind])
        amounts = all_fillings[of_kind, kind].astype(float)
        program.add_row(all_columns[of_kind], amounts, lower=totals[kind], upper=totals[kind])
    for columns_of_type, node_type in zip(columns, types, strict=True):
        lower = 0 if node_type.may_be_empty else node_type.nodes
        program.add_row(columns_of_type, np.ones(len(columns_of_type)), lower=lower, upper=node_type.nodes)
    kept_columns = [column for column, node_type in zip(columns, types, strict=True) if node_type.may_be_empty]
    if kept_columns:
        of_kept = np.concatenate(kept_columns)
        program.add_row(of_kept, np.ones(len(of_kept)), upper=kept)
    result = program.solve(deadline, None, any_solution=True)
    if result.values is None:
        is_impossible = result.status is SolverStatus.IMPOSSIBLE
        return SolverStatus.IMPOSSIBLE if is_impossible else SolverStatus.UNDECIDED, None
    times = np.rint(result.values).astype(np.int64)
    chosen = tuple(
        np.repeat(of_type, times[columns_of_type], axis=0)
        for of_type, columns_of_type in zip(fillings, columns, strict=True)
    )
    has_all = (np.concatenate(chosen).sum(axis=0) == totals).all() and all(
        len(chosen_of_type) <= node_type.nodes for chosen_of_type, node_type in zip(chosen, types, strict=True)
    )
    return (SolverStatus.FOUND, chosen) if has_all else (SolverStatus.UNDECIDED, None)
