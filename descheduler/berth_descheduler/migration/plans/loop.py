"""The loop over a plan: observes and reconciles rooms and moves until all are over.

The loop is level-triggered: it may be killed at any instant and restarted on the same plan. Only calls leave the loop's
thread; their answers come back to it through a queue.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from berth_core import (
    MOVE_ANNOTATION,
    MigrationPlan,
    MigrationPlanStatus,
    MoveReason,
    MoveState,
    MoveStatus,
    Outlook,
    PlanPhase,
    RetryableError,
    RoomStatus,
)
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.execution import MoveController, WaveContext, start_moves
from berth_descheduler.migration.moves.memory import Eviction, MoveMemory, Surge
from berth_descheduler.migration.moves.observation import is_on_source, is_untouched
from berth_descheduler.migration.moves.order import MoveGroup, MoveOrder, find_free
from berth_descheduler.migration.moves.second_moves import earlier_moves, note_landed, retarget
from berth_descheduler.migration.moves.siblings import ReplicaTracker
from berth_descheduler.migration.moves.start_limits import start_limit
from berth_descheduler.migration.moves.whereabouts import find_unplaced
from berth_descheduler.migration.plans.status_writer import PlanStatusWriter
from berth_descheduler.migration.plans.stop import PlanStop
from berth_descheduler.migration.plans.watch import ObservedPlan, PlanObservation
from berth_descheduler.migration.rooms.execution import PlanProgress, RoomController
from berth_descheduler.migration.validation.before_moves import LOOK_SECONDS, Looks, look
from berth_descheduler.migration.validation.plan_review import Review
from berth_descheduler.migration.validation.space_on_targets import insufficient_targets
from berth_descheduler.outcome import Whereabouts
from berth_descheduler.plugins import goal_of

_COALESCE_SECONDS: Final = 0.05
"""The loop waits at least this long between looks, so that changes that come together are handled in one."""

_LONGEST_REST_SECONDS: Final = 5.0
"""The loop rests as long as it has worked, and so do the looks at the whole cluster, but no longer than that."""

_ABOUT_THE_EVICTED_POD: Final = {MoveReason.POD_GONE, MoveReason.POD_CHANGED, MoveReason.SOURCE_NOT_EMPTIABLE}
"""Findings about a pod that the plan itself has replaced by now; a second move ignores them."""


@dataclass(frozen=True, slots=True)
class _LookResult:
    """The result of one look at moves; `lacking` are resources of targets, by move."""

    review: Review | RetryableError
    lacking: Mapping[int, Sequence[str]]


@dataclass(slots=True)
class _Batch:
    """Groups that are validated together before they begin."""

    groups: Sequence[MoveGroup]
    begins: Mapping[int, MoveMemory]
    looks: Looks
    look_at: float
    """When the last look began, or the next one is due."""

    is_asked: bool = False
    result: _LookResult | None = None


class LeaseLostError(RetryableError):
    """The lease is lost: another process may act now, so this one leaves everything as it is."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The results of a plan's moves and rooms, in plan order."""

    statuses: tuple[MoveStatus, ...]
    evicted: tuple[bool, ...]
    stop: MoveReason = MoveReason.NONE
    stop_message: str = ""
    plan_deleted: bool = False
    rooms: tuple[RoomStatus, ...] = ()
    unplaced: Mapping[int, Whereabouts] = field(default_factory=dict)
    """The positions of moves whose pods have left and run nowhere now."""


