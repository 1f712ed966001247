"""Executes a plan in a loop.

Observes and reconciles rooms and moves, until all are over. The loop is level-triggered: it may be killed at any
instant and restarted on the same plan. Only calls leave the loop's thread; their answers come back to it through a
queue.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from berth_core import (
    MOVE_ANNOTATION,
    BerthError,
    Clock,
    MigrationPlan,
    MigrationPlanStatus,
    MoveReason,
    MoveState,
    MoveStatus,
    PlannedMove,
    PlanPhase,
    Pod,
    RetryableError,
    RoomStatus,
    count,
    parse_timestamp,
    reservation_name,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.context import BackgroundCalls, Observation, ObservedPlan, PlanContext
from berth_descheduler.migration.manifests import PlanIdentity, build_status_patch
from berth_descheduler.migration.move_controller import MoveController, WaveContext, start_moves
from berth_descheduler.migration.move_facts import (
    MoveProgress,
    ReplicaTracker,
    is_on_source,
    is_untouched,
)
from berth_descheduler.migration.moves import Eviction, Surge
from berth_descheduler.migration.room_controller import PlanProgress, RoomController
from berth_descheduler.migration.validation import WaveValidator, insufficient_targets
from berth_descheduler.settings import ExecutionSettings
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError

# --- plan stop -------------------------------------------------------------------------------------------------------
# Whether a running plan may begin anything new: if not, why, and since when.

_LOG = structlog.get_logger(__name__)

_OVERTAKEN: Final = frozenset(
    {
        *(MoveReason.POD_GONE, MoveReason.POD_CHANGED, MoveReason.TARGET_UNFIT, MoveReason.ABOVE_PROTECTION),
        *(MoveReason.SOURCE_NOT_EMPTIABLE, MoveReason.ROOM_NOT_MADE),
    }
)
"""Why a move is not made that a plan of the cluster as it is by now would do without."""
_OUTDATED_SHARE: Final = 0.25
_FEWEST_OVERTAKEN: Final = 4


def count_overtaken(moves: Sequence[PlannedMove], statuses: Sequence[MoveStatus]) -> int:
    """Return how many moves were skipped because others had changed pods and nodes.

    Moves off a source where a pod stays for another reason do not count: a new plan would meet that reason again.
    """
    skipped = [index for index, status in enumerate(statuses) if _is_overtaken(status)]
    if not skipped:
        return 0
    pairs = zip(moves, statuses, strict=True)
    kept = {move.source for move, one in pairs if has_failed(one) or (_is_skipped(one) and not _is_overtaken(one))}
    return sum(moves[index].source not in kept for index in skipped)


def is_outdated(overtaken: int, ahead: int) -> bool:
    """Return whether a quarter of what is left cannot be done; a few moves never outdate a plan."""
    return overtaken >= max(_FEWEST_OVERTAKEN, _OUTDATED_SHARE * (overtaken + ahead))


def _is_skipped(status: MoveStatus) -> bool:
    return status.state is MoveState.SKIPPED


def _is_overtaken(status: MoveStatus) -> bool:
    return _is_skipped(status) and status.reason in _OVERTAKEN


class PlanStop:
    """Whether nothing new may begin for one plan; `since` in monotonic seconds.

    `replans` says whether the run plans again what an outdated plan leaves.
    """

    def __init__(
        self,
        plan: MigrationPlan,
        *,
        clock: Clock,
        settings: ExecutionSettings,
        asked: threading.Event,
        replans: bool = False,
    ) -> None:
        self._moves = plan.spec.moves
        self._replans = replans
        self._clock = clock
        self._settings = settings
        self._asked = asked
        self._plan = plan.metadata.name
        self._start_time = plan.status.start_time
        self.reason = MoveReason.NONE
        self.message = ""
        self.since: float | None = None
        self.plan_deleted = False

    @property
    def has_begun(self) -> bool:
        """Return whether nothing new may begin."""
        return bool(self.reason)

    def note(self, observed: ObservedPlan, statuses: Sequence[MoveStatus]) -> None:
        """Begin to stop on request or after too many failures.

        A request outranks failures.
        """
        self.plan_deleted = self.plan_deleted or not observed.plan_exists
        if self.reason is MoveReason.INTERRUPTED:
            return
        if self.plan_deleted:
            self._begin(MoveReason.INTERRUPTED, "the plan was deleted", telemetry.PLAN_DELETED)
        elif self._asked.is_set():
            self._begin(MoveReason.INTERRUPTED, "asked to stop", telemetry.STOPPING)
        elif observed.plan_aborted and self.reason is not MoveReason.ABORTED:
            self._begin(MoveReason.ABORTED, "it was aborted on request", telemetry.PLAN_ABORTED)
        else:
            self._note_limits(statuses)

    def begin(self, reason: MoveReason, message: str) -> None:
        """Begin to stop for the plan's own state, unless it stops already."""
        if not self.has_begun:
            self._begin(reason, message, telemetry.PLAN_STOPPED)

    def _note_limits(self, statuses: Sequence[MoveStatus]) -> None:
        failed, settings = sum(map(has_failed, statuses)), self._settings
        if failed > max(1, int(settings.max_failed_share * len(statuses))):
            self.begin(MoveReason.PLAN_STOPPED, f"{failed} of {len(statuses)} moves failed")
        elif self._is_out_of_time():
            self.begin(MoveReason.PLAN_STOPPED, f"it took longer than {settings.max_seconds:g} s")

    def note_overtaken(self, statuses: Sequence[MoveStatus], doomed: Collection[int] = ()) -> None:
        """Begin to stop where too many of the moves that are left cannot be made any more.

        `doomed` are positions of moves that will be skipped for that reason.
        """
        if not self._replans or self.has_begun:
            return
        ahead = {index for index, one in enumerate(statuses) if one.state is MoveState.PENDING}
        going_to_be = ahead.intersection(doomed)
        overtaken, left = count_overtaken(self._moves, statuses) + len(going_to_be), len(ahead) - len(going_to_be)
        if ahead and is_outdated(overtaken, left):
            self.begin(MoveReason.OUTDATED, f"{overtaken} of {count(overtaken + left, 'move')} left cannot be made now")

    def _begin(self, reason: MoveReason, message: str, event: str) -> None:
        self.reason, self.message, self.since = reason, message, self._clock.monotonic()
        _LOG.warning(event, **{telemetry.KEY_PLAN: self._plan, telemetry.KEY_REASON: message})

    def _is_out_of_time(self) -> bool:
        """Return whether the plan has used up its time.

        The time counts from the run that began it.
        """
        most = self._settings.max_seconds
        if most is None or not self._start_time:
            return False
        return (self._clock.now() - parse_timestamp(self._start_time)).total_seconds() > most


