"""The bound on room: for how many pods of a kind a number of moves makes room at most, by where the free pieces lie.

For a node to hold h pods to come, so many pods have to leave it that their amounts make up for what it lacks. How
many that are at least is counted for several weightings of the resources, the largest pods first, as any set of pods
that is enough is enough in every weighting. A node's gain for its moves is then known, and for any rate

room <= room now + rate * moves + sum over the nodes of the greatest (gain - rate * its moves).

A pod that leaves lands somewhere. Where it could hold v of the pods to come in its own amounts, it takes the room of
v again: it counts with what is left of its amounts without them. That needs every node that takes pods to be counted,
also those on which the pods to come may not be; another bound counts these not at all. As what holds for some of the
resources holds for all, v is counted for the amounts together, without the places on nodes, and for each by itself,
where it is larger. The least of the bounds holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np
import numpy.typing as npt

from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

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
