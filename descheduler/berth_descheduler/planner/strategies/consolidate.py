"""Owns the strategy `Consolidate`: most nodes freed within the limits, then fewest moves, then least disruption.

It does not own the search itself: that is in `packing`.

Nodes that are empty already are no targets: filling one would undo what emptying another brings. With the extra
`optimal` the integer program goes on from where the search ends, if the problem is small enough.
"""

from collections import defaultdict
from typing import Final

import numpy as np

from berth_core.clock import Deadline, NoDeadline
from berth_core.objects import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.disruption_cost import Disruption
from berth_descheduler.planner.explanations import why_not_freed
from berth_descheduler.planner.problem import Problem, Proposal, Prover, Quality, find_sources
from berth_descheduler.planner.simulation.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.planner.solver.bounds import most_freed_by_number, most_freed_by_volume
from berth_descheduler.planner.solver.draining import (
    Candidates,
    Draining,
    DrainLimits,
    DrainSearch,
    without_stuck_nodes,
)
from berth_descheduler.planner.solver.exact import Exact, solve_draining
from berth_descheduler.planner.solver.filling import Limits
from berth_descheduler.planner.solver.model import Ints, read_columns
from berth_descheduler.planner.solver.sequencing import Transition, execute_plan

_DETOURS: Final = 20
_SIZE_BITS: Final = 24
"""Sizes that differ in less than this are alike where nodes are compared."""

_DIRECTLY: Final = Limits(most_ejected=0)


