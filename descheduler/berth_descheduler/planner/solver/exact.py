"""Solves exactly, one more freed node or placed pod at a time.

Both questions climb in the same way (`IncrementalSolve`): a program that asks for the fewest moves to a given aim is
solved in seconds, while one that maximises the aim within a number of moves takes minutes.

To free nodes, nodes that are empty already may be filled, and count as freed while they stay empty. So the bound holds
for plans that fill some of them, too. A solution that does is not used where nodes are alike: it would free as many
nodes by more moves. Where they are not, filling a cheap node can be what frees a dear one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.simulation import NodeIndex
from berth_descheduler.planner.solver.draining import Candidates, Draining, DrainLimits
from berth_descheduler.planner.solver.filling import Filled
from berth_descheduler.planner.solver.fillings import FEW_FILLINGS, MOST_FILLINGS
from berth_descheduler.planner.solver.highs import SolverStatus, is_installed
from berth_descheduler.planner.solver.milp import Aim, PlacementModel, Solution, Wanted
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel
from berth_descheduler.planner.solver.spreads import KindSpread

_WITH_SOLUTION: Final = frozenset({SolverStatus.SOLVED, SolverStatus.FOUND})
_MOST_ROUNDS: Final = 100
"""How often more is asked for at most: of nodes with weights there can be more by very little very often."""


@dataclass(frozen=True)
class ExactDraining:
    """What is proven and what was found, the best last."""

    most: int
    """No plan frees nodes that are worth more: no more nodes than this, where they have no weights."""

    fewest_moves: int
    """For as much as the last draining frees (or as was known to be possible)."""

    found: tuple[Draining, ...] = ()
    out_of_time: bool = False
    is_packed: bool = False
    """Whether the best was found by whole fillings of nodes, so that others may do with fewer moves."""

    most_beside_empty: int | None = None
    """No plan that leaves empty nodes empty frees what is worth more; None: nothing beyond `most` is known."""


@dataclass(frozen=True)
class Reached:
    """How many pods of each want have room, and the moves."""

    each: tuple[int, ...]
    moves: int
    least_moves: int
    """No plan that reaches as much needs fewer."""

    most: int
    """No plan reaches more, all wants together."""


@dataclass(frozen=True)
class ExactRoom:
    """What is proven, and the best solution that beats the known one.

    `solution` is None if none does.
    """

    reached: Reached
    solution: Solution | None = None
    out_of_time: bool = False


@dataclass(frozen=True)
class RoomQuestion:
    """Which kinds need room, and how many of each at most.

    A `most` of None is no limit. With `all_or_none` a part is useless.
    """

    kinds: tuple[int, ...]
    most: tuple[int | None, ...]
    all_or_none: bool
    budget: int | None
    deadline: Deadline


def solve_draining(
    packing: PackingModel,
    candidates: Candidates,
    limits: DrainLimits,
    *,
    may_take: Mask,
    may_leave: Mask,
    worth: int,
    moves: int,
    least_moves: int,
    spreads: Sequence[KindSpread] = (),
) -> ExactDraining | None:
    """Return what the solver proves and finds on freeing nodes.

    Returns None if the solver is not installed, the problem is too large, or `limits.most` is 0. Nodes that are `worth`
    so much are known to be possible with so many `moves`; no plan does it with fewer than `least_moves`.
    """
    if not is_installed() or limits.most == 0:
        return None
    solve = _DrainingSolve(
        packing,
        candidates,
        limits,
        may_take=may_take,
        may_leave=may_leave,
        worth=worth,
        moves=moves,
        least_moves=least_moves,
        spreads=spreads,
    )
    if not solve.is_small_enough:
        return None
    solve.run()
    return ExactDraining(
        solve.most,
        solve.least_moves,
        tuple(solve.found),
        solve.out_of_time,
        is_packed=solve.is_packed,
        most_beside_empty=solve.most_beside_empty,
    )


def is_small_enough(
    packing: PackingModel, candidates: Candidates, limits: DrainLimits, *, may_take: Mask, may_leave: Mask
) -> bool:
    """Return whether the solver is installed and the program of freeing nodes is small."""
    return (
        is_installed()
        and _DrainingSolve(
            packing, candidates, limits, may_take=may_take, may_leave=may_leave, worth=0, moves=0, least_moves=0
        ).is_small_enough
    )


def solve_room(packing: PackingModel, may_leave: Mask, question: RoomQuestion, known: Reached) -> ExactRoom | None:
    """Return what the solver proves and finds on room for pods.

    Returns None if the solver is not installed, the problem is too large, or `question` has no kinds.
    """
    if not is_installed() or not question.kinds:
        return None
    aims = [Aim(packing.need[kind], np.flatnonzero(packing.allowed(kind) & packing.takes)) for kind in question.kinds]
    model = PlacementModel(packing, packing.takes, may_leave, aims)
    if not model.is_small_enough:
        return None
    solve = _RoomSolve(model, question, known)
    solve.run()
    reached = Reached(solve.each, solve.moves, solve.least_moves, solve.most)
    return ExactRoom(reached, solve.solution, solve.out_of_time)


class IncrementalSolve(ABC):
    """Asks for one more while possible, then for the fewest moves."""

    def __init__(self, deadline: Deadline, *, reached: int, most: int, moves: int, least_moves: int) -> None:
        self._deadline = deadline
        self.reached = reached
        self.most = most
        """No plan reaches more."""

        self.moves = moves
        self.least_moves = least_moves
        """No plan that reaches as much needs fewer."""

        self.out_of_time = False

    def run(self) -> None:
        """Solve until nothing more is possible, or the time is over."""
        # Destructive improvement (Klein and Scholl, 1999): an aim that the solver proves to be impossible is a bound.
        while self.reached < self.most and not self._is_over():
            if not self._is_more_possible():
                break
        if self.reached and self.least_moves < self.moves and not self._is_over():
            self._note_fewest(self._watch(self._solve_for_fewest()))

    def _is_over(self) -> bool:
        self.out_of_time = self.out_of_time or is_over(self._deadline)
        return self.out_of_time

    def _watch(self, solution: Solution) -> Solution:
        self.out_of_time = self.out_of_time or solution.out_of_time
        return solution

    def _is_more_possible(self) -> bool:
        solution = self._watch(self._solve_for_more())
        if solution.status is SolverStatus.IMPOSSIBLE:
            self._note_most()
        return solution.status in _WITH_SOLUTION and self._keep(solution)

    def _note_most(self) -> None:
        """Note that no more is possible."""
        self.most = self.reached

    @abstractmethod
    def _solve_for_more(self) -> Solution:
        """Solve for more than is reached."""

    @abstractmethod
    def _solve_for_fewest(self) -> Solution:
        """Solve for the fewest moves to what is reached."""

    @abstractmethod
    def _keep(self, solution: Solution) -> bool:
        """Keep a solution if it is usable; return whether it is."""

    @abstractmethod
    def _note_fewest(self, solution: Solution) -> None:
        """Take over what a solution says of the fewest moves."""


class _DrainingSolve(IncrementalSolve):
    """Frees one node more at a time."""

    def __init__(
        self,
        packing: PackingModel,
        candidates: Candidates,
        limits: DrainLimits,
        *,
        may_take: Mask,
        may_leave: Mask,
        worth: int,
        moves: int,
        least_moves: int,
        spreads: Sequence[KindSpread] = (),
    ) -> None:
        upper_bound = limits.most if limits.most_worth is None else limits.most_worth
        super().__init__(limits.deadline, reached=worth, most=upper_bound, moves=moves, least_moves=least_moves)
        self._packing = packing
        self._candidates = candidates
        self._masks = may_take, may_leave
        self._spreads = tuple(spreads)
        self._counts_filled = candidates.empty_worth is not None
        """Whether a plan may fill empty nodes, because what they cost is subtracted from its worth."""

        self._is_closed = self._is_never_filled
        """Whether empty nodes take no pods. Where nodes are alike, that is so once an answer has filled one; what is
        answered from then on proves nothing."""
        self._rounds, self._asked = _MOST_ROUNDS, 0
        self._budget = limits.budget
        self.most_beside_empty: int | None = None
        self._asks_for_moves = True
        """It is asked for the fewest moves, too, not only for the most nodes."""

        self._least_known: dict[tuple[int, bool], int] = {}
        """By worth and whether empty nodes are closed the moves of which the program proves no more if asked again."""

        self.is_packed = False
        """Whether the best was found by whole fillings of nodes, so that others may do with fewer moves."""

        self._fills_empty = False
        """The last answer fills a node that is empty."""

        self.found: list[Draining] = []

    @property
    def _is_never_filled(self) -> bool:
        """Return whether no question is about plans that fill empty nodes."""
        return self._candidates.differ and not self._counts_filled

    @property
    def _worth_of_empty(self) -> int:
        """Return the worth of the nodes that are empty already: they count as freed while they stay empty."""
        candidates = self._candidates
        if self._is_closed:
            return 0
        return len(candidates.empty) if candidates.empty_worth is None else int(candidates.empty_worth.sum())

    @property
    def is_small_enough(self) -> bool:
        """Return whether the solver is likely to finish soon."""
        model = self._model(1)
        is_bounded = self._budget is None or not model.is_slow_unbounded or model.is_tight(self._budget)
        return model.is_small_enough and is_bounded

    def run(self) -> None:
        """Solve until nothing more is possible, or the time is over.

        With many kinds and no budget, first of all for the most that can be freed by however many moves: to ask for one
        node too many takes longest. So it is where empty nodes may be filled, which can bring more by very little.
        """
        model = self._model(1)
        if self._budget is None and (model.has_many_kinds or self._counts_filled):
            self._asks_for_moves = not model.is_slow_unbounded
            if self.reached < self.most and not self._is_over():
                self._solve_for_most()
            if self._fills_empty and not self._is_over():
                self._is_closed = True
                self._solve_for_most()
            self._rounds = 0
        if self._asks_for_moves:
            super().run()

    def _solve_for_most(self) -> None:
        """Solve for the most, and for the fewest moves to what is found."""
        candidates = self._candidates
        model = self._model(1)
        solution, is_packed = self._keep_fewest(model)
        most = max(self.reached, min(self.most, int(candidates.worth.sum()) - solution.bound))
        if self._is_closed:
            self.most_beside_empty = most
        if not self._is_closed or candidates.differ:
            self.most = most
        freed = [node for node, _ in solution.aimed[0]] if solution.aimed else []
        worth = candidates.worth_of(freed) if self._is_closed else self._worth_with_empty(freed) - self._worth_of_empty
        if worth <= self.reached:
            return
        if self._asks_for_moves and not self._is_over():
            gentler = self._watch(self._solve(worth, None, any_solution=True))
            if gentler.status is not SolverStatus.SOLVED and model.has_many_kinds:
                self._least_known[worth, self._is_closed] = gentler.bound
            if gentler.status in _WITH_SOLUTION and self._keep(gentler):
                if is_packed and set(freed).issuperset(candidates.empty.tolist()):
                    # Where pods depend on others it may have an order, and the one with fewer moves none.
                    self.found.insert(-1, _draining(self._packing, solution, candidates))
                return
        self.is_packed = self._keep(replace(solution, bound=0)) and is_packed

    def _keep_fewest(self, model: PlacementModel) -> tuple[Solution, bool]:
        """Return what keeps the nodes that are worth least, and whether whole fillings of nodes found it.

        Where few fillings come into question they are asked first, and else where the program over counts does not
        answer.
        """
        if self._candidates.differ or self._counts_filled:
            return self._watch(model.most_freed(self._deadline)), False
        packed = model.fewest_kept(FEW_FILLINGS, self._deadline)
        if packed.aimed or int(self._candidates.worth.sum()) - packed.bound <= self.reached:
            return packed, bool(packed.aimed)
        solution = self._watch(model.most_freed(self._deadline))
        if solution.status is SolverStatus.UNDECIDED and not solution.out_of_time:
            packed = model.fewest_kept(MOST_FILLINGS, self._deadline)
        bound = max(solution.bound, packed.bound)
        return (replace(packed, bound=bound), True) if packed.aimed else (replace(solution, bound=bound), False)

    def _worth_with_empty(self, freed: Sequence[int]) -> int:
        """Return the worth of all nodes that are empty at the end, including those that are empty already."""
        candidates = self._candidates
        if candidates.empty_worth is None:
            return len(freed)
        stays_empty = np.isin(candidates.empty, np.array(freed, dtype=np.int64))
        return candidates.worth_of(freed) + int(candidates.empty_worth[stays_empty].sum())

    def _solve_for_more(self) -> Solution:
        worth_asked = self.reached + 1
        if worth_asked == self._asked or not self._rounds:  # the last answer was no more but for the solver's tolerance
            return Solution(SolverStatus.UNDECIDED, 0)
        self._asked, self._rounds = worth_asked, self._rounds - 1
        return self._solve(worth_asked, self._budget, any_solution=True)

    def _is_more_possible(self) -> bool:
        if super()._is_more_possible():
            return True
        if not self._fills_empty:
            return False
        self._is_closed, self._fills_empty, self._asked = True, False, 0
        return True

    def _note_most(self) -> None:
        if self._is_closed:
            self.most_beside_empty = self.reached
        if not self._is_closed or self._candidates.differ:
            super()._note_most()

    def _solve_for_fewest(self) -> Solution:
        with self._about_all_plans():
            least_moves = self._least_known.get((self.reached, self._is_closed))
            if least_moves is not None:
                return Solution(SolverStatus.UNDECIDED, least_moves)
            return self._solve(self.reached, None)

    def _solve(self, asked: int, budget: int | None, *, any_solution: bool = False) -> Solution:
        wanted = Wanted(((asked + self._worth_of_empty, None),))
        return self._model(asked).fewest_moves(wanted, budget, self._deadline, any_solution=any_solution)

    def _keep(self, solution: Solution) -> bool:
        freed = {node for node, _ in solution.aimed[0]} if solution.aimed else set()
        if not freed:
            return False
        is_about_filling = not (self._is_closed or self._counts_filled)
        if is_about_filling and not freed.issuperset(self._candidates.empty.tolist()):
            self._fills_empty = True
            return False
        draining = _draining(self._packing, solution, self._candidates)
        if draining.worth < self.reached:  # within the solver's tolerance, but not in whole numbers
            return False
        is_bound = not self._is_closed or self._candidates.differ
        least_moves = solution.bound if is_bound else 0 if draining.worth > self.reached else self.least_moves
        self.reached, self.moves, self.least_moves = draining.worth, draining.moves, least_moves
        self.found.append(draining)
        return True

    def _note_fewest(self, solution: Solution) -> None:
        if solution.status is SolverStatus.IMPOSSIBLE:
            self.least_moves = self.moves
            return
        with self._about_all_plans():
            if not (solution.status is SolverStatus.SOLVED and self._keep(solution)):
                self.least_moves = max(self.least_moves, solution.bound)

    @contextmanager
    def _about_all_plans(self) -> Iterator[None]:
        """Have empty nodes take pods meanwhile if that is ever asked: a bound has to hold for any plan."""
        was_closed, self._is_closed = self._is_closed, self._is_never_filled
        yield
        self._is_closed = was_closed

    def _model(self, asked: int) -> PlacementModel:
        """Return the program with the nodes that can be freed together.

        Other nodes have too many pods for the budget.
        """
        candidates, nodes, counts = self._candidates, self._candidates.nodes, self._candidates.pod_counts
        may_take, may_leave = self._masks
        if self._is_closed:
            is_empty = np.isin(np.arange(self._packing.nodes), candidates.empty)
            may_take, may_leave = may_take & ~is_empty, may_leave & ~is_empty
        if self._budget is not None:
            cheapest = 0 if candidates.differ else int(np.sort(counts)[: max(0, asked - 1)].sum())
            nodes = nodes[counts <= self._budget - cheapest]
        worth = candidates.worth[np.isin(candidates.nodes, nodes)]
        if not self._is_closed:
            of_empty = np.ones_like(candidates.empty) if candidates.empty_worth is None else candidates.empty_worth
            nodes, worth = np.concatenate([nodes, candidates.empty]), np.concatenate([worth, of_empty])
        order = np.argsort(nodes, kind="stable")
        aim = Aim(None, nodes[order], worth[order] if candidates.differ or self._counts_filled else None)
        return PlacementModel(self._packing, may_take, may_leave, [aim], self._spreads)


def _draining(packing: PackingModel, solution: Solution, candidates: Candidates) -> Draining:
    """Return a solution as the search would have it."""
    freed = np.setdiff1d(np.array([node for node, _ in solution.aimed[0]], dtype=np.int64), candidates.empty)
    arrivals, departures = _entries(solution.arrivals), _entries(solution.departures)
    ejections = departures[~np.isin(departures[:, 1], freed)]
    filled = Filled.placed(packing, arrivals, ejections)
    nodes = tuple(NodeIndex(int(node)) for node in freed)
    worth = candidates.worth_of(nodes) - candidates.cost_of_filling(arrivals[:, 1])
    return Draining.of(packing, nodes, (), filled, moves=solution.moves, worth=worth)


def _entries(found: Ints | None) -> Ints:
    return np.empty((0, 3), dtype=np.int64) if found is None else found


class _RoomSolve(IncrementalSolve):
    """Places one pod at a time, or all missing ones at once.

    It asks for all at once if a part is useless.
    """

    def __init__(self, model: PlacementModel, question: RoomQuestion, known: Reached) -> None:
        super().__init__(
            question.deadline,
            reached=sum(known.each),
            most=known.most,
            moves=known.moves,
            least_moves=known.least_moves,
        )
        self._model = model
        self._question = question
        self.each = known.each
        self.solution: Solution | None = None

    def _solve_for_more(self) -> Solution:
        pods_asked = self.most if self._question.all_or_none else self.reached + 1
        return self._solve(
            tuple((0, want_limit) for want_limit in self._question.most), pods_asked, self._question.budget
        )

    def _solve_for_fewest(self) -> Solution:
        return self._solve(
            tuple((count, want_limit) for count, want_limit in zip(self.each, self._question.most, strict=True))
        )

    def _solve(self, each: Sequence[tuple[int, int | None]], together: int = 0, budget: int | None = None) -> Solution:
        return self._model.fewest_moves(Wanted(tuple(each), together), budget, self._deadline)

    def _keep(self, solution: Solution) -> bool:
        self.each = tuple(sum(count for _, count in cells) for cells in solution.aimed)
        self.reached, self.moves, self.least_moves = sum(self.each), solution.moves, solution.bound
        self.solution = solution
        return bool(solution.aimed)

    def _note_fewest(self, solution: Solution) -> None:
        if solution.status is SolverStatus.SOLVED and solution.moves < self.moves:
            self._keep(solution)
        elif solution.status is not SolverStatus.IMPOSSIBLE:
            self.least_moves = min(self.moves, max(self.least_moves, solution.bound))
