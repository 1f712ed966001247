"""Owns the loop that carries a plan out: look at the moves, decide for each, act, until all of them are over.

It does not decide (`moves`), look (`observation`, `facts`) or know what the calls mean (`evictions`).

The loop is driven by what is, not by what happened: it may be killed at any instant and begun again on the same plan.
Only calls leave the loop's thread; their answers come back to it through a queue.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol, TypeVar, assert_never

import structlog

from berth_core.clock import Clock, parse_timestamp
from berth_core.errors import BerthError, RetryableError
from berth_core.migration_plans import (
    MigrationPlan,
    MigrationPlanStatus,
    MoveReason,
    MoveState,
    MoveStatus,
    PlannedMove,
    PlanPhase,
)
from berth_core.plan_rooms import RoomStatus
from berth_descheduler import log_keys
from berth_descheduler.background_calls import BackgroundCalls
from berth_descheduler.evictions import EvictAnswer, ReserveAnswer, backoff_seconds, evict, reserve
from berth_descheduler.facts import (
    Look,
    MoveProgress,
    derive_facts,
    is_on_source,
    is_untouched,
    look_at,
    note_siblings,
    start_progress,
    was_evicted,
)
from berth_descheduler.last_word import LastWord
from berth_descheduler.moves import Evict, Eviction, Finish, Reserve, Step, Wait, keeps_its_node, next_step
from berth_descheduler.observation import Observation, Observed
from berth_descheduler.operator_pulse import OperatorPulse
from berth_descheduler.plan_objects import PlanIdentity
from berth_descheduler.plan_review import Reviewer
from berth_descheduler.room_keeper import PlanProgress, RoomKeeper, RoomTools
from berth_descheduler.room_left import who_lacks_room
from berth_descheduler.second_moves import earlier_moves, follow
from berth_descheduler.settings import ExecutionSettings
from berth_descheduler.siblings import Siblings
from berth_descheduler.status_writer import PlanStatusWriter
from berth_descheduler.wave_gate import WaveGate
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import RESERVATIONS

_LOG = structlog.get_logger(__name__)
_COALESCE_SECONDS: Final = 0.02

T = TypeVar("T")


class LeaseLostError(RetryableError):
    """Another process may act now; everything is left as it is for that one."""


class MoveListener(Protocol):
    """Who is told how the moves fare."""

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:
        """Take note of all moves' states; `wave` is the one under way."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a plan's moves and rooms went, in the order of the plan."""

    statuses: tuple[MoveStatus, ...]
    evicted: tuple[bool, ...]
    stop: MoveReason = MoveReason.NONE
    stop_message: str = ""
    plan_deleted: bool = False
    rooms: tuple[RoomStatus, ...] = ()


@dataclass(slots=True)
class _Stop:
    """Whether nothing new may begin, why, and since when."""

    reason: MoveReason = MoveReason.NONE
    message: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What the loop works with."""

    client: KubeClient
    clock: Clock
    settings: ExecutionSettings
    stop: threading.Event
    """Set from outside, by a signal: begin nothing new."""

    lease_lost: threading.Event
    """Set when another process may carry the plan on: do nothing more."""

    listener: MoveListener
    operator: OperatorPulse
    reviewer: Reviewer
    last_word: LastWord
    """Who looks at the whole cluster before each wave."""


@dataclass(slots=True)
class _Counts:
    """What limits how much begins at once."""

    open_moves: int = 0
    open_sources: set[str] = field(default_factory=set)