class Consolidate:
    """Frees as many nodes as the moves allow."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline or NoDeadline()

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return find_sources(problem).to_take_from

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return none."""
        return ()

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the moves that free the most nodes, and why not more."""
        return _Run(problem, state, self._deadline).propose()


class _Run:
    """One run of the strategy over a state that it changes."""

    def __init__(self, problem: Problem, state: State, deadline: Deadline) -> None:
        self._problem = problem
        self._state = state
        self._deadline = deadline
        self._budget = problem.settings.max_moves
        sources = find_sources(problem)
        self._columns = read_columns(problem, state, sources.to_take_from)
        self._sources = without_stuck_nodes(problem, self._columns, sources)
        self._disruption = Disruption(problem.cluster)
        self._candidates = self._read_candidates()
        self._open = self._columns.takes.copy()
        self._open[self._candidates.empty] = False
        self._most = min(
            most_freed_by_volume(self._columns, self._sources.to_empty, self._sources.empty),
            most_freed_by_number(self._candidates.pod_counts, self._budget),
        )
        self._out_of_time = False

    def propose(self) -> Proposal:
        """Return the moves and why not more."""
        done = self._search(Limits()) or self._search(_DIRECTLY)
        exact = self._solve_exactly(done)
        if exact is not None:
            done = self._improve(done, exact)
        quality = self._quality(done, exact)
        freed = frozenset(done.nodes if done else ())
        refused = why_not_freed(self._problem, self._state, self._columns, self._sources, (freed, quality))
        return Proposal(self._state.steps, refused, quality)

    # --- search -----------------------------------------------------------------------------------------------------

    def _search(self, filling: Limits) -> Draining | None:
        """Return the best draining that the search finds and that can be carried out; it is, in the state."""
        search = DrainSearch(self._columns, self._state, self._candidates, self._open, self._limits(filling))
        search.run()
        self._out_of_time |= search.out_of_time
        self._most, self._fewest_moves = search.most, search.fewest_moves
        return next((found for found in reversed(search.found) if self._carry_out(found)), None)

    def _solve_exactly(self, done: Draining | None) -> Exact | None:
        """Return what the integer program proves and finds beyond what is done; None if it is not asked."""
        freed, moves = (len(done.nodes), len(self._state.steps)) if done else (0, 0)
        least = self._fewest_moves(freed)
        if not self._problem.settings.exact or (freed == self._most and moves == least):
            return None
        may_leave = np.zeros(self._columns.nodes, dtype=bool)
        may_leave[np.array(self._sources.to_take_from, dtype=np.int64)] = True
        masks = (self._columns.takes, may_leave)
        return solve_draining(self._columns, self._candidates, masks, self._limits(Limits()), (freed, moves, least))

    def _improve(self, done: Draining | None, exact: Exact) -> Draining | None:
        """Return the best of what is done and what the integer program found; it is carried out in the state."""
        self._out_of_time |= exact.out_of_time
        known = len(self._state.steps)
        for found in reversed(exact.found):
            self._state.undo_to(0)
            more = done is None or len(found.nodes) > len(done.nodes)
            if self._carry_out(found) and (more or len(self._state.steps) < known):
                return found
        if exact.found:
            self._state.undo_to(0)
            if done is not None:
                self._carry_out(done)
        return done

    def _limits(self, filling: Limits) -> DrainLimits:
        return DrainLimits(self._budget, self._most, self._deadline, self._problem.settings.seed, filling)

    # --- carrying out -----------------------------------------------------------------------------------------------

    def _carry_out(self, draining: Draining) -> bool:
        """Make the moves of a draining in the state, in an order that works; tell whether there is one."""
        for placed in draining.tied:
            self._state.move(placed.pod, placed.target)
        spare = _DETOURS if self._budget is None else min(_DETOURS, self._budget - draining.moves)
        transition = Transition(self._leaving(draining), frozenset(draining.nodes), draining.filled.arrivals)
        if execute_plan(self._columns, self._state, transition, detours=max(0, spare), open_nodes=self._open):
            return True
        self._state.undo_to(0)
        return False

    def _leaving(self, draining: Draining) -> dict[NodeIndex, tuple[PodIndex, ...]]:
        """Return which pods leave which node; of equals those whose moving disturbs least."""
        moved = {placed.pod for placed in draining.tied}
        leaving = {
            node: tuple(pod for pod in self._sources.pods_of[node] if pod not in moved) for node in draining.nodes
        }
        ejected: defaultdict[NodeIndex, list[PodIndex]] = defaultdict(list)
        for kind, node, count in draining.filled.ejections.tolist():
            there = [pod for pod in self._problem.cluster.pods_on[node] if self._columns.pod_kind[pod] == kind]
            ejected[NodeIndex(node)] += self._disruption.cheapest_first(there)[:count]
        return {**leaving, **{node: tuple(pods) for node, pods in ejected.items()}}

    # --- what is known ----------------------------------------------------------------------------------------------

    def _read_candidates(self) -> Candidates:
        nodes = np.array(self._sources.to_empty, dtype=np.int64)
        pods_of = self._sources.pods_of
        counts = np.fromiter((len(pods_of[node]) for node in self._sources.to_empty), np.int64, len(nodes))
        empty = np.array(self._sources.empty, dtype=np.int64)
        return Candidates(nodes, pods_of, counts, self._weigh_nodes()[nodes], empty)

    def _weigh_nodes(self) -> Ints:
        """Return how bad it is to empty each node: by its largest pod, roughly, then by all of them."""
        columns, disruption = self._columns, self._disruption
        movable = np.flatnonzero(columns.pod_kind >= 0)
        nodes = columns.pod_node[movable]
        largest = np.zeros(columns.nodes, dtype=np.int64)
        np.maximum.at(largest, nodes, columns.size[columns.pod_kind[movable]])
        pods = self._problem.cluster.pods
        weigh = (
            disruption.of_class[pods[pod].class_index] + disruption.of_itself(PodIndex(pod)) for pod in movable.tolist()
        )
        each = np.fromiter(weigh, np.float64, len(movable))  # whole numbers below 2**53 are exact
        total = np.bincount(nodes, weights=each, minlength=columns.nodes).astype(np.int64)
        return (largest >> _SIZE_BITS << _SIZE_BITS) + np.minimum(total, (1 << _SIZE_BITS) - 1)

    def _quality(self, done: Draining | None, exact: Exact | None) -> Quality:
        freed, moves = (len(done.nodes), len(self._state.steps)) if done else (0, 0)
        least = self._fewest_moves(freed)
        most = self._most
        if exact is not None:
            most = max(freed, exact.most)
            asked = exact.found[-1].nodes if exact.found else done.nodes if done else ()
            least = exact.fewest_moves if len(asked) == freed else least
        proven = exact is not None and (exact.most < self._most or exact.fewest_moves > 0)
        return Quality(
            reached=freed,
            upper_bound=most,
            moves=moves,
            fewest_moves=min(least, moves),
            prover=Prover.EXACT if proven else Prover.BOUND,
            out_of_time=self._out_of_time,
            is_snapshot_incomplete=bool(self._problem.cluster.snapshot.missing),
        )