def has_failed(status: MoveStatus) -> bool:
    """Return whether a move counts as a failure of the plan.

    A skipped move does not, nor one whose replacement others have removed.
    """
    return status.state in {MoveState.FAILED, MoveState.ELSEWHERE} and status.reason != MoveReason.REPLACEMENT_GONE


# --- status writer ---------------------------------------------------------------------------------------------------
# Writes a plan's status on change, and no more often than an interval allows.


class PlanStatusWriter:
    """Writes the status of one plan in the background.

    Only the newest status counts.
    """

    def __init__(self, client: KubeClient, plan: str, pool: Executor, *, interval_seconds: float, clock: Clock) -> None:
        self._client = client
        self._plan = plan
        self._pool = pool
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._written: MigrationPlanStatus | None = None
        self._begun_at: float | None = None
        self._writing: Future[bool] | None = None

    def offer(self, status: MigrationPlanStatus) -> None:
        """Begin to write a changed status.

        Does nothing while a write is under way or too recent.
        """
        if self._writing is not None and self._writing.done():
            if not self._writing.result():
                self._written = None
            self._writing = None
        now = self._clock.monotonic()
        too_soon = self._begun_at is not None and now - self._begun_at < self._interval_seconds
        if self._writing is not None or too_soon or status == self._written:
            return
        self._begun_at, self._written = now, status
        self._writing = self._pool.submit(write_status, self._client, self._plan, status)


