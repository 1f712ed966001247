"""Packs alike nodes nearly full, by the cutting-stock program over whole fillings of a node.

Where pods are large beside their nodes and hardly anything may be left free, a search that places one pod after the
other ends a node short, and the program over counts learns nothing from its relaxation. But so few fillings are nearly
full that all of them can be listed, and the program with one column for each is solved in seconds (Gilmore and Gomory,
"A Linear Programming Approach to the Cutting-Stock Problem", 1961). Without the solver, or where it finds nothing, they
are tried one after the other as an exact cover: next comes the kind with the fewest fillings left (Knuth, "Dancing
Links", 2000).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.simulation import NodeIndex
from berth_descheduler.planner.solver.bounds import holds
from berth_descheduler.planner.solver.draining import Candidates, Draining
from berth_descheduler.planner.solver.filling import Filled
from berth_descheduler.planner.solver.highs import LinearProgram, is_installed
from berth_descheduler.planner.solver.model import Ints, PackingModel

_MOST_FILLINGS: Final = 20_000
_MOST_STEPS: Final = 1_000_000
_MOST_PODS: Final = 5
"""Where more pods fill a node, there are too many fillings, and the search has no trouble."""

_COVERED_FIRST: Final = 4
"""Fillings of so few pods are tried first as a cover: they are right most often."""

_MOST_COVERED: Final = 200
"""The most nodes that are covered one by one."""

_MOST_LOOKED_AT: Final = 50_000_000
"""Fillings times kinds that are looked at for one cover, some 10 nanoseconds each."""

_MOST_LOOKED_AT_IN_ALL: Final = 150_000_000
_LOOKS_OF_A_STEP: Final = 5_000
"""What one filling more in a cover takes besides, counted in looks."""

Filling = tuple[int, ...]
"""The kinds of the pods on a node, with repetitions."""


def pack_fully(
    packing: PackingModel,
    candidates: Candidates,
    freed_counts: Iterable[int],
    deadline: Deadline,
    *,
    exact: bool = True,
) -> Iterator[Draining]:
    """Yield drainings that free so many candidates and put all their pods on the others.

    The counts descend; one that no packing is found for is passed over. Yields nothing if nodes or their worth differ,
    or a pod depends on others, and no more once there are too many fillings. Without `exact` no solver is asked.
    """
    nodes = candidates.nodes
    if candidates.differ:
        return
    pods = np.flatnonzero((packing.pod_kind >= 0) & np.isin(packing.pod_node, nodes))
    kinds = np.unique(packing.pod_kind[pods])
    if not len(kinds) or packing.dependent[kinds].any():
        return
    limits = holds(packing)[:, nodes]
    are_open = all(packing.allowed(int(kind))[nodes].all() for kind in kinds)
    if not are_open or (limits != limits[:, :1]).any():
        return
    limit, column = limits[:, 0], packing.binding
    counts = Counter(packing.pod_kind[pods].tolist())
    demand = sum(int(packing.need[kind, column]) * count for kind, count in counts.items())
    is_solved = exact and is_installed()
    cover = _Cover(deadline)
    for freed in freed_counts:
        kept = len(nodes) - freed
        slack = kept * int(limit[column]) - demand
        if kept < 1 or slack < 0 or (kept > _MOST_COVERED and not is_solved):
            continue
        fillings = None if is_over(deadline) else _list_fillings(packing, counts, limit, slack)
        if fillings is None:
            return  # the fewer are freed, the more fillings there are
        chosen = _choose(fillings, counts, kept, deadline) if is_solved else None
        if chosen is None:
            few_pods = [filling for filling in fillings if len(filling) <= _COVERED_FIRST]
            chosen = cover.find(few_pods, counts, kept) or cover.find(fillings, counts, kept)
        if chosen is not None:
            yield _draining(packing, candidates, chosen)


def _list_fillings(packing: PackingModel, counts: Counter[int], limit: Ints, slack: int) -> list[Filling] | None:
    """Return every filling of a node that wastes no more than all kept nodes may together; None if too many."""
    column = packing.binding
    by_size = sorted(counts, key=lambda kind: (-int(packing.need[kind, column]), kind))
    needs = [packing.need[kind].tolist() for kind in by_size]
    ascending = [-need[column] for need in needs]
    steps_left = _MOST_STEPS

    def grow(first: int, room: Sequence[int], filling: Filling) -> Iterator[Filling]:
        nonlocal steps_left
        if room[column] <= slack:
            yield filling
        pods_left = _MOST_PODS - len(filling)
        for position in range(max(first, bisect_left(ascending, -room[column])), len(by_size)):
            kind, need = by_size[position], needs[position]
            steps_left -= 1
            if steps_left < 0 or pods_left * need[column] < room[column] - slack:
                return  # so many of the smaller ones waste too much
            room_left = [room_amount - amount for room_amount, amount in zip(room, need, strict=True)]
            fits = all(left >= 0 or not amount for left, amount in zip(room_left, need, strict=True))
            if fits and filling.count(kind) < counts[kind]:
                yield from grow(position, room_left, (*filling, kind))

    fillings = []
    for filling in grow(0, limit.tolist(), ()):
        fillings.append(filling)
        if len(fillings) > _MOST_FILLINGS:
            return None
    return fillings if steps_left >= 0 else None


def _choose(fillings: Sequence[Filling], counts: Counter[int], kept: int, deadline: Deadline) -> list[Filling] | None:
    """Return fillings, one for each kept node, that have every pod once; None if none are found."""
    amounts = [Counter(filling) for filling in fillings]
    most_times = [min((counts[kind] // count for kind, count in amount.items()), default=kept) for amount in amounts]
    program = LinearProgram()
    columns = program.add_columns(np.array(most_times, dtype=np.int64), whole=True)
    of_kind: dict[int, list[tuple[int, int]]] = {kind: [] for kind in counts}
    for column, amount in zip(columns.tolist(), amounts, strict=True):
        for kind, count in amount.items():
            of_kind[kind].append((column, count))
    for kind, cells in of_kind.items():
        if not cells:
            return None
        columns_of_kind, values = np.array(cells, dtype=np.int64).T
        program.add_row(columns_of_kind, values.astype(float), lower=counts[kind], upper=counts[kind])
    program.add_row(columns, np.ones(len(columns)), lower=kept, upper=kept)
    result = program.solve(deadline, None, any_solution=True)
    if result.values is None:
        return None
    times = np.rint(result.values).astype(np.int64).tolist()
    chosen = [filling for filling, number in zip(fillings, times, strict=True) for _ in range(number)]
    has_all = len(chosen) == kept and Counter(kind for filling in chosen for kind in filling) == counts
    return chosen if has_all else None  # the solver takes values within its tolerance for whole


@dataclass(slots=True)
class _Cover:
    """Looks for fillings that have every pod once, with a limit on each search and on all of them."""

    deadline: Deadline
    looks_left: int = 0
    looks_left_in_all: int = _MOST_LOOKED_AT_IN_ALL

    def find(self, fillings: Sequence[Filling], counts: Counter[int], kept: int) -> list[Filling] | None:
        """Return fillings of at most so many nodes; None if none are found."""
        if kept > _MOST_COVERED or not fillings:
            return None
        kinds = sorted(counts)
        position = {kind: number for number, kind in enumerate(kinds)}
        fewest_pods_first = sorted(fillings, key=len)
        amounts = np.zeros((len(fillings), len(kinds)), dtype=np.int64)
        for number, filling in enumerate(fewest_pods_first):
            for kind in filling:
                amounts[number, position[kind]] += 1
        left = np.array([counts[kind] for kind in kinds], dtype=np.int64)
        looks = self.looks_left = min(_MOST_LOOKED_AT, self.looks_left_in_all)
        rows = self._extend(amounts, np.flatnonzero((amounts <= left).all(axis=1)), left, kept)
        self.looks_left_in_all -= looks - self.looks_left
        return None if rows is None else [fewest_pods_first[row] for row in rows]

    def _extend(self, amounts: Ints, rows: Ints, left: Ints, nodes: int) -> list[int] | None:
        """Return those of some rows that have what is left of each kind."""
        if not left.any():
            return []
        self.looks_left -= len(rows) * amounts.shape[1] + _LOOKS_OF_A_STEP
        if not nodes:
            return None
        has_kind = amounts[rows] > 0
        choices = np.where(left > 0, has_kind.sum(axis=0), len(amounts) + 1)
        for row in rows[has_kind[:, int(choices.argmin())]].tolist():
            if self.looks_left < 0 or is_over(self.deadline):
                return None
            left_then = left - amounts[row]
            fitting_rows = rows[(amounts[rows] <= left_then).all(axis=1)]
            further = self._extend(amounts, fitting_rows, left_then, nodes - 1)
            if further is not None:
                return [row, *further]
        return None


def _draining(packing: PackingModel, candidates: Candidates, chosen: Sequence[Filling]) -> Draining:
    """Return the draining that gives each filling to a node, greedily to the one that has most of it already."""
    there = {
        int(node): Counter(packing.pod_kind[[*candidates.pods_of[NodeIndex(int(node))]]].tolist())
        for node in candidates.nodes
    }
    amounts = [Counter(filling) for filling in chosen]
    pairs = sorted(
        ((-(amount & there[node]).total(), node, number) for number, amount in enumerate(amounts) for node in there)
    )
    place_of: dict[int, int] = {}
    taken: set[int] = set()
    for _, node, number in pairs:
        if node not in taken and number not in place_of:
            place_of[number] = node
            taken.add(node)
    arrivals, ejections = [], []
    for number, node in place_of.items():
        arrivals += [(kind, node, count) for kind, count in sorted((amounts[number] - there[node]).items())]
        ejections += [(kind, node, count) for kind, count in sorted((there[node] - amounts[number]).items())]
    nodes = tuple(NodeIndex(node) for node in sorted(there.keys() - taken))
    filled = Filled.placed(packing, _rows(arrivals), _rows(ejections))
    moves = sum(count for _, _, count in arrivals)
    return Draining.of(packing, nodes, (), filled, moves=moves, worth=candidates.worth_of(nodes))


def _rows(entries: list[tuple[int, int, int]]) -> Ints:
    return np.array(sorted(entries), dtype=np.int64).reshape(-1, 3)
