"""The strategy `MakeRoom`, which makes room with the fewest moves.

Where the moves do not suffice for all that waits, it lets as much of it fit as they allow. What is named has to fit as
a whole: pods, their gangs, shapes with a count. Without a name every pending pod is meant, those of higher priority
first, gangs whole, as many as the moves allow; so is a shape without a count. With the extra `optimal` the integer
program goes on from where the search ends, if the problem is small enough.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from berth_core import PODS, Deadline, InputError, NoDeadline, Pod, Snapshot, effective_requests
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.goals.make_room.tied_pods import TiedPods, ejections_of
from berth_descheduler.planner import (
    NodeIndex,
    PodIndex,
    Problem,
    Proposal,
    Prover,
    Quality,
    RoomMade,
    RoomRequest,
    State,
    find_pods_to_fit,
    room_of_guarantee,
)
from berth_descheduler.planner.explanations import Blockers, NodeRefusalSummary
from berth_descheduler.planner.pending_pods import SHAPE_NAMESPACE, GangOf, gang_of
from berth_descheduler.planner.problem import DisruptionCost, find_sources, source_refusal
from berth_descheduler.planner.queue_guarantees import reserved_queue
from berth_descheduler.planner.rooms import WaitingPod
from berth_descheduler.planner.solver import (
    ExactRoom,
    Ints,
    PackingModel,
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

# --- its reports -----------------------------------------------------------------------------------------------------
# The room that a plan makes, for what and on which nodes, and why there is not more.

Unused = tuple[tuple[str, Fraction], ...]


class RoomReports:
    """Reports on the wants of one plan.

    Made before the moves, asked after them.
    """

    def __init__(
        self, problem: Problem, state: State, packing: PackingModel, wants: Sequence[Want], gangs: GangOf = gang_of
    ) -> None:
        self._gang_of = gangs
        self._problem = problem
        self._state = state
        self._packing = packing
        self._wants = tuple(wants)
        self._before = [self._measure(want) for want in wants]
        self._blockers = Blockers(state)

    def made(self, places: Sequence[Sequence[NodeIndex]]) -> tuple[RoomMade, ...]:
        """Return what became of each want."""
        return tuple(
            self._made(want, want_places, fits_before)
            for want, want_places, fits_before in zip(self._wants, places, self._before, strict=True)
        )

    def why_not_more(
        self, room: Sequence[RoomMade], quality: Quality, moves_needed: int | None = None, *, limited: bool = False
    ) -> tuple[Refused, ...]:
        """Return why the wants that do not fit have no room.

        Says of each node, too, why it has no room for the first such want. `moves_needed`: with so many moves all would
        fit; None if that is not known. `limited`: what is proven holds within the limit on moves only.
        """
        unfitted = [
            (want, room_made)
            for want, room_made in zip(self._wants, room, strict=True)
            if room_made.wanted is None or room_made.fitted < room_made.wanted
        ]
        proof = quality, moves_needed, limited
        refusals = [self._of_want(want, room_made, proof) for want, room_made in unfitted]
        return tuple(sorted((*refusals, *(self._of_nodes(unfitted[0][0]) if unfitted else ()))))

    def _made(self, want: Want, places: Sequence[NodeIndex], before: tuple[int, Unused]) -> RoomMade:
        fits_before, unused_before = before
        fits_after, unused_after = self._measure(want)
        pods = [self._problem.cluster.pods[pod].pod for pod in want.pods]
        gang = self._gang_of(pods[0])
        return RoomMade(
            name=want.name,
            wanted=want.count,
            fitted=len(places),
            fits_before=fits_before,
            fits_after=fits_after,
            nodes=tuple(sorted(self._problem.cluster.node_name(node) for node in places)),
            unused_before=unused_before,
            unused_after=unused_after,
            pods=tuple(_waiting(pod) for pod in pods if not _is_shape(pod)),
            gang=gang[1] if gang else "",
            requests=tuple(effective_requests(pods[0].spec).to_quantities().items()) if _is_shape(pods[0]) else (),
        )

    def _measure(self, want: Want) -> tuple[int, Unused]:
        """Return how many pods of a want alone fit now.

        Returns as well how much of what is free they cannot use.
        """
        needs = self._problem.cluster.requests[self._class_of(want)]
        nodes = np.flatnonzero(self._packing.allowed(want.kind) & self._packing.takes)
        free = np.array([self._state.free[node] for node in nodes], dtype=np.int64).reshape(len(nodes), len(needs))
        fits = self._fits(want, nodes, np.maximum(free, 0), np.array(needs, dtype=np.int64))
        unused = []
        for name, column in self._problem.cluster.column.items():
            total = int(np.maximum(free[:, column], 0).sum())
            if name != PODS and needs[column] and total:
                unused.append((name, 1 - Fraction(fits * needs[column], total)))
        return fits, tuple(sorted(unused))

    def _fits(self, want: Want, nodes: Ints, free: Ints, needs: Ints) -> int:
        if self._packing.dependent[want.kind]:
            pod = want.pods[0]
            return int(any(self._state.refusal(pod, NodeIndex(int(node))) is None for node in nodes))
        requested = np.flatnonzero(needs)
        return int((free[:, requested] // needs[requested]).min(axis=1).sum()) if len(nodes) else 0

    def _class_of(self, want: Want) -> int:
        return self._problem.cluster.pods[want.pods[0]].class_index

    def _of_want(self, want: Want, made: RoomMade, proof: tuple[Quality, int | None, bool]) -> Refused:
        not_fitted = "more of it" if made.wanted is None else f"{made.wanted - made.fitted} more of it"
        refusal = self._why_no_more(not_fitted, *proof)
        meta = self._problem.cluster.pods[want.pods[0]].pod.metadata
        namespace = "" if meta.namespace == SHAPE_NAMESPACE else meta.namespace
        return Refused.of_pod("", namespace, meta.name, refusal)

    def _why_no_more(self, more: str, quality: Quality, moves_needed: int | None, limited: bool) -> Refusal:  # noqa: FBT001 - a part of the proof
        """Return what ended the search for more room.

        What is proven comes before what is not, the limit on moves before the room.
        """
        limit = self._problem.settings.limits.max_moves
        if quality.proven_optimal and not limited:
            return Refusal(RefusalReason.BOUND_REACHED, f"no plan makes room for {more}")
        if limit is not None and moves_needed is not None:
            return Refusal(RefusalReason.MOVE_LIMIT, f"{moves_needed} moves would make room and {limit} are allowed")
        if quality.proven_optimal:
            return Refusal(RefusalReason.MOVE_LIMIT, f"no plan of at most {limit} moves makes room for {more}")
        if quality.out_of_time:
            return Refusal(RefusalReason.TIME_LIMIT, f"the time limit ended the search for room for {more}")
        if limit is not None and quality.moves >= limit:
            return Refusal(RefusalReason.MOVE_LIMIT, f"the {limit} moves that are allowed make no room for {more}")
        text = f"no plan was found that makes room for {more}; a bound does not exclude one"
        return Refusal(RefusalReason.NO_ROOM_TOGETHER, text)

    def _of_nodes(self, want: Want) -> Iterable[Refused]:
        for index, node in enumerate(self._problem.cluster.nodes):
            number = NodeIndex(index)
            if number != self._problem.cluster.waiting_node:
                yield Refused.of_node(node.metadata.name, self._why_no_room(want.pods[0], number))

    def _why_no_room(self, pod: PodIndex, node: NodeIndex) -> Refusal:
        """Return what keeps a pod from a node.

        What no move changes, or what may not be moved, comes before all else.
        """
        refusal = self._state.refusal(pod, node)
        if refusal is None:
            return Refusal(RefusalReason.NO_ROOM_TOGETHER, "it fits here alone, but not beside all else that waits")
        if refusal.reason is not RefusalReason.INSUFFICIENT_RESOURCES:
            return self._blockers.name(refusal, pod, node)
        needs = self._problem.cluster.requests[self._problem.cluster.pods[pod].class_index]
        free = list(self._state.free[node])
        blockers = []
        for other_pod in self._problem.cluster.pods_on[node]:
            amounts = self._problem.cluster.requests[self._problem.cluster.pods[other_pod].class_index]
            if self._packing.pod_kind[other_pod] >= 0:
                free = [free_amount + pod_amount for free_amount, pod_amount in zip(free, amounts, strict=True)]
            else:
                blockers.append(other_pod)
        lacking_resources = [
            name for name, column in self._problem.cluster.column.items() if needs[column] > free[column]
        ]
        if not lacking_resources:
            return source_refusal(self._problem, node) or self._why_no_pod_leaves(node, refusal) or refusal
        return self._blocked(sorted(lacking_resources), blockers)

    def _why_no_pod_leaves(self, node: NodeIndex, lack: Refusal) -> Refusal | None:
        """Return which pod of a node that may be moved other pods keep off every node with room; None if it is not so.

        Of each node the first such pod is named, with the first pod whose term, place or port forbids the move.
        """
        for pod in self._problem.cluster.pods_on[node]:
            class_index = self._problem.cluster.pods[pod].class_index
            if self._packing.pod_kind[pod] < 0 or not self._state.depends_on_others(class_index):
                continue
            tying = NodeRefusalSummary(pod)
            for target in map(NodeIndex, np.flatnonzero(self._packing.takes).tolist()):
                if target == node or self._state.node_fit.refusal(class_index, target) is not None:
                    continue
                if not self._state.fits(class_index, target):
                    continue
                tie = self._state.refusal_by_others(pod, target)
                if tie is None:
                    break
                tying.count(target, tie)
            else:
                if tying:
                    key = self._problem.cluster.pods[pod].pod.key
                    summary = tying.summary(tying.in_words(), self._blockers)
                    holder = f", such as {summary.blocking_pod}" if summary.blocking_pod else ""
                    text = (
                        f"{lack.message} beside {key}, which no node with room for it takes: {summary.message}{holder}"
                    )
                    return Refusal(
                        RefusalReason.HOLDS_IMMOVABLE_PODS,
                        text,
                        constraint=summary.constraint,
                        resource=lack.resource,
                        blocking_pod=key,
                    )
        return None

    def _blocked(self, lacking: Sequence[str], blockers: Sequence[PodIndex]) -> Refusal:
        lacking_names = ", ".join(lacking)
        if not blockers:
            text = f"the node is too small: not enough {lacking_names}"
            return Refusal(RefusalReason.INSUFFICIENT_RESOURCES, text, resource=lacking[0])
        first_blocker = self._problem.cluster.pods[blockers[0]].pod.key
        blocker_refusal = self._problem.pod_refusals.get(blockers[0])
        text = f"not enough {lacking_names} beside pods that may not be moved, such as {first_blocker}"
        return Refusal(
            RefusalReason.HOLDS_IMMOVABLE_PODS,
            f"{text}: {blocker_refusal.message}" if blocker_refusal else text,
            constraint=blocker_refusal.reason if blocker_refusal else "",
            resource=lacking[0],
            blocking_pod=first_blocker,
        )


def _is_shape(pod: Pod) -> bool:
    return pod.metadata.namespace == SHAPE_NAMESPACE


def _waiting(pod: Pod) -> WaitingPod:
    return WaitingPod(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


# --- the strategy ----------------------------------------------------------------------------------------------------

_DETOURS: Final = 20
_MOST_BOUNDED: Final = 200_000
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
        """Return the named, described or pending pods.

        Raises `InputError` for a named one that is not pending.
        """
        return find_pods_to_fit(self._resolved(snapshot), snapshot)

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return find_sources(problem).to_take_from

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the fewest moves that make room, and why not more."""
        if problem.cluster.waiting_node is None:
            return Proposal((), (), Quality(0, 0, 0, 0, is_snapshot_incomplete=bool(problem.cluster.snapshot.missing)))
        request = self._resolved(problem.cluster.snapshot)
        return _MakeRoomRun(problem, state, request, self._deadline, self._gangs).propose()

    def _resolved(self, snapshot: Snapshot) -> RoomRequest:
        """Return the request with the pods and shapes of the queue that it names.

        There are none where the queue is not there, unless names must exist: then it raises `InputError`.
        """
        if not self._request.queue:
            return self._request
        try:
            return room_of_guarantee(snapshot, self._request)
        except InputError:
            if self._request.names_must_exist:
                raise
            return self._request


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
        if self._request.queue:
            queue, home = reserved_queue(self._problem.cluster.snapshot, self._request.queue)
            room = tuple(replace(room_made, queue=queue, namespace=home) for room_made in room)
        return Proposal(self._state.steps, refusals, quality, room, self._request.owners)

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def _read_units(self) -> tuple[_Unit, ...]:
        """Return the units in the order in which they are served."""
        wants = self._read_wants()
        if self._request.all_or_none:
            return (_Unit(tuple(wants), 0),)
        if not self._request.names_nothing and not self._request.queue:
            return tuple(_Unit((want,), 0) for want in wants)
        units: defaultdict[object, list[Want]] = defaultdict(list)
        for want in wants:
            pod = self._problem.cluster.pods[want.pods[0]].pod
            units[self._gang_of(pod) or want.kind].append(want)
        groups_as_units = (
            _Unit(tuple(wants_of_group), self._priority(wants_of_group)) for wants_of_group in units.values()
        )
        if self._gang_of is not gang_of:
            return tuple(sorted(groups_as_units, key=lambda unit: (-unit.priority, unit.wants[0].pods)))
        return tuple(sorted(groups_as_units, key=lambda unit: (-unit.priority, self._size(unit), unit.wants[0].pods)))

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

    def _improve(self, found: _Found) -> tuple[_Found, ...]:
        """Return better room for what is of one kind, if there is any."""
        reached = self._known(found)
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
        better = _Found(improved.ejections, improved.arrivals, (places,))
        is_better = (len(places), -better.moves) > (len(found.places[0]), -found.moves)
        return (better,) if is_better else ()

    def _moves_needed(self, quality: Quality) -> int | None:
        """Return how many moves would make room for all that is named.

        None unless the limit on moves is what prevents it.
        """
        if self._budget is None or not self._request.all_or_none or quality.reached:
            return None
        search = RoomSearch(self._packing, self._state, None, self._deadline)
        is_placed = search.add_together(self._wants)
        search.withdraw()
        return search.filled.ejected if is_placed else None

    def _is_whole(self, unit: _Unit) -> bool:
        """Return whether a unit is only useful as a whole.

        That holds for what is named, and for a gang.
        """
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
            is_too_large = len(self._packing.wanted) * self._packing.nodes > _MOST_BOUNDED
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

    def _found(self, ejections: Ints, arrivals: Ints, places: tuple[tuple[NodeIndex, ...], ...]) -> _Found:
        """Return what was found, without the arrivals of the new pods."""
        is_wanted = np.isin(arrivals[:, 0], sorted(set(self._packing.wanted.values())))
        return _Found(ejections, arrivals[~is_wanted], self._dealt_out(places))

    def _dealt_out(self, places: tuple[tuple[NodeIndex, ...], ...]) -> tuple[tuple[NodeIndex, ...], ...]:
        """Return each want's own places where wants of a kind share them.

        Each want gets its own number, in order.
        """
        places_by_kind: dict[int, list[NodeIndex]] = {}
        dealt = []
        for want, kind_places in zip(self._wants, places, strict=True):
            places_left = places_by_kind.setdefault(want.kind, list(kind_places))
            number = len(places_left) if want.count is None else min(want.count, len(places_left))
            dealt.append(tuple(places_left[:number]))
            del places_left[:number]
        return tuple(dealt)

    # --- exactly ----------------------------------------------------------------------------------------------------

    def _solve_exactly(self, found: _Found) -> ExactRoom | None:
        """Return what the integer program proves and finds.

        The result is None if the solver is not asked.
        """
        reached = self._known(found)
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

    def _known(self, found: _Found) -> Reached:
        pods_per_want = tuple(len(places) for places in found.places)
        upper_bound = sum(self._most_of(want) for want in self._wants)
        if self._request.all_or_none and upper_bound < sum(want.count or 0 for want in self._wants):
            upper_bound = 0
        return Reached(
            pods_per_want,
            found.moves,
            min(found.moves, self._least_moves(pods_per_want)),
            max(upper_bound, sum(pods_per_want)),
        )

    def _apply_best(self, found: Sequence[_Found], exact: ExactRoom | None) -> _Found:
        """Make the moves of the best feasible solution, and return it; the last that was found is the best."""
        tied = any(self._packing.dependent[want.kind] for want in self._wants)
        if exact is not None and exact.solution is not None and not tied:
            self._out_of_time |= exact.out_of_time
            solution = exact.solution
            places = tuple(
                tuple(NodeIndex(node) for node, count in cells for _ in range(count)) for cells in solution.aimed
            )
            if solution.departures is not None and solution.arrivals is not None:
                better = _Found(solution.departures, solution.arrivals, places)
                if self._keeps_what_was_found(better, found[-1]) and self._apply(better):
                    return better
        for solution_found in reversed(found):
            if self._apply(solution_found):
                return solution_found
        no_cells = np.empty((0, 3), dtype=np.int64)
        return _Found(no_cells, no_cells, tuple(() for _ in self._wants))

    def _move_tied_pods(self, room: _Found) -> _Found:
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
        if not tied.may_help:
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

    def _keeps_what_was_found(self, better: _Found, found: _Found) -> bool:
        """Return whether a solution keeps all the room that was found.

        No want has less room, and a gang has room as a whole or not at all.
        """
        counts = {want: len(places) for want, places in zip(self._wants, better.places, strict=True)}
        if any(counts[want] < len(places) for want, places in zip(self._wants, found.places, strict=True)):
            return False
        whole_units = [unit for unit in self._units if self._is_whole(unit)]
        full_units = (all(counts[want] == want.count for want in unit.wants) for unit in whole_units)
        empty_units = (not any(counts[want] for want in unit.wants) for unit in whole_units)
        return all(is_full or is_empty for is_full, is_empty in zip(full_units, empty_units, strict=True))

    def _apply(self, found: _Found) -> bool:
        leaving: defaultdict[NodeIndex, list[PodIndex]] = defaultdict(list)
        for kind, node, count in found.ejections.tolist():
            pods_of_kind = [pod for pod in self._problem.cluster.pods_on[node] if self._packing.pod_kind[pod] == kind]
            leaving[NodeIndex(node)] += self._disruption.cheapest_first(pods_of_kind)[:count]
        transition = Transition({node: tuple(pods) for node, pods in leaving.items()}, frozenset(), found.arrivals)
        spare = _DETOURS if self._budget is None else min(_DETOURS, self._budget - found.moves)
        return apply_transition(
            self._packing, self._state, transition, detours=max(0, spare), open_nodes=self._packing.takes
        )

    # --- what is known ----------------------------------------------------------------------------------------------

    def _quality(self, chosen: _Found, exact: ExactRoom | None) -> Quality:
        reached_now = self._known(chosen)
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
