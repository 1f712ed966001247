"""Carries out the steps of moves: observes them, acts as `next_step` decides, and records their statuses.

Moves are level-triggered, like rooms: a killed run leaves Reservations and evicted pods, and the next run continues
from what it observes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import assert_never

import structlog

from berth_core import BerthError, MigrationPlan, MoveMethod, MoveReason, MoveState, MoveStatus, Pod
from berth_descheduler import telemetry
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.eviction_request import EvictAnswer, evict
from berth_descheduler.migration.moves.facts import Eviction, Presence, Replacement
from berth_descheduler.migration.moves.memory import MoveProgress, OwnerKey, start_progress
from berth_descheduler.migration.moves.next_step import next_step
from berth_descheduler.migration.moves.observation import (
    MoveObservation,
    WaveObservation,
    derive_facts,
    is_released,
    note_unready_replicas,
    observe_wave,
    owner_key,
    placed_pods,
    runs_without_handover,
    was_evicted,
)
from berth_descheduler.migration.moves.replacements import ControllerQuestions, made_since
from berth_descheduler.migration.moves.reservation_request import ReserveAnswer, reserve
from berth_descheduler.migration.moves.steps import (
    Evict,
    Finish,
    LookAgain,
    Postpone,
    Release,
    Reserve,
    Step,
    TakeBack,
    Wait,
)
from berth_descheduler.migration.moves.surge_requests import (
    LookAnswer,
    ReleaseAnswer,
    ReturnAnswer,
    evict_released,
    give_back,
    look_again,
    note_of,
    release,
)
from berth_descheduler.migration.nodes.unready import NodeQuestions
from berth_descheduler.migration.plans.events import announce_eviction, announce_surge
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.migration.retries import backoff_seconds
from berth_kube import RESERVATIONS, NotFoundError, SurgeEligibility

_LOG = structlog.get_logger(__name__)


def find_successors(
    wave: Sequence[MoveProgress], observed_wave: WaveObservation, observed: ObservedPlan, begun: str
) -> None:
    """Give each pod that is gone without a place one that its controller has made since the plan began."""
    gone = [one for one in wave if one.move.is_eviction and _is_gone(observed_wave, one)]
    known = {one.move.pod_uid for one in wave}
    made: dict[OwnerKey, list[Pod]] = {one.replicas: [] for one in gone}
    for pod in sorted(observed.pods.values(), key=lambda one: one.key) if gone else ():
        is_new = pod.metadata.uid not in known and (pod.metadata.creation_timestamp or "") >= begun
        if is_new and not pod.is_terminating and (replicas := owner_key(pod)) in made:
            made[replicas].append(pod)
    for one in gone:
        if made[one.replicas]:
            pod = made[one.replicas].pop()
            seen = Replacement(pod.metadata.name, pod.spec.node_name, pod.is_ready)
            observation = observed_wave.observations[one.index]
            observed_wave.observations[one.index] = replace(observation, replacement=seen)


def find_doubtful_nodes(
    wave: Sequence[MoveProgress], observed_wave: WaveObservation, now: float, gap_seconds: float
) -> frozenset[str]:
    """Return the targets on which replacements have not been Ready for `gap_seconds`, and likewise the sources.

    A pod on its way out has its grace period before.
    """
    nodes: set[str] = set()
    for progress in (move for move in wave if not move.finished):
        sight, move = observed_wave.observations[progress.index], progress.move
        taken, evicted = progress.taken_since, progress.evicted_since
        if sight.replacement is not None and taken is not None and now - taken >= gap_seconds:
            nodes |= {move.target} if sight.replacement.node == move.target and not sight.replacement.ready else set()
        if sight.presence is Presence.LEAVING and evicted is not None:
            nodes |= {move.source} if now - evicted >= progress.grace_seconds + gap_seconds else set()
    return frozenset(nodes)


def note_turns(wave: Sequence[MoveProgress], waiting: Collection[int] = ()) -> None:
    """Let one move of each controller surge at a time, the one that has begun or else the first.

    Pods of moves that are `waiting` for others stay, whichever way they go.
    """
    left = [one for one in wave if one.surge.wanted and not one.finished]
    first: dict[OwnerKey, MoveProgress] = {}
    for progress in sorted(left, key=lambda one: (not _is_let_go(one), one.index in waiting, not _is_open(one))):
        first.setdefault(progress.replicas, progress)
    for progress in wave:
        in_turn = first.get(progress.replicas, progress) is progress or not progress.surge.wanted
        in_turn = in_turn and progress.index not in waiting and not progress.postponed
        if progress.surge.in_turn is not in_turn:
            progress.surge = replace(progress.surge, in_turn=in_turn)


def note_release(
    progress: MoveProgress, observation: MoveObservation, observed: ObservedPlan, now: float, others: Collection[str]
) -> None:
    """Update what is seen of a pod that was let go, and of its replacement.

    A restarted run knows the pod by its label, and so does one whose request got no answer; the waits begin anew.
    `others` are the uids of pods that have places of the plan: those beside its own are replacements of siblings. None
    of them is misplaced, with or without the label of the hand-over: the operator takes that off once the pod runs.
    """
    surge, pod = progress.surge, observed.pods.get(progress.move.pod_uid)
    if not surge.released and surge.wanted and pod is not None and is_released(pod):
        progress.attempts, progress.retry_at, progress.blocked_since = 0, None, None
        seconds = note_of(pod).min_ready_seconds
        surge = replace(surge, released=True, released_since=now, min_ready_seconds=seconds)
    if not surge.released:
        return
    seen = observation.replacement
    living = {
        name: pod
        for name, pod in made_since(progress, observed).items()
        if pod.metadata.uid not in others or (seen is not None and name == seen.name)
    }
    ready = seen is not None and seen.ready and seen.node == progress.move.target and seen.name in living
    ready_since = (surge.ready_since if surge.ready_since is not None else now) if ready else None
    at_home = {*others, progress.taken_by} if progress.reserved_at else {pod.metadata.uid for pod in living.values()}
    strangers = (pod for pod in living.values() if pod.metadata.uid not in at_home)
    misplaced = next((stranger.spec.node_name for stranger in strangers if runs_without_handover(stranger)), "")
    since, alone_since = surge.misplaced_since, surge.alone_since
    progress.surge = replace(
        surge,
        ready_since=ready_since,
        available=ready_since is not None and now - ready_since >= surge.min_ready_seconds,
        misplaced=misplaced,
        misplaced_since=(now if since is None else since) if misplaced else None,
        alone_since=None if living else (now if alone_since is None else alone_since),
    )


def _is_gone(observed_wave: WaveObservation, progress: MoveProgress) -> bool:
    return observed_wave.observations[progress.index].presence is Presence.GONE


@dataclass(frozen=True, slots=True)
class WaveContext:
    """What else decides about the moves of a wave.

    `stopping_since` is in monotonic seconds.
    """

    unready: frozenset[OwnerKey] = frozenset()
    """Controllers that still lack Ready pods because of earlier waves."""

    stop: MoveReason = MoveReason.NONE
    stopping_since: float | None = None
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
        self, context: PlanContext, calls: BackgroundCalls, plan: MigrationPlan, moves: Sequence[MoveProgress]
    ) -> None:
        self._context = context
        self._settings = context.execution
        self._calls = calls
        self._plan = PlanIdentity.of(plan)
        self._begun = plan.status.start_time or plan.metadata.creation_timestamp or ""
        self._moves = moves
        self._eligibility = SurgeEligibility(context.client, context.clock)
        self._questions = ControllerQuestions(context.client, calls, self._settings.timeouts.gap_seconds)
        self._nodes = NodeQuestions(context.client, calls, self._settings.timeouts.gap_seconds)
        self._unanswered: set[int] = set()
        """Moves for whose eviction a request got no answer: it may have been carried out."""
        self.lost_sources = {one.move.source for one in moves if one.finished and _keeps_its_node(one.status)}
        """Sources on which a planned pod has to stay."""

    @property
    def statuses(self) -> tuple[MoveStatus, ...]:
        """Return the moves' statuses, in the order of the plan."""
        return tuple(one.status for one in self._moves)

    def reconcile(self, wave: Sequence[MoveProgress], observed: ObservedPlan, wave_context: WaveContext) -> None:
        """Observe a wave once, then decide and act for each move."""
        now, timeouts = self._context.clock.monotonic(), self._settings.timeouts
        horizon = self._context.clock.now() + timedelta(seconds=timeouts.land_seconds)
        note_turns(wave, wave_context.waiting)
        for progress in wave:
            progress.target_problem = self._nodes.problem_of(progress.move.target)
            progress.source_problem = self._nodes.problem_of(progress.move.source)
        observed_wave = observe_wave(wave, observed, now, timeouts.gap_seconds, horizon=horizon)
        find_successors(wave, observed_wave, observed, self._begun)
        self._questions.ask(wave, observed_wave, observed, now)
        self._nodes.ask(find_doubtful_nodes(wave, observed_wave, now, timeouts.gap_seconds), now)
        counts, placed = _count_open(wave), placed_pods(observed)
        for progress in wave:
            if progress.finished or progress.in_flight:
                continue
            note_unready_replicas(progress, wave_context.unready, now)
            note_release(progress, observed_wave.observations[progress.index], observed, now, placed)
            facts = derive_facts(
                progress,
                observed_wave,
                stop=wave_context.stop,
                stopping_since=wave_context.stopping_since,
                source_lost=progress.move.source in self.lost_sources and not progress.move.stands_alone,
                holds_all=self._settings.holds_all,
            )
            self._act(progress, next_step(facts, timeouts, now), observed_wave, counts)

    def skip(self, progress: MoveProgress, reason: MoveReason, message: str) -> None:
        """End a move for which nothing was begun."""
        self._set_status(progress, MoveState.SKIPPED, reason, message)
        if keeps_its_node(MoveState.SKIPPED, reason, evicted=False):
            self.lost_sources.add(progress.move.source)

    def fail(self, progress: MoveProgress, message: str) -> None:
        """End a move that does not end by itself."""
        self._set_status(progress, MoveState.FAILED, MoveReason.PLAN_STOPPED, message)

    # --- acting -----------------------------------------------------------------------------------------------------

    def _act(self, progress: MoveProgress, step: Step, observed_wave: WaveObservation, counts: _Counts) -> None:
        match step:
            case Reserve():
                self._begin_reserve(progress, counts)
            case Postpone():
                self._begin_postpone(progress, step.message)
            case Release():
                self._begin_release(progress, observed_wave)
            case Evict():
                self._begin_evict(progress, observed_wave, counts)
            case LookAgain():
                self._look_again(progress)
            case TakeBack():
                self._begin_take_back(progress, step.end)
            case Wait():
                self._set_state(progress, observed_wave, step.state, message=step.message)
            case Finish():
                self._finish(progress, step, observed_wave)
            case _:
                assert_never(step)

    def _begin_reserve(self, progress: MoveProgress, counts: _Counts) -> None:
        """Request a place, unless enough moves are under way.

        The moves of one source begin together.
        """
        now = self._context.clock.monotonic()
        source = progress.move.source
        if progress.retry_at is not None and now < progress.retry_at:
            return
        if progress.reserving_since is None:
            if counts.open_moves >= self._settings.max_open_moves and source not in counts.open_sources:
                return
            counts.open_moves += 1
            counts.open_sources.add(source)
            progress.reserving_since = now
        client, ttl = self._context.client, self._settings.ttl * progress.turn
        self._set_status(progress, MoveState.RESERVING)
        self._calls.make_for(
            progress,
            lambda: reserve(client, self._plan, progress.index, progress.move, ttl, self._eligibility),
            lambda answer: self._reserved(progress, answer),
        )

    def _reserved(self, progress: MoveProgress, answer: ReserveAnswer) -> None:
        if answer.created:
            progress.asked, progress.asked_at = True, self._context.clock.monotonic()
            longest = self._settings.max_grace.total_seconds()
            progress.was_ready, progress.grace_seconds = answer.was_ready, min(answer.grace_seconds, longest)
            progress.attempts, progress.retry_at = 0, None
            _LOG.info(telemetry.RESERVED, **self._keys(progress))
            self._evict_first(progress, answer.not_surge)
            return
        progress.refusal, progress.refusal_detail = answer.refusal, answer.detail
        if not answer.refusal:
            self._back_off(progress, answer.detail, None, telemetry.CALL_FAILED)

    def _begin_postpone(self, progress: MoveProgress, message: str) -> None:
        """Delete a Reservation that is not held before its turn; until it is gone, time after time."""
        now = self._context.clock.monotonic()
        if progress.postponed and progress.retry_at is not None and now < progress.retry_at:
            return
        if not progress.postponed:
            text = f"its place is asked for again in its turn: {message}"
            progress.asked = progress.seen = False
            self._set_status(progress, MoveState.PENDING, message=text)
        progress.postponed, progress.ahead = True, False
        progress.asked_at, progress.reserving_since = None, None
        progress.refusal, progress.refusal_detail = MoveReason.NONE, ""
        progress.retry_at = now + backoff_seconds(1)
        self._calls.make_for(progress, lambda: self._release(progress))

    def _begin_evict(self, progress: MoveProgress, observed_wave: WaveObservation, counts: _Counts) -> None:
        """Request the eviction of a move's pod; one without a place begins with it, unless enough are under way.

        It counts as done for the siblings until the answer says otherwise.
        """
        if progress.move.is_eviction and not _is_open(progress):
            if counts.open_moves >= self._settings.max_open_moves:
                return
            counts.open_moves += 1
        progress.eviction = Eviction.SENT
        client, move, rules = self._context.client, progress.move, self._context.pre_eviction_check
        if progress.surge.released:
            asked = None if progress.surge.ownerless else rules
            self._calls.make_for(
                progress,
                lambda: evict_released(client, move, asked),
                lambda answer: self._evicted(progress, answer),
            )
            return
        observed_wave.count_eviction(progress)
        self._calls.make_for(
            progress,
            lambda: evict(client, move, self._context.operator, rules),
            lambda answer: self._evicted(progress, answer),
        )

    def _evicted(self, progress: MoveProgress, answer: EvictAnswer) -> None:
        now = self._context.clock.monotonic()
        progress.eviction, progress.eviction_detail = answer.eviction, answer.detail
        if answer.is_gone and (progress.index in self._unanswered or progress.adopted):
            progress.eviction = Eviction.UNANSWERED  # an earlier request, or one of the interrupted run, did it
        match answer.eviction:
            case Eviction.SENT:
                progress.evicted_since = now
                if progress.move.is_eviction:
                    longest = self._settings.max_grace.total_seconds()
                    progress.grace_seconds = min(answer.grace_seconds, longest)
                self._set_status(progress, MoveState.EVICTED)
                _LOG.info(telemetry.EVICTED, **self._keys(progress))
                client, clock = self._context.client, self._context.clock
                self._calls.make(lambda: announce_eviction(client, clock, self._plan.name, progress.move))
            case Eviction.BLOCKED | Eviction.INTERCEPTED | Eviction.UNANSWERED:
                if answer.eviction is Eviction.UNANSWERED:
                    self._unanswered.add(progress.index)
                progress.evicted_since = progress.evicted_since or now
                progress.blocked_since = progress.blocked_since or now
                self._back_off(progress, answer.detail, answer.retry_after_seconds, telemetry.EVICTION_BLOCKED)
            case Eviction.REFUSED | Eviction.NOT_SENT:
                progress.refusal, progress.refusal_detail = answer.refusal, answer.detail
                is_back = progress.surge.ownerless and answer.eviction is Eviction.NOT_SENT
                progress.surge = replace(progress.surge, returned=progress.surge.returned or is_back)
            case _:
                assert_never(answer.eviction)

    def _look_again(self, progress: MoveProgress) -> None:
        """Read a pod for which a request got no answer, and go on with what became of it."""
        client, move = self._context.client, progress.move

        def note(answer: LookAnswer) -> None:
            match answer:
                case EvictAnswer():
                    self._evicted(progress, answer)
                case ReleaseAnswer():
                    self._let_go(progress, answer)
                case None:
                    progress.is_untouched = True
                case _:
                    assert_never(answer)

        self._calls.make_for(progress, lambda: look_again(client, move), note)

    # --- surge moves ------------------------------------------------------------------------------------------------

    def _begin_release(self, progress: MoveProgress, observed_wave: WaveObservation) -> None:
        """Have the ReplicaSet let a pod go; for its siblings that counts as an eviction."""
        observed_wave.count_eviction(progress)
        progress.surge = replace(progress.surge, asked=True)
        context, move, around = self._context, progress.move, self._eligibility
        self._calls.make_for(
            progress,
            lambda: release(context.client, self._plan, move, context.operator, context.pre_eviction_check, around),
            lambda answer: self._let_go(progress, answer),
        )

    def _let_go(self, progress: MoveProgress, answer: ReleaseAnswer) -> None:
        now = self._context.clock.monotonic()
        progress.eviction_detail = answer.detail
        if answer.released:
            progress.attempts, progress.retry_at, progress.blocked_since = 0, None, None
            seconds = answer.min_ready_seconds
            progress.surge = replace(progress.surge, released=True, released_since=now, min_ready_seconds=seconds)
            _LOG.info(telemetry.LET_GO, **self._keys(progress))
            self._announce(progress)
        elif answer.not_surge:
            self._evict_first(progress, answer.not_surge)
        elif answer.refusal:
            progress.refusal, progress.refusal_detail = answer.refusal, answer.detail
        else:
            progress.blocked_since = progress.blocked_since or now
            self._back_off(progress, answer.detail, answer.retry_after_seconds, telemetry.CALL_FAILED)

    def _evict_first(self, progress: MoveProgress, reason: str) -> None:
        """Have a pod that cannot surge evicted first."""
        if reason and progress.surge.wanted:
            progress.surge = replace(progress.surge, wanted=False, in_turn=True, asked=False, reason=reason)

    def _begin_take_back(self, progress: MoveProgress, end: Finish) -> None:
        """Take a released pod back until that has worked; the first refusal to evict it does not delay that."""
        if progress.surge.end is None:
            progress.surge = replace(progress.surge, end=end)
            progress.attempts, progress.retry_at = 0, None
        self._set_status(progress, MoveState.RESERVED, message=f"is given back to its ReplicaSet: {end.message}")
        if progress.retry_at is not None and self._context.clock.monotonic() < progress.retry_at:
            return
        client, move = self._context.client, progress.move
        self._calls.make_for(
            progress, lambda: give_back(client, move), lambda answer: self._given_back(progress, answer)
        )

    def _given_back(self, progress: MoveProgress, answer: ReturnAnswer) -> None:
        progress.surge = replace(progress.surge, returned=answer.returned, ownerless=answer.ownerless)
        if answer.returned:
            _LOG.info(telemetry.TAKEN_BACK, **self._keys(progress))
            if progress.surge.released:
                self._announce(progress, progress.surge.end.message if progress.surge.end else "")
        elif answer.ownerless:
            progress.eviction, progress.blocked_since = Eviction.NOT_SENT, None
            progress.attempts, progress.retry_at = 0, None
        else:
            self._back_off(progress, answer.detail, None, telemetry.CALL_FAILED)

    def _announce(self, progress: MoveProgress, back: str = "") -> None:
        context, move = self._context, progress.move
        self._calls.make(lambda: announce_surge(context.client, context.clock, self._plan.name, move, back))

    def _back_off(self, progress: MoveProgress, detail: str, asked_for: float | None, event: str) -> None:
        wait_seconds = backoff_seconds(progress.attempts, asked_for)
        progress.attempts += 1
        progress.retry_at = self._context.clock.monotonic() + wait_seconds
        _LOG.info(event, **self._keys(progress), **{telemetry.KEY_MESSAGE: detail})

    def _finish(self, progress: MoveProgress, step: Finish, observed_wave: WaveObservation) -> None:
        """End a move and delete its Reservation if no longer needed."""
        sight = observed_wave.observations[progress.index]
        if keeps_its_node(step.state, step.reason, evicted=was_evicted(progress, sight)):
            self.lost_sources.add(progress.move.source)
        if step.reason is MoveReason.REPLACEMENT_GONE and step.release:  # no sibling has to wait for another any more
            observed_wave.replicas_by_owner[progress.replicas].awaiting_replacement -= 1
        if progress.surge.end is None:
            self._set_state(progress, observed_wave, step.state, step.reason, step.message)
        else:  # what took its place is no replacement: the pod is where it was
            self._set_status(progress, step.state, step.reason, step.message)
        if step.release and (progress.reserving_since is not None or progress.seen):
            self._calls.make_for(progress, lambda: self._release(progress))

    def _release(self, progress: MoveProgress) -> None:
        """Delete the Reservation; where that fails, its TTL releases the place."""
        try:
            self._context.client.delete(RESERVATIONS, progress.reservation, namespace=progress.move.namespace)
        except NotFoundError:
            return
        except BerthError as error:
            _LOG.warning(telemetry.RELEASE_FAILED, **self._keys(progress), **{telemetry.KEY_ERROR: str(error)})
            return
        _LOG.info(telemetry.RELEASED, **self._keys(progress))

    # --- reporting --------------------------------------------------------------------------------------------------

    def _set_state(
        self,
        progress: MoveProgress,
        observed_wave: WaveObservation,
        state: MoveState,
        reason: MoveReason = MoveReason.NONE,
        message: str = "",
    ) -> None:
        """Set a move's state and, where known, its replacement and node."""
        seen = observed_wave.observations[progress.index].replacement
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
            method=_method(progress),
            method_reason=progress.surge.reason,
        )
        if before.state is not state:
            keys = {
                telemetry.KEY_STATE: state.value,
                telemetry.KEY_REASON: reason.value,
                telemetry.KEY_MESSAGE: message,
            }
            _LOG.info(telemetry.MOVE_CHANGED, **self._keys(progress), **keys)

    def _keys(self, progress: MoveProgress) -> dict[str, str]:
        return {
            telemetry.KEY_PLAN: self._plan.name,
            telemetry.KEY_POD: f"{progress.move.namespace}/{progress.move.pod}",
            telemetry.KEY_NODE: progress.move.target,
        }


