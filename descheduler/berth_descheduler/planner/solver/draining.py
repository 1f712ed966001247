"""Chooses a set of nodes to empty within the moves, by costs.

The set is chosen first and filled as a whole: the nodes whose pods cost least as it seems at the moment. A filling
tells what the last pod of each kind cost, costs move towards that, and the set is chosen anew, with more nodes where
moves are left and fewer where pods found no place. So expensive kinds (large pods for which there is no hole) make
their nodes expensive, as long as that matters. Costs begin at one move for every pod: the nodes with the fewest pods.
Nodes whose tied pods find no place leave the set and are penalized in the next; a set that fails again gets smaller.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from berth_core import Deadline
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State
from berth_descheduler.planner.solver.bounds import fewest_moves, holds, least_cost, most_worth
from berth_descheduler.planner.solver.cost_bound import CostBound, bound_by_costs
from berth_descheduler.planner.solver.filling import MOVE, Demand, Filled, FillLimits, fill
from berth_descheduler.planner.solver.growing import DependentPlacement, DependentPods, Growing, GrownSet
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

_MANY_KINDS: Final = 100
_FEW_EXCHANGES: Final = 3

MOST_ROUNDS: Final = 28
_ROUNDS_WITHOUT_GAIN: Final = 8
_ROUNDS_BEFORE_CHANCE: Final = 3
_ROUNDS_FOR_MOVES: Final = 4
"""Rounds without gain where no more nodes can be freed, only with fewer moves."""

_LONG_ROUND: Final = 50_000_000
"""Nodes times kinds from which on half as many rounds without gain have to do."""

_PATIENCE: Final = 640
"""The larger, the more often as many nodes are tried although pods found no place."""

_NOTED: Final = 50_000
"""Nodes times kinds up to which each step of a set that grows is noted."""

_PENALTY: Final = 40 * MOVE
"""What the emptying of a node costs more after a large pod of it found no place."""

_ROOM_PENALTIES: Final = 10
"""How many penalties the room of the largest node counts for, where room is scarce and moves are not."""

_LARGE: Final = 20
"""A pod is large if it takes more than one in so many parts of a node."""


@dataclass(frozen=True)
class Draining:
    """A set of nodes to empty and where everything goes."""

    nodes: tuple[NodeIndex, ...]
    dependent: tuple[DependentPlacement, ...]
    filled: Filled
    moves: int
    worth: int
    """The sum of what the nodes are worth: their number where nodes have no weights."""

    unwished: int
    """By how much the targets miss the wishes of rules: the sum of their ranks."""

    @classmethod
    def of(
        cls,
        packing: PackingModel,
        nodes: tuple[NodeIndex, ...],
        dependent: tuple[DependentPlacement, ...],
        filled: Filled,
        *,
        moves: int,
        worth: int,
    ) -> "Draining":
        """Return what is known of a set of nodes and where everything on them goes."""
        tied = sum(int(packing.rank[placement.target]) for placement in dependent)
        return cls(nodes, dependent, filled, moves, worth, packing.unwished(filled.arrivals) + tied)

    def better_than(self, other: "Draining | None") -> bool:
        """Return whether what is freed is worth more, or as much with targets nearer to the wishes, or fewer moves."""
        if other is None:
            return True
        return self.merit > other.merit

    @property
    def merit(self) -> tuple[int, int, int]:
        """Return what is the larger, the better a draining is."""
        return self.worth, -self.unwished, -self.moves


@dataclass(frozen=True)
class Candidates:
    """The nodes that may be emptied."""

    nodes: Ints  # (candidates,)
    pods_of: Mapping[NodeIndex, tuple[PodIndex, ...]]
    pod_counts: Ints  # (candidates,)
    disruption: Ints  # (candidates,), which of two equally cheap nodes is disturbed less
    empty: Ints  # nodes that are empty already
    worth: Ints  # (candidates,), above 0: 1 where nodes have no weights, or equal ones
    empty_worth: Ints | None = None  # (empty,), what filling each costs; None: 1 each, none is filled if worths differ

    @property
    def differ(self) -> bool:
        """Return whether some nodes are worth more than others."""
        return bool((self.worth > 1).any())

    def worth_of(self, nodes: Iterable[int]) -> int:
        """Return what some candidates are worth together."""
        node_array = np.fromiter(nodes, np.int64)
        return int(self.worth[np.isin(self.nodes, node_array)].sum())

    def cost_of_filling(self, targets: Ints) -> int:
        """Return what filling those of the targets costs that are empty nodes."""
        return 0 if self.empty_worth is None else int(self.empty_worth[np.isin(self.empty, targets)].sum())


@dataclass(frozen=True)
class DrainLimits:
    """What a draining has to keep to."""

    budget: int | None
    """The most moves."""

    most: int
    """No more nodes than this can be freed."""

    deadline: Deadline
    seed: int = 0
    filling: FillLimits = field(default_factory=FillLimits)
    may_leave: Mask | None = None
    """The nodes from which pods may be taken; None: no set is repaired or grown."""

    most_worth: int | None = None
    """No plan frees what is worth more; None: that follows from `most`."""

    worth_per_move: Fraction = Fraction(0)
    """What is freed has to be worth this much for each move."""

    rounds: int = MOST_ROUNDS
    """So many sets are tried at most; fewer are a first look, which ends where pods of one find no place."""

    def allowed_moves(self, worth: int) -> int | None:
        """Return how many moves may free what is worth so much, None for any number."""
        if not self.worth_per_move:
            return self.budget
        worthwhile = int(worth / self.worth_per_move)
        return worthwhile if self.budget is None else min(self.budget, worthwhile)


class DrainSearch:
    """Looks for the largest set of drainable nodes, then the fewest moves."""

    def __init__(
        self, packing: PackingModel, state: State, candidates: Candidates, open_nodes: Mask, limits: DrainLimits
    ) -> None:
        """Prepare; `open_nodes` may take pods unless they are emptied themselves."""
        self._packing = packing
        self._state = state
        self._candidates = candidates
        self._open = open_nodes
        self._limits = limits
        self._movable = np.flatnonzero(packing.pod_kind >= 0)
        self._costs = np.full(packing.kinds, MOVE, dtype=np.int64)
        self._best_costs = self._costs
        self._whole = max(1, int(packing.room[packing.binding, open_nodes].max(initial=1)))
        self._large = packing.need[:, packing.binding] * _LARGE > self._whole  # (kinds,)
        self._overspent = (0, 0)
        """Nodes and moves of the last trial that took too many moves."""

        self._room_cost = np.zeros(len(candidates.nodes))
        """What the room of each candidate counts for, in moves."""

        self._trial_seconds = 0.0
        """How long the last trial took."""

        self._incomplete = 0
        self._least_left = 1 << 62
        self._failed: Counter[tuple[NodeIndex, ...]] = Counter()
        """How often pods of a set of nodes found no place."""

        self._bonus = np.zeros(packing.nodes, dtype=np.int64)
        self.found: list[Draining] = []
        """What was found, the best last."""

        self.passed: list[Draining] = []
        """What small sets were on the way while they grew: one may have an order where what it became has none."""

        self.most = limits.most
        """No more nodes than this can be freed."""

        self.most_worth = self._bound_worth(limits.most_worth)
        """No plan frees what is worth more."""

        self.bound: CostBound | None = None
        """What costs prove, where the first choice is not the best already."""

        self.out_of_time = False

    def run(self) -> None:
        """Search, and leave the results in `found`.

        Where nodes have weights, once more with what a node holds as its cost: its pods are what is scarce if moves
        are, and its room if they are not.
        """
        self._search()
        if self._candidates.differ and not self.out_of_time and not self._is_perfect():
            self._begin_anew()
            self._search()

    def drain(self, nodes: Collection[NodeIndex]) -> Draining:
        """Return the draining of a set of candidates, at the costs where the search stands.

        Nodes whose dependent pods find no place are left out, and other pods may find none.
        """
        return self._try(np.array(sorted(nodes), dtype=np.int64))

    def _begin_anew(self) -> None:
        hold = holds(self._packing)[self._packing.binding, self._candidates.nodes].astype(np.float64)
        self._room_cost = _PENALTY * hold * _ROOM_PENALTIES / max(1.0, hold.max(initial=1))
        if self.bound is not None:
            self._costs = self._best_costs = self.bound.costs
            self._bonus = -self.bound.openings
        self._overspent, self._incomplete, self._least_left = (0, 0), 0, 1 << 62

    def _search(self) -> None:
        chance, target, idle = Random(self._limits.seed), self.most, 0  # noqa: S311 - no secret
        last_trial: object = None
        for turn in range(self._limits.rounds):
            if target < 1 or idle > self._patience or self._is_perfect():
                return
            if self._has_no_time_for_a_trial():
                self.out_of_time = True
                return
            chosen = self._choose(target)
            trial = self._try_timed(chosen)
            if self._limits.rounds < MOST_ROUNDS and not trial.filled.complete:
                return
            good = trial.filled.complete and self._within_budget(trial)
            idle += 1
            if good and self._keep(trial):
                self._best_costs = self._costs
                idle = 0
            elif not trial.filled.complete and self._is_promising(trial) and self._keep(self._grow(trial)):
                idle = 0
            if self.bound is None and not self._is_perfect():
                self._prove(trial)
            elif not trial.filled.complete:
                self._penalize_large(trial)
                self._update_costs(trial, turn)
            elif idle > _ROUNDS_BEFORE_CHANCE or last_trial == (trial.nodes, trial.moves):
                self._perturb(chance)
            else:
                self._update_costs(trial, turn)
            self._penalize_infeasible(np.setdiff1d(chosen, trial.nodes))
            last_trial = trial.nodes, trial.moves
            target = self._next_target(trial, len(chosen), good=good)

    def _has_no_time_for_a_trial(self) -> bool:
        """Return whether less time is left than the last trial took: one that has begun is carried through."""
        seconds_left = self._limits.deadline.remaining_seconds()
        return seconds_left is not None and seconds_left <= self._trial_seconds

    def _try_timed(self, chosen: Ints) -> Draining:
        """Return the draining of some nodes, and note how long it took."""
        began = self._limits.deadline.remaining_seconds()
        trial = self._try(chosen)
        ended = self._limits.deadline.remaining_seconds()
        self._trial_seconds = 0.0 if began is None or ended is None else began - ended
        return trial

    @property
    def _best(self) -> Draining | None:
        return self.found[-1] if self.found else None

    @property
    def _patience(self) -> int:
        if self._best is None:
            return MOST_ROUNDS
        if self._best.worth == self.most_worth:
            return _ROUNDS_FOR_MOVES
        is_long = self._packing.nodes * self._packing.kinds > _LONG_ROUND
        return _ROUNDS_WITHOUT_GAIN // 2 if is_long else _ROUNDS_WITHOUT_GAIN

    def _is_perfect(self) -> bool:
        best = self._best
        return best is not None and best.worth == self.most_worth and best.moves <= self.fewest_moves(best.worth)

    def _bound_worth(self, known: int | None) -> int:
        """Return the most that as many nodes as can be freed can be worth."""
        candidates, budget = self._candidates, self._limits.budget
        worth_bound = int(np.sort(candidates.worth)[::-1][: self.most].sum())
        if candidates.differ and budget is not None:
            worth_bound = min(worth_bound, most_worth(candidates.worth, candidates.pod_counts, budget))
        return worth_bound if known is None else min(worth_bound, known)

    def fewest_moves(self, worth: int) -> int:
        """Return a lower bound on the moves that free what is worth so much."""
        candidates, bound = self._candidates, self.bound
        if not candidates.differ:
            by_costs = bound.fewest_moves(candidates.nodes, candidates.empty, worth) if bound else 0
            return max(by_costs, fewest_moves(candidates.pod_counts, worth))
        by_costs = bound.fewest_moves_to(candidates.nodes, candidates.empty, candidates.worth, worth) if bound else 0
        return max(by_costs, least_cost(candidates.worth, candidates.pod_counts, worth))

    def _within_budget(self, trial: Draining) -> bool:
        allowed_moves = self._limits.allowed_moves(trial.worth)
        return allowed_moves is None or trial.moves <= allowed_moves

    def _choose(self, most: int) -> Ints:
        """Return the candidates that cost least for what they are worth, as many as direct moves can empty."""
        candidates = self._candidates
        pod_costs = self._costs[self._packing.pod_kind[self._movable]].astype(np.float64)  # whole, below 2**53: exact
        node_costs = np.bincount(
            self._packing.pod_node[self._movable], weights=pod_costs, minlength=self._packing.nodes
        )
        total = node_costs[candidates.nodes] - self._bonus[candidates.nodes] + self._room_cost
        cost_per_worth = _per_worth(total.astype(np.float64), candidates.worth)
        order = np.lexsort((candidates.nodes, candidates.disruption, cost_per_worth))
        if self._limits.budget is not None:
            order = self._affordable_of(order, self._limits.budget)
        return np.sort(candidates.nodes[order[:most]])

    def _affordable_of(self, order: Ints, budget: int) -> Ints:
        """Return the first of the candidates that direct moves can empty, and of those with weights later ones, too."""
        counts = self._candidates.pod_counts[order]
        if not self._candidates.differ:
            return order[: int((np.cumsum(counts) <= budget).sum())]
        is_taken, budget_left = np.zeros(len(order), dtype=bool), budget
        for position, pods in enumerate(counts.tolist()):
            if pods <= budget_left:
                is_taken[position], budget_left = True, budget_left - pods
        return order[is_taken]

    def _try(self, chosen: Ints) -> Draining:
        """Return the draining of some nodes, without those whose dependent pods find no place."""
        drained = np.zeros(self._packing.nodes, dtype=bool)
        drained[chosen] = True
        dependent = DependentPods(self._packing, self._state, self._open & ~drained)
        drained[list(dependent.place(self._dependent_pods(chosen)))] = False
        dependent.withdraw()
        leaving = self._packing.movable_on(drained)
        demand = self._packing.counts_of(leaving)
        demand[self._packing.dependent] = 0
        filled = fill(
            self._packing,
            dependent.room,
            self._open & ~drained,
            Demand(demand),
            costs=self._costs,
            limits=self._filling(),
        )
        nodes = tuple(NodeIndex(int(node)) for node in np.flatnonzero(drained))
        worth = self._candidates.worth_of(nodes)
        moves = len(leaving) + filled.ejected
        return Draining.of(self._packing, nodes, dependent.placements, filled, moves=moves, worth=worth)

    def _filling(self) -> FillLimits:
        """Return how far a filling goes.

        With many kinds exchanges take longest and bring little: a first set is repaired instead.
        """
        filling = self._limits.filling
        if self._packing.kinds <= _MANY_KINDS:
            return filling
        return replace(filling, exchanges=min(filling.exchanges, _FEW_EXCHANGES if self.found else 1))

    def _dependent_pods(self, chosen: Ints) -> dict[int, list[PodIndex]]:
        if not self._packing.dependent.any():
            return {}
        kinds, dependent = self._packing.pod_kind, self._packing.dependent
        of_nodes = ((int(node), self._candidates.pods_of[NodeIndex(int(node))]) for node in chosen)
        dependent_by_node = {node: [pod for pod in pods if dependent[kinds[pod]]] for node, pods in of_nodes}
        return {node: pods for node, pods in dependent_by_node.items() if pods}

    def _keep(self, trial: Draining | None) -> bool:
        """Keep a draining that is better than the best; return whether it is."""
        if trial is None or not trial.nodes or not trial.better_than(self._best):
            return False
        self.found.append(trial)
        return True

    def _is_promising(self, trial: Draining) -> bool:
        """Return whether fewer pods than ever found no place, and more than the best frees is tried."""
        unplaced_size = int(trial.filled.unplaced @ self._packing.size)
        promising = unplaced_size < self._least_left and (self._best is None or trial.worth > self._best.worth)
        self._least_left = min(self._least_left, unplaced_size)
        return promising

    def _grow(self, trial: Draining) -> Draining | None:
        """Return what becomes of an incomplete draining by repairing and growing it."""
        if self._limits.may_leave is None:
            return None
        drained = np.zeros(self._packing.nodes, dtype=bool)
        drained[list(trial.nodes)] = True
        dependent = DependentPods(self._packing, self._state, self._open & ~drained)
        tied_of = self._dependent_pods(self._candidates.nodes)
        dependent.place({node: tied_of[node] for node in trial.nodes if node in tied_of})
        growing = Growing(self._packing, dependent.room, self._open, self._limits.may_leave, self._limits.deadline)
        growing.take_over(trial.nodes, trial.filled)
        candidates = self._candidates
        worth = dict(zip(candidates.nodes.tolist(), candidates.worth.tolist(), strict=True))
        grown = GrownSet(growing, drained, worth, dependent, tied_of)

        def read() -> Draining:
            nodes = tuple(NodeIndex(int(node)) for node in np.flatnonzero(drained))
            filled, placements = growing.filled(drained), dependent.placements
            return Draining.of(self._packing, nodes, placements, filled, moves=grown.moves, worth=grown.worth)

        def note() -> None:
            if self._packing.nodes * self._packing.kinds <= _NOTED:
                self.passed.append(read())

        grown.work_out(self._limits.budget, self.most_worth, self._limits.deadline, note)
        dependent.withdraw()
        if growing.pool:
            return None
        grown_draining = read()
        return grown_draining if self._within_budget(grown_draining) else None

    def _prove(self, trial: Draining) -> None:
        """Look for the bound by costs, and begin anew with these."""
        candidates, budget = self._candidates, self._limits.budget
        bound = bound_by_costs(
            self._packing, candidates.nodes, candidates.empty, trial.moves if budget is None else budget
        )
        if budget is not None:
            self.most = min(self.most, bound.most_freed(candidates.nodes, candidates.empty, budget))
            self.most_worth = self._bound_worth(self.most_worth)
            if candidates.differ:
                worth_within_budget = bound.most_worth(candidates.nodes, candidates.empty, candidates.worth, budget)
                self.most_worth = min(self.most_worth, worth_within_budget)
        self.bound = bound
        self._costs = self._best_costs = bound.costs
        self._bonus = -bound.openings

    def _perturb(self, chance: Random) -> None:
        """Change the costs that led to the best by chance."""
        shaken = np.array([chance.randrange(80, 125) for _ in range(self._packing.kinds)], dtype=np.int64)
        self._costs = np.maximum(MOVE, self._best_costs * shaken // 100)

    def _update_costs(self, trial: Draining, turn: int) -> None:
        """Move costs towards those of a trial by shrinking steps.

        Those of pods without a place change at once.
        """
        # Steps that shrink, as for Lagrangian multipliers (Held and Karp, 1971): costs that follow each trial at once
        # would swing between two sets.
        pace = 2 + turn // 4
        nearer = self._costs + (trial.filled.costs - self._costs) * 4 // (5 * pace)
        self._costs = np.where(trial.filled.unplaced > 0, trial.filled.costs, nearer)
        if self._limits.budget is None and not trial.filled.complete:
            mean = max(1, int(self._packing.need[:, self._packing.binding].mean()))
            self._bonus = np.maximum(self._bonus, trial.filled.stuck * MOVE // mean)

    def _penalize_large(self, trial: Draining) -> None:
        """Penalize as many nodes whose large pods found no place as cover the pods that are left."""
        pods = self._packing.movable_on(np.isin(np.arange(self._packing.nodes), trial.nodes))
        # What failed in one construction weighs more in the next: squeaky wheel optimization (Joslin and Clements,
        # 1999).
        for kind in np.flatnonzero((trial.filled.unplaced > 0) & self._large):
            nodes, counts = np.unique(
                self._packing.pod_node[pods[self._packing.pod_kind[pods] == kind]], return_counts=True
            )
            order = np.argsort(self._bonus[nodes] - counts, kind="stable")
            enough = int(np.searchsorted(np.cumsum(counts[order]), trial.filled.unplaced[kind])) + 1
            self._bonus[nodes[order[:enough]]] -= _PENALTY

    def _penalize_infeasible(self, left_out: Ints) -> None:
        """Penalize the nodes whose dependent pods found no place.

        Other nodes with such pods are penalized less, by the costs of their kinds.
        """
        if not len(left_out):
            return
        self._bonus[left_out] -= _PENALTY
        kinds = self._packing.pod_kind[self._packing.movable_on(np.isin(np.arange(self._packing.nodes), left_out))]
        dear = np.isin(np.arange(self._packing.kinds), kinds) & self._packing.dependent
        self._costs = np.where(dear, np.minimum(4 * self._costs, _PENALTY), self._costs)

    def _next_target(self, trial: Draining, tried: int, *, good: bool) -> int:
        """Return how many nodes to try after a trial of `tried`."""
        nodes_freed, best = len(trial.nodes), len(self._best.nodes) if self._best else 0
        if good:
            target = max(tried, nodes_freed + self._affordable(trial))
        elif trial.filled.complete:
            self._overspent = nodes_freed, trial.moves
            target = nodes_freed - self._too_many(trial)
        else:
            self._incomplete += 1
            self._failed[trial.nodes] += 1
            fewer = nodes_freed * self._incomplete**2 // _PATIENCE + self._failed[trial.nodes] - 1
            target = nodes_freed - self._missing_nodes(trial) - fewer
        # Fewer nodes can be worth more than the best: with weights its number is no reason to try none with as many.
        return min(self.most, max(target, best // 2, 1) if self._candidates.differ else max(target, best + 1))

    def _affordable(self, trial: Draining) -> int:
        """Return how many more nodes the moves that are left might free."""
        if self._limits.budget is None:
            return max(1, (self.most - len(trial.nodes) + 1) // 2)
        moves_left, (nodes, moves) = self._limits.budget - trial.moves, self._overspent
        if nodes <= len(trial.nodes) + 1 or moves <= trial.moves:
            return max(1, moves_left * len(trial.nodes) // max(1, trial.moves))
        between = nodes - len(trial.nodes)
        return max(1, min(between - 1, moves_left * between // (moves - trial.moves)))

    def _too_many(self, trial: Draining) -> int:
        """Return how many nodes less might do with the moves there are."""
        excess_moves, best = trial.moves - (self._limits.allowed_moves(trial.worth) or 0), self._best
        if best is not None and best.moves < trial.moves and len(best.nodes) < len(trial.nodes):
            return max(1, excess_moves * (len(trial.nodes) - len(best.nodes)) // (trial.moves - best.moves))
        return max(1, excess_moves * len(trial.nodes) * 7 // (10 * max(1, trial.moves)))

    def _missing_nodes(self, trial: Draining) -> int:
        """Return how many nodes are too many after a trial.

        What counts is the volume of the small pods without a place. For large pods it is their kind that counts, not
        the volume: their cost goes up, and other nodes are chosen.
        """
        amounts = trial.filled.unplaced * self._packing.need[:, self._packing.binding]
        nodes = -(-int(amounts[~self._large].sum()) // self._whole)
        return nodes if amounts[self._large].any() else max(1, nodes)


def _per_worth(cost: npt.NDArray[np.float64], worth: Ints) -> npt.NDArray[np.float64]:
    """Return costs for what nodes are worth; a gain, which is below 0, counts more where they are worth more."""
    share = worth / worth.max(initial=1)
    cost_per_worth: npt.NDArray[np.float64] = np.where(cost >= 0, cost / share, cost * share)
    return cost_per_worth
