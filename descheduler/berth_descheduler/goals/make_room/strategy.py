"""The strategy `MakeRoom`, which makes room with the fewest moves.

Where the moves do not suffice for all that waits, it lets as much of it fit as they allow. What is named has to fit as
a whole: pods, their gangs, shapes with a count. Without a name every pending pod is meant, those of higher priority
first, gangs whole, as many as the moves allow; so is a shape without a count. With the extra `optimal` the integer
program goes on from where the search ends, if the problem is small enough.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from berth_core import Deadline, InputError, NoDeadline, Pod, Snapshot
from berth_descheduler.goals.make_room.reports import RoomReports
from berth_descheduler.goals.make_room.request import RoomRequest, find_pods_to_fit
from berth_descheduler.goals.make_room.tied_pods import TiedPods, ejections_of
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, Proposal, Prover, Quality, State
from berth_descheduler.planner.disruption_cost import DisruptionCost
from berth_descheduler.planner.pending_pods import SHAPE_NAMESPACE, GangOf, gang_of
from berth_descheduler.planner.problem import find_sources
from berth_descheduler.planner.rooms import GuaranteedRoom
from berth_descheduler.planner.solver import (
    ExactRoom,
    Ints,
    Reached,
    RoomBound,
    RoomGoal,
    RoomQuestion,
    RoomSearch,
    Transition,
    Want,
    apply_transition,
    bound_room,
    build_packing_model,
    improve_room,
    most_that_fit,
    solve_room,
)

_DETOURS: Final = 20
_MAX_BOUNDED: Final = 200_000
"""With more nodes times pods to come than this, only what is free in all bounds the room."""


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
        """Return the named, described or pending pods; raises `InputError` for a named pod that is not pending."""
        return find_pods_to_fit(self._resolved(snapshot)[0], snapshot)

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return find_sources(problem).to_take_from

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the fewest moves that make room, and why not more."""
        if problem.cluster.waiting_node is None:
            return Proposal((), (), Quality(0, 0, 0, 0, is_snapshot_incomplete=bool(problem.cluster.snapshot.missing)))
        request, guaranteed = self._resolved(problem.cluster.snapshot)
        return _MakeRoomRun(problem, state, request, guaranteed, self._deadline, self._gangs).propose()

    def _resolved(self, snapshot: Snapshot) -> tuple[RoomRequest, GuaranteedRoom | None]:
        """Return the request with the pods and shapes of the guarantee that it names, and what is left of that.

        There are none where the guarantee is not there, unless names must exist: then it raises `InputError`.
        """
        try:
            guaranteed = self._request.guaranteed(snapshot)
        except InputError:
            if self._request.names_must_exist:
                raise
            guaranteed = None
        if guaranteed is None:
            return self._request, None
        return replace(self._request, pods=guaranteed.pods, shapes=guaranteed.shapes), guaranteed


@dataclass(frozen=True, slots=True)
class _Unit:
    """Wants that are only useful together."""

    wants: tuple[Want, ...]
    priority: int