def write_status(client: KubeClient, plan: str, status: MigrationPlanStatus) -> bool:
    """Write a plan's status and return whether that worked.

    The status is only for people, so a failure stops nothing.
    """
    try:
        client.merge_patch(MIGRATION_PLANS, plan, build_status_patch(status), subresource="status")
    except NotFoundError:
        return True
    except BerthError as error:
        _LOG.warning(telemetry.STATUS_FAILED, **{telemetry.KEY_PLAN: plan, telemetry.KEY_ERROR: str(error)})
        return False
    return True


# --- second moves ----------------------------------------------------------------------------------------------------
# Moves of pods that the same plan has moved before: which replacement such a move refers to.


def earlier_moves(moves: Sequence[PlannedMove]) -> Mapping[int, int]:
    """Return, for each second move, the pod's earlier move.

    Both are positions.
    """
    last: dict[tuple[str, str], int] = {}
    found: dict[int, int] = {}
    for index, move in enumerate(moves):
        key = (move.namespace, move.pod)
        if key in last:
            found[index] = last[key]
        last[key] = index
    return found


def retarget(progress: MoveProgress, earlier: MoveStatus, plan: str, observed: ObservedPlan) -> bool:
    """Point a second move to the replacement of the earlier one.

    Returns whether such a replacement exists. In a continued plan the replacement may have been evicted already: then a
    Reservation names this move.
    """
    begun = _reservation_of(progress, observed)
    if begun:
        progress.reservation = begun
    elif earlier.state is not MoveState.LANDED:
        return False
    pod = _pod_named(progress.move.namespace, earlier.replacement, observed)
    if pod is None and not begun:
        return False
    uid = pod.metadata.uid if pod is not None else ""
    progress.move = msgspec.structs.replace(progress.move, pod=earlier.replacement, pod_uid=uid)
    if not begun:
        progress.reservation = reservation_name(plan, uid)
    return True


def _reservation_of(progress: MoveProgress, observed: ObservedPlan) -> str:
    """Return a move's Reservation name from an interrupted run, else ""."""
    for found in observed.reservations.values():
        if found.metadata.annotations.get(MOVE_ANNOTATION) == str(progress.index):
            return found.metadata.name
    return ""


def _pod_named(namespace: str, name: str, observed: ObservedPlan) -> Pod | None:
    found = (pod for pod in observed.pods.values() if (pod.metadata.namespace, pod.metadata.name) == (namespace, name))
    return next(found, None)


# --- the loop over a plan ---------------------------------------------------------------------------------------------

_COALESCE_SECONDS: Final = 0.02
_ABOUT_THE_EVICTED_POD: Final = {MoveReason.POD_GONE, MoveReason.POD_CHANGED, MoveReason.SOURCE_NOT_EMPTIABLE}
"""Findings about a pod that the plan itself has replaced by now; a second move ignores them."""


class LeaseLostError(RetryableError):
    """The lease is lost, so another process may act now.

    This process leaves everything as it is.
    """


@dataclass(frozen=True, slots=True)
class Execution:
    """The results of a plan's moves and rooms, in plan order."""

    statuses: tuple[MoveStatus, ...]
    evicted: tuple[bool, ...]
    stop: MoveReason = MoveReason.NONE
    stop_message: str = ""
    plan_deleted: bool = False
    rooms: tuple[RoomStatus, ...] = ()


