"""Carries out the steps of moves: observes them, acts as `next_step` decides, and records their statuses.

Moves are level-triggered, like rooms: a killed run leaves Reservations and evicted pods, and the next run continues
from what it observes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import assert_never

import structlog

from berth_core import BerthError, MigrationPlan, MoveMethod, MoveReason, MoveState, MoveStatus, Pod
from berth_descheduler import telemetry
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.eviction_request import EvictAnswer, evict
from berth_descheduler.migration.moves.facts import MoveFacts, was_evicted
from berth_descheduler.migration.moves.memory import (
    Eviction,
    FinalRefusal,
    MoveMemory,
    NodeProblems,
    OwnerKey,
    Since,
    remember,
)
from berth_descheduler.migration.moves.next_step import next_step
from berth_descheduler.migration.moves.observation import (
    WaveObservation,
    find_doubtful_nodes,
    note_unready_replicas,
    observe_others,
    observe_wave,
)
from berth_descheduler.migration.moves.replacements import ControllerQuestions, find_successors
from berth_descheduler.migration.moves.reservation_request import PlaceTerms, ReserveAnswer, reserve
from berth_descheduler.migration.moves.start_deadlines import ProgressDeadlines
from berth_descheduler.migration.moves.steps import (
    Evict,
    Finish,
    LookAgain,
    Postpone,
    ReleaseFromOwner,
    Reserve,
    Step,
    TakeBack,
    Wait,
)
from berth_descheduler.migration.moves.surge_observation import note_release, note_turns
from berth_descheduler.migration.moves.surge_requests import (
    LookAnswer,
    ReleaseAnswer,
    ReturnAnswer,
    evict_released,
    give_back,
    look_again,
    release,
)
from berth_descheduler.migration.nodes.targets import why_target_ends_pod
from berth_descheduler.migration.nodes.unready import NodeQuestions
from berth_descheduler.migration.plans.events import announce_eviction, announce_surge
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.migration.retries import Retry, backoff_seconds
from berth_kube import RESERVATIONS, NotFoundError, SurgeEligibility

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WaveContext:
    """What else decides about the moves of a wave."""

    unready: frozenset[OwnerKey] = frozenset()
    """Controllers that still lack Ready pods because of earlier waves."""

    stop: MoveReason = MoveReason.NONE
    stopping_since: float | None = None
    """In monotonic seconds."""

    waiting: frozenset[int] = frozenset()
    """Moves whose places are held ahead, and whose pods wait for other moves."""


@dataclass(slots=True)
class _Counts:
    """Moves and sources under way, which limit how much begins at once."""

    open_moves: int = 0
    open_sources: set[str] = field(default_factory=set)


class MoveController:
    """Reconciles the moves of one plan."""

    def __init__(
        self, context: PlanContext, calls: BackgroundCalls, plan: MigrationPlan, moves: Sequence[MoveMemory]
    ) -> None:
        self._context = context
        self._settings = context.execution
        self._calls = calls
        self._plan = PlanIdentity.of(plan)
        self._begun = plan.status.start_time or plan.metadata.creation_timestamp or ""
        self._moves = moves
        self._eligibility = SurgeEligibility(context.picture.around_surges(), context.clock)
        self._deadlines = ProgressDeadlines(context.client)
        self._questions = ControllerQuestions(context.client, calls, self._settings.timeouts.gap_seconds)
        self._nodes = NodeQuestions(context.client, calls, self._settings.timeouts.gap_seconds)
        self._unanswered: set[int] = set()
        """Moves for whose eviction a request got no answer: it may have been carried out."""
        self.lost_sources = {
            memory.move.source for memory in moves if memory.finished and _kept_its_node(memory.status)
        }
        """Sources on which a planned pod has to stay."""

    @property
    def statuses(self) -> tuple[MoveStatus, ...]:
        """Return the moves' statuses, in the order of the plan."""
        return tuple(memory.status for memory in self._moves)

    def reconcile(self, wave: Sequence[MoveMemory], observed: ObservedPlan, wave_context: WaveContext) -> None:
        """Observe a wave once, then decide and act for each move."""
        now, timeouts = self._context.clock.monotonic(), self._settings.timeouts
        expiry_horizon = self._context.clock.now() + timedelta(seconds=timeouts.land_seconds)
        # Turns before observations: what counts as still to be evicted depends on whose turn it is.
        note_turns(wave, wave_context.waiting)
        for memory in wave:
            source, target = memory.move.source, memory.move.target
            memory.nodes = NodeProblems(self._nodes.problem_of(source), self._nodes.problem_of(target))
        observed_wave = observe_wave(wave, observed, now, timeouts.gap_seconds, horizon=expiry_horizon)
        find_successors(wave, observed_wave, observed, self._begun)
        # Before the steps, which need to know of controllers that make no further pod; answers come at a later look.
        self._questions.ask(wave, observed_wave, observed, now)
        self._nodes.ask(find_doubtful_nodes(wave, observed_wave, now, timeouts.gap_seconds), now)
        counts = _count_open(wave)
        for memory in wave:
            # One call of a move at a time: its answer decides what comes next.
            if memory.finished or memory.in_flight:
                continue
            note_unready_replicas(memory, wave_context.unready, now)
            observation = observed_wave.observations[memory.index]
            note_release(memory, observation, observed, now, observed_wave.placed_uids)
            sibling_facts = observe_others(
                memory,
                observed_wave,
                stop=wave_context.stop,
                stopping_since=wave_context.stopping_since,
                source_lost=memory.move.source in self.lost_sources and not memory.move.stands_alone,
                holds_all=self._settings.holds_all,
            )
            step = next_step(MoveFacts(memory, observation, sibling_facts), timeouts, now)
            successor = observed.pods.get(memory.successor.uid)
            has_landed = isinstance(step, Finish) and step.state is MoveState.LANDED
            # A landing cannot be taken back, so the node is asked once whether it will keep the pod: a node that is
            # about to be drained or tainted NoExecute admits a tolerating pod all the same.
            if has_landed and successor is not None and memory.successor.ending is None:
                self._look_at_target(memory, successor)
            else:
                self._act(memory, step, observed_wave, counts)

    def _look_at_target(self, memory: MoveMemory, successor: Pod) -> None:
        """Ask whether the replacement may stay on its node; where that is not known, it counts as staying."""
        client, target = self._context.client, memory.move.target

        def ask() -> str:
            try:
                return why_target_ends_pod(client, target, successor.spec)
            except BerthError:
                return ""

        def note(ending: str) -> None:
            memory.successor = replace(memory.successor, ending=ending)

        self._calls.make_for(memory, ask, note)

    def skip(self, memory: MoveMemory, reason: MoveReason, message: str) -> None:
        """End a move for which nothing was begun."""
        self._set_status(memory, MoveState.SKIPPED, reason, message)
        if keeps_its_node(MoveState.SKIPPED, reason, evicted=False):
            self.lost_sources.add(memory.move.source)

    def fail(self, memory: MoveMemory, message: str) -> None:
        """End a move that does not end by itself; a pod that was let go is given back first."""
        if memory.surge.is_let_go and not memory.surge.returned:
            if memory.surge.end is None:
                end = Finish(MoveState.FAILED, MoveReason.PLAN_STOPPED, message, release=True)
                self._begin_take_back(memory, end)
            return
        self._set_status(memory, MoveState.FAILED, MoveReason.PLAN_STOPPED, message)

    def _act(self, memory: MoveMemory, step: Step, observed_wave: WaveObservation, counts: _Counts) -> None:
        match step:
            case Reserve():
                self._begin_reserve(memory, counts)
            case Postpone():
                self._begin_postpone(memory, step.message)
            case ReleaseFromOwner():
                self._begin_release(memory, observed_wave)
            case Evict():
                self._begin_evict(memory, observed_wave, counts)
            case LookAgain():
                self._look_again(memory)
            case TakeBack():
                self._begin_take_back(memory, step.end)
            case Wait():
                self._set_state(memory, observed_wave, step.state, message=step.message)
            case Finish():
                self._finish(memory, step, observed_wave)
            case _:
                assert_never(step)

    def _begin_reserve(self, memory: MoveMemory, counts: _Counts) -> None:
        """Request a place, unless enough moves are under way; the moves of one source begin together."""
        now = self._context.clock.monotonic()
        source = memory.move.source
        if memory.retry.is_too_early(now):
            return
        if memory.waits.since(Since.RESERVING) is None:
            # A source that is begun goes on although the limit is reached: emptied in part it would have cost evictions
            # for nothing.
            if counts.open_moves >= self._settings.max_open_moves and source not in counts.open_sources:
                return
            counts.open_moves += 1
            counts.open_sources.add(source)
            memory.waits = memory.waits.begin(Since.RESERVING, now)
        client, trial = self._context.client, self._context.replacement_trial
        deadlines = self._deadlines if self._settings.timeouts.heeds_progress_deadlines else None
        terms = PlaceTerms(self._settings.ttl, memory.turn.number, deadlines)
        self._set_status(memory, MoveState.RESERVING)
        self._calls.make_for(
            memory,
            lambda: reserve(client, self._plan, memory.index, memory.move, terms, self._eligibility, trial),
            lambda answer: self._reserved(memory, answer),
        )

    def _reserved(self, memory: MoveMemory, answer: ReserveAnswer) -> None:
        if answer.created:
            memory.place = replace(memory.place, asked=True)
            memory.waits = memory.waits.begin_anew(Since.CREATED, self._context.clock.monotonic())
            grace_seconds = self._limited_grace(answer.grace_seconds)
            memory.pod = replace(
                memory.pod,
                was_ready=answer.was_ready,
                grace_seconds=grace_seconds,
                progress_seconds=answer.progress_seconds,
            )
            memory.retry = Retry()
            _LOG.info(telemetry.RESERVED, **self._keys(memory))
            self._evict_first(memory, answer.not_surge)
            return
        memory.refused = FinalRefusal(answer.refusal, answer.detail)
        if not answer.refusal:
            self._back_off(memory, answer.detail, None, telemetry.CALL_FAILED)

    def _begin_postpone(self, memory: MoveMemory, message: str) -> None:
        """Delete a Reservation that is not held before its turn; until it is gone, time after time."""
        now = self._context.clock.monotonic()
        # The Reservation may not be in the watch yet, or its deletion may have failed, so it is deleted until it is
        # seen to be gone.
        if memory.place.postponed and memory.retry.is_too_early(now):
            return
        if not memory.place.postponed:
            text = f"its place is asked for again in its turn: {message}"
            memory.place = replace(memory.place, asked=False, seen=False, postponed=True)
            self._set_status(memory, MoveState.PENDING, message=text)
        memory.turn = replace(memory.turn, ahead=False)
        memory.waits = memory.waits.end(Since.CREATED, Since.RESERVING)
        memory.refused = FinalRefusal()
        memory.retry = replace(memory.retry, at=now + backoff_seconds(1))
        self._calls.make_for(memory, lambda: self._release(memory))

    def _begin_evict(self, memory: MoveMemory, observed_wave: WaveObservation, counts: _Counts) -> None:
        """Request the eviction of a move's pod, unless it would begin a move while enough are under way.

        For the siblings the pod counts as evicted until the answer says otherwise.
        """
        if memory.move.is_eviction and not memory.is_open:
            if counts.open_moves >= self._settings.max_open_moves:
                return
            counts.open_moves += 1
        memory.pod = replace(memory.pod, answer=Eviction.SENT)
        client, move, check = self._context.client, memory.move, self._context.pre_eviction_check
        if memory.surge.released:
            rules_to_ask = None if memory.surge.ownerless else check
            self._calls.make_for(
                memory,
                lambda: evict_released(client, move, rules_to_ask),
                lambda answer: self._evicted(memory, answer),
            )
            return
        observed_wave.count_eviction(memory)
        try_replacement = partial(self._context.replacement_trial.before_eviction, reservation=memory.reservation)
        self._calls.make_for(
            memory,
            lambda: evict(client, move, self._context.operator, check, try_replacement),
            lambda answer: self._evicted(memory, answer),
        )

    def _evicted(self, memory: MoveMemory, answer: EvictAnswer) -> None:
        now = self._context.clock.monotonic()
        eviction = answer.eviction
        if answer.is_gone and (memory.index in self._unanswered or memory.adopted):
            eviction = Eviction.UNANSWERED  # an earlier request, or one of the interrupted run, did it
        memory.pod = replace(memory.pod, answer=eviction, detail=answer.detail)
        match answer.eviction:
            case Eviction.SENT:
                memory.waits = memory.waits.begin_anew(Since.EVICTED, now)
                if memory.move.is_eviction:  # others had their pods read when their places were asked for
                    memory.pod = replace(memory.pod, grace_seconds=self._limited_grace(answer.grace_seconds))
                self._set_status(memory, MoveState.EVICTED)
                _LOG.info(telemetry.EVICTED, **self._keys(memory))
                client, clock = self._context.client, self._context.clock
                # In the background and without an answer: events are for people, and must not hold up the move.
                self._calls.make(lambda: announce_eviction(client, clock, self._plan.name, memory.move))
            case Eviction.BLOCKED | Eviction.INTERCEPTED | Eviction.UNANSWERED:
                if answer.eviction is Eviction.UNANSWERED:
                    self._unanswered.add(memory.index)
                memory.waits = memory.waits.begin(Since.EVICTED, now).begin(Since.BLOCKED, now)
                self._back_off(memory, answer.detail, answer.retry_after_seconds, telemetry.EVICTION_BLOCKED)
            case Eviction.REFUSED | Eviction.NOT_SENT:
                memory.refused = FinalRefusal(answer.refusal, answer.detail)
                is_back = memory.surge.ownerless and answer.eviction is Eviction.NOT_SENT
                memory.surge = replace(memory.surge, returned=memory.surge.returned or is_back)
            case _:
                assert_never(answer.eviction)

    def _look_again(self, memory: MoveMemory) -> None:
        """Read a pod for which a request got no answer, and go on from what became of it."""
        client, move = self._context.client, memory.move

        def note(answer: LookAnswer) -> None:
            match answer:
                case EvictAnswer():
                    self._evicted(memory, answer)
                case ReleaseAnswer():
                    self._let_go(memory, answer)
                case None:
                    memory.pod = replace(memory.pod, is_untouched=True)
                case _:
                    assert_never(answer)

        self._calls.make_for(memory, lambda: look_again(client, move), note)

    def _begin_release(self, memory: MoveMemory, observed_wave: WaveObservation) -> None:
        """Have the ReplicaSet let a pod go; for its siblings that counts as an eviction."""
        observed_wave.count_eviction(memory)
        memory.surge = replace(memory.surge, asked=True)
        client, operator = self._context.client, self._context.operator
        check, move = self._context.pre_eviction_check, memory.move
        self._calls.make_for(
            memory,
            lambda: release(client, self._plan, move, operator, check, self._eligibility),
            lambda answer: self._let_go(memory, answer),
        )

    def _let_go(self, memory: MoveMemory, answer: ReleaseAnswer) -> None:
        now = self._context.clock.monotonic()
        memory.pod = replace(memory.pod, detail=answer.detail)
        if answer.released:
            memory.note_released(answer.min_ready_seconds, now)
            _LOG.info(telemetry.LET_GO, **self._keys(memory))
            self._announce(memory)
        elif answer.not_surge:
            self._evict_first(memory, answer.not_surge)
        elif answer.refusal:
            memory.refused = FinalRefusal(answer.refusal, answer.detail)
        else:
            memory.waits = memory.waits.begin(Since.BLOCKED, now)
            self._back_off(memory, answer.detail, answer.retry_after_seconds, telemetry.CALL_FAILED)

    def _evict_first(self, memory: MoveMemory, reason: str) -> None:
        """Have a pod that cannot surge evicted first."""
        if reason and memory.surge.wanted:
            # `asked` is taken back as well: the ReplicaSet still has the pod, so nothing has to be given back.
            memory.surge = replace(memory.surge, wanted=False, in_turn=True, asked=False, reason=reason)

    def _begin_take_back(self, memory: MoveMemory, end: Finish) -> None:
        """Take a released pod back until that has worked; the first refusal to evict it does not delay that."""
        if memory.surge.end is None:
            memory.surge = replace(memory.surge, end=end)
            memory.retry = Retry()
        self._set_status(memory, MoveState.RESERVED, message=f"is given back to its ReplicaSet: {end.message}")
        if memory.retry.is_too_early(self._context.clock.monotonic()):
            return
        client, move = self._context.client, memory.move
        self._calls.make_for(memory, lambda: give_back(client, move), lambda answer: self._given_back(memory, answer))

    def _given_back(self, memory: MoveMemory, answer: ReturnAnswer) -> None:
        memory.surge = replace(memory.surge, returned=answer.returned, ownerless=answer.ownerless)
        if answer.returned:
            _LOG.info(telemetry.TAKEN_BACK, **self._keys(memory))
            if memory.surge.released:
                self._announce(memory, memory.surge.end.message if memory.surge.end else "")
        elif answer.ownerless:
            memory.pod = replace(memory.pod, answer=Eviction.NOT_SENT)
            memory.waits = memory.waits.end(Since.BLOCKED)
            memory.retry = Retry()
        else:
            self._back_off(memory, answer.detail, None, telemetry.CALL_FAILED)

    def _announce(self, memory: MoveMemory, back: str = "") -> None:
        context, move = self._context, memory.move
        self._calls.make(lambda: announce_surge(context.client, context.clock, self._plan.name, move, back))

    def _limited_grace(self, seconds: float) -> float:
        """Return a pod's grace period, no longer than the policy lets pods have."""
        return min(seconds, self._settings.max_grace.total_seconds())

    def _back_off(self, memory: MoveMemory, detail: str, asked_for: float | None, event: str) -> None:
        memory.retry = memory.retry.after_refusal(self._context.clock.monotonic(), asked_for)
        _LOG.info(event, **self._keys(memory), **{telemetry.KEY_MESSAGE: detail})

    def _finish(self, memory: MoveMemory, step: Finish, observed_wave: WaveObservation) -> None:
        """End a move and delete its Reservation if no longer needed."""
        observation = observed_wave.observations[memory.index]
        # One pod that stays keeps the node from becoming free, so the moves of its siblings off that node are given up.
        if keeps_its_node(step.state, step.reason, evicted=was_evicted(memory, observation)):
            self.lost_sources.add(memory.move.source)
        if step.reason is MoveReason.REPLACEMENT_GONE and step.release:  # no sibling has to wait for another any more
            observed_wave.replicas_by_owner[memory.replicas].awaiting_replacement -= 1
        if memory.surge.end is None:
            self._set_state(memory, observed_wave, step.state, step.reason, step.message)
        else:  # what took its place is no replacement: the pod is where it was
            self._set_status(memory, step.state, step.reason, step.message)
        if step.release and (memory.waits.since(Since.RESERVING) is not None or memory.place.seen):
            self._calls.make_for(memory, lambda: self._release(memory))

    def _release(self, memory: MoveMemory) -> None:
        """Delete the Reservation; where that fails, its TTL releases the place."""
        try:
            self._context.client.delete(RESERVATIONS, memory.reservation, namespace=memory.move.namespace)
        except NotFoundError:
            return
        except BerthError as error:
            _LOG.warning(telemetry.RELEASE_FAILED, **self._keys(memory), **{telemetry.KEY_ERROR: str(error)})
            return
        _LOG.info(telemetry.RELEASED, **self._keys(memory))

    def _set_state(
        self,
        memory: MoveMemory,
        observed_wave: WaveObservation,
        state: MoveState,
        reason: MoveReason = MoveReason.NONE,
        message: str = "",
    ) -> None:
        """Set a move's state and, where known, its replacement and node."""
        replacement = observed_wave.observations[memory.index].replacement
        status_before = memory.status
        self._set_status(
            memory,
            state,
            reason,
            message,
            replacement=replacement.name if replacement else status_before.replacement,
            node=replacement.node if replacement else status_before.node,
        )

    def _set_status(
        self,
        memory: MoveMemory,
        state: MoveState,
        reason: MoveReason = MoveReason.NONE,
        message: str = "",
        *,
        replacement: str = "",
        node: str = "",
    ) -> None:
        status_before = memory.status
        memory.status = MoveStatus(
            namespace=status_before.namespace,
            pod=status_before.pod,
            state=state,
            reason=reason.value,
            message=message,
            reservation=memory.reservation if memory.place.asked or memory.place.seen else "",
            replacement=replacement,
            node=node,
            method=_method(memory),
            method_reason=memory.surge.reason,
        )
        if status_before.state is not state:
            keys = {
                telemetry.KEY_STATE: state.value,
                telemetry.KEY_REASON: reason.value,
                telemetry.KEY_MESSAGE: message,
            }
            _LOG.info(telemetry.MOVE_CHANGED, **self._keys(memory), **keys)

    def _keys(self, memory: MoveMemory) -> dict[str, str]:
        return {
            telemetry.KEY_PLAN: self._plan.name,
            telemetry.KEY_POD: f"{memory.move.namespace}/{memory.move.pod}",
            telemetry.KEY_NODE: memory.move.target,
        }


