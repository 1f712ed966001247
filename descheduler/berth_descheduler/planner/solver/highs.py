"""Solves mixed integer programs with HiGHS in one thread.

Seeds and limits are fixed. HiGHS is the extra `optimal`; it is imported when a program is solved.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from berth_core import Deadline, is_over
from berth_descheduler.planner.solver.model import Ints

Attempts: TypeAlias = tuple[tuple[int, int], ...]
"""Seeds and the most nodes of the search tree."""

FIRST_ATTEMPT: Final[Attempts] = ((1, 40),)
LONGER_ATTEMPT: Final[Attempts] = ((1, 150),)
FURTHER_ATTEMPTS: Final[Attempts] = ((2, 40), (3, 4_000))
ALL_ATTEMPTS: Final[Attempts] = (*FIRST_ATTEMPT, *FURTHER_ATTEMPTS)
"""Most questions are answered at the root of the tree, with some seeds sooner."""

_ROUNDING: Final = 1e-6


def is_installed() -> bool:
    """Return whether the solver is there."""
    return find_spec("highspy") is not None


class SolverStatus(Enum):
    """How far the solver came."""

    SOLVED = auto()
    FOUND = auto()
    """There is a solution that is good enough, and perhaps a better one."""

    IMPOSSIBLE = auto()
    UNDECIDED = auto()


@dataclass(frozen=True)
class SolverResult:
    """A bound on the objective, and the columns' values if any."""

    status: SolverStatus
    bound: int
    values: npt.NDArray[np.float64] | None
    out_of_time: bool


class LinearProgram:
    """Columns and rows, handed to HiGHS in one piece."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._whole: list[bool] = []
        self._rows: list[tuple[Ints, npt.NDArray[np.float64]]] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []

    def add_columns(self, upper: Ints, *, costs: Ints | None = None, whole: bool = False) -> Ints:
        """Add columns from 0 to their upper bounds, at no cost by default; return their numbers."""
        first_column = len(self._cost)
        self._cost += [0.0] * len(upper) if costs is None else costs.astype(float).tolist()
        self._upper += upper.astype(float).tolist()
        self._whole += [whole] * len(upper)
        return np.arange(first_column, first_column + len(upper))

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

    @property
    def columns(self) -> int:
        """Return how many columns there are."""
        return len(self._cost)

    def solve(
        self,
        deadline: Deadline,
        enough: int | None,
        *,
        attempts: Attempts = ALL_ATTEMPTS,
        any_solution: bool = False,
    ) -> SolverResult:
        """Return what the solver finds by the deadline, with `any_solution` the first that is not above `enough`.

        It runs in one thread, from fixed seeds, with limits on its search tree. It stops once it is sure that the
        objective is above `enough`. That is no row of the program: a row on the sum of all moves makes it slower by a
        factor of twenty.
        """
        import highspy  # noqa: PLC0415 - an extra, imported where it is used

        model = self._model(highspy)
        result = SolverResult(SolverStatus.UNDECIDED, 0, None, out_of_time=True)
        for seed, tree_nodes in attempts:
            if is_over(deadline):
                return replace(result, out_of_time=True)
            result = _run_solver(highspy, model, (seed, tree_nodes, enough), deadline)
            if any_solution and result.status is SolverStatus.UNDECIDED and self._is_enough(result, enough):
                return replace(result, status=SolverStatus.FOUND)
            if result.status is not SolverStatus.UNDECIDED or result.out_of_time:
                break
        return result

    def _is_enough(self, result: SolverResult, enough: int | None) -> bool:
        """Return whether there is a solution whose cost is not above what is enough."""
        if result.values is None:
            return False
        return enough is None or bool(np.array(self._cost) @ result.values <= enough + _ROUNDING)

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
        model.integrality_ = [kind.kInteger if is_whole else kind.kContinuous for is_whole in self._whole]
        return model


def _run_solver(
    highspy: Any,  # noqa: ANN401 - the solver has no types
    model: Any,  # noqa: ANN401 - the same
    limits: tuple[int, int, int | None],
    deadline: Deadline,
) -> SolverResult:
    """Run the solver once with the given limits.

    `limits` are the seed, the most nodes of the search tree, and `enough` of `LinearProgram.solve`.
    """
    seed, tree_nodes, enough_moves = limits
    options: dict[str, bool | int | float] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": seed,
        "mip_rel_gap": 0.0,
        "mip_max_nodes": tree_nodes,
    }
    if enough_moves is not None:
        options["objective_bound"] = enough_moves + 0.5
    seconds_left = deadline.remaining_seconds()
    if seconds_left is not None:
        options["time_limit"] = max(0.01, seconds_left)
    solver = highspy.Highs()
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(model)
    solver.run()
    return _read_solver(highspy, solver)


def _read_solver(highspy: Any, solver: Any) -> SolverResult:  # noqa: ANN401 - the solver has no types
    status, info = solver.getModelStatus(), solver.getInfo()
    out_of_time = status == highspy.HighsModelStatus.kTimeLimit
    if status == highspy.HighsModelStatus.kInfeasible:
        return SolverResult(SolverStatus.IMPOSSIBLE, 0, None, out_of_time=False)
    bound = max(0, int(np.ceil(info.mip_dual_bound - _ROUNDING))) if np.isfinite(info.mip_dual_bound) else 0
    status = SolverStatus.SOLVED if status == highspy.HighsModelStatus.kOptimal else SolverStatus.UNDECIDED
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if has_solution else None
    return SolverResult(status, bound, values, out_of_time)