class PlanExecutor:
    """Executes one published plan."""

    def __init__(
        self,
        context: PlanContext,
        plan: MigrationPlan,
        observation: Observation,
        *,
        skipped: Mapping[int, MoveStatus] | None = None,
        adopted: bool = False,
        stops_outdated: bool = False,
    ) -> None:
        """`skipped` holds the moves that are over already.

        An adopted plan may have moves under way. `stops_outdated` says whether the run plans the rest again.
        """
        self._context = context
        self._settings = context.execution
        self._adopted = adopted
        self._plan = PlanIdentity.of(plan)
        self._start_time = plan.status.start_time
        self._observation = observation
        self._progress = start_moves(plan, skipped or {}, adopted=adopted)
        self._earlier = earlier_moves(plan.spec.moves)
        for progress in (self._progress[index] for index in self._earlier if self._progress[index].surge.wanted):
            progress.surge = Surge(reason="the plan moves it once more")
        self._stop = PlanStop(
            plan,
            clock=context.clock,
            settings=self._settings,
            asked=context.stop,
            replans=stops_outdated,
        )
        known = frozenset[str]() if adopted else frozenset(observation.look().pods)
        self._replica_tracker = ReplicaTracker(
            self._progress, since=plan.metadata.creation_timestamp or "", known=known
        )
        self._first_wave = min((one.move.wave for one in self._progress), default=1)
        self._wave = self._first_wave
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
        """Execute the plan wave by wave and return the results.

        Returns once every call is answered.
        """
        try:
            self._await_rooms(lambda: self._rooms.are_asked_for)
            for wave in sorted({one.move.wave for one in self._progress}):
                self._wave = wave
                moves = [one for one in self._progress if one.move.wave == wave]
                self._retarget_moves(moves)
                self._skip_without_room(moves)
                if (
                    wave != self._first_wave or self._adopted
                ):  # the first wave of a new plan was validated with the plan
                    self._review(moves)
                self._run_wave(moves)
            self._await_rooms(lambda: self._rooms.are_over)
        finally:
            self._calls.close()
        return self._execution()

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _run_wave(self, wave: Sequence[MoveProgress]) -> None:
        """Bring all moves of a wave to their end.

        Stops the plan at the wave's time limit.
        """
        begun_at = self._context.clock.monotonic()
        while True:
            self._calls.take_answers()
            self._step(wave, self._observe())
            self._end_when_overdue(wave, begun_at)
            self._report()
            if all(progress.finished for progress in wave):
                return
            self._pause()

    def _await_rooms(self, done: Callable[[], bool]) -> None:
        """Reconcile the rooms alone until `done`."""
        while True:
            self._calls.take_answers()
            self._reconcile_rooms(self._observe())
            self._report()
            if done():
                return
            self._pause()

    def _pause(self) -> None:
        """Wait until there may be something new to observe."""
        self._context.clock.sleep(_COALESCE_SECONDS)
        self._observation.wait(self._settings.tick_seconds)

    def _observe(self) -> ObservedPlan:
        """Return the current observation, which may stop the plan; raises `LeaseLostError`."""
        if self._context.lease.lost.is_set():
            raise LeaseLostError("the lease was lost while a plan was carried out; the next run continues it")
        observed = self._observation.look()
        statuses = self._moves.statuses
        self._stop.note(observed, statuses)
        self._stop.note_overtaken(statuses, self._gone(observed))
        return observed

    def _gone(self, observed: ObservedPlan) -> set[int]:
        """Return the positions of the moves whose pods have left by themselves, and of those that are over."""
        first = (one for one in self._progress if one.index not in self._earlier)  # others wait for an earlier move
        return {one.index for one in first if one.finished or not is_on_source(one, observed)}

    def _step(self, wave: Sequence[MoveProgress], observed: ObservedPlan) -> None:
        """Reconcile each room and each move of a wave."""
        self._reconcile_rooms(observed)
        for progress in wave:
            if not progress.finished and not progress.in_flight:
                self._rooms.cancel(progress)
        unready = self._replica_tracker.unready(self._wave, observed, self._context.clock.monotonic())
        self._moves.reconcile(wave, observed, WaveContext(unready, self._stop.reason, self._stop.since))

    def _reconcile_rooms(self, observed: ObservedPlan) -> None:
        plan = PlanProgress(self._progress, self._moves.lost_sources, self._stop.reason, self._stop.since)
        self._rooms.reconcile(observed, plan)

    def _end_when_overdue(self, wave: Sequence[MoveProgress], begun_at: float) -> None:
        """Stop the plan at the time limit of its wave.

        Later fails the moves that do not end.
        """
        longest_grace = max(one.grace_seconds for one in wave)
        turns = Counter(one.replicas for one in wave if one.surge.wanted)
        limit = self._settings.wave_limit(len(wave), longest_grace, in_turn=max(turns.values(), default=1))
        overdue = self._context.clock.monotonic() - begun_at - limit
        if overdue < 0:
            return
        message = f"wave {self._wave} took longer than {limit:g} s"
        self._stop.begin(MoveReason.PLAN_STOPPED, message)
        if overdue >= self._settings.timeouts.shutdown_seconds:
            for progress in wave:
                if not progress.finished and not progress.in_flight:
                    self._moves.fail(progress, message)

    # --- before a wave ----------------------------------------------------------------------------------------------

    def _review(self, wave: Sequence[MoveProgress]) -> None:
        """Validate a wave on the whole cluster.

        Skips invalid moves, and stops the plan for pending pods.
        """
        validator = WaveValidator(
            reviewer=self._context.reviewer,
            clock=self._context.clock,
            pending_wait_seconds=self._settings.pending_wait_seconds,
            budgets=False,
            stopped=self._is_over,
        )
        observed = self._observation.look()
        begins = {one.index: one for one in wave if not one.finished and is_untouched(one, observed)}
        if not begins:
            return
        result = validator.validate(self._moves_ahead, begins)
        if result.stop:
            self._stop.begin(result.stop, result.message)
        again = {
            index
            for index, why in result.invalid.items()
            if index in self._earlier and why.reason in _ABOUT_THE_EVICTED_POD
        }
        for index in result.invalid.keys() & begins.keys() - again:
            self._moves.skip(begins[index], result.invalid[index].reason, result.invalid[index].message)
        invalid = {index for index, why in result.invalid.items() if why.reason in _OVERTAKEN} - again
        self._stop.note_overtaken(self._moves.statuses, invalid | self._gone(observed))

    def _is_over(self) -> bool:
        """Return whether the plan begins nothing new."""
        self._observe()
        return self._stop.has_begun

    def _moves_ahead(self) -> dict[int, PlannedMove]:
        """Return the moves whose pods are not evicted yet, by their position."""
        observed = self._observation.look()
        return {one.index: one.move for one in self._progress if not one.finished and is_on_source(one, observed)}

    def _retarget_moves(self, wave: Sequence[MoveProgress]) -> None:
        """Point second moves to the replacements of the first.

        Skips moves without one.
        """
        again = [one for one in wave if one.index in self._earlier and not one.finished]
        observed = self._observation.look() if again else None
        for progress in again:
            before = self._progress[self._earlier[progress.index]].status
            if observed is not None and not retarget(progress, before, self._plan.name, observed):
                message = f"the earlier move did not bring the pod to {progress.move.source}"
                self._moves.skip(progress, MoveReason.POD_GONE, message)

    def _skip_without_room(self, wave: Sequence[MoveProgress]) -> None:
        """Skip the moves to targets that lack space.

        They lack it because an earlier move off them did not land.
        """
        over = [one for one in self._progress if one.finished]
        missed = {one.move.source for one in over if not one.status.state.succeeded}
        doubtful = [one for one in wave if not one.finished and one.move.target in missed]
        if not doubtful:
            return
        observed = self._observation.look()
        begin = {one.index: one.move for one in doubtful if is_untouched(one, observed)}
        for index, lacking in insufficient_targets(self._context.client, begin).items():
            move = begin[index]
            message = f"the room that a move off {move.target} was to make is missing: not enough {', '.join(lacking)}"
            self._moves.skip(self._progress[index], MoveReason.ROOM_NOT_MADE, message)

    # --- reporting --------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Report the moves' progress to the observer and the plan's status."""
        statuses = self._moves.statuses
        self._context.observer.moves_changed(statuses, self._wave)
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
        )


def _has_left(progress: MoveProgress) -> bool:
    """Return whether this plan evicted the pod, in any run."""
    landed = progress.status.state.succeeded or progress.status.state is MoveState.ELSEWHERE
    return landed or progress.eviction in {Eviction.SENT, Eviction.UNANSWERED}