def _method(memory: MoveMemory) -> MoveMethod | None:
    """Return how a move that was to surge is made, None for others."""
    if memory.surge.wanted:
        return MoveMethod.SURGE
    return MoveMethod.EVICT if memory.surge.reason else None


def start_moves(plan: MigrationPlan, skipped: Mapping[int, MoveStatus], *, adopted: bool) -> list[MoveMemory]:
    """Return the memory of all moves; the ends that an adopted plan has recorded stay."""
    recorded_statuses = dict(enumerate(plan.move_statuses)) if adopted else {}
    moves = []
    for index, move in enumerate(plan.spec.moves):
        status = skipped.get(index) or recorded_statuses.get(index)
        memory = remember(plan.metadata.name, index, move, status)
        memory.adopted = adopted
        moves.append(memory)
    return moves


def _count_open(wave: Sequence[MoveMemory]) -> _Counts:
    """Count the moves of a wave under way, with their sources."""
    open_moves = [memory for memory in wave if not memory.finished and memory.is_open]
    return _Counts(len(open_moves), {memory.move.source for memory in open_moves if not memory.move.is_eviction})


def keeps_its_node(state: MoveState, reason: str, *, evicted: bool) -> bool:
    """Return whether a finished move leaves its pod on the source."""
    if evicted or reason in {MoveReason.POD_GONE, MoveReason.ROOM_NOT_NEEDED}:
        return False
    return state in {MoveState.SKIPPED, MoveState.FAILED}


def _kept_its_node(status: MoveStatus) -> bool:
    """Return whether a move that ended before this run left its pod on the source."""
    late = {MoveReason.REPLACEMENT_TIMEOUT, MoveReason.REPLACEMENT_GONE, MoveReason.POD_STAYS}
    is_evicted = status.reason in late or bool(status.replacement)
    return keeps_its_node(status.state, status.reason, evicted=is_evicted)
