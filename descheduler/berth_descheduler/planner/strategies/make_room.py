"""The strategy `MakeRoom`, which makes room with the fewest moves.

Where the moves do not suffice for all that waits, it lets as much of it fit as they allow. What is named has to fit as
a whole: pods, their gangs, shapes with a count. Without a name every pending pod is meant, those of higher priority
first, gangs whole, as many as the moves allow; so is a shape without a count. With the extra `optimal` the integer
program goes on from where the search ends, if the problem is small enough.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from berth_core import Deadline, NoDeadline, Pod, Snapshot
from berth_descheduler.planner.pending_pods import SHAPE_NAMESPACE, GangOf, find_pods_to_fit, gang_of
from berth_descheduler.planner.problem import DisruptionCost, Problem, Proposal, Prover, Quality, find_sources
from berth_descheduler.planner.rooms import RoomRequest
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State
from berth_descheduler.planner.solver import (
    ExactRoom,
    Ints,
    Reached,
    RoomQuestion,
    RoomSearch,
    Transition,
    Want,
    apply_transition,
    build_packing_model,
    most_that_fit,
    solve_room,
)
from berth_descheduler.planner.strategies.room_report import RoomReports

_DETOURS: Final = 20


class MakeRoom:
    """Lets fit what waits."""

    def __init__(
        self, request: RoomRequest | None = None, deadline: Deadline | None = None, *, gangs: GangOf = gang_of
    ) -> None:
        """`gangs` says which pods are only useful together; other than the default, it also serves them in order."""
        self._request = request or RoomRequest()
        self._deadline = deadline or NoDeadline()
        self._gangs = gangs

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the named, described or pending pods.

        Raises `InputError` for a named one that is not pending.
        """
        return find_pods_to_fit(self._request, snapshot)

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return find_sources(problem).to_take_from

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the fewest moves that make room, and why not more."""
        if problem.cluster.waiting_node is None:
            return Proposal((), (), Quality(0, 0, 0, 0, is_snapshot_incomplete=bool(problem.cluster.snapshot.missing)))
        return _MakeRoomRun(problem, state, self._request, self._deadline, self._gangs).propose()


@dataclass(frozen=True, slots=True)
class _Unit:
    """Wants that are only useful together."""

    wants: tuple[Want, ...]
    priority: int


@dataclass(frozen=True)
class _Found:
    """A solution: moves aside, arrivals, and the places of each want."""

    ejections: Ints  # (entries, 3): kind, node, count
    arrivals: Ints  # (entries, 3): kind, node, count
    places: tuple[tuple[NodeIndex, ...], ...]
    """Per want the nodes where its pods have room."""

    @property
    def moves(self) -> int:
        """Return the number of moves, detours left aside."""
        return int(self.ejections[:, 2].sum())


class _MakeRoomRun:
    """One run of the strategy over a state that it changes."""

    def __init__(self, problem: Problem, state: State, request: RoomRequest, deadline: Deadline, gangs: GangOf) -> None:
        self._gang_of = gangs
        self._problem = problem
        self._state = state
        self._request = request
        self._deadline = deadline
        self._budget = problem.settings.max_moves
        self._sources = find_sources(problem)
        self._packing = build_packing_model(problem, state, self._sources.to_take_from)
        self._disruption = DisruptionCost(problem.cluster)
        self._units = self._read_units()
        self._wants = tuple(want for unit in self._units for want in unit.wants)
        self._out_of_time = False

    def propose(self) -> Proposal:
        """Return the moves, what they make room for, and why not more."""
        reports = RoomReports(self._problem, self._state, self._packing, self._wants, self._gang_of)
        found = self._search()
        exact = self._solve_exactly(found)
        chosen = self._apply_best(found, exact)
        quality = self._quality(chosen, exact)
        room = reports.made(chosen.places)
        refused = reports.why_not_more(room, quality, self._moves_needed(quality))
        return Proposal(self._state.steps, refused, quality, room, self._request.owners)

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def _read_units(self) -> tuple[_Unit, ...]:
        """Return the units in the order in which they are served."""
        wants = self._read_wants()
        if self._request.all_or_none:
            return (_Unit(tuple(wants), 0),)
        if not self._request.names_nothing:
            return tuple(_Unit((want,), 0) for want in wants)
        units: defaultdict[object, list[Want]] = defaultdict(list)
        for want in wants:
            pod = self._problem.cluster.pods[want.pods[0]].pod
            units[self._gang_of(pod) or want.kind].append(want)
        found = (_Unit(tuple(several), self._priority(several)) for several in units.values())
        if self._gang_of is not gang_of:
            return tuple(sorted(found, key=lambda unit: (-unit.priority, unit.wants[0].pods)))
        return tuple(sorted(found, key=lambda unit: (-unit.priority, self._size(unit), unit.wants[0].pods)))

    def _priority(self, wants: Sequence[Want]) -> int:
        return max(self._problem.cluster.pods[want.pods[0]].pod.spec.priority or 0 for want in wants)

    def _size(self, unit: _Unit) -> int:
        return sum(int(self._packing.size[want.kind]) * (want.count or 1) for want in unit.wants)

    def _read_wants(self) -> list[Want]:
        """Return one want per shape and per kind of pods.

        Pods of different gangs are kept apart.
        """
        shapes = iter(self._request.shapes)
        groups: dict[object, list[PodIndex]] = {}
        open_counts: dict[object, int | None] = {}
        for pod, kind in self._packing.wanted.items():
            found = self._problem.cluster.pods[pod].pod
            if found.metadata.namespace == SHAPE_NAMESPACE:
                open_counts["shape", pod] = next(shapes).count
                groups["shape", pod] = [pod]
            else:
                groups.setdefault((kind, self._gang_of(found)), []).append(pod)
        return [
            Want(self._name(pods), self._packing.wanted[pods[0]], tuple(pods), open_counts.get(key, len(pods)))
            for key, pods in groups.items()
        ]

    def _name(self, pods: Sequence[PodIndex]) -> str:
        meta = self._problem.cluster.pods[pods[0]].pod.metadata
        return meta.name if meta.namespace == SHAPE_NAMESPACE else f"{meta.namespace}/{meta.name}"

    # --- search -----------------------------------------------------------------------------------------------------

    def _search(self) -> _Found:
        """Return what the search finds."""
        search = RoomSearch(self._packing, self._state, self._budget, self._deadline)
        for unit in self._units:
            single = unit.wants[0] if len(unit.wants) == 1 and not self._is_whole(unit) else None
            if single is not None:
                search.add_most(single, self._most_of(single))
            else:
                search.add_together(unit.wants)
        search.withdraw()
        self._out_of_time |= search.out_of_time
        filled = search.filled
        return self._found(filled.ejections, filled.arrivals, tuple(search.places_of(want) for want in self._wants))

    def _moves_needed(self, quality: Quality) -> int | None:
        """Return how many moves would make room for all that is named.

        None unless the limit on moves is what prevents it.
        """
        if self._budget is None or not self._request.all_or_none or quality.reached:
            return None
        search = RoomSearch(self._packing, self._state, None, self._deadline)
        found = search.add_together(self._wants)
        search.withdraw()
        return search.filled.ejected if found else None

    def _is_whole(self, unit: _Unit) -> bool:
        """Return whether a unit is only useful as a whole.

        That holds for what is named, and for a gang.
        """
        if self._request.all_or_none:
            return True
        return self._gang_of(self._problem.cluster.pods[unit.wants[0].pods[0]].pod) is not None

    def _most_of(self, want: Want) -> int:
        most = most_that_fit(self._packing, want.kind)
        return most if want.count is None else min(want.count, most)

    def _found(self, ejections: Ints, arrivals: Ints, places: tuple[tuple[NodeIndex, ...], ...]) -> _Found:
        """Return what was found, without the arrivals of the new pods."""
        coming = np.isin(arrivals[:, 0], sorted(set(self._packing.wanted.values())))
        return _Found(ejections, arrivals[~coming], self._dealt_out(places))

    def _dealt_out(self, places: tuple[tuple[NodeIndex, ...], ...]) -> tuple[tuple[NodeIndex, ...], ...]:
        """Return each want's own places where wants of a kind share them.

        Each want gets its own number, in order.
        """
        left: dict[int, list[NodeIndex]] = {}
        dealt = []
        for want, found in zip(self._wants, places, strict=True):
            mine = left.setdefault(want.kind, list(found))
            number = len(mine) if want.count is None else min(want.count, len(mine))
            dealt.append(tuple(mine[:number]))
            del mine[:number]
        return tuple(dealt)

    # --- exactly ----------------------------------------------------------------------------------------------------

    def _solve_exactly(self, found: _Found) -> ExactRoom | None:
        """Return what the integer program proves and finds.

        None if it is not asked.
        """
        known = self._known(found)
        done = sum(known.each) == known.most and known.least_moves == known.moves
        if not self._problem.settings.exact or done:
            return None
        may_leave = np.zeros(self._packing.nodes, dtype=bool)
        may_leave[np.array(self._sources.to_take_from, dtype=np.int64)] = True
        question = RoomQuestion(
            kinds=tuple(want.kind for want in self._wants),
            most=tuple(want.count for want in self._wants),
            all_or_none=self._request.all_or_none,
            budget=self._budget,
            deadline=self._deadline,
        )
        return solve_room(self._packing, may_leave, question, known)

    def _known(self, found: _Found) -> Reached:
        each = tuple(len(places) for places in found.places)
        most = sum(self._most_of(want) for want in self._wants)
        if self._request.all_or_none and most < sum(want.count or 0 for want in self._wants):
            most = 0
        return Reached(each, found.moves, min(found.moves, 1), max(most, sum(each)))

    def _apply_best(self, found: _Found, exact: ExactRoom | None) -> _Found:
        """Make the moves of the best feasible solution, and return it."""
        tied = any(self._packing.dependent[want.kind] for want in self._wants)
        if exact is not None and exact.solution is not None and not tied:
            self._out_of_time |= exact.out_of_time
            solution = exact.solution
            places = tuple(tuple(NodeIndex(n) for n, count in cells for _ in range(count)) for cells in solution.aimed)
            if solution.departures is not None and solution.arrivals is not None:
                better = _Found(solution.departures, solution.arrivals, places)
                if self._keeps_what_was_found(better, found) and self._apply(better):
                    return better
        if self._apply(found):
            return found
        nothing = np.empty((0, 3), dtype=np.int64)
        return _Found(nothing, nothing, tuple(() for _ in self._wants))

    def _keeps_what_was_found(self, better: _Found, found: _Found) -> bool:
        """Return whether a solution keeps all the room that was found.

        No want has less room, and a gang has room as a whole or not at all.
        """
        counts = {want: len(places) for want, places in zip(self._wants, better.places, strict=True)}
        if any(counts[want] < len(places) for want, places in zip(self._wants, found.places, strict=True)):
            return False
        whole = [unit for unit in self._units if self._is_whole(unit)]
        full = (all(counts[want] == want.count for want in unit.wants) for unit in whole)
        none = (not any(counts[want] for want in unit.wants) for unit in whole)
        return all(one or other for one, other in zip(full, none, strict=True))

    def _apply(self, found: _Found) -> bool:
        leaving: defaultdict[NodeIndex, list[PodIndex]] = defaultdict(list)
        for kind, node, count in found.ejections.tolist():
            there = [pod for pod in self._problem.cluster.pods_on[node] if self._packing.pod_kind[pod] == kind]
            leaving[NodeIndex(node)] += self._disruption.cheapest_first(there)[:count]
        transition = Transition({node: tuple(pods) for node, pods in leaving.items()}, frozenset(), found.arrivals)
        spare = _DETOURS if self._budget is None else min(_DETOURS, self._budget - found.moves)
        return apply_transition(
            self._packing, self._state, transition, detours=max(0, spare), open_nodes=self._packing.takes
        )

    # --- what is known ----------------------------------------------------------------------------------------------

    def _quality(self, chosen: _Found, exact: ExactRoom | None) -> Quality:
        known = self._known(chosen)
        moves = len(self._state.steps)
        reached = sum(known.each)
        most, least, prover = known.most, known.least_moves, Prover.BOUND
        if exact is not None:
            most, prover = max(reached, min(most, exact.reached.most)), Prover.EXACT
            least = exact.reached.least_moves if exact.reached.each == known.each else least
        return Quality(
            reached=reached,
            upper_bound=most,
            moves=moves,
            fewest_moves=min(least, moves),
            prover=prover,
            out_of_time=self._out_of_time or (exact is not None and exact.out_of_time),
            is_snapshot_incomplete=bool(self._problem.cluster.snapshot.missing),
        )
