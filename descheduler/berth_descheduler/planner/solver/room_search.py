"""Searches for the fewest moves that let the pods fit.

A want without a count gets as many pods as the moves allow. A pod to come is placed like any other, before all others;
what has to be moved aside for it is what it costs. Pods whose place depends on other pods are placed one by one, each
where those there and those placed before let it be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State
from berth_descheduler.planner.solver.filling import MOVE, Demand, Filled, FillLimits, fill
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

_ROUNDS: Final = 12
_ROUNDS_WITHOUT_GAIN: Final = 5
_COST_OF_LARGER: Final = 4 * MOVE
"""What moving a pod aside costs at first that is larger than the one to come: its new place would have done, too."""

_STEPS_BEYOND: Final = 2
"""So much further is looked where the first count is found that does not fit."""

_LATE: Final = 16
"""So many fillings are tried after the time limit where nothing was found before."""


@dataclass(frozen=True)
class Want:
    """Pods of one kind that need room."""

    name: str
    kind: int
    pods: tuple[PodIndex, ...]
    count: int | None
    """How many; None: as many as the moves allow."""


class RoomSearch:
    """Takes wants one by one and keeps what was found so far."""

    def __init__(self, packing: PackingModel, state: State, budget: int | None, deadline: Deadline) -> None:
        self._packing = packing
        self._state = state
        self._budget = budget
        self._deadline = deadline
        self._mark = state.mark()
        self._first = tuple(sorted(set(packing.wanted.values())))
        self.counts = np.zeros(packing.kinds, dtype=np.int64)
        """How many pods of each kind have found room."""
        self.pins: dict[int, Mask] = {}
        """Where the tied ones have."""
        largest = int(packing.size[list(self._first)].max(initial=0))
        self._costs = np.where(packing.size > largest, _COST_OF_LARGER, MOVE).astype(np.int64)
        self.filled = self._fill(self.counts, self.pins, self._costs)
        """What is moved aside for it, and what arrives where."""
        self.out_of_time = False
        self._late = _LATE

    def add_together(self, wants: Sequence[Want]) -> bool:
        """Find room for all of some wants or for none; return whether room was found."""
        mark, before = self._state.mark(), (self.counts, self.pins, self.filled)
        dependent = [want for want in wants if self._packing.dependent[want.kind]]
        independent = [want for want in wants if not self._packing.dependent[want.kind]]
        each_has_a_pod = all(
            (want.count or 1) <= len(want.pods) for want in dependent
        )  # a shape has one, whatever its count
        if (
            each_has_a_pod
            and all(self._add_dependent(want) for want in dependent)
            and (not independent or self._keep(self._with(independent), self.pins))
        ):
            return True
        self._state.undo_to(mark)
        self.counts, self.pins, self.filled = before
        return False

    def add_most(self, want: Want, most: int) -> int:
        """Find room for as many pods as the moves allow, at most `most`; return how many."""
        if self._packing.dependent[want.kind]:
            return int(most > 0 and self._add_dependent(want))
        most_known, beyond = 0, most + 1
        while beyond - most_known > 1:
            middle = most if most_known == 0 and beyond > most else (most_known + beyond) // 2
            if self._keep(self._with([want], middle - most_known), self.pins):
                most_known = middle
            else:
                beyond = middle
        for _ in range(_STEPS_BEYOND):
            if most_known < most and self._keep(self._with([want], 1), self.pins):
                most_known += 1
        return most_known

    def withdraw(self) -> None:
        """Give the state back as it was."""
        self._state.undo_to(self._mark)

    def places_of(self, want: Want) -> tuple[NodeIndex, ...]:
        """Return the nodes where a want's pods have room, each once per pod."""
        arrivals = self.filled.arrivals
        own_arrivals = arrivals[arrivals[:, 0] == want.kind]
        return tuple(NodeIndex(int(node)) for _, node, count in own_arrivals for _ in range(int(count)))

    def _with(self, wants: Sequence[Want], number: int | None = None) -> Ints:
        """Return the counts with those of some wants, or with `number` of each want, added."""
        counts = self.counts.copy()
        for want in wants:
            counts[want.kind] += (want.count or 0) if number is None else number
        return counts

    def _add_dependent(self, want: Want) -> bool:
        """Find room for one tied pod and put it there, where the pods after it see it in the state."""
        pod = want.pods[0]
        allowed_nodes = self._packing.allowed(want.kind).copy()
        for node in np.flatnonzero(allowed_nodes):
            allowed_nodes[node] = self._state.refusal_by_others(pod, NodeIndex(int(node))) is None
        if not allowed_nodes.any() or not self._keep(self._with([want], 1), {**self.pins, want.kind: allowed_nodes}):
            return False
        place = self.places_of(want)[0]
        pin = np.zeros(self._packing.nodes, dtype=bool)
        pin[place] = True
        self.pins = {**self.pins, want.kind: pin}
        self._state.move(pod, place)
        return True

    def _keep(self, counts: Ints, pins: dict[int, Mask]) -> bool:
        """Search the fewest moves for these pods and keep the result; return whether there is one."""
        costs = self._costs
        best: Filled | None = None
        idle = 0
        for turn in range(_ROUNDS):
            if is_over(self._deadline):
                self.out_of_time = True
                if turn or self.counts.any() or not self._late:
                    break
                self._late -= 1
            filled = self._fill(counts, pins, costs)
            idle += 1
            if self._is_good(filled) and (best is None or filled.ejected < best.ejected):
                best, idle, self._costs = filled, 0, costs
            if idle >= _ROUNDS_WITHOUT_GAIN or (best is not None and best.ejected <= 1):
                break
            costs = costs + (filled.costs - costs) * 4 // (5 * (2 + turn // 4))
        if best is None:
            return False
        self.counts, self.pins, self.filled = counts, pins, best
        return True

    def _is_good(self, filled: Filled) -> bool:
        return filled.complete and (self._budget is None or filled.ejected <= self._budget)

    def _fill(self, counts: Ints, pins: dict[int, Mask], costs: Ints) -> Filled:
        demand = Demand(counts, self._first, pins)
        limits = (
            FillLimits()
            if self._budget is None
            else FillLimits(most_ejected=min(FillLimits().most_ejected, self._budget))
        )
        return fill(self._packing, self._packing.room, self._packing.takes, demand, costs=costs, limits=limits)