@dataclass(frozen=True)
class _Solution:
    """Moves aside, arrivals, and the places of each want."""

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

    def __init__(
        self,
        problem: Problem,
        state: State,
        request: RoomRequest,
        guaranteed: GuaranteedRoom | None,
        deadline: Deadline,
        gangs: GangOf,
    ) -> None:
        self._guaranteed = guaranteed
        self._gang_of = gangs
        self._problem = problem
        self._state = state
        self._request = request
        self._deadline = deadline
        self._budget = problem.settings.limits.max_moves
        self._sources = find_sources(problem)
        self._packing = build_packing_model(problem, state, self._sources.to_take_from, standing_ties=True)
        self._may_leave = np.zeros(self._packing.nodes, dtype=bool)
        self._may_leave[np.array(self._sources.to_take_from, dtype=np.int64)] = True
        self._bounds: dict[int, tuple[RoomBound, ...]] = {}
        self._disruption = DisruptionCost(problem)
        self._units = self._read_units()
        self._wants = tuple(want for unit in self._units for want in unit.wants)
        self._out_of_time = False

    def propose(self) -> Proposal:
        """Return the moves, what they make room for, and why not more."""
        reports = RoomReports(self._problem, self._state, self._packing, self._wants, self._gang_of)
        solutions = [self._search()]
        solutions += self._improve(solutions[0])
        exact = self._solve_exactly(solutions[-1])
        chosen = self._move_tied_pods(self._apply_best(solutions, exact))
        quality = self._quality(chosen, exact)
        room = reports.made(chosen.places)
        refusals = reports.why_not_more(room, quality, self._moves_needed(quality), limited=self._needs_limit(quality))
        if (guaranteed := self._guaranteed) is not None:
            room = tuple(replace(made, queue=guaranteed.queue, namespace=guaranteed.namespace) for made in room)
        return Proposal(self._state.steps, refusals, quality, room, self._request.owners)

    def _read_units(self) -> tuple[_Unit, ...]:
        """Return the units in the order in which they are served."""
        wants = self._read_wants()
        if self._request.all_or_none:
            return (_Unit(tuple(wants), 0),)
        if not self._request.names_nothing and self._guaranteed is None:
            return tuple(_Unit((want,), 0) for want in wants)
        units: defaultdict[object, list[Want]] = defaultdict(list)
        for want in wants:
            pod = self._problem.cluster.pods[want.pods[0]].pod
            units[self._gang_of(pod) or want.kind].append(want)
        groups_as_units = (
            _Unit(tuple(wants_of_group), self._priority(wants_of_group)) for wants_of_group in units.values()
        )
        # A caller with gangs of its own has put the pods in the order in which they are served.
        if self._gang_of is not gang_of:
            return tuple(sorted(groups_as_units, key=lambda unit: (-unit.priority, unit.wants[0].pods)))
        # Of equal priority the small come first: more units fit into the same room.
        return tuple(sorted(groups_as_units, key=lambda unit: (-unit.priority, self._size(unit), unit.wants[0].pods)))

    def _priority(self, wants: Sequence[Want]) -> int:
        # Without a class, and without a class for all, admission gives a pod 0 (DefaultPriorityWhenNoDefaultClassExists
        # in pkg/apis/scheduling/types.go).
        return max(self._problem.cluster.pods[want.pods[0]].pod.spec.priority or 0 for want in wants)

    def _size(self, unit: _Unit) -> int:
        return sum(int(self._packing.size[want.kind]) * (want.count or 1) for want in unit.wants)

    def _read_wants(self) -> list[Want]:
        """Return one want per shape and per kind of pods, keeping pods of different gangs apart."""
        shapes = iter(self._request.shapes)
        groups: dict[object, list[PodIndex]] = {}
        open_counts: dict[object, int | None] = {}
        for pod, kind in self._packing.wanted.items():
            wanted_pod = self._problem.cluster.pods[pod].pod
            if wanted_pod.metadata.namespace == SHAPE_NAMESPACE:
                open_counts["shape", pod] = next(shapes).count
                groups["shape", pod] = [pod]
            else:
                groups.setdefault((kind, self._gang_of(wanted_pod)), []).append(pod)
        return [
            Want(self._name(pods), self._packing.wanted[pods[0]], tuple(pods), open_counts.get(key, len(pods)))
            for key, pods in groups.items()
        ]

    def _name(self, pods: Sequence[PodIndex]) -> str:
        meta = self._problem.cluster.pods[pods[0]].pod.metadata
        return meta.name if meta.namespace == SHAPE_NAMESPACE else f"{meta.namespace}/{meta.name}"

    def _search(self) -> _Solution:
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
        return self._solution_of(
            filled.ejections, filled.arrivals, tuple(search.places_of(want) for want in self._wants)
        )

    def _improve(self, solution: _Solution) -> tuple[_Solution, ...]:
        """Return better room for what is of one kind, if there is any."""
        reached = self._reached_by(solution)
        is_proven = sum(reached.each) == reached.most and reached.least_moves == reached.moves
        if is_proven or len(self._wants) != 1 or self._packing.dependent[self._wants[0].kind]:
            return ()
        (want,) = self._wants
        least = self._least_moves((reached.most,))
        goal = RoomGoal(
            want.kind, reached.most, least, self._budget, self._deadline, self._problem.settings.search.seed
        )
        improved = improve_room(self._packing, self._may_leave, goal)
        self._out_of_time |= improved.out_of_time
        places = tuple(map(NodeIndex, improved.places))
        if self._is_whole(self._units[0]) and len(places) < (want.count or 0):
            return ()
        better = _Solution(improved.ejections, improved.arrivals, (places,))
        is_better = (len(places), -better.moves) > (len(solution.places[0]), -solution.moves)
        return (better,) if is_better else ()

    def _moves_needed(self, quality: Quality) -> int | None:
        """Return how many moves would make room for all that is named, None if the limit does not prevent it."""
        if self._budget is None or not self._request.all_or_none or quality.reached:
            return None
        search = RoomSearch(self._packing, self._state, None, self._deadline)
        is_placed = search.add_together(self._wants)
        search.withdraw()
        return search.filled.ejected if is_placed else None

    def _is_whole(self, unit: _Unit) -> bool:
        """Return whether a unit is only useful as a whole, as what is named, and a gang, is."""
        if self._request.all_or_none:
            return True
        return self._gang_of(self._problem.cluster.pods[unit.wants[0].pods[0]].pod) is not None

    def _most_of(self, want: Want) -> int:
        """Return an upper bound on a want's pods that fit, within the limit on moves."""
        most_ever = self._most_ever(want)
        if self._budget is None:
            return most_ever
        return min([most_ever, *(bound.most(self._budget) for bound in self._bounds_of(want))])

    def _bounds_of(self, want: Want) -> tuple[RoomBound, ...]:
        if want.kind not in self._bounds:
            is_too_large = len(self._packing.wanted) * self._packing.nodes > _MAX_BOUNDED
            self._bounds[want.kind] = () if is_too_large else bound_room(self._packing, self._may_leave, want.kind)
        return self._bounds[want.kind]

    def _most_ever(self, want: Want) -> int:
        """Return an upper bound on a want's pods that fit, whatever the moves."""
        most_pods = most_that_fit(self._packing, want.kind)
        return most_pods if want.count is None else min(want.count, most_pods)

    def _least_moves(self, each: Sequence[int]) -> int:
        """Return a lower bound on the moves for so many pods of each want."""
        wants = zip(self._wants, each, strict=True)
        return max(
            (bound.fewest_moves(pod_count) for want, pod_count in wants for bound in self._bounds_of(want)), default=0
        )

    def _needs_limit(self, quality: Quality) -> bool:
        """Return whether the upper bound holds within the limit on moves only."""
        may_fit_more = quality.upper_bound < sum(self._most_ever(want) for want in self._wants)
        return self._budget is not None and (quality.prover is Prover.EXACT or may_fit_more)

    def _solution_of(self, ejections: Ints, arrivals: Ints, places: tuple[tuple[NodeIndex, ...], ...]) -> _Solution:
        """Return the solution of a search, without the arrivals of the new pods."""
        is_wanted = np.isin(arrivals[:, 0], sorted(set(self._packing.wanted.values())))
        return _Solution(ejections, arrivals[~is_wanted], self._dealt_out(places))

    def _dealt_out(self, places: tuple[tuple[NodeIndex, ...], ...]) -> tuple[tuple[NodeIndex, ...], ...]:
        """Return each want's own places where wants of a kind share them: in order, as many as each wants."""
        places_by_kind: dict[int, list[NodeIndex]] = {}
        dealt = []
        for want, kind_places in zip(self._wants, places, strict=True):
            places_left = places_by_kind.setdefault(want.kind, list(kind_places))
            number = len(places_left) if want.count is None else min(want.count, len(places_left))
            dealt.append(tuple(places_left[:number]))
            del places_left[:number]
        return tuple(dealt)

    def _solve_exactly(self, solution: _Solution) -> ExactRoom | None:
        """Return what the integer program proves and finds, None if the solver is not asked."""
        reached = self._reached_by(solution)
        is_proven = sum(reached.each) == reached.most and reached.least_moves == reached.moves
        if not self._problem.settings.search.exact or is_proven:
            return None
        question = RoomQuestion(
            kinds=tuple(want.kind for want in self._wants),
            most=tuple(want.count for want in self._wants),
            all_or_none=self._request.all_or_none,
            budget=self._budget,
            deadline=self._deadline,
        )
        return solve_room(self._packing, self._may_leave, question, reached)

    def _reached_by(self, solution: _Solution) -> Reached:
        pods_per_want = tuple(len(places) for places in solution.places)
        upper_bound = sum(self._most_of(want) for want in self._wants)
        if self._request.all_or_none and upper_bound < sum(want.count or 0 for want in self._wants):
            upper_bound = 0
        return Reached(
            pods_per_want,
            solution.moves,
            min(solution.moves, self._least_moves(pods_per_want)),
            max(upper_bound, sum(pods_per_want)),
        )

    def _apply_best(self, solutions: Sequence[_Solution], exact: ExactRoom | None) -> _Solution:
        """Make the moves of the best feasible solution, and return it; the last that was found is the best."""
        tied = any(self._packing.dependent[want.kind] for want in self._wants)
        if exact is not None and exact.solution is not None and not tied:
            self._out_of_time |= exact.out_of_time
            exact_solution = exact.solution
            places = tuple(
                tuple(NodeIndex(node) for node, count in cells for _ in range(count)) for cells in exact_solution.aimed
            )
            if exact_solution.departures is not None and exact_solution.arrivals is not None:
                better = _Solution(exact_solution.departures, exact_solution.arrivals, places)
                # The program counts pods, not units: with more pods in all it may leave a gang in pieces.
                if self._keeps_what_was_found(better, solutions[-1]) and self._apply(better):
                    return better
        for solution in reversed(solutions):
            if self._apply(solution):
                return solution
        no_cells = np.empty((0, 3), dtype=np.int64)
        return _Solution(no_cells, no_cells, tuple(() for _ in self._wants))

    def _move_tied_pods(self, room: _Solution) -> _Solution:
        """Return the room, and more if pods that depend on others can be moved aside for it."""
        upper_bound = sum(map(self._most_of, self._wants))
        if sum(map(len, room.places)) >= upper_bound:
            return room
        tied = TiedPods(
            self._problem,
            self._state,
            self._packing,
            frozenset(self._sources.to_take_from),
            self._disruption,
            self._budget,
            self._deadline,
        )
        if not tied.may_help and not any(self._packing.dependent[want.kind] for want in self._wants):
            return room
        steps_before = self._state.steps
        places = [list(want_places) for want_places in room.places]
        for want, want_places in zip(self._wants, places, strict=True):
            for node in want_places:
                tied.put(want, node)
        for unit in self._units:
            indices = [self._wants.index(want) for want in unit.wants]
            missing = [self._most_of(self._wants[index]) - len(places[index]) for index in indices]
            if self._is_whole(unit):
                # A unit that the search has given no place gets all of them or none.
                missing = [(self._wants[index].count or 1) - len(places[index]) for index in indices]
                added = tied.add_all(
                    [(self._wants[index], number) for index, number in zip(indices, missing, strict=True)]
                )
            else:
                added = [
                    tied.add_most(self._wants[index], number) for index, number in zip(indices, missing, strict=True)
                ]
            for index, new_places in zip(indices, added or (), strict=bool(added)):
                places[index] += new_places
        if not tied.withdraw_arrivals():
            for step in steps_before:
                self._state.move(step.pod, step.target)
            return room
        added_steps = self._state.steps[len(steps_before) :]
        ejections = np.concatenate([room.ejections, ejections_of(self._packing, added_steps)])
        return replace(room, ejections=ejections, places=tuple(map(tuple, places)))

    def _keeps_what_was_found(self, better: _Solution, solution: _Solution) -> bool:
        """Return whether in a solution no want has less room, and each gang has room as a whole or not at all."""
        counts = {want: len(places) for want, places in zip(self._wants, better.places, strict=True)}
        if any(counts[want] < len(places) for want, places in zip(self._wants, solution.places, strict=True)):
            return False
        whole_units = [unit for unit in self._units if self._is_whole(unit)]
        full_units = (all(counts[want] == want.count for want in unit.wants) for unit in whole_units)
        empty_units = (not any(counts[want] for want in unit.wants) for unit in whole_units)
        return all(is_full or is_empty for is_full, is_empty in zip(full_units, empty_units, strict=True))

    def _apply(self, solution: _Solution) -> bool:
        leaving: defaultdict[NodeIndex, list[PodIndex]] = defaultdict(list)
        for kind, node, count in solution.ejections.tolist():
            pods_of_kind = [pod for pod in self._problem.cluster.pods_on[node] if self._packing.pod_kind[pod] == kind]
            leaving[NodeIndex(node)] += self._disruption.cheapest_first(pods_of_kind)[:count]
        transition = Transition({node: tuple(pods) for node, pods in leaving.items()}, frozenset(), solution.arrivals)
        spare = _DETOURS if self._budget is None else min(_DETOURS, self._budget - solution.moves)
        return apply_transition(
            self._packing, self._state, transition, detours=max(0, spare), open_nodes=self._packing.takes
        )

    def _quality(self, chosen: _Solution, exact: ExactRoom | None) -> Quality:
        reached_now = self._reached_by(chosen)
        moves = len(self._state.steps)
        reached = sum(reached_now.each)
        upper_bound, least, prover = reached_now.most, reached_now.least_moves, Prover.BOUND
        if exact is not None:
            upper_bound, prover = max(reached, min(upper_bound, exact.reached.most)), Prover.EXACT
            least = exact.reached.least_moves if exact.reached.each == reached_now.each else least
        return Quality(
            reached=reached,
            upper_bound=upper_bound,
            moves=moves,
            fewest_moves=min(least, moves),
            prover=prover,
            out_of_time=self._out_of_time or (exact is not None and exact.out_of_time),
            is_snapshot_incomplete=bool(self._problem.cluster.snapshot.missing),
        )