class PlanExecutor:
    """Executes one published plan."""

    def __init__(
        self,
        context: PlanContext,
        plan: MigrationPlan,
        observation: PlanObservation,
        *,
        skipped: Mapping[int, MoveStatus] | None = None,
        adopted: bool = False,
        stops_outdated: bool = False,
    ) -> None:
        """`skipped` holds the statuses of the moves that are over already.

        An adopted plan may have moves under way. `stops_outdated` says whether the run plans the rest again.
        """
        self._context = context
        self._settings = context.execution
        self._plan = PlanIdentity.of(plan)
        self._start_time = plan.status.start_time
        self._observation = observation
        self._progress = start_moves(plan, skipped or {}, adopted=adopted)
        self._earlier = earlier_moves(plan.spec.moves)
        for memory in (self._progress[index] for index in self._earlier if self._progress[index].surge.wanted):
            memory.surge = Surge(reason="the plan moves it once more")
        self._stop = PlanStop(
            plan,
            clock=context.clock,
            settings=self._settings,
            asked=context.stop,
            replans=stops_outdated,
        )
        observed = observation.look()
        # An adopted plan's pods may be replacements that the run before it saw.
        known_uids = frozenset[str]() if adopted else frozenset(observed.pods)
        self._replica_tracker = ReplicaTracker(
            self._progress, since=plan.metadata.creation_timestamp or "", known=known_uids
        )
        for later, earlier in self._earlier.items():
            note_landed(self._progress[earlier], self._progress[later], self._plan.name, observed)
        begun_positions = {
            reservation.metadata.annotations.get(MOVE_ANNOTATION, "") for reservation in observed.reservations.values()
        }
        all_await_waves = goal_of(plan.spec.objective).untied_pods_await_waves
        free_indices = frozenset[int]() if all_await_waves else find_free(self._progress, observed)
        self._order = MoveOrder(self._progress, context.reviewer.most_at_once, begun_positions, free=free_indices)
        self._validated = 0 if adopted else self._order.wave
        """The wave that was validated with the plan: the first one of a new plan."""

        self._batch: _Batch | None = None
        self._next_batch_at = 0.0
        """Groups that become ready before are validated together, since each look reads the whole cluster."""

        self._calls = BackgroundCalls(self._settings.workers, observation.changed.set)
        self._moves = MoveController(context, self._calls, plan, self._progress)
        self._rooms = RoomController(context, self._calls, plan)
        self._writer = PlanStatusWriter(
            context.client,
            self._plan.name,
            self._calls.pool,
            interval_seconds=self._settings.status_interval_seconds,
            clock=context.clock,
        )

    def run(self) -> Execution:
        """Execute the plan, and return the results once every call is answered."""
        try:
            self._await_rooms(lambda: self._rooms.are_asked_for)
            self._make_moves()
            self._await_rooms(lambda: self._rooms.are_over)
        finally:
            # Also after an error: a call that is under way may create a Reservation that the end of the plan has to
            # release.
            self._calls.close()
        return self._execution()

    def _make_moves(self) -> None:
        """Bring all moves to their end; each begins as soon as those that it waits for are over."""
        while True:
            begun_at = self._context.clock.monotonic()
            self._calls.take_answers()
            observed = self._observe()
            self._open_groups(observed)
            self._step(observed)
            self._end_when_overdue()
            self._report()
            if all(memory.finished for memory in self._progress):
                return
            self._pause(begun_at)

    def _await_rooms(self, done: Callable[[], bool]) -> None:
        """Reconcile the rooms alone until `done`."""
        while True:
            begun_at = self._context.clock.monotonic()
            self._calls.take_answers()
            self._reconcile_rooms(self._observe())
            self._report()
            if done():
                return
            self._pause(begun_at)

    def _pause(self, begun_at: float) -> None:
        """Wait until there may be something new to observe."""
        tick_seconds = self._settings.tick_seconds
        self._context.clock.sleep(max(min(_COALESCE_SECONDS, tick_seconds), self._rest(begun_at)))
        self._observation.wait(tick_seconds)

    def _rest(self, begun_at: float) -> float:
        """Return the seconds to rest after work that began then."""
        return min(self._context.clock.monotonic() - begun_at, _LONGEST_REST_SECONDS)

    def _observe(self) -> ObservedPlan:
        """Return the current observation, which may stop the plan; raises `LeaseLostError`."""
        # Looked at before each pass rather than only before calls: nothing may even be decided on what another process
        # changes.
        if self._context.lease.lost.is_set():
            raise LeaseLostError("the lease was lost while a plan was carried out; the next run continues it")
        observed = self._observation.look()
        statuses = self._moves.statuses
        self._stop.note(observed, statuses)
        self._stop.note_overtaken(statuses, self._gone(observed))
        return observed

    def _gone(self, observed: ObservedPlan) -> set[int]:
        """Return the positions of the moves whose pods have left by themselves, and of those that are over."""
        # A second move waits for the earlier one of its pod, which has not come to the source before.
        first_moves = (memory for memory in self._progress if memory.index not in self._earlier)
        return {memory.index for memory in first_moves if memory.finished or not is_on_source(memory, observed)}

    def _step(self, observed: ObservedPlan) -> None:
        """Reconcile each room and each move under way."""
        self._reconcile_rooms(observed)
        for memory in self._order.under_way:
            if not memory.in_flight:
                self._rooms.cancel(memory)
        moves = self._order.open_moves
        now = self._context.clock.monotonic()
        unready_controllers = self._replica_tracker.unready(moves, observed, now)
        waiting_indices = self._order.not_in_turn(now)
        self._moves.reconcile(
            moves, observed, WaveContext(unready_controllers, self._stop.reason, self._stop.since, waiting_indices)
        )

    def _reconcile_rooms(self, observed: ObservedPlan) -> None:
        plan = PlanProgress(self._progress, self._moves.lost_sources, self._stop.reason, self._stop.since)
        self._rooms.reconcile(observed, plan)

    def _end_when_overdue(self) -> None:
        """Stop the plan if moves take longer than their wave may, from when the last of it began.

        Moves that do not end by themselves after that are failed.
        """
        now = self._context.clock.monotonic()
        for wave, begun_at, moves in self._order.open_waves():
            longest_grace = max(memory.pod.grace_seconds for memory in moves)
            timeouts = self._settings.timeouts
            longest_start = max(start_limit(memory, timeouts) for memory in moves) - timeouts.ready_seconds
            turns_by_controller = Counter(memory.replicas for memory in moves if memory.surge.wanted)
            limit = self._settings.wave_limit(
                len(moves), longest_grace, longest_start, in_turn=max(turns_by_controller.values(), default=1)
            )
            overdue = now - begun_at - limit
            if overdue < 0:
                continue
            message = f"wave {wave} took longer than {limit:g} s"
            self._stop.begin(MoveReason.PLAN_STOPPED, message)
            if overdue >= self._settings.timeouts.shutdown_seconds:
                for memory in moves:
                    if not memory.finished and not memory.in_flight:
                        self._moves.fail(memory, message)

    def _open_groups(self, observed: ObservedPlan) -> None:
        """Let the moves begin that wait for nothing and are valid; the others are validated one batch after another.

        Once the plan stops, no move is validated: each ends by itself.
        """
        now = self._context.clock.monotonic()
        if self._stop.has_begun:
            self._batch = None
            for group in list(self._order.ready()):
                self._retarget_moves(group.left, observed)
                group.opened_at = now
            return
        if self._batch is None and now >= self._next_batch_at:
            self._begin_batch(now, observed)
        self._judge_batch(now, observed)

    def _begin_batch(self, now: float, observed: ObservedPlan) -> None:
        """Have the groups that may begin validated on the whole cluster, in the background; open those that need not.

        They are validated no earlier, so that pods that are pending by then come first.
        """
        moves_to_begin: dict[int, MoveMemory] = {}
        groups: list[MoveGroup] = []
        for group in self._order.fitting(beside=len(self._order.under_way)):
            self._retarget_moves(group.left, observed)
            untouched = {memory.index: memory for memory in group.left if is_untouched(memory, observed)}
            is_validated = all(memory.turn.begins_with == self._validated for memory in group.left)
            if untouched and (not is_validated or self._doubtful(group.left)):
                moves_to_begin |= untouched
                groups.append(group)
            else:
                group.opened_at = now
        if groups:
            self._batch = _Batch(groups, moves_to_begin, Looks(self._settings.pending_wait_seconds, now), now)

    def _judge_batch(self, now: float, observed: ObservedPlan) -> None:
        """Ask for the next look at the groups that are validated, or act on the answer.

        An invalid move is skipped; for pending pods the plan stops.
        """
        batch = self._batch
        if batch is None or batch.is_asked:
            return
        if batch.result is None:
            if now >= batch.look_at:
                self._look_at(batch, now, observed)
            return
        self._skip_without_room(batch.result.lacking)
        validation = batch.looks.judge(batch.result.review, batch.look_at)
        batch.result = None
        if validation is None:
            batch.look_at = now + LOOK_SECONDS
            return
        self._batch = None
        if validation.stop:
            self._stop.begin(validation.stop, validation.message)
        counted_moves = {
            index: objection
            for index, objection in validation.invalid.items()
            if index not in self._earlier or objection.reason not in _ABOUT_THE_EVICTED_POD
        }
        for index, invalid_move in counted_moves.items():
            if index in batch.begins and not batch.begins[index].finished:
                self._moves.skip(batch.begins[index], invalid_move.reason, invalid_move.message)
        for group in batch.groups:
            group.opened_at = now
        overtaken = {
            index for index, objection in counted_moves.items() if objection.reason.outlook is Outlook.OVERTAKEN
        }
        self._stop.note_overtaken(self._moves.statuses, overtaken | self._gone(observed))

    def _look_at(self, batch: _Batch, now: float, observed: ObservedPlan) -> None:
        """Look at what begins next, beside all that is under way."""
        moves_to_begin = [memory for memory in batch.begins.values() if not memory.finished]
        ahead = {
            memory.index: memory.move
            for memory in self._progress
            if not memory.finished and is_on_source(memory, observed)
        }
        under_way = {memory.index: memory.move for memory in self._order.under_way}
        waiting_indices = self._order.waiting()
        doubtful_moves = {memory.index: memory.move for memory in self._doubtful(moves_to_begin)}
        client, reviewer = self._context.client, self._context.reviewer
        next_moves = [memory.index for memory in moves_to_begin]

        def answered(result: _LookResult) -> None:
            batch.result, batch.is_asked = result, False
            self._next_batch_at = self._context.clock.monotonic() + self._rest(now)

        batch.look_at, batch.is_asked = now, True
        self._calls.make(
            lambda: _LookResult(
                look(reviewer, ahead, next_moves, under_way=under_way, waiting=waiting_indices),
                insufficient_targets(client, doubtful_moves),
            ),
            answered,
        )

    def _retarget_moves(self, moves: Sequence[MoveMemory], observed: ObservedPlan) -> None:
        """Point second moves to the replacements of the first ones, and skip those without one."""
        for memory in moves:
            if memory.index not in self._earlier:
                continue
            earlier_status = self._progress[self._earlier[memory.index]].status
            if not retarget(memory, earlier_status, self._plan.name, observed):
                message = f"the earlier move did not bring the pod to {memory.move.source}"
                self._moves.skip(memory, MoveReason.POD_GONE, message)

    def _doubtful(self, moves: Sequence[MoveMemory]) -> list[MoveMemory]:
        """Return the moves whose target may lack space because an earlier move off it did not land."""
        moves_over = [memory for memory in self._progress if memory.finished]
        missed_sources = {memory.move.source for memory in moves_over if not memory.status.state.succeeded}
        return [memory for memory in moves if memory.move.target in missed_sources]

    def _skip_without_room(self, lacking: Mapping[int, Sequence[str]]) -> None:
        """Skip the moves to targets that lack space."""
        for index, names in lacking.items():
            memory = self._progress[index]
            shortfall = f"the room that a move off {memory.move.target} was to make is missing"
            if not memory.finished:
                message = f"{shortfall}: not enough {', '.join(names)}"
                self._moves.skip(memory, MoveReason.ROOM_NOT_MADE, message)

    def _report(self) -> None:
        """Report the moves' progress to the observer and the plan's status."""
        statuses = self._moves.statuses
        self._context.observer.moves_changed(statuses, self._order.wave)
        message = f"{sum(status.state.terminal for status in statuses)} of {len(statuses)} moves are over"
        self._writer.offer(
            MigrationPlanStatus(
                phase=PlanPhase.RUNNING,
                message=message,
                start_time=self._start_time,
                moves=statuses,
                rooms=self._rooms.statuses,
            )
        )

    def _execution(self) -> Execution:
        return Execution(
            statuses=self._moves.statuses,
            evicted=tuple(map(_has_left, self._progress)),
            stop=self._stop.reason,
            stop_message=self._stop.message,
            plan_deleted=self._stop.plan_deleted,
            rooms=self._rooms.statuses,
            unplaced=find_unplaced(
                self._progress,
                self._observation.look(),
                since=self._start_time or "",
                moved_again=frozenset(self._earlier.values()),
            ),
        )


def _has_left(memory: MoveMemory) -> bool:
    """Return whether this plan evicted the pod, in any run."""
    has_landed = memory.status.state.succeeded or memory.status.state is MoveState.ELSEWHERE
    return has_landed or memory.pod.answer in {Eviction.SENT, Eviction.UNANSWERED}
