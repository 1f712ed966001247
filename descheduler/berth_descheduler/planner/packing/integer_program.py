"""Owns the integer program over (node, kind) counts: the fewest moves that reach an aim, or that none do.

It does not own what is asked of it, nor the order of the moves. It needs the extra `optimal` (HiGHS).

Pods of a kind on a node are one integer variable y: how many there are in the end. Variables o >= count - y are the
moves. An aim is a set of columns of which so many have to be reached: a node is freed (one binary column that takes all
of the node), or a pod to come finds room (an integer column per node that takes what the pod asks for). Minimising the
moves for a given aim is solved in a second or two where maximising the aim under a move budget takes minutes.
What makes pods depend on other pods is left out: the program is then a relaxation, and its bounds hold all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from berth_descheduler.planner.deadlines import Deadline, is_over
from berth_descheduler.planner.packing.columns import Columns, Ints, Mask

MOST_COLUMNS: Final = 10_000
MOST_COLUMNS_OF_MANY_KINDS: Final = 1_500
FEW_KINDS: Final = 12

_ATTEMPTS: Final = ((1, 40), (2, 40), (3, 4_000))
"""Seeds and the most nodes of the search tree. Most questions are answered at its root, with some seeds sooner."""

_ROUNDING: Final = 1e-6
_SURELY_SMALLER: Final = 1 - 1e-9


def is_installed() -> bool:
    """Tell whether the solver is there."""
    return find_spec("highspy") is not None


class Verdict(Enum):
    """How far the solver came."""

    SOLVED = auto()
    IMPOSSIBLE = auto()
    UNDECIDED = auto()


@dataclass(frozen=True)
class Solution:
    """What the solver found: at least `bound` moves are needed, and where everything is with `moves`."""

    verdict: Verdict
    bound: int
    moves: int = 0
    arrivals: Ints | None = None  # (entries, 3): kind, node, count
    departures: Ints | None = None  # (entries, 3): kind, node, count
    aimed: Ints | None = None  # (nodes,), how much of the aim each node brings
    out_of_time: bool = False


@dataclass(frozen=True)
class Aim:
    """What has to be reached."""

    needs: Ints | None  # (resources,) of the pod that is to find room; None: nodes are to be freed
    nodes: Ints  # nodes that can bring it


class PlacementModel:
    """The part of the program that does not depend on how much is asked for."""

    def __init__(self, columns: Columns, places: Mask, may_leave: Mask, aims: Sequence[Aim]) -> None:
        """Prepare; pods may be put on `places` and may be taken off those that `may_leave` marks."""
        self._columns = columns
        self._aims = tuple(aims)
        self._places = np.flatnonzero(places & columns.takes)
        self._counts = _counts(columns, self._places, may_leave)  # (places, kinds)
        self._kinds = np.flatnonzero(self._counts.sum(axis=0))
        self._counts = self._counts[:, self._kinds]
        need = columns.need[self._kinds]
        usage = (self._counts @ need).T
        self._limit = np.maximum(columns.room[:, self._places] + usage, usage)  # (resources, places)
        self._most = self._most_per_place(need)

    @property
    def columns(self) -> int:
        """Return the number of columns."""
        aimed = sum(len(aim.nodes) for aim in self._aims)
        return int((self._most > 0).sum() + (self._counts > 0).sum()) + aimed

    @property
    def kinds(self) -> int:
        """Return the number of kinds."""
        return len(self._kinds)

    @property
    def is_small_enough(self) -> bool:
        """Tell whether the solver can be expected to come to an end soon."""
        return self.columns <= (MOST_COLUMNS if self.kinds <= FEW_KINDS else MOST_COLUMNS_OF_MANY_KINDS)

    def fewest_moves(self, wanted: Mapping[int, int], budget: int | None, deadline: Deadline) -> Solution:
        """Return the fewest moves with which each aim, by its position, is reached as often as `wanted`."""
        program = _Program()
        stay = program.add_columns(self._most[self._most > 0], whole=True)
        moved = program.add_columns(self._counts[self._counts > 0], cost=1.0)
        stay_at = _positions(self._most > 0, stay)
        moved_at = _positions(self._counts > 0, moved)
        aimed = [program.add_columns(self._most_of(aim), whole=True) for aim in self._aims]
        self._add_moves(program, stay_at, moved_at)
        self._add_room(program, stay_at, aimed)
        self._add_freed(program, stay_at, moved_at, aimed)
        for position, count in wanted.items():
            program.add_row(aimed[position], np.ones(len(aimed[position])), lower=count)
        return self._read(program.solve(deadline, budget), stay_at, aimed, budget)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _add_moves(self, program: "_Program", stay_at: Ints, moved_at: Ints) -> None:
        """Every pod stays somewhere; those that do not stay where they are have moved."""
        for kind in range(len(self._kinds)):
            columns = stay_at[:, kind][stay_at[:, kind] >= 0]
            total = int(self._counts[:, kind].sum())
            program.add_row(columns, np.ones(len(columns)), lower=total, upper=total)
        for place, kind in np.argwhere(moved_at >= 0):
            pair = np.array([moved_at[place, kind], stay_at[place, kind]])
            program.add_row(pair, np.ones(2), lower=int(self._counts[place, kind]))

    def _add_room(self, program: "_Program", stay_at: Ints, aimed: Sequence[Ints]) -> None:
        """No node holds more than it has room for; what an aim takes of a node is taken."""
        need = self._columns.need[self._kinds]
        needs = [need, *(aim.needs[None, :] for aim in self._aims if aim.needs is not None)]
        redundant = _redundant_rows(np.concatenate(needs), self._limit)
        for place, node in enumerate(self._places):
            used = np.flatnonzero(stay_at[place] >= 0)
            for column in np.flatnonzero(~redundant[:, place]):
                limit = float(self._limit[column, place])
                index, value = [stay_at[place, used]], [need[used, column].astype(float)]
                for aim, columns in zip(self._aims, aimed, strict=True):
                    at = columns[aim.nodes == node]
                    index.append(at)
                    value.append(np.full(len(at), limit if aim.needs is None else float(aim.needs[column])))
                scale = _row_scale(limit)
                program.add_row(np.concatenate(index), np.concatenate(value) / scale, upper=limit / scale)

    def _add_freed(self, program: "_Program", stay_at: Ints, moved_at: Ints, aimed: Sequence[Ints]) -> None:
        """Nothing stays on a freed node; said per kind too, which the solver's relaxation is much tighter with."""
        place_of = {int(node): place for place, node in enumerate(self._places)}
        for aim, columns in zip(self._aims, aimed, strict=True):
            for node, freed in zip(aim.nodes, columns, strict=True) if aim.needs is None else ():
                place = place_of[int(node)]
                for kind in np.flatnonzero(stay_at[place] >= 0):
                    most = float(self._most[place, kind])
                    program.add_row(np.array([stay_at[place, kind], freed]), np.array([1.0, most]), upper=most)
                for kind in np.flatnonzero(moved_at[place] >= 0):
                    count = float(self._counts[place, kind])
                    program.add_row(np.array([moved_at[place, kind], freed]), np.array([1.0, -count]), lower=0)

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _most_per_place(self, need: Ints) -> Ints:
        """Return how many pods of each kind each place can have at most; (places, kinds)."""
        most = np.zeros(self._counts.shape, dtype=np.int64)
        for position, kind in enumerate(self._kinds):
            fits = np.full(len(self._places), int(self._counts[:, position].sum()))
            for column in np.flatnonzero(need[position]):
                fits = np.minimum(fits, np.maximum(self._limit[column], 0) // need[position, column])
            allowed = self._columns.allowed(int(kind))[self._places]
            most[:, position] = np.maximum(np.where(allowed, fits, 0), self._counts[:, position])
        return most

    def _most_of(self, aim: Aim) -> Ints:
        if aim.needs is None:
            return np.ones(len(aim.nodes), dtype=np.int64)
        place_of = {int(node): place for place, node in enumerate(self._places)}
        limits = self._limit[:, [place_of[int(node)] for node in aim.nodes]]
        asked = np.flatnonzero(aim.needs)
        fits = np.maximum(limits[asked], 0) // aim.needs[asked, None]
        most: Ints = fits.min(axis=0) if len(asked) else np.zeros(len(aim.nodes), dtype=np.int64)
        return most

    def _read(self, found: "_Found", stay_at: Ints, aimed: Sequence[Ints], budget: int | None) -> Solution:
        if budget is not None and found.bound > budget:
            return Solution(Verdict.IMPOSSIBLE, found.bound)
        if found.values is None:
            return Solution(found.verdict, found.bound, out_of_time=found.out_of_time)
        values = np.rint(found.values).astype(np.int64)
        stays = np.where(stay_at >= 0, values[stay_at], 0)
        if not self._holds(stays, values, aimed):
            return Solution(Verdict.UNDECIDED, found.bound, out_of_time=found.out_of_time)
        change = stays - self._counts
        arrivals, departures = self._entries(np.maximum(change, 0)), self._entries(np.maximum(-change, 0))
        brought = np.zeros(self._columns.nodes, dtype=np.int64)
        for aim, columns in zip(self._aims, aimed, strict=True):
            brought[aim.nodes] += values[columns]
        moves = int(departures[:, 2].sum())
        return Solution(found.verdict, found.bound, moves, arrivals, departures, brought, found.out_of_time)

    def _holds(self, stays: Ints, values: Ints, aimed: Sequence[Ints]) -> bool:
        """Tell whether a solution is one in whole numbers, too: the solver computes with a tolerance."""
        taken = (stays @ self._columns.need[self._kinds]).T  # (resources, places)
        at = np.zeros((self._limit.shape[0], self._columns.nodes), dtype=np.int64)
        freed = np.zeros(self._columns.nodes, dtype=bool)
        for aim, columns in zip(self._aims, aimed, strict=True):
            if aim.needs is None:
                freed[aim.nodes[values[columns] > 0]] = True
            else:
                at[:, aim.nodes] += aim.needs[:, None] * values[columns]
        whole = bool((taken + at[:, self._places] <= self._limit).all())
        return whole and not stays[freed[self._places]].any() and bool((stays.sum(0) == self._counts.sum(0)).all())

    def _entries(self, counts: Ints) -> Ints:
        where = np.argwhere(counts > 0)
        kinds, nodes = self._kinds[where[:, 1]], self._places[where[:, 0]]
        return np.stack([kinds, nodes, counts[where[:, 0], where[:, 1]]], axis=1)


def _counts(columns: Columns, places: Ints, may_leave: Mask) -> Ints:
    """Return how many pods of each kind may leave each place; (places, kinds)."""
    pods = np.flatnonzero((columns.pod_kind >= 0) & may_leave[columns.pod_node])
    cells = columns.pod_node[pods] * columns.kinds + columns.pod_kind[pods]
    counts = np.bincount(cells, minlength=columns.nodes * columns.kinds).reshape(columns.nodes, columns.kinds)
    return counts[places].astype(np.int64)


def _redundant_rows(need: Ints, limit: Ints) -> Mask:
    """Return per resource and place whether another resource is always used up first there; (resources, places)."""
    redundant = np.zeros(limit.shape, dtype=bool)
    redundant[need.max(axis=0, initial=0) == 0] = True
    shares = need.astype(float)[:, :, None] / np.maximum(limit, 1)[None]  # (kinds, resources, places)
    for column in range(len(limit)):
        for other in range(len(limit)):
            if other != column:
                smaller = (shares[:, column] <= shares[:, other] * _SURELY_SMALLER).all(axis=0)
                redundant[column] |= smaller & ~redundant[other] & (limit[other] > 0)
    return redundant


def _row_scale(limit: float) -> float:
    """Return by what a row is divided: large amounts (bytes) would drown the solver's tolerance."""
    return max(1.0, limit / 1000) if limit > MOST_COLUMNS else 1.0


def _positions(mask: Mask, columns: Ints) -> Ints:
    """Return the columns in the places of a mask, -1 elsewhere."""
    found = np.full(mask.shape, -1, dtype=np.int64)
    found[mask] = columns
    return found


@dataclass(frozen=True)
class _Found:
    verdict: Verdict
    bound: int
    values: npt.NDArray[np.float64] | None
    out_of_time: bool


class _Program:
    """Columns and rows, handed to HiGHS in one piece."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._whole: list[bool] = []
        self._rows: list[tuple[Ints, npt.NDArray[np.float64]]] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []

    def add_columns(self, upper: Ints, *, cost: float = 0.0, whole: bool = False) -> Ints:
        """Add columns from 0 to their upper bounds and return their numbers."""
        first = len(self._cost)
        self._cost += [cost] * len(upper)
        self._upper += upper.astype(float).tolist()
        self._whole += [whole] * len(upper)
        return np.arange(first, first + len(upper))

    def add_row(
        self,
        columns: Ints,
        values: npt.NDArray[np.float64],
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> None:
        """Add a row."""
        self._rows.append((columns, values))
        self._row_lower.append(float(lower))
        self._row_upper.append(float(upper))

    def solve(self, deadline: Deadline, enough: int | None) -> _Found:
        """Return what the solver finds; in one thread, from a fixed seed, with a limit on its tree.

        It stops once it is sure that the objective is above `enough`. That is no row of the program: a row on the sum
        of all moves makes it slower by a factor of twenty.
        """
        import highspy  # noqa: PLC0415 - an extra, imported where it is used

        model = self._model(highspy)
        found = _Found(Verdict.UNDECIDED, 0, None, out_of_time=True)
        for seed, tree_nodes in _ATTEMPTS:
            if is_over(deadline):
                return replace(found, out_of_time=True)
            found = _run_solver(highspy, model, (seed, tree_nodes, enough), deadline)
            if found.verdict is not Verdict.UNDECIDED or found.out_of_time:
                break
        return found

    def _model(self, highspy: Any) -> Any:  # noqa: ANN401 - the solver has no types
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._cost), len(self._rows)
        model.col_cost_ = np.array(self._cost)
        model.col_lower_, model.col_upper_ = np.zeros(len(self._cost)), np.array(self._upper)
        model.row_lower_, model.row_upper_ = np.array(self._row_lower), np.array(self._row_upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(columns) for columns, _ in self._rows)])
        model.a_matrix_.index_ = np.concatenate([columns for columns, _ in self._rows])
        model.a_matrix_.value_ = np.concatenate([values for _, values in self._rows])
        kind = highspy.HighsVarType
        model.integrality_ = [kind.kInteger if whole else kind.kContinuous for whole in self._whole]
        return model


def _run_solver(
    highspy: Any,  # noqa: ANN401 - the solver has no types
    model: Any,  # noqa: ANN401 - the same
    limits: tuple[int, int, int | None],
    deadline: Deadline,
) -> _Found:
    """Run the solver once, given its seed, the most nodes of its tree and the objective that is enough to know."""
    seed, tree_nodes, enough = limits
    options: dict[str, bool | int | float] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": seed,
        "mip_rel_gap": 0.0,
        "mip_max_nodes": tree_nodes,
    }
    if enough is not None:
        options["objective_bound"] = enough + 0.5
    left = deadline.remaining_seconds()
    if left is not None:
        options["time_limit"] = max(0.01, left)
    solver = highspy.Highs()
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(model)
    solver.run()
    return _read_solver(highspy, solver)


def _read_solver(highspy: Any, solver: Any) -> _Found:  # noqa: ANN401 - the solver has no types
    status, info = solver.getModelStatus(), solver.getInfo()
    out_of_time = status == highspy.HighsModelStatus.kTimeLimit
    if status == highspy.HighsModelStatus.kInfeasible:
        return _Found(Verdict.IMPOSSIBLE, 0, None, out_of_time=False)
    bound = max(0, int(np.ceil(info.mip_dual_bound - _ROUNDING))) if np.isfinite(info.mip_dual_bound) else 0
    verdict = Verdict.SOLVED if status == highspy.HighsModelStatus.kOptimal else Verdict.UNDECIDED
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if has_solution else None
    return _Found(verdict, bound, values, out_of_time)
