"""Owns the use of the integer program for making room: as many pods as the moves allow, then the fewest moves.

It does not own the program (`integer_program`), nor pods whose place depends on others: for them it gives bounds only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from berth_descheduler.planner.deadlines import Deadline, is_over
from berth_descheduler.planner.packing.columns import Columns, Mask
from berth_descheduler.planner.packing.integer_program import Aim, PlacementModel, Solution, Wanted
from berth_descheduler.planner.packing.solver import Verdict, is_installed


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
    return _Climb(model, question, known).run() if model.is_small_enough else None


class _Climb:
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
