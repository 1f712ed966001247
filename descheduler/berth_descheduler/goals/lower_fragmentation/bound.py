"""The bound that no plan exceeds in lowering the fragmentation."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from berth_descheduler.goals.lower_fragmentation.moves import FragmentationMeasure, PossibleMoves
from berth_descheduler.planner import NodeIndex
from berth_descheduler.planner.solver import PackingModel


class FragmentationBound:
    """How far any plan can lower the fragmentation, wherever its moves put the pods."""

    # A pod of the mix that would not fit on a node even without its movable pods cannot use what is free there, so
    # each node has a least fragmentation per free amount. Moves keep the total of what is free: at best all of it lies
    # where that is least. And each move changes two nodes only, by at most as much as they are fragmented now.

    def __init__(
        self, measure: FragmentationMeasure, packing: PackingModel, may_leave: Sequence[NodeIndex], moves: PossibleMoves
    ) -> None:
        changing = packing.takes.copy()
        changing[list(may_leave)] = True
        nodes = np.flatnonzero(changing)
        ceiling = moves.ceiling()[:, nodes]
        least: list[int] = (measure.pods - measure.popularity(ceiling, nodes)).tolist()
        before, free = moves.before[nodes].tolist(), moves.free[measure.column, nodes].tolist()
        lowest = min(least, default=0)
        falls = (now - lowest * piece for now, piece in zip(before, free, strict=True))
        self._falls = sorted((fall for fall in falls if fall > 0), reverse=True)
        pieces = sorted(zip(least, ceiling[measure.column].tolist(), strict=True))
        # Each move changes two nodes, so a budget of moves reaches at most twice as many.
        counted_falls = self._falls if moves.budget is None else self._falls[: 2 * moves.budget]
        self.most = max(0, min(sum(before) - _spread(sum(free), pieces), sum(counted_falls)))

    def fewest_moves(self, gained: int) -> int:
        """Return how many moves it takes at least to gain as much."""
        sums = list(accumulate(self._falls))
        return -(-(bisect_left(sums, gained) + 1) // 2) if gained else 0


def _spread(amount: int, pieces: Sequence[tuple[int, int]]) -> int:
    """Return the least that an amount costs over pieces, each with its cost and size, the cheapest first."""
    # Any part of a piece may be taken, so the cheapest first is the least (the continuous knapsack; Dantzig, 1957).
    total = 0
    for cost, size in pieces:
        part = max(0, min(size, amount))
        total, amount = total + cost * part, amount - part
    return total