def _method(progress: MoveProgress) -> MoveMethod | None:
    """Return how a move that is to surge is made, None for others."""
    if progress.surge.wanted:
        return MoveMethod.SURGE
    return MoveMethod.EVICT if progress.surge.reason else None


def start_moves(plan: MigrationPlan, skipped: Mapping[int, MoveStatus], *, adopted: bool) -> list[MoveProgress]:
    """Return the progress of all moves.

    A recorded end of an adopted plan stays.
    """
    recorded = dict(enumerate(plan.move_statuses)) if adopted else {}
    moves = []
    for index, move in enumerate(plan.spec.moves):
        status = skipped.get(index) or recorded.get(index)
        progress = start_progress(plan.metadata.name, index, move, status)
        progress.adopted = adopted
        moves.append(progress)
    return moves


def _count_open(wave: Sequence[MoveProgress]) -> _Counts:
    """Count the moves of a wave under way, with their sources."""
    under_way = [one for one in wave if not one.finished and _is_open(one)]
    return _Counts(len(under_way), {one.move.source for one in under_way if not one.move.is_eviction})


def _is_let_go(progress: MoveProgress) -> bool:
    return progress.surge.asked or progress.surge.released


def _is_open(progress: MoveProgress) -> bool:
    """Return whether a move was begun: a place or, without one, the eviction was asked for."""
    was_asked = progress.move.is_eviction and progress.eviction is not Eviction.NOT_SENT
    return was_asked or progress.reserving_since is not None or progress.seen


def keeps_its_node(state: MoveState, reason: MoveReason, *, evicted: bool) -> bool:
    """Return whether a finished move leaves its pod on the source."""
    if evicted or reason in {MoveReason.POD_GONE, MoveReason.ROOM_NOT_NEEDED}:
        return False
    return state in {MoveState.SKIPPED, MoveState.FAILED}


def _keeps_its_node(status: MoveStatus) -> bool:
    """Return whether an earlier move left its pod on the source.

    The move ended before this run.
    """
    late = {MoveReason.REPLACEMENT_TIMEOUT, MoveReason.REPLACEMENT_GONE, MoveReason.POD_STAYS}
    evicted = status.reason in late or bool(status.replacement)
    known = (MoveReason.POD_GONE, MoveReason.ROOM_NOT_NEEDED)
    reason = next((one for one in known if one == status.reason), MoveReason.NONE)
    return keeps_its_node(status.state, reason, evicted=evicted)
