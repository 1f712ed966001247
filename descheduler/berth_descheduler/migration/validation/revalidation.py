"""Revalidates the moves of a plan on a later snapshot."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, assert_never

from berth_core import MoveReason, ObjectReference, PlannedMove, Snapshot
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refuser
from berth_descheduler.migration.validation.handwritten_limits import MoveLimits
from berth_descheduler.planner import EvictableNamespaces, NodeIndex, PlannerSettings, PodIndex, Problem, State
from berth_descheduler.planner.problem import source_refusal
from berth_descheduler.planner.simulation import KeptReadings, protected_amounts

_NOT_CLOSED: Final = "it is preemptable no more, or the lent node {} is not closed: no pod leaves it without a place"


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a planned move is no longer valid."""

    reason: MoveReason
    message: str


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The moves that are under way during a revalidation, and those that wait for them, by position."""

    moves: frozenset[int] = frozenset()
    """They are never invalid, and take their room."""

    waiting: frozenset[int] = frozenset()
    """They wait for moves under way, which make their room or spare their controller: room is not looked for yet."""

    leaving: tuple[PlannedMove, ...] = ()
    """Further moves under way, whose pods have left or are about to."""


def revalidate(
    snapshot: Snapshot,
    moves: Sequence[PlannedMove],
    settings: PlannerSettings,
    *,
    emptied: Sequence[str] | None = None,
    begun: Sequence[PlannedMove] = (),
    beside: UnderWay | None = None,
    kept: KeptReadings | None = None,
) -> Mapping[int, Invalid]:
    """Return the moves that are invalid on a fresh snapshot, by position, each with the reason.

    The settings are those of the plan's policy as it is now: a plan may have been made by hand, or long ago. `begun`
    are the moves of the plan that have been begun; they count for the limits. `beside` says which moves are under way
    meanwhile, and `kept` is what was read of an earlier snapshot.

    `moves` are the remaining moves in order; the snapshot is taken before their places are reserved. A node is emptied
    whole or left alone: with one move of a source all of its moves are dropped, and so are those of a source that now
    holds another pod that has to leave. `emptied` names the sources to empty (None: all); other sources may keep pods.
    """
    problem = Problem.to_review(snapshot, settings, kept=kept)
    return _Review(problem, moves, emptied, begun, beside or UnderWay()).run()


class _Review:
    """One revalidation, repeated until no more moves are dropped, since each of them keeps its pod in place."""

    def __init__(
        self,
        problem: Problem,
        moves: Sequence[PlannedMove],
        emptied: Sequence[str] | None,
        begun: Sequence[PlannedMove],
        beside: UnderWay,
    ) -> None:
        self._problem = problem
        self._begun = begun
        self._beside = beside
        self._protected = protected_amounts(problem.cluster, problem.settings.protection)
        self._moves = moves
        self._emptied = frozenset((move.source for move in moves) if emptied is None else emptied)
        self._invalid: dict[int, Invalid] = {}
        self._reached: dict[tuple[str, str], str] = {}
        """The node to which the moves so far bring each pod."""

    def run(self) -> Mapping[int, Invalid]:
        """Return the invalid moves."""
        for index, move in enumerate(self._moves):
            self._note(index, self._why_not_movable(index, move) or self._why_no_source(move))
            self._reached[move.namespace, move.pod] = move.target or move.source
        for source in sorted(self._emptied):
            self._check_source(source)
        while self._walk():
            pass
        # After the walk, so that moves that cannot be made use up no limit. What a limit drops may have made room for
        # others, so these are walked through once more.
        self._keep_limits()
        while self._walk():
            pass
        return dict(sorted(self._invalid.items()))

    def _note(self, index: int, invalid: Invalid | None) -> None:
        if invalid is not None and index not in self._invalid and index not in self._beside.moves:
            self._invalid[index] = invalid
            self._drop_moves_beside(self._moves[index])
            self._drop_later_moves(index)

    def _drop_moves_beside(self, fallen: PlannedMove) -> None:
        """Drop the other moves of a source that cannot be emptied because a pod stays; a pod that is gone does not."""
        if fallen.source not in self._emptied or self._pod(fallen) is None:
            return
        self._drop_source(fallen.source, f"{fallen.namespace}/{fallen.pod} stays, so {fallen.source} cannot be emptied")

    def _drop_source(self, source: str, text: str) -> None:
        for index, move in enumerate(self._moves):
            if move.source == source and not move.stands_alone and index not in self._beside.moves:
                self._invalid.setdefault(index, Invalid(MoveReason.SOURCE_NOT_EMPTIABLE, text))

    def _drop_later_moves(self, index: int) -> None:
        """Drop the later moves of the same pod, which would take it from a node that it never comes to."""
        fallen_move = self._moves[index]
        for later_index, move in enumerate(self._moves[index + 1 :], index + 1):
            if (move.namespace, move.pod) == (fallen_move.namespace, fallen_move.pod):
                text = f"the pod does not come to {move.source}"
                self._invalid.setdefault(later_index, Invalid(MoveReason.POD_CHANGED, text))

    def _pod(self, move: PlannedMove) -> PodIndex | None:
        return self._problem.cluster.pod_numbers.get((move.namespace, move.pod))

    def _why_not_movable(self, index: int, move: PlannedMove) -> Invalid | None:
        if move.fault is not None:
            return Invalid(MoveReason.INVALID_NAME, str(move.fault))
        cluster = self._problem.cluster
        pod = self._pod(move)
        if pod is None:
            return Invalid(MoveReason.POD_GONE, "the pod is not there any more")
        placed_pod = cluster.pods[pod]
        if move.pod_uid and placed_pod.pod.metadata.uid != move.pod_uid:
            return Invalid(MoveReason.POD_CHANGED, "another pod has the name now")
        node_now = self._reached.get((move.namespace, move.pod), cluster.node_name(placed_pod.node))
        if node_now != move.source:
            return Invalid(MoveReason.POD_CHANGED, f"the pod is on {node_now}")
        problem = self._for_named if self._is_named(move) else self._problem
        refusal = problem.pod_refusal(pod)
        if refusal is None or (self._is_beside(index, move) and _may_pass(refusal)):
            return None
        return Invalid(_reason_of_pod(refusal.reason), refusal.sentences)

    def _is_beside(self, index: int, move: PlannedMove) -> bool:
        """Return whether moves under way may be what speaks against a move for now."""
        return index in self._beside.waiting or (move.namespace, move.owner) in self._controllers_under_way

    @cached_property
    def _controllers_under_way(self) -> Collection[tuple[str, ObjectReference | None]]:
        moves_under_way = (*(self._moves[index] for index in self._beside.moves), *self._beside.leaving)
        return {(move.namespace, move.owner) for move in moves_under_way if move.owner is not None}

    def _why_no_source(self, move: PlannedMove) -> Invalid | None:
        """Return why the policy takes no pod off a node, whatever the node's state; None if it does."""
        node = self._problem.cluster.node_numbers.get(move.source)
        if node is None:
            return None
        if node in self._problem.cluster.left_out:
            return Invalid(MoveReason.NODE_NOT_SELECTED, f"the node selector does not select {move.source}")
        refusal = self._problem.cluster.held_back.get(node) or source_refusal(self._problem, node)
        if refusal is None:
            return None
        reason = _reason_of_node(refusal.reason, otherwise=MoveReason.FILTERED)
        return Invalid(reason, f"{move.source}: {refusal.message}")

    def _keep_limits(self) -> None:
        """Drop the moves beyond a limit of the policy; moves that empty a node count together."""
        limits = MoveLimits(self._problem.settings)
        limits.count_earlier(self._problem.settings.run.begun)
        limits.count_begun((move, self._controller_of(move)) for move in self._begun)
        for group in self._groups():
            moves = [(self._moves[index], self._controller_of(self._moves[index])) for index in group]
            over_limit = limits.accept(moves)
            if over_limit is not None:
                for index in group:
                    self._invalid[index] = Invalid(over_limit.reason, over_limit.message)
                    self._drop_later_moves(index)

    def _groups(self) -> Iterator[list[int]]:
        """Yield the moves that hold so far, in order; those that empty a node come together."""
        decided_moves = self._beside.moves.union(self._invalid)
        valid = [index for index in range(len(self._moves)) if index not in decided_moves]
        together: dict[str, list[int]] = {}
        for index in valid:
            if self._is_part_of_a_whole(self._moves[index]):
                together.setdefault(self._moves[index].source, []).append(index)
        for index in valid:
            if not self._is_part_of_a_whole(self._moves[index]):
                yield [index]
            elif index in (group := together[self._moves[index].source]) and group[0] == index:
                yield group

    def _is_part_of_a_whole(self, move: PlannedMove) -> bool:
        return move.source in self._emptied and not move.stands_alone

    def _controller_of(self, move: PlannedMove) -> str:
        """Return the current controller of a move's pod, or the one that the plan names if the pod is gone."""
        pod = self._pod(move)
        owner = move.owner if pod is None else self._problem.cluster.pods[pod].pod.controller
        return "" if owner is None else owner.uid or f"{move.namespace}/{owner.kind}/{owner.name}"

    def _check_source(self, source: str) -> None:
        """Drop the moves of a source with a pod that has to leave and is not among the moves."""
        node = self._problem.cluster.node_numbers.get(source)
        if node is None:
            return
        planned_pods = {
            (move.namespace, move.pod) for move in (*self._moves, *self._beside.leaving) if move.source == source
        }
        for pod in self._problem.pods_to_move(node):
            live_pod = self._problem.cluster.pods[pod].pod
            if (live_pod.metadata.namespace, live_pod.metadata.name) in planned_pods or live_pod.is_terminating:
                continue
            self._drop_source(source, f"{live_pod.key} is on {source} now and is not in the plan")
            return

    def _walk(self) -> bool:
        """Make the moves that hold so far, in order, up to the first that does not; return whether there was one."""
        cluster, state = self._problem.cluster, self._state
        state.undo_to(0)
        for index, move in enumerate(self._moves):
            pod = self._pod(move)
            if index in self._invalid or index in self._beside.waiting or pod is None:
                continue
            if index in self._beside.moves:
                self._take_room(state, pod, move)
                continue
            if move.is_eviction:
                if not self._problem.may_lose_its_place(pod):
                    self._note(index, Invalid(MoveReason.NODE_NOT_CLOSED, _NOT_CLOSED.format(move.source)))
                    return True
                continue
            target = cluster.node_numbers.get(move.target)
            refusal = self._refusal(state, pod, target)
            if refusal is not None or target is None:
                unfit_reason = MoveReason.TARGET_UNFIT
                message = refusal.message if refusal else f"{move.target} is not in the cluster any more"
                reason = _reason_of_node(refusal.reason, otherwise=unfit_reason) if refusal else unfit_reason
                self._note(index, Invalid(reason, message))
                return True
            # A pod that a deschedule plugin names may go wherever there is room, protected or not.
            if not self._stays_protected(state, pod, target) and not self._is_named(move):
                text = f"{move.target} would go above its protection threshold"
                self._note(index, Invalid(MoveReason.ABOVE_PROTECTION, text))
                return True
            state.move(pod, target)
        return False

    @cached_property
    def _state(self) -> State:
        cluster = self._problem.cluster
        sources = {cluster.node_numbers[move.source] for move in self._moves if move.source in cluster.node_numbers}
        return State(cluster, sources)

    def _take_room(self, state: State, pod: PodIndex, move: PlannedMove) -> None:
        """Make a move that is under way, if it can be made."""
        target = self._problem.cluster.node_numbers.get(move.target)
        if target is not None and state.refusal(pod, target) is None:
            state.move(pod, target)

    def _stays_protected(self, state: State, pod: PodIndex, target: NodeIndex) -> bool:
        """Return whether a target with the pod keeps to every protection threshold; at a threshold it does."""
        needs = self._problem.cluster.requests[self._problem.cluster.pods[pod].class_index]
        return all(
            state.free[target][column] - needs[column] >= least[target] for column, least in self._protected.items()
        )

    def _is_named(self, move: PlannedMove) -> bool:
        """Return whether a plugin of the policy named the pod, by the reason of the move."""
        return any(move.reason.startswith(f"{plugin.name}: ") for plugin in self._problem.settings.plugins.deschedule)

    @cached_property
    def _for_named(self) -> Problem:
        """Return the problem for pods that plugins name, to which the balance plugin's namespaces do not apply."""
        settings = self._problem.settings
        settings = replace(settings, scope=replace(settings.scope, evictable_namespaces=EvictableNamespaces()))
        return Problem.to_review(self._problem.cluster.snapshot, settings)

    @staticmethod
    def _refusal(state: State, pod: PodIndex, target: NodeIndex | None) -> Refusal | None:
        return None if target is None else state.refusal(pod, target)


