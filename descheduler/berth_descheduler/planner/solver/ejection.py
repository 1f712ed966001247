"""The sets of one or two small pods that may be moved aside for a larger one, and where they make room for it."""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Final

import numpy as np
import numpy.typing as npt

from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

_SINGLES: Final = 24
_PAIRS: Final = 10


@dataclass(frozen=True, slots=True)
class _Sets:
    """What may be moved aside for a kind, the cheapest set first."""

    kinds: tuple[tuple[int, ...], ...]
    gone: Ints  # (sets, resources)
    rows: tuple[Ints, Ints]  # (sets,) each; of a single pod twice the same
    pairs: Ints  # (sets,), how many pods of the first row's kind are taken


class EjectionSets:
    """Knows the sets for every kind, each computed once."""

    def __init__(self, packing: PackingModel, order: Ints, cost: Ints, most_ejected: int) -> None:
        """Prepare; in `order` a kind may have those after it moved aside."""
        self._packing = packing
        self._cost = cost
        self._most_ejected = most_ejected
        self._row = row_of_kind(packing)
        self._order: list[int] = order.tolist()
        self._known: dict[int, _Sets] = {}

    def smaller(self, kind: int) -> list[int]:
        """Return the ejectable kinds that are smaller than a kind, the larger first; not all if there are many."""
        after = self._order[self._order.index(kind) + 1 :]
        return _evenly([one for one in after if self._row[one] >= 0], _SINGLES)

    def promising(self, kind: int, room: Ints, there: npt.NDArray[np.int32], may: Mask) -> list[tuple[int, ...]]:
        """Return the sets that make room for a kind on some node now; arrays are over the same nodes."""
        if kind not in self._known:
            self._known[kind] = self._list(kind)
        sets, need = self._known[kind], self._packing.need[kind]
        if not sets.kinds:
            return []
        nodes = may.nonzero()[0]
        for column in self._packing.asked[kind]:
            nodes = nodes[room[column, nodes] >= need[column] - sets.gone[:, column].max()]
        held = there[:, nodes]
        first, second = sets.rows
        found = (held[first] >= sets.pairs[:, None]) & (held[second] > 0)
        for column in self._packing.asked[kind]:
            found &= room[column, nodes] >= (need[column] - sets.gone[:, column])[:, None]
        return [sets.kinds[one] for one in np.flatnonzero(found.any(axis=1))]

    def _list(self, kind: int) -> _Sets:
        """Return the sets for a kind."""
        smaller, size = self.smaller(kind), self._packing.size
        pairs = (
            pair
            for pair in combinations_with_replacement(_evenly(smaller, _PAIRS), 2)
            if self._most_ejected > 1 and size[pair[0]] + size[pair[1]] < size[kind]
        )
        cost = self._cost.tolist()
        costs = ((sum(cost[one] for one in found), found) for found in (*((e,) for e in smaller), *pairs))
        kinds = tuple(found for _, found in sorted(costs))
        first = np.array([one[0] for one in kinds], dtype=np.int64)
        second = np.array([one[-1] for one in kinds], dtype=np.int64)
        two = np.array([len(one) == 2 for one in kinds], dtype=bool)  # noqa: PLR2004 - a pair
        need = self._packing.need
        gone = need[first] + need[second] * two[:, None]
        return _Sets(kinds, gone, (self._row[first], self._row[second]), 1 + (two & (first == second)))


def row_of_kind(packing: PackingModel) -> Ints:
    """Return per kind its row among those that may be moved aside, -1 for others; (kinds,)."""
    rows = np.full(packing.kinds, -1, dtype=np.int64)
    rows[packing.ejectable] = np.arange(len(packing.ejectable))
    return rows


def _evenly(kinds: list[int], most: int) -> list[int]:
    """Return at most so many of some kinds, evenly over the list, its ends among them."""
    if len(kinds) <= most:
        return kinds
    return [kinds[index * (len(kinds) - 1) // (most - 1)] for index in range(most)]
