"""Packs the pods of a cluster on fewer nodes by the repair of an over-full packing.

The search and the integer program build packings that fit. Near the optimum these are rare, and both end a node short.
Here all pods are put on the nodes that are kept, over-full ones included. Then a node that is too full gives a pod away
or changes it for another one, whichever lowers the excess most, until none is too full ("min-conflicts": Minton and
others, 1992). What was just taken off a node does not come back for some steps ("tabu search": Glover, 1989).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from berth_core import Deadline, is_over
from berth_descheduler.planner.simulation import NodeIndex
from berth_descheduler.planner.solver.bounds import holds
from berth_descheduler.planner.solver.draining import Candidates, Draining
from berth_descheduler.planner.solver.filling import Filled
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

Floats: TypeAlias = npt.NDArray[np.float64]

_MOST_NODES: Final = 100
_MOST_PODS: Final = 2_000
_STARTS: Final = 4
"""So many choices of the nodes that are kept are tried, the first of which keeps the largest."""

_MOST_STEPS: Final = 100
"""So many steps are made from each; where a packing is found, it mostly takes ten."""

_MOST_LOOKS: Final = 3_000
"""So many targets are looked at from each, some 60 microseconds for one."""

_REST_STEPS: Final = (5, 15)
"""For how many steps a kind does not come back to a node, at least and less than."""

_SPREAD: Final = 0.1
"""By what share sizes are changed at random for further choices."""


class PackingRepair:
    """Finds drainings by requests and ties to nodes alone: where pods depend on others they may have no order."""

    def __init__(self, packing: PackingModel, candidates: Candidates, may_leave: Mask, *, seed: int) -> None:
        """Nothing is found if nodes differ in worth, or are many."""
        movable: _MovablePods | None = None
        if not candidates.differ and packing.nodes <= _MOST_NODES:
            movable = _MovablePods.of(packing, candidates, may_leave)
        self._movable = movable if movable is not None and 0 < movable.counts.sum() <= _MOST_PODS else None
        self._seed = seed

    def drainings(self, freed: int, deadline: Deadline) -> Iterator[Draining]:
        """Yield drainings that free so many nodes."""
        if (movable := self._movable) is None:
            return
        random = np.random.default_rng(self._seed)
        for start in range(_STARTS):
            repair = _Repair(movable, movable.choose_kept(freed, start, random), random)
            if repair.run(deadline):
                yield movable.draining(repair.counts)


@dataclass(frozen=True)
class _MovablePods:
    """Where the pods that may leave their nodes are, and where they may be."""

    packing: PackingModel
    candidates: Candidates
    nodes: Ints  # (places,), without those that are empty already
    kinds: Ints  # (movable kinds,)
    counts: Ints  # (places, movable kinds)
    need: Ints  # (movable kinds, resources)
    capacity: Ints  # (places, resources), for pods that may leave
    takes: Mask  # (places, movable kinds)
    can_be_freed: Mask  # (places,)

    @classmethod
    def of(cls, packing: PackingModel, candidates: Candidates, may_leave: Mask) -> "_MovablePods":
        """Count the pods of all nodes from which some may be taken."""
        is_place = packing.takes.copy()
        is_place[candidates.nodes] = True
        is_place[candidates.empty] = False
        nodes = np.flatnonzero(is_place)
        pods = np.flatnonzero((packing.pod_kind >= 0) & (may_leave & is_place)[packing.pod_node])
        kinds, kind_of_pod = np.unique(packing.pod_kind[pods], return_inverse=True)
        counts = np.zeros((len(nodes), len(kinds)), dtype=np.int64)
        np.add.at(counts, (np.searchsorted(nodes, packing.pod_node[pods]), kind_of_pod), 1)
        need = packing.need[kinds]
        taken = np.zeros_like(packing.room)
        taken[:, nodes] = (counts @ need).T
        takes = (
            np.array([packing.allowed(int(kind))[nodes] for kind in kinds], dtype=bool)
            .reshape(len(kinds), len(nodes))
            .T
        )
        takes &= packing.takes[nodes, None]
        capacity, can_be_freed = holds(packing, taken)[:, nodes].T, np.isin(nodes, candidates.nodes)
        return cls(packing, candidates, nodes, kinds, counts, need, capacity, takes, can_be_freed)

    def choose_kept(self, freed: int, start: int, random: np.random.Generator) -> Mask:
        """Return which places are kept where so many are freed: the largest, and others at each further start."""
        sizes = self.capacity @ self.packing.weight.astype(float)
        if start:
            sizes = sizes * random.uniform(1 - _SPREAD, 1 + _SPREAD, len(sizes))
        sizes[~self.can_be_freed] = np.inf
        kept = np.ones(len(sizes), dtype=bool)
        kept[np.argsort(sizes, kind="stable")[:freed]] = False
        return kept

    def draining(self, counts: Ints) -> Draining:
        """Return what empties the nodes that have no pods in a packing, and moves the others to where it has them."""
        is_freed = self.can_be_freed & ~counts.any(axis=1)
        more = counts - self.counts
        arrivals, ejections = self._rows(np.maximum(more, 0)), self._rows(np.maximum(-more, 0) * ~is_freed[:, None])
        nodes = tuple(NodeIndex(int(node)) for node in self.nodes[is_freed])
        filled = Filled.placed(self.packing, arrivals, ejections)
        moves, worth = int(arrivals[:, 2].sum()), self.candidates.worth_of(nodes)
        return Draining.of(self.packing, nodes, (), filled, moves=moves, worth=worth)

    def _rows(self, counts: Ints) -> Ints:
        """Return counts by place and kind as rows of kind, node and count; (entries, 3)."""
        places, columns = counts.nonzero()
        rows: Ints = np.stack([self.kinds[columns], self.nodes[places], counts[places, columns]], axis=1)
        order = np.lexsort((rows[:, 1], rows[:, 0]))
        return rows[order]


@dataclass(frozen=True)
class _Change:
    """A kind that a place gives to another one, perhaps for a kind of that one."""

    excess: float
    """By how much the excess of all places grows."""

    target: int
    given: int
    returned: int | None


class _Repair:
    """A packing that becomes less over-full step by step."""

    def __init__(self, movable: _MovablePods, kept: Mask, random: np.random.Generator) -> None:
        """Put what is on nodes that are not kept on the others, the largest first, wherever it exceeds least."""
        self._movable, self._random = movable, random
        unit = np.maximum(movable.capacity.max(axis=0), 1).astype(float)
        self._need: Floats = movable.need / unit
        self._capacity: Floats = movable.capacity / unit
        self._places = np.flatnonzero(kept)
        self._most = np.where(movable.packing.alone[movable.kinds], np.maximum(movable.counts, 1), _MOST_PODS)
        self._rests_until = np.zeros_like(movable.counts)
        self.counts: Ints = np.where(kept[:, None], movable.counts, 0)
        self._loads: Floats = self.counts @ self._need
        self._is_placed = all(
            self._put(kind)
            for kind in np.argsort(-self._need.sum(axis=1), kind="stable").tolist()
            for _ in range(int(movable.counts[~kept, kind].sum()))
        )

    def run(self, deadline: Deadline) -> bool:
        """Return whether nothing is too full in the end."""
        if not self._is_placed:
            return False
        steps = min(_MOST_STEPS, _MOST_LOOKS // max(1, len(self._places)))
        for step in range(1, steps + 1):
            # In whole numbers: those in parts of a node are rounded.
            is_too_full = (self.counts @ self._movable.need > self._movable.capacity).any(axis=1)
            if not is_too_full.any():
                return True
            source = int(self._random.choice(np.flatnonzero(is_too_full)))
            change = None if is_over(deadline) else self._best_change(source, step)
            if change is None:
                return False
            self._move(change.given, source, change.target, step)
            if change.returned is not None:
                self._move(change.returned, change.target, source, step)
        return False

    @staticmethod
    def _excess(loads: Floats, capacity: Floats) -> Floats:
        """Return by how much loads, (..., resources), go beyond a capacity, in parts of the largest node."""
        excess: Floats = np.maximum(loads - capacity, 0).sum(axis=-1)
        return excess

    def _takes(self, places: Ints | int, kinds: Ints | int) -> Mask:
        """Return whether places take one more pod of a kind, or a place one of kinds; a node takes back what it had."""
        counts, movable = self.counts[places, kinds], self._movable
        was_there = counts < movable.counts[places, kinds]
        takes: Mask = (movable.takes[places, kinds] | was_there) & (counts < self._most[places, kinds])
        return takes

    def _exchangeable(self, place: int, kinds: Ints, step: int) -> Ints:
        """Return those of some kinds that a place takes and that have not just been taken off it."""
        exchangeable: Ints = kinds[self._takes(place, kinds) & (self._rests_until[place, kinds] <= step)]
        return exchangeable

    def _put(self, kind: int) -> bool:
        """Put one pod where it exceeds least, then where the node is fullest; return whether any place takes it."""
        places = self._places[self._takes(self._places, kind)]
        if not len(places):
            return False
        loads = self._loads[places] + self._need[kind]
        excess = self._excess(loads, self._capacity[places]) - self._excess(self._loads[places], self._capacity[places])
        place = int(places[np.lexsort((loads.max(axis=1), excess))[0]])
        self.counts[place, kind] += 1
        self._loads[place] += self._need[kind]
        return True

    def _best_change(self, source: int, step: int) -> _Change | None:
        """Return what lowers the excess most, or raises it least; None where nothing can be given away."""
        best: _Change | None = None
        on_source = np.flatnonzero(self.counts[source])
        excess = self._excess(self._loads, self._capacity)
        for target in self._places.tolist():
            given = self._exchangeable(target, on_source, step) if target != source else on_source[:0]
            if not len(given):
                continue
            returned = self._exchangeable(source, np.flatnonzero(self.counts[target]), step)
            back = np.concatenate([np.zeros_like(self._need[:1]), self._need[returned]])  # the first returns nothing
            goes = self._need[given][:, None]
            after = self._excess(self._loads[source] - goes + back, self._capacity[source])
            after += self._excess(self._loads[target] + goes - back, self._capacity[target])
            row, column = divmod(int(after.argmin()), len(back))
            change = float(after[row, column] - excess[source] - excess[target])
            if best is None or change < best.excess:
                kind = int(returned[column - 1]) if column else None
                best = _Change(change, target, int(given[row]), kind)
        return best

    def _move(self, kind: int, source: int, target: int, step: int) -> None:
        for place, count in ((source, -1), (target, 1)):
            self.counts[place, kind] += count
            self._loads[place] += count * self._need[kind]
        self._rests_until[source, kind] = step + int(self._random.integers(*_REST_STEPS))