def _reason_of_pod(reason: RefusalReason) -> MoveReason:
    """Return why a move is not made whose pod is refused now."""
    match reason:
        case RefusalReason.BUDGET_EXHAUSTED | RefusalReason.SEVERAL_BUDGETS | RefusalReason.TOO_FEW_READY:
            return MoveReason.EVICTION_BLOCKED
        case RefusalReason.NAMESPACE_NOT_EVICTABLE:
            return MoveReason.NAMESPACE_NOT_EVICTABLE
        case RefusalReason.POD_COOLING_DOWN:
            return MoveReason.POD_COOLING_DOWN
        case _:
            pass
    match reason.refuser:
        case Refuser.FILTER:
            return MoveReason.FILTERED
        # A plan only holds pods that could be moved when it was made: what refuses now has changed since.
        case Refuser.POD | Refuser.TARGET | Refuser.SOURCE | Refuser.JOB_FOR_NOW | Refuser.JOB_FOR_GOOD:
            return MoveReason.POD_CHANGED
        case _:
            assert_never(reason.refuser)


def _reason_of_node(reason: RefusalReason, *, otherwise: MoveReason) -> MoveReason:
    """Return why a move is not made off or onto a node; `otherwise` where the refusal has no reason of its own."""
    match reason:
        case RefusalReason.NODE_NOT_SELECTED:
            return MoveReason.NODE_NOT_SELECTED
        case RefusalReason.CRITICAL_NODE:
            return MoveReason.CRITICAL_NODE
        case RefusalReason.COOLING_DOWN:
            return MoveReason.NODE_COOLING_DOWN
        case _:
            return otherwise


_PASSING: Final = frozenset(
    {
        RefusalReason.CONTROLLER_SCALING_DOWN,
        RefusalReason.GANG_WOULD_BREAK,
        RefusalReason.JOB_COULD_FAIL,
        RefusalReason.LOWER_ORDINAL_NOT_READY,
        RefusalReason.TOO_FEW_READY,
        RefusalReason.TOO_FEW_REPLICAS,
    }
)
"""What moves of other pods of a gang or controller may cause for as long as they are under way."""


def _may_pass(refusal: Refusal) -> bool:
    return all(further.reason in _PASSING for further in (refusal, *refusal.also))
