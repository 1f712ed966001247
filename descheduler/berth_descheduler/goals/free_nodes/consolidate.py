"""The strategy `Consolidate`, which frees as many nodes as possible.

Within the limits it frees the most nodes, or those that cost most where nodes have prices, then with the fewest moves,
then with the least disruption. Nodes that are empty already are no targets: filling one would undo what emptying
another brings. Where nodes have prices, empty ones are filled, too, if that empties nodes that cost more together. With
the extra `optimal` the integer program goes on from where the search ends, if the problem is small enough.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import takewhile
from math import gcd
from typing import Final

import numpy as np

from berth_core import Deadline, EarlierDeadline, NoDeadline, Pod, Snapshot, is_over
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.goals.free_nodes.kept_moves import propose_like
from berth_descheduler.goals.free_nodes.ordered_sets import OrderedSets
from berth_descheduler.goals.free_nodes.unfreed_nodes import UnfreedNodes
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, Proposal, Prover, Quality, State
from berth_descheduler.planner.disruption_cost import DisruptionCost
from berth_descheduler.planner.problem import Sources, find_sources
from berth_descheduler.planner.solver import (
    MOST_ROUNDS,
    Candidates,
    DependentPods,
    Draining,
    DrainLimits,
    DrainSearch,
    ExactDraining,
    Filled,
    FillLimits,
    Ints,
    JointDraining,
    PackingRepair,
    Transition,
    apply_transition,
    build_packing_model,
    is_mostly_tied,
    is_small_enough,
    least_cost,
    most_freed_by_number,
    most_freed_by_volume,
    most_worth,
    pack_fully,
    read_spreads,
    solve_draining,
    without_undrainable_nodes,
    worth_by_volume,
)
from berth_descheduler.planner.weights import WeightQuality, format_weight

_DETOURS: Final = 20
_FIRST_ROUNDS: Final = 3
"""Rounds of the search before the integer program is asked where that is small."""

_FIRST_EXCHANGES: Final = 3

_AFTER_SOLVER: Final = 0.4
"""The part of the time that is left for the search after the integer program."""

_SIZE_BITS: Final = 24
"""Sizes that differ in less than this are alike where nodes are compared."""

_FOR_ORDER: Final = 0.05
"""The part of the time that is left for an order where the moves of what is found have none."""

_DIRECTLY: Final = FillLimits(most_ejected=0)
_NODES_OF_SEARCHES: Final = 600
"""At most so many nodes are searched, counted anew in each search with a further empty node."""

_SIMPLY: Final = 500
"""So many nodes are asked where no time was left to find anything."""


class Consolidate:
    """Frees as many nodes as the moves allow."""

    def __init__(self, deadline: Deadline | None = None, *, min_savings_per_move: int = 0) -> None:
        """`min_savings_per_move` is what each move has to save an hour, by what its node costs, in millionths."""
        self._deadline = deadline or NoDeadline()
        self._min_savings = min_savings_per_move

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return find_sources(problem).to_take_from

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return none."""
        return ()

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the moves that free the most nodes, and why not more."""

        def run(asked: Problem, before: State) -> Proposal:
            return _ConsolidateRun(asked, before, self._deadline, self._min_savings).propose()

        return propose_like(problem, state, run, self._min_savings, self._deadline)


class _ConsolidateRun:
    """One run of the strategy over a state that it changes."""

    def __init__(self, problem: Problem, state: State, deadline: Deadline, min_savings: int) -> None:
        self._problem = problem
        self._state = state
        self._deadline = deadline
        self._min_savings = min_savings
        self._budget = problem.settings.limits.max_moves
        sources = find_sources(problem)
        self._packing = build_packing_model(problem, state, sources.to_take_from)
        sources = without_undrainable_nodes(problem, self._packing, sources)
        self._sources = _without_unprofitable_nodes(problem, sources, min_savings)
        self._disruption = DisruptionCost(problem)
        self._unit = 1
        """What a node's worth is counted in, in millionths of money."""

        self._fillable = self._find_fillable_nodes()
        self._filling_costs = np.zeros(len(self._fillable), dtype=np.int64)
        """What filling each of these costs, in the same unit."""

        self._candidates = self._read_candidates()
        self._may_leave = np.zeros(self._packing.nodes, dtype=bool)
        self._may_leave[np.array(self._sources.to_take_from, dtype=np.int64)] = True
        self._open = self._packing.takes.copy()
        # Closed as targets: an empty node that is filled is one freed node less, and an autoscaler may be about to
        # remove it.
        self._open[self._candidates.empty] = False
        self._most = min(
            most_freed_by_volume(self._packing, self._sources.to_empty, self._sources.empty),
            most_freed_by_number(self._candidates.pod_counts, self._budget),
        )
        self._most_worth: int | None = None
        if self._candidates.differ:
            candidates = self._candidates
            self._most_worth = worth_by_volume(self._packing, candidates.nodes, candidates.empty, candidates.worth)
        self._out_of_time = False
        self._is_second_choice = False
        """Whether none of the sets that were found has an order, so that direct moves may do with fewer."""

        self._spreads = read_spreads(self._packing, state) if problem.settings.search.exact else ()
        """What the integer program knows of what pods of a kind ask of one another."""

        self._counts_filled = False
        """Whether the bounds hold for plans that fill empty nodes, too."""

    def propose(self) -> Proposal:
        """Return the moves and why not more."""
        draining, exact = self._find_best()
        draining = self._pack_fully(draining, exact)
        draining, exact = self._fill_empty_nodes(draining, exact)
        quality = self._quality(draining, exact)
        freed = frozenset(draining.nodes if draining else ())
        outcome = freed, quality
        unfreed = UnfreedNodes(self._problem, self._state, self._packing, self._sources, outcome, self._deadline)
        return Proposal(self._state.steps, unfreed.explain(), quality)

    def _find_best(self) -> tuple[Draining | None, ExactDraining | None]:
        """Return the best draining, whose moves are then in the state, and what the integer program says.

        Where the program is small it is asked after a few rounds of the search, which goes on only where its
        answer cannot be carried out, and knows then what to look for. Else the program goes on where the search ends.
        """
        # A large program takes most of the time limit and may prove nothing, so the search comes first; a small one is
        # answered before the search has warmed up.
        if not self._may_solve():
            draining = self._repair(self._search_thoroughly())
            exact = self._solve_exactly(draining, self._deadline)
            return self._improve_exactly(draining, exact), exact
        first = self._repair(self._search(FillLimits(exchanges=_FIRST_EXCHANGES), rounds=_FIRST_ROUNDS))
        exact = self._solve_exactly(first, EarlierDeadline(self._deadline, _AFTER_SOLVER))
        first = self._improve_exactly(first, exact)
        if self._is_answered(first, exact):
            return first, exact
        if exact is not None:
            self._most_worth = exact.most
            self._most = self._most if self._candidates.differ else min(self._most, exact.most)
        self._state.undo_to(0)
        thorough = self._search_thoroughly(exact.found if exact else ())
        return self._improve(thorough, [first] if first else []), exact

    def _is_answered(self, draining: Draining | None, exact: ExactDraining | None) -> bool:
        """Return whether there is nothing to find beyond a draining whose moves are in the state."""
        if draining is None or exact is None:
            return draining is not None
        is_best_answer = bool(exact.found) and draining is exact.found[-1] and not exact.is_packed
        return draining.worth in {exact.most, exact.most_beside_empty} and (
            is_best_answer or len(self._state.steps) <= exact.fewest_moves
        )

    def _repair(self, draining: Draining | None) -> Draining | None:
        """Return the best of a draining and of what the repair of over-full packings finds; its moves are then made."""
        reached = draining.worth if draining else 0
        if self._budget is not None or self._min_savings or reached >= self._most:
            return draining
        deadline = EarlierDeadline(self._deadline, _FOR_ORDER)
        seed = self._problem.settings.search.seed
        repair = PackingRepair(self._packing, self._candidates, self._may_leave, seed=seed)
        for freed in range(reached + 1, self._most + 1):
            if is_over(deadline):
                break
            for packed in repair.drainings(freed, deadline):
                draining = self._improve(draining, [packed])
                if draining is not None and draining.worth >= freed:
                    break
            else:
                break
        return draining

    def _pack_fully(self, draining: Draining | None, exact: ExactDraining | None) -> Draining | None:
        """Return a draining that leaves its targets nearly full where that frees more, else the one given."""
        most = self._most if exact is None else min(self._most, exact.most)
        reached = draining.worth if draining else 0
        if self._budget is not None or self._min_savings:
            return draining
        freed_counts, is_exact = range(most, reached, -1), self._problem.settings.search.exact
        for packed in pack_fully(self._packing, self._candidates, freed_counts, self._deadline, exact=is_exact):
            draining = self._improve(draining, [packed])
            if draining is not None and draining.worth >= packed.worth:
                break
        return draining

    def _fill_empty_nodes(
        self, draining: Draining | None, exact: ExactDraining | None
    ) -> tuple[Draining | None, ExactDraining | None]:
        """Return the best draining where cheap empty nodes may be filled, and what the program knows of such plans.

        Where nothing is found or proven beyond the arguments, these are returned.
        """
        if not len(self._fillable) or is_over(self._deadline):
            return draining, exact
        worth = draining.worth if draining else 0
        most_by_filling = self._most_by_filling(self._fillable, self._filling_costs)
        solved = self._solve_with_filled(draining, most_by_filling)
        most = min(most_by_filling, solved.most) if solved else most_by_filling
        if solved is not None:
            draining = self._improve_exactly(draining, solved)
            if solved.found and (draining.worth if draining else 0) < solved.found[-1].worth:
                draining = self._search_beside_filled(draining, solved)
        if (draining.worth if draining else 0) < most:
            draining = self._search_with_more_filled(draining, most)
        reached = draining.worth if draining else 0
        if reached == worth and (solved is None or most > reached):
            return draining, exact
        self._counts_filled, self._most_worth = True, most
        return draining, solved

    def _solve_with_filled(self, draining: Draining | None, most_worth: int) -> ExactDraining | None:
        """Return what the program proves and finds of plans that fill empty nodes; None where it is not asked."""
        if not self._problem.settings.search.exact:
            return None
        candidates = replace(self._candidates, empty=self._fillable, empty_worth=self._filling_costs)
        worth, moves = (draining.worth, len(self._state.steps)) if draining else (0, 0)
        stays_empty = np.zeros(self._packing.nodes, dtype=bool)
        stays_empty[np.setdiff1d(self._candidates.empty, self._fillable)] = True
        # The bounds of the search hold for plans that leave empty nodes empty, so they may be 0 here.
        most = most_freed_by_number(candidates.pod_counts, self._budget)
        return solve_draining(
            self._packing,
            candidates,
            replace(self._limits(FillLimits()), most=most, most_worth=most_worth),
            may_take=self._packing.takes & ~stays_empty,
            may_leave=self._may_leave & ~stays_empty,
            worth=worth,
            moves=moves,
            least_moves=least_cost(candidates.worth, candidates.pod_counts, worth),
            spreads=self._spreads,
        )

    def _search_beside_filled(self, draining: Draining | None, solved: ExactDraining) -> Draining | None:
        """Return the best of a draining and of what the search finds with the empty nodes that an answer fills.

        The integer program does not know all that pods ask of one another, so its answer may have no order where
        others that fill the same nodes have one.
        """
        answer = solved.found[-1]
        filled = np.flatnonzero(np.isin(self._fillable, answer.filled.arrivals[:, 1])).tolist()
        return self._search_beside(draining, filled, solved.most, answer.nodes) if filled else draining

    def _search_with_more_filled(self, draining: Draining | None, most: int) -> Draining | None:
        """Return the best of a draining and of what the search finds as it may fill one empty node more each time.

        Each time every empty node that may be filled is tried beside those before, and the best one is kept. It ends
        where none brings more, or after a number of searches that is inverse to the size of the cluster.
        """
        cheapest_first: list[int] = np.argsort(self._filling_costs, kind="stable").tolist()
        searches_left, filled = _NODES_OF_SEARCHES // self._packing.nodes, list[int]()
        best: list[int] | None = filled
        while best is not None:
            filled, best = best, None
            for further in (position for position in cheapest_first if position not in filled):
                if searches_left <= 0 or is_over(self._deadline) or (draining and draining.worth >= most):
                    return draining
                searches_left -= 1
                beside = self._search_beside(draining, [*filled, further], most)
                if beside is not draining:
                    draining, best = beside, [*filled, further]
        return draining

    def _search_beside(
        self, draining: Draining | None, filled: Sequence[int], most_worth: int, answer: Sequence[NodeIndex] = ()
    ) -> Draining | None:
        """Return the best of a draining and of what the search finds where some of the empty nodes may be filled.

        `filled` are positions among the fillable nodes. The nodes that an `answer` of the program empties are tried
        together, too.
        """
        nodes, costs = self._fillable[[*filled]], self._filling_costs[[*filled]]
        candidates = replace(self._candidates, empty=np.setdiff1d(self._candidates.empty, nodes))
        open_nodes = self._open.copy()
        open_nodes[nodes] = True
        limits = replace(
            self._limits(FillLimits(), EarlierDeadline(self._deadline, _FOR_ORDER)),
            most=most_freed_by_volume(self._packing, self._sources.to_empty, candidates.empty.tolist()),
            most_worth=most_worth + int(costs.sum()),
        )
        if not answer:  # one search of many
            limits = replace(limits, rounds=_FIRST_ROUNDS, may_leave=None)
        self._state.undo_to(0)
        search = DrainSearch(self._packing, self._state, candidates, open_nodes, limits)
        search.run()
        self._out_of_time |= search.out_of_time
        drainings = list(reversed(search.found))
        if answer:
            # The search places the pods of its nodes, as it knows what these ask of one another.
            answered = search.drain(answer)
            drainings = [answered, *drainings] if answered.filled.complete else drainings
        others = []
        for other in drainings:
            targets = [*other.filled.arrivals[:, 1].tolist(), *(placed.target for placed in other.dependent)]
            others.append(replace(other, worth=other.worth - int(costs[np.isin(nodes, targets)].sum())))
        return self._improve(draining, [*([draining] if draining else []), *others])

    def _most_by_filling(self, fillable: Ints, costs: Ints) -> int:
        """Return an upper bound on the worth of the freed nodes less the costs of the empty nodes that are filled."""
        candidates, costs_something = self._candidates, costs > 0
        nodes = np.concatenate([candidates.nodes, fillable[costs_something]])
        worth = np.concatenate([candidates.worth, costs[costs_something]])
        stays_empty = np.setdiff1d(candidates.empty, fillable)
        by_volume = worth_by_volume(self._packing, nodes, stays_empty, worth) - int(costs.sum())
        freed = int(candidates.worth.sum())
        if self._budget is not None:
            freed = min(freed, most_worth(candidates.worth, candidates.pod_counts, self._budget))
        return max(0, min(by_volume, freed))

    def _may_solve(self) -> bool:
        """Return whether there is an integer program and it is small."""
        return self._problem.settings.search.exact and is_small_enough(
            self._packing,
            self._candidates,
            self._limits(FillLimits()),
            may_take=self._packing.takes,
            may_leave=self._may_leave,
        )

    def _improve_exactly(self, draining: Draining | None, exact: ExactDraining | None) -> Draining | None:
        """Return the best of a draining whose moves are in the state, and of what the integer program found."""
        if exact is None:
            return draining
        self._out_of_time |= exact.out_of_time
        return self._improve(draining, reversed(exact.found))

    def _search_thoroughly(self, wished: Sequence[Draining] = ()) -> Draining | None:
        """Return the best draining that the search finds; its moves are then in the state.

        Sets are looked for near those that are wished, too.
        """
        search = self._joint_search()
        joint = search.run() if search else None
        joints = [joint] if joint else []
        if search is not None and search.out_of_time:
            self._out_of_time = True
            # Only for its bounds. A round would end too late, or, if it still fits where placing together has found
            # nothing, would not fit with a little more time: the plan would be worse with more time.
            self._search(FillLimits(), rounds=0)
            draining = self._improve(None, joints)
            return self._improve(draining, self._drain_simply(draining))
        draining = self._search(FillLimits(), wished=wished)
        # Pods that are moved aside make the order hard to find: direct moves alone may empty as much.
        if draining is None or self._is_second_choice:
            self._state.undo_to(0)
            draining = self._improve(self._search(_DIRECTLY), [draining] if draining else [])
        if self._out_of_time:
            draining = self._improve(draining, self._drain_simply(draining))
        return self._improve(draining, joints) if joints else draining

    def _joint_search(self) -> JointDraining | None:
        """Return the search that places all pods of a set together; None where most pods are not tied.

        Moves are not counted there, nor what nodes are worth.
        """
        is_limited = self._budget is not None or self._min_savings or self._candidates.differ
        if is_limited or not is_mostly_tied(self._packing):
            return None
        return JointDraining(
            self._packing,
            self._state,
            self._candidates,
            self._open,
            self._may_leave,
            most=self._most,
            deadline=EarlierDeadline(self._deadline, _FOR_ORDER),
        )

    def _search(
        self, filling: FillLimits, *, rounds: int = MOST_ROUNDS, wished: Sequence[Draining] = ()
    ) -> Draining | None:
        """Return the best draining that can be carried out.

        It is one that the search finds; its moves are then in the state.
        """
        deadline = EarlierDeadline(self._deadline, _FOR_ORDER)
        limits = self._limits(filling, deadline)
        if rounds < MOST_ROUNDS:
            limits = replace(limits, rounds=rounds, may_leave=None)
        search = DrainSearch(self._packing, self._state, self._candidates, self._open, limits)
        search.run()
        self._out_of_time |= search.out_of_time
        # The search has tightened the bounds while it ran, and the program starts from them.
        self._most, self._most_worth, self._fewest_moves = search.most, search.most_worth, search.fewest_moves
        best_first = reversed(search.found)
        feasible = next((draining for draining in best_first if self._apply(draining)), None)
        wish = max((*search.found, *wished), key=lambda draining: draining.worth, default=None)
        if wish is not None and rounds == MOST_ROUNDS and (feasible is None or feasible.worth < wish.worth):
            ordered = self._find_order(search, wish, feasible)
            if ordered is not None:
                return ordered
        return feasible and self._improve(
            feasible, takewhile(lambda draining: draining.worth == feasible.worth, best_first)
        )

    def _find_order(self, search: DrainSearch, wish: Draining, feasible: Draining | None) -> Draining | None:
        """Return a draining near the one that is wished, which has an order; its moves are then in the state.

        The result is None if none is worth more than one that is known to be feasible, whose moves stay in the state.
        """
        self._state.undo_to(0)
        least_worth = feasible.worth if feasible else 0
        on_the_way = sorted(
            (draining for draining in search.passed if draining.worth > least_worth),
            key=lambda draining: draining.merit,
        )
        size = self._packing.nodes * self._packing.kinds
        sets = OrderedSets(self._candidates, search.drain, self._has_order, self._deadline, size=size)
        passed = next(filter(self._has_order, reversed(on_the_way)), None)
        ordered = sets.largest_within(wish, passed.worth if passed else least_worth) or passed
        if (draining := ordered or feasible) is not None:
            self._apply(draining)
        self._is_second_choice = feasible is None
        return ordered

    def _has_order(self, draining: Draining) -> bool:
        """Return whether the moves of a draining have an order; the state is as the snapshot is."""
        has_order = self._apply(draining)
        self._state.undo_to(0)
        return has_order

    def _drain_simply(self, done: Draining | None) -> Iterable[Draining]:
        """Yield what a pass over some nodes frees, those with the fewest pods first.

        This is for a search that had no time to find as much. It asks a bounded number of nodes, and puts nothing on
        them. What is in the state by then is undone.
        """
        candidates = self._candidates
        tried_count = min(_SIMPLY, self._most, (len(candidates.nodes) + 1) // 2)
        tried_nodes = candidates.nodes[
            np.lexsort((candidates.nodes, candidates.disruption, candidates.pod_counts))[:tried_count]
        ]
        if done is not None and done.worth > candidates.worth_of(map(NodeIndex, tried_nodes.tolist())):
            return
        self._state.undo_to(0)
        open_nodes = self._open.copy()
        open_nodes[tried_nodes] = False
        placing, freed_nodes = DependentPods(self._packing, self._state, open_nodes), []
        for node in map(NodeIndex, tried_nodes.tolist()):
            pods = self._sources.pods_of[node]
            within = self._budget is None or len(placing.placements) + len(pods) <= self._budget
            if within and placing.place_together(pods):
                freed_nodes.append(node)
        placing.withdraw()
        no_cells = np.empty((0, 3), dtype=np.int64)
        filled = Filled.placed(self._packing, no_cells, no_cells)
        worth = candidates.worth_of(freed_nodes)
        placed = placing.placements
        yield Draining.of(self._packing, tuple(sorted(freed_nodes)), placed, filled, moves=len(placed), worth=worth)

    def _solve_exactly(self, done: Draining | None, deadline: Deadline) -> ExactDraining | None:
        """Return what the integer program proves and finds beyond the search.

        The result is None if the solver is not asked.
        """
        worth, moves = (done.worth, len(self._state.steps)) if done else (0, 0)
        least = self._fewest_moves(worth)
        if not self._problem.settings.search.exact or (worth == self._most_worth and moves == least):
            return None
        return solve_draining(
            self._packing,
            self._candidates,
            self._limits(FillLimits(), deadline),
            may_take=self._packing.takes,
            may_leave=self._may_leave,
            worth=worth,
            moves=moves,
            least_moves=least,
            spreads=self._spreads,
        )

    def _improve(self, done: Draining | None, others: Iterable[Draining]) -> Draining | None:
        """Return the best of a draining whose moves are in the state, and of others.

        The moves of the best are then in the state. Moves are counted with detours, so an order that needs fewer of
        them is better than one for a plan that looked shorter.
        """
        applied, best = done, (done.worth, *self._merit_of_moves()) if done else (0, 0, 0)
        for draining in others:
            self._state.undo_to(0)
            applied = draining if self._apply(draining) else None
            if applied is not None and (merit := (draining.worth, *self._merit_of_moves())) > best:
                done, best = draining, merit
        if applied is not done:
            self._state.undo_to(0)
            if done is not None:
                self._apply(done)
        return done

    def _merit_of_moves(self) -> tuple[int, int]:
        """Return how well the moves in the state keep to the wishes of rules, and then how few they are."""
        steps = self._state.steps
        return -sum(self._problem.target_ranks[step.target] for step in steps), -len(steps)

    def _limits(self, filling: FillLimits, deadline: Deadline | None = None) -> DrainLimits:
        return DrainLimits(
            self._budget,
            self._most,
            deadline or self._deadline,
            self._problem.settings.search.seed,
            filling,
            self._may_leave,
            most_worth=self._most_worth,
            worth_per_move=Fraction(self._min_savings, self._unit),
        )

    def _apply(self, draining: Draining) -> bool:
        """Make the moves of a draining in the state.

        Returns whether there is an order that works.
        """
        allowed_moves = self._limits(_DIRECTLY).allowed_moves(draining.worth)
        if allowed_moves is not None and draining.moves > allowed_moves:
            return False
        # First, as the search placed them on the cluster as it is; the transition orders the others around them.
        for placement in draining.dependent:
            self._state.move(placement.pod, placement.target)
        detours = _DETOURS if allowed_moves is None else min(_DETOURS, allowed_moves - draining.moves)
        transition = Transition(self._leaving(draining), frozenset(draining.nodes), draining.filled.arrivals)
        if apply_transition(self._packing, self._state, transition, detours=max(0, detours), open_nodes=self._open):
            return True
        self._state.undo_to(0)
        return False

    def _leaving(self, draining: Draining) -> dict[NodeIndex, tuple[PodIndex, ...]]:
        """Return which pods leave which node.

        Of equal pods, those leave whose moving disturbs least.
        """
        moved_pods = {placed.pod for placed in draining.dependent}
        leaving = {
            node: tuple(pod for pod in self._sources.pods_of[node] if pod not in moved_pods) for node in draining.nodes
        }
        ejected: defaultdict[NodeIndex, list[PodIndex]] = defaultdict(list)
        for kind, node, count in draining.filled.ejections.tolist():
            pods_of_kind = [pod for pod in self._problem.cluster.pods_on[node] if self._packing.pod_kind[pod] == kind]
            ejected[NodeIndex(node)] += self._disruption.cheapest_first(pods_of_kind)[:count]
        return {**leaving, **{node: tuple(pods) for node, pods in ejected.items()}}

    def _read_candidates(self) -> Candidates:
        nodes = np.array(self._sources.to_empty, dtype=np.int64)
        pods_of = self._sources.pods_of
        counts = np.fromiter((len(pods_of[node]) for node in self._sources.to_empty), np.int64, len(nodes))
        empty_nodes = np.array(self._sources.empty, dtype=np.int64)
        return Candidates(nodes, pods_of, counts, self._weigh_nodes()[nodes], empty_nodes, self._read_worth())

    def _read_worth(self) -> Ints:
        """Return what each candidate is worth, in units of the price that all prices are multiples of."""
        if not self._problem.weighs_nodes:
            return np.ones(len(self._sources.to_empty), dtype=np.int64)
        prices = [self._problem.node_weight(node) or 0 for node in self._sources.to_empty]
        of_empty = [self._problem.node_weight(NodeIndex(node)) or 0 for node in self._fillable.tolist()]
        # Prices in whole multiples of the largest common unit keep the numbers of the integer program small, and its
        # arithmetic exact.
        self._unit = max(1, gcd(*prices, *of_empty))
        self._filling_costs = np.array(of_empty, dtype=np.int64) // self._unit
        return np.array(prices, dtype=np.int64) // self._unit

    def _find_fillable_nodes(self) -> Ints:
        """Return the empty nodes that take pods and cost less than all nodes that may be emptied together.

        Where all of them cost the same, none is filled, as without prices.
        """
        if not self._problem.weighs_nodes:
            return np.empty(0, dtype=np.int64)
        weigh = self._problem.node_weight
        prices = [weigh(node) or 0 for node in self._sources.to_empty]
        weights = {node: weigh(node) for node in self._sources.empty if self._packing.takes[node]}
        are_alike = len({*prices, *weights.values()}) == 1
        fillable = (node for node, weight in weights.items() if weight is not None and weight < sum(prices))
        return np.array([] if are_alike else sorted(fillable), dtype=np.int64)

    def _weigh_nodes(self) -> Ints:
        """Return the cost of emptying each node.

        It is first the size of its largest pod, roughly, and then the disruption of all its pods.
        """
        packing, disruption = self._packing, self._disruption
        movable = np.flatnonzero(packing.pod_kind >= 0)
        # The largest pod decides first: a node with one pod that fits nearly nowhere is the hardest to empty, however
        # few pods it has.
        nodes = packing.pod_node[movable]
        largest = np.zeros(packing.nodes, dtype=np.int64)
        np.maximum.at(largest, nodes, packing.size[packing.pod_kind[movable]])
        pods = self._problem.cluster.pods
        weigh = (
            disruption.of_class[pods[pod].class_index] + disruption.of_itself(PodIndex(pod)) for pod in movable.tolist()
        )
        disruption_of_pod = np.fromiter(weigh, np.float64, len(movable))  # whole numbers below 2**53 are exact
        total = np.bincount(nodes, weights=disruption_of_pod, minlength=packing.nodes).astype(np.int64)
        return (largest >> _SIZE_BITS << _SIZE_BITS) + np.minimum(total, (1 << _SIZE_BITS) - 1)

    def _quality(self, done: Draining | None, exact: ExactDraining | None) -> Quality:
        """Return how good the plan is: in nodes, and where they have prices in money as well."""
        freed, worth, moves = (len(done.nodes), done.worth, len(self._state.steps)) if done else (0, 0, 0)
        least, most_worth = self._fewest_moves(worth), self._most if self._most_worth is None else self._most_worth
        proven = exact is not None and (exact.most < most_worth or exact.fewest_moves > 0)
        if self._counts_filled:
            # Bounds of the search hold for plans that leave empty nodes empty, so they say nothing about one that fills
            # some.
            least = least_cost(self._candidates.worth, self._candidates.pod_counts, worth)
            proven = exact is not None
        if exact is not None:
            most_worth = max(worth, exact.most)
            worth_asked = exact.found[-1].worth if exact.found else worth
            least = exact.fewest_moves if worth_asked == worth else least
        is_priced = self._problem.weighs_nodes
        return Quality(
            reached=freed,
            upper_bound=self._most_nodes() if self._candidates.differ or self._counts_filled else most_worth,
            moves=moves,
            fewest_moves=min(least, moves),
            prover=Prover.EXACT if proven else Prover.BOUND,
            out_of_time=self._out_of_time,
            is_snapshot_incomplete=bool(self._problem.cluster.snapshot.missing),
            leaves_empty_nodes=self._may_gain_by_filling(worth),
            weight=WeightQuality(worth * self._unit, most_worth * self._unit) if is_priced else None,
        )

    def _most_nodes(self) -> int:
        """Return the most nodes that any plan frees; those that it fills are not subtracted."""
        if not self._counts_filled:
            return self._most
        by_number = most_freed_by_number(self._candidates.pod_counts, self._budget)
        return min(most_freed_by_volume(self._packing, self._sources.to_empty, ()), by_number)

    def _may_gain_by_filling(self, reached: int) -> bool:
        """Return whether filling empty nodes might reach more, where no bound covers such plans.

        A node without a price costs nothing. Where all nodes that may be emptied cost the same, the bounds cover plans
        that fill a node which costs no less.
        """
        if not self._problem.weighs_nodes:
            return False
        empty = np.array([node for node in self._sources.empty if self._packing.takes[node]], dtype=np.int64)
        weights = [self._problem.node_weight(NodeIndex(node)) or 0 for node in empty.tolist()]
        costs = np.array(weights, dtype=np.int64) // self._unit
        unknown_costs = costs[~np.isin(empty, self._fillable)] if self._counts_filled else costs
        if not len(unknown_costs):
            return False
        cheapest, worth = int(unknown_costs.min()), self._candidates.worth
        if not (self._candidates.differ or self._counts_filled) and cheapest >= worth.max(initial=0):
            return False
        return cheapest < int(worth.sum()) - reached and self._most_by_filling(empty, costs) > reached


def _without_unprofitable_nodes(problem: Problem, sources: Sources, min_savings: int) -> Sources:
    """Split off sources whose moves would not save enough, each with a refusal that says by how much."""
    if not problem.weighs_nodes:
        return sources
    pods_of_nodes = ((node, len(sources.pods_of[node])) for node in sources.to_empty)
    answers = {node: _why_unprofitable(problem, node, pods, min_savings) for node, pods in pods_of_nodes}
    refusals = {node: refusal for node, refusal in answers.items() if refusal is not None}
    return replace(
        sources,
        to_empty=tuple(node for node in sources.to_empty if node not in refusals),
        pods_of={node: pods for node, pods in sources.pods_of.items() if node not in refusals},
        refusals={**sources.refusals, **refusals},
    )


def _why_unprofitable(problem: Problem, node: NodeIndex, pods: int, least: int) -> Refusal | None:
    price = problem.node_weight(node) or 0
    if not price:
        return Refusal(RefusalReason.SAVES_TOO_LITTLE, "the node has no price, so that freeing it saves nothing")
    if price >= least * pods:
        return None
    rate = f"{format_weight(price // pods)} for each of {pods} moves"
    text = (
        f"the node costs {format_weight(price)} an hour, which is {rate}; minSavingsPerMove is {format_weight(least)}"
    )
    return Refusal(RefusalReason.SAVES_TOO_LITTLE, text)
