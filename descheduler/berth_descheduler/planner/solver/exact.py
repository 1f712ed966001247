"""Owns the use of the integer program for freeing nodes: most nodes first, then fewest moves.

It does not own the program (`integer_program`).

Nodes that are empty already may be filled here, and count as freed while they stay empty, so that the bound holds for
plans that fill some of them, too. A solution that does is not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from berth_core.clock import Deadline, is_over
from berth_descheduler.planner.simulation.cluster import NodeIndex
from berth_descheduler.planner.solver.draining import Candidates, Draining, DrainLimits
from berth_descheduler.planner.solver.filling import MOVE, Filled
from berth_descheduler.planner.solver.highs import Verdict, is_installed
from berth_descheduler.planner.solver.milp import Aim, PlacementModel, Solution, Wanted
from berth_descheduler.planner.solver.model import Columns, Ints, Mask


@dataclass(frozen=True)
class Exact:
    """What is proven, and what was found on the way, the best last."""

    most: int
    """No more nodes than this can be freed."""

    fewest_moves: int
    """For as many nodes as the last draining frees (or as were known to be possible)."""

    found: tuple[Draining, ...] = ()
    out_of_time: bool = False


def solve_draining(
    columns: Columns,
    candidates: Candidates,
    masks: tuple[Mask, Mask],
    limits: DrainLimits,
    known: tuple[int, int, int],
) -> Exact | None:
    """Return what the integer program makes of a problem, None if it is not installed or the problem is too large.

    `masks`: where pods may be put, and from where they may be taken. `known`: how many nodes can be freed for sure,
    with how many moves, and how many moves that takes at least.
    """
    if not is_installed() or limits.most == 0:
        return None
    climb = _DrainingClimb(columns, candidates, masks, limits, known)
    return climb.run() if climb.is_small_enough else None


class _DrainingClimb:
    """Asks for one node more as long as that is possible, then for the fewest moves."""

    def __init__(
        self,
        columns: Columns,
        candidates: Candidates,
        masks: tuple[Mask, Mask],
        limits: DrainLimits,
        known: tuple[int, int, int],
    ) -> None:
        self._columns = columns
        self._candidates = candidates
        self._masks = masks
        self._limits = limits
        self._freed, self._moves, self._least = known
        self._state = Exact(most=limits.most, fewest_moves=self._least)

    @property
    def is_small_enough(self) -> bool:
        """Tell whether the solver can be expected to come to an end soon."""
        return self._model(1).is_small_enough

    def run(self) -> Exact:
        """Return what is proven and what was found."""
        while self._freed < self._state.most and not self._out_of_time():
            if not self._ask_for_more():
                break
        if self._least < self._moves and self._freed and not self._out_of_time():
            self._ask_for_fewest()
        return self._state

    def _out_of_time(self) -> bool:
        if is_over(self._limits.deadline):
            self._state = replace(self._state, out_of_time=True)
        return self._state.out_of_time

    def _ask_for_more(self) -> bool:
        """Ask for one node more than is known to be possible; tell whether to go on."""
        asked = self._freed + 1
        found = self._solve(asked, self._limits.budget)
        if found.out_of_time:
            self._state = replace(self._state, out_of_time=True)
        if found.verdict is Verdict.IMPOSSIBLE:
            self._state = replace(self._state, most=self._freed)
        return found.verdict is Verdict.SOLVED and self._note(found)

    def _ask_for_fewest(self) -> None:
        """Ask for fewer moves for as many nodes; that there are none is an answer, too."""
        found = self._solve(self._freed, None)
        if found.out_of_time:
            self._state = replace(self._state, out_of_time=True)
        if found.verdict is Verdict.IMPOSSIBLE:
            self._state = replace(self._state, fewest_moves=self._moves)
        elif not (found.verdict is Verdict.SOLVED and self._note(found)):
            self._state = replace(self._state, fewest_moves=max(self._least, found.bound))

    def _solve(self, asked: int, budget: int | None) -> Solution:
        wanted = Wanted(((asked + len(self._candidates.empty), None),))
        return self._model(asked).fewest_moves(wanted, budget, self._limits.deadline)

    def _note(self, found: Solution) -> bool:
        """Keep a solution if it can be used; tell whether it can."""
        freed = {node for node, _ in found.aimed[0]} if found.aimed else set()
        if not freed or not freed.issuperset(self._candidates.empty.tolist()):
            return False
        draining = _draining(self._columns, found, self._candidates)
        self._freed, self._moves, self._least = len(draining.nodes), draining.moves, found.bound
        self._state = replace(self._state, found=(*self._state.found, draining), fewest_moves=found.bound)
        return True

    def _model(self, asked: int) -> PlacementModel:
        """Return the program with the nodes that can be among so many freed ones: others have too many pods."""
        nodes, counts = self._candidates.nodes, self._candidates.pod_counts
        if self._limits.budget is not None:
            cheapest = int(np.sort(counts)[: max(0, asked - 1)].sum())
            nodes = nodes[counts <= self._limits.budget - cheapest]
        aim = Aim(None, np.sort(np.concatenate([nodes, self._candidates.empty])))
        return PlacementModel(self._columns, *self._masks, [aim])


def _draining(columns: Columns, found: Solution, candidates: Candidates) -> Draining:
    """Return a solution as the search would have it."""
    freed = np.setdiff1d(np.array([node for node, _ in found.aimed[0]], dtype=np.int64), candidates.empty)
    arrivals, departures = _entries(found.arrivals), _entries(found.departures)
    ejections = departures[~np.isin(departures[:, 1], freed)]
    nothing = np.zeros(columns.kinds, dtype=np.int64)
    filled = Filled(arrivals, ejections, nothing, nothing + MOVE, np.zeros(columns.nodes, dtype=np.int64))
    return Draining(tuple(NodeIndex(int(node)) for node in freed), (), filled, found.moves)


def _entries(found: Ints | None) -> Ints:
    return np.empty((0, 3), dtype=np.int64) if found is None else found


# --- exact room ------------------------------------------------------------------------------------------------------
# The use of the integer program for making room: as many pods as the moves allow, then the fewest moves.


@dataclass(frozen=True)
class Reached:
    """For how many pods of each want there is room, and with how many moves."""

    each: tuple[int, ...]
    moves: int
    least_moves: int
    """No plan that reaches as much needs fewer."""

    most: int
    """No plan reaches more, all wants together."""


@dataclass(frozen=True)
class ExactRoom:
    """What is proven, and the best solution found on the way, if it is better than what was known."""

    reached: Reached
    solution: Solution | None = None
    out_of_time: bool = False


@dataclass(frozen=True)
class RoomQuestion:
    """What is asked: kinds, how many of each at most (None: no limit), and whether a part of it is of no use."""

    kinds: tuple[int, ...]
    most: tuple[int | None, ...]
    all_or_none: bool
    budget: int | None
    deadline: Deadline


def solve_room(columns: Columns, may_leave: Mask, question: RoomQuestion, known: Reached) -> ExactRoom | None:
    """Return what the integer program makes of it, None if it is not installed or the problem is too large."""
    if not is_installed() or not question.kinds:
        return None
    aims = [Aim(columns.need[kind], np.flatnonzero(columns.allowed(kind) & columns.takes)) for kind in question.kinds]
    model = PlacementModel(columns, columns.takes, may_leave, aims)
    return _RoomClimb(model, question, known).run() if model.is_small_enough else None


class _RoomClimb:
    """Asks for one pod more as long as that is possible, then for the fewest moves."""

    def __init__(self, model: PlacementModel, question: RoomQuestion, known: Reached) -> None:
        self._model = model
        self._question = question
        self._state = ExactRoom(known)

    def run(self) -> ExactRoom:
        """Return what is proven and what was found."""
        while sum(self._state.reached.each) < self._state.reached.most and not self._is_over():
            if not self._ask_for_more():
                break
        reached = self._state.reached
        if sum(reached.each) and reached.least_moves < reached.moves and not self._is_over():
            self._ask_for_fewest()
        return self._state

    def _is_over(self) -> bool:
        if is_over(self._question.deadline):
            self._state = replace(self._state, out_of_time=True)
        return self._state.out_of_time

    def _ask_for_more(self) -> bool:
        """Ask for more than is known to be possible; tell whether to go on."""
        reached = sum(self._state.reached.each)
        asked = self._state.reached.most if self._question.all_or_none else reached + 1
        found = self._solve(tuple((0, most) for most in self._question.most), asked, self._question.budget)
        if found.verdict is Verdict.IMPOSSIBLE:
            self._state = replace(self._state, reached=replace(self._state.reached, most=reached))
        return found.verdict is Verdict.SOLVED and self._note(found)

    def _ask_for_fewest(self) -> None:
        """Ask for the fewest moves for what is reached."""
        reached = self._state.reached
        found = self._solve(tuple((count, most) for count, most in zip(reached.each, self._question.most, strict=True)))
        if found.verdict is Verdict.SOLVED and found.moves < reached.moves:
            self._note(found)
        elif found.verdict is not Verdict.IMPOSSIBLE:
            least = min(reached.moves, max(reached.least_moves, found.bound))
            self._state = replace(self._state, reached=replace(reached, least_moves=least))

    def _solve(self, each: Sequence[tuple[int, int | None]], together: int = 0, budget: int | None = None) -> Solution:
        found = self._model.fewest_moves(Wanted(tuple(each), together), budget, self._question.deadline)
        self._state = replace(self._state, out_of_time=self._state.out_of_time or found.out_of_time)
        return found

    def _note(self, found: Solution) -> bool:
        each = tuple(sum(count for _, count in cells) for cells in found.aimed)
        reached = replace(self._state.reached, each=each, moves=found.moves, least_moves=found.bound)
        self._state = replace(self._state, reached=reached, solution=found)
        return bool(found.aimed)