class PlanExecutor:
    """Carries out one published plan."""

    def __init__(
        self,
        tools: Tools,
        plan: MigrationPlan,
        observation: Observation,
        *,
        skipped: Mapping[int, MoveStatus] | None = None,
        adopted: bool = False,
    ) -> None:
        """Take what is over before it begins (`skipped`); of a plan that is adopted, moves may be under way."""
        self._tools = tools
        self._adopted = adopted
        self._plan = PlanIdentity(name=plan.metadata.name, uid=plan.metadata.uid)
        self._start_time = plan.status.start_time
        self._observation = observation
        self._moves = _start_moves(plan, skipped or {}, adopted=adopted)
        self._earlier = earlier_moves(plan.spec.moves)
        self._stop = _Stop()
        self._plan_deleted = False
        observed = observation.look()
        self._plan_aborted = observed.plan_aborted
        known = frozenset[str]() if adopted else frozenset(observed.pods)
        self._siblings = Siblings(self._moves, since=plan.metadata.creation_timestamp or "", known=known)
        self._wave = 0
        self._lost_sources = {one.move.source for one in self._moves if one.finished and _stays(one.status)}
        self._calls = BackgroundCalls(tools.settings.workers, observation.changed.set)
        self._rooms = RoomKeeper(RoomTools(tools.client, tools.clock, tools.settings, self._calls), plan)
        self._writer = PlanStatusWriter(
            tools.client,
            self._plan.name,
            self._calls.pool,
            interval_seconds=tools.settings.status_interval_seconds,
            clock=tools.clock,
        )

    def run(self) -> Execution:
        """Carry the plan out, wave by wave, and return how it went; every call that it made is answered then."""
        try:
            self._await_rooms(lambda: self._rooms.are_asked_for)
            for wave in sorted({progress.move.wave for progress in self._moves}):
                self._wave = wave
                moves = [one for one in self._moves if one.move.wave == wave]
                self._follow_pods(moves)
                self._skip_without_room(moves)
                if wave or self._adopted:  # the first wave of a new plan was looked at when the plan was
                    self._review(moves)
                self._run_wave(moves)
            self._await_rooms(lambda: self._rooms.are_over)
        finally:
            self._calls.close()
        return self._execution()

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _run_wave(self, wave: Sequence[MoveProgress]) -> None:
        """Bring all moves of a wave to their end, within its bound."""
        begun_at = self._tools.clock.monotonic()
        while True:
            self._calls.take_answers()
            self._check_lease()
            self._note_stop()
            self._step_all(wave)
            self._end_when_overdue(wave, begun_at)
            self._tell()
            if all(progress.finished for progress in wave):
                return
            self._tools.clock.sleep(_COALESCE_SECONDS)
            self._observation.wait(self._tools.settings.tick_seconds)

    def _await_rooms(self, done: Callable[[], bool]) -> None:
        """Look after the rooms, without any move, until they have come so far."""
        while True:
            self._calls.take_answers()
            self._is_over()
            self._tend_rooms(self._observation.look())
            self._tell()
            if done():
                return
            self._tools.clock.sleep(_COALESCE_SECONDS)
            self._observation.wait(self._tools.settings.tick_seconds)

    def _tend_rooms(self, observed: Observed) -> None:
        self._rooms.tend(observed, PlanProgress(self._moves, self._lost_sources, self._stop.reason, self._stop.since))

    def _check_lease(self) -> None:
        if self._tools.lease_lost.is_set():
            raise LeaseLostError("the lease was lost while a plan was carried out; the next run continues it")

    def _end_when_overdue(self, wave: Sequence[MoveProgress], begun_at: float) -> None:
        """Stop the plan where a wave takes longer than it may, and then give up what does not end even so."""
        longest_grace = max(one.grace_seconds for one in wave)
        limit = self._tools.settings.wave_limit(len(wave), longest_grace)
        overdue = self._tools.clock.monotonic() - begun_at - limit
        if overdue < 0:
            return
        message = f"wave {self._wave} took longer than {limit:g} s"
        if not self._stop.reason:
            self._begin_stop(MoveReason.PLAN_STOPPED, message, log_keys.PLAN_STOPPED)
        if overdue >= self._tools.settings.timeouts.shutdown_seconds:
            for progress in wave:
                if not progress.finished and not progress.in_flight:
                    self._set_status(progress, MoveState.FAILED, MoveReason.PLAN_STOPPED, message)

    def _review(self, wave: Sequence[MoveProgress]) -> None:
        """Look at the whole cluster before a wave; skip what does not hold, and stop where other pods come first."""
        gate = WaveGate(
            reviewer=self._tools.reviewer,
            clock=self._tools.clock,
            pending_wait_seconds=self._tools.settings.pending_wait_seconds,
            budgets=False,
            stopped=self._is_over,
        )
        begins = {one.index: one for one in wave if not one.finished and self._is_untouched(one)}
        if not begins:
            return
        passage = gate.pass_through(self._moves_ahead, begins)
        if passage.stop and not self._stop.reason:
            self._begin_stop(passage.stop, passage.message, log_keys.PLAN_STOPPED)
        for index, why in passage.invalid.items():
            again = index in self._earlier and why.reason is not MoveReason.TARGET_UNFIT
            if index in begins and not again:
                self._set_status(begins[index], MoveState.SKIPPED, why.reason, why.message)
                if keeps_its_node(MoveState.SKIPPED, why.reason, evicted=False):
                    self._lost_sources.add(begins[index].move.source)

    def _is_over(self) -> bool:
        """Tell whether nothing new is to be begun."""
        self._check_lease()
        observed = self._observation.look()
        self._plan_deleted = self._plan_deleted or not observed.plan_exists
        self._plan_aborted = observed.plan_aborted
        self._note_stop()
        return bool(self._stop.reason)

    def _is_untouched(self, progress: MoveProgress) -> bool:
        return is_untouched(progress, self._observation.look())

    def _moves_ahead(self) -> dict[int, PlannedMove]:
        """Return the moves whose pods are still to be evicted, by their position."""
        observed = self._observation.look()
        return {one.index: one.move for one in self._moves if not one.finished and is_on_source(one, observed)}

    def _follow_pods(self, wave: Sequence[MoveProgress]) -> None:
        """Find the replacements of the pods that this plan moves for the second time; skip those that never came."""
        again = [one for one in wave if one.index in self._earlier and not one.finished]
        observed = self._observation.look() if again else None
        for progress in again:
            before = self._moves[self._earlier[progress.index]].status
            if observed is not None and not follow(progress, before, self._plan.name, observed):
                message = f"the move before did not bring the pod to {progress.move.source}"
                self._set_status(progress, MoveState.SKIPPED, MoveReason.POD_GONE, message)

    def _skip_without_room(self, wave: Sequence[MoveProgress]) -> None:
        """Skip the moves to nodes from which an earlier move was to make room and did not, where that room lacks."""
        missed = {one.move.source for one in self._moves if one.finished and one.status.state is not MoveState.LANDED}
        doubtful = [one for one in wave if not one.finished and one.move.target in missed]
        if not doubtful:
            return
        observed = self._observation.look()
        begin = {one.index: one.move for one in doubtful if is_untouched(one, observed)}
        for index, lacking in who_lacks_room(self._tools.client, begin).items():
            move = begin[index]
            message = f"the room that a move off {move.target} was to make is missing: not enough {', '.join(lacking)}"
            self._set_status(self._moves[index], MoveState.SKIPPED, MoveReason.ROOM_NOT_MADE, message)
            self._lost_sources.add(move.source)

    def _step_all(self, wave: Sequence[MoveProgress]) -> None:
        """Look at a wave once, then decide and act for each of its moves."""
        now, timeouts = self._tools.clock.monotonic(), self._tools.settings.timeouts
        observed = self._observation.look()
        self._plan_deleted = self._plan_deleted or not observed.plan_exists
        self._plan_aborted = observed.plan_aborted
        horizon = self._tools.clock.now() + timedelta(seconds=timeouts.land_seconds)
        look = look_at(wave, observed, now, timeouts.gap_seconds, horizon=horizon)
        self._tend_rooms(observed)
        counts = _count_open(wave)
        unready = self._siblings.unready(self._wave, observed, now)
        for progress in wave:
            if progress.finished or progress.in_flight:
                continue
            note_siblings(progress, unready, now)
            self._rooms.excuse(progress)
            facts = derive_facts(
                progress,
                look,
                stop=self._stop.reason,
                stopping_since=self._stop.since,
                source_lost=progress.move.source in self._lost_sources and not progress.move.stands_alone,
            )
            self._act(progress, next_step(facts, timeouts, now), look, counts)

    def _act(self, progress: MoveProgress, step: Step, look: Look, counts: _Counts) -> None:
        match step:
            case Reserve():
                self._begin_reserve(progress, counts)
            case Evict():
                self._begin_evict(progress, look)
            case Wait():
                self._set_state(progress, look, step.state, message=step.message)
            case Finish():
                self._finish(progress, step, look)
            case _:
                assert_never(step)

    def _note_stop(self) -> None:
        """Begin to stop where somebody asks for it or too much has failed; a stop from outside outranks the other."""
        if self._stop.reason is MoveReason.INTERRUPTED:
            return
        if self._plan_deleted:
            self._begin_stop(MoveReason.INTERRUPTED, "the plan was deleted", log_keys.PLAN_DELETED)
        elif self._tools.stop.is_set():
            self._begin_stop(MoveReason.INTERRUPTED, "asked to stop", log_keys.STOPPING)
        elif self._plan_aborted and self._stop.reason is not MoveReason.ABORTED:
            self._begin_stop(MoveReason.ABORTED, "somebody aborted it", log_keys.PLAN_ABORTED)
        elif not self._stop.reason and self._too_many_failed():
            failed = sum(has_failed(one.status) for one in self._moves)
            message = f"{failed} of {len(self._moves)} moves failed"
            self._begin_stop(MoveReason.PLAN_STOPPED, message, log_keys.PLAN_STOPPED)
        elif not self._stop.reason and self._is_out_of_time():
            message = f"it took longer than {self._tools.settings.max_seconds:g} s"
            self._begin_stop(MoveReason.PLAN_STOPPED, message, log_keys.PLAN_STOPPED)

    def _begin_stop(self, reason: MoveReason, message: str, event: str) -> None:
        self._stop = _Stop(reason, message, self._tools.clock.monotonic())
        _LOG.warning(event, **{log_keys.KEY_PLAN: self._plan.name, log_keys.KEY_REASON: message})

    def _is_out_of_time(self) -> bool:
        """Tell whether the plan has been carried out for as long as it may, by whichever run began it."""
        most = self._tools.settings.max_seconds
        if most is None or not self._start_time:
            return False
        return (self._tools.clock.now() - parse_timestamp(self._start_time)).total_seconds() > most

    def _too_many_failed(self) -> bool:
        failed = sum(has_failed(one.status) for one in self._moves)
        return failed > max(1, int(self._tools.settings.max_failed_share * len(self._moves)))

    # --- acting -----------------------------------------------------------------------------------------------------

    def _begin_reserve(self, progress: MoveProgress, counts: _Counts) -> None:
        """Ask for a place, unless enough is under way; the moves of one source begin together."""
        now = self._tools.clock.monotonic()
        source = progress.move.source
        if progress.retry_at is not None and now < progress.retry_at:
            return
        if progress.reserving_since is None:
            if counts.open_moves >= self._tools.settings.max_open_moves and source not in counts.open_sources:
                return
            counts.open_moves += 1
            counts.open_sources.add(source)
            progress.reserving_since = now
        client, ttl = self._tools.client, self._tools.settings.ttl
        self._set_status(progress, MoveState.RESERVING)
        self._call(
            progress,
            lambda: reserve(client, self._plan, progress.index, progress.move, ttl),
            lambda answer: self._reserved(progress, answer),
        )

    def _reserved(self, progress: MoveProgress, answer: ReserveAnswer) -> None:
        if answer.created:
            progress.asked, progress.asked_at = True, self._tools.clock.monotonic()
            progress.was_ready, progress.grace_seconds = answer.was_ready, answer.grace_seconds
            progress.attempts, progress.retry_at = 0, None
            _LOG.info(log_keys.RESERVED, **self._keys(progress))
            return
        progress.refusal, progress.refusal_detail = answer.refusal, answer.detail
        if not answer.refusal:
            self._back_off(progress, answer.detail, None, log_keys.CALL_FAILED)

    def _begin_evict(self, progress: MoveProgress, look: Look) -> None:
        """Ask for the eviction; it counts as done for the decisions about its kin until the answer says otherwise."""
        look.count_eviction(progress)
        progress.eviction = Eviction.SENT
        self._call(
            progress,
            lambda: evict(self._tools.client, progress.move, self._tools.operator, self._tools.last_word),
            lambda answer: self._evicted(progress, answer),
        )

    def _evicted(self, progress: MoveProgress, answer: EvictAnswer) -> None:
        now = self._tools.clock.monotonic()
        progress.eviction, progress.eviction_detail = answer.eviction, answer.detail
        match answer.eviction:
            case Eviction.SENT:
                progress.evicted_since = now
                self._set_status(progress, MoveState.EVICTED)
                _LOG.info(log_keys.EVICTED, **self._keys(progress))
            case Eviction.BLOCKED | Eviction.UNANSWERED:
                progress.evicted_since = progress.evicted_since or now
                progress.blocked_since = progress.blocked_since or now
                self._back_off(progress, answer.detail, answer.retry_after_seconds, log_keys.EVICTION_BLOCKED)
            case Eviction.REFUSED | Eviction.NOT_SENT:
                progress.refusal, progress.refusal_detail = answer.refusal, answer.detail
            case _:
                assert_never(answer.eviction)

    def _back_off(self, progress: MoveProgress, detail: str, asked_for: float | None, event: str) -> None:
        wait_seconds = backoff_seconds(progress.attempts, asked_for)
        progress.attempts += 1
        progress.retry_at = self._tools.clock.monotonic() + wait_seconds
        _LOG.info(event, **self._keys(progress), **{log_keys.KEY_MESSAGE: detail})

    def _finish(self, progress: MoveProgress, step: Finish, look: Look) -> None:
        """End a move; its Reservation is deleted where it is of no use any more."""
        sight = look.sights[progress.index]
        if keeps_its_node(step.state, step.reason, evicted=was_evicted(progress, sight)):
            self._lost_sources.add(progress.move.source)
        self._set_state(progress, look, step.state, step.reason, step.message)
        if step.release and (progress.reserving_since is not None or progress.seen):
            self._call(progress, lambda: self._release(progress), lambda _: None)

    def _release(self, progress: MoveProgress) -> None:
        """Delete the Reservation; where that fails, its TTL releases the place."""
        try:
            self._tools.client.delete(RESERVATIONS, progress.reservation, namespace=progress.move.namespace)
        except NotFoundError:
            return
        except BerthError as error:
            _LOG.warning(log_keys.RELEASE_FAILED, **self._keys(progress), **{log_keys.KEY_ERROR: str(error)})
            return
        _LOG.info(log_keys.RELEASED, **self._keys(progress))

    def _call(self, progress: MoveProgress, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Make a call for a move, which is left alone until the answer is taken in."""

        def answered(answer: T) -> None:
            progress.in_flight = False
            then(answer)

        progress.in_flight = True
        self._calls.make(call, answered)

    # --- telling ----------------------------------------------------------------------------------------------------

    def _set_state(
        self,
        progress: MoveProgress,
        look: Look,
        state: MoveState,
        reason: MoveReason = MoveReason.NONE,
        message: str = "",
    ) -> None:
        """Set a move's state and, where it is known by now, who replaced its pod and where."""
        seen = look.sights[progress.index].replacement
        known = progress.status
        self._set_status(
            progress,
            state,
            reason,
            message,
            replacement=seen.name if seen else known.replacement,
            node=seen.node if seen else known.node,
        )

    def _set_status(
        self,
        progress: MoveProgress,
        state: MoveState,
        reason: MoveReason = MoveReason.NONE,
        message: str = "",
        *,
        replacement: str = "",
        node: str = "",
    ) -> None:
        before = progress.status
        progress.status = MoveStatus(
            namespace=before.namespace,
            pod=before.pod,
            state=state,
            reason=reason.value,
            message=message,
            reservation=progress.reservation if progress.asked or progress.seen else "",
            replacement=replacement,
            node=node,
        )
        if before.state is not state:
            keys = {log_keys.KEY_STATE: state.value, log_keys.KEY_REASON: reason.value, log_keys.KEY_MESSAGE: message}
            _LOG.info(log_keys.MOVE_CHANGED, **self._keys(progress), **keys)

    def _tell(self) -> None:
        """Tell the listener and the plan's status how the moves fare."""
        statuses = tuple(progress.status for progress in self._moves)
        self._tools.listener.moves_changed(statuses, self._wave)
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

    def _keys(self, progress: MoveProgress) -> dict[str, str]:
        return {
            log_keys.KEY_PLAN: self._plan.name,
            log_keys.KEY_POD: f"{progress.move.namespace}/{progress.move.pod}",
            log_keys.KEY_NODE: progress.move.target,
        }

    def _execution(self) -> Execution:
        return Execution(
            statuses=tuple(progress.status for progress in self._moves),
            evicted=tuple(_has_left(progress) for progress in self._moves),
            stop=self._stop.reason,
            stop_message=self._stop.message,
            plan_deleted=self._plan_deleted,
            rooms=self._rooms.statuses,
        )


def _start_moves(plan: MigrationPlan, skipped: Mapping[int, MoveStatus], *, adopted: bool) -> list[MoveProgress]:
    """Return the progress of all moves; of an adopted plan, what was recorded as over stays over."""
    recorded = plan.status.moves if adopted else ()
    moves = []
    for index, move in enumerate(plan.spec.moves):
        status = skipped.get(index) or (recorded[index] if index < len(recorded) else None)
        progress = start_progress(plan.metadata.name, index, move, status)
        progress.adopted = adopted
        moves.append(progress)
    return moves


def _count_open(wave: Sequence[MoveProgress]) -> _Counts:
    """Return how many moves of a wave are under way, and from which sources."""
    under_way = [one for one in wave if not one.finished and (one.reserving_since is not None or one.seen)]
    return _Counts(len(under_way), {one.move.source for one in under_way})


def _stays(status: MoveStatus) -> bool:
    """Tell whether a move that was over before this run means that its pod is still on the source."""
    evicted = status.reason == MoveReason.REPLACEMENT_TIMEOUT or bool(status.replacement)
    known = (MoveReason.POD_GONE, MoveReason.ROOM_NOT_NEEDED)
    reason = next((one for one in known if one == status.reason), MoveReason.NONE)
    return keeps_its_node(status.state, reason, evicted=evicted)


def _has_left(progress: MoveProgress) -> bool:
    """Tell whether the pod left its source by this plan, in this run or in one before it."""
    landed = progress.status.state in {MoveState.LANDED, MoveState.ELSEWHERE}
    return landed or progress.eviction in {Eviction.SENT, Eviction.UNANSWERED}


def has_failed(status: MoveStatus) -> bool:
    """Tell whether a move counts as a failure of the plan; one that was not begun does not."""
    return status.state in {MoveState.FAILED, MoveState.ELSEWHERE}
