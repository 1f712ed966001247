"""Reconciles a plan's moves.

Observes them, acts as `moves` decides, and records their statuses. Moves are level-triggered, like rooms: a killed run
leaves Reservations and evicted pods, and the next run continues from what it observes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, assert_never

import msgspec
import structlog

from berth_core import (
    BerthError,
    MigrationPlan,
    MoveReason,
    MoveState,
    MoveStatus,
    PermanentError,
    PlannedMove,
    Pod,
    PodGroup,
    RetryableError,
    is_preemptable,
    preemptable_groups,
    volcano_group_of,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.context import BackgroundCalls, ObservedPlan, PlanContext
from berth_descheduler.migration.manifests import PlanIdentity, build_reservation, controller_reference
from berth_descheduler.migration.move_facts import (
    MoveProgress,
    OwnerKey,
    WaveObservation,
    derive_facts,
    note_unready_replicas,
    observe_wave,
    owner_key,
    start_progress,
    was_evicted,
)
from berth_descheduler.migration.moves import (
    Evict,
    Eviction,
    Finish,
    Presence,
    Replacement,
    Reserve,
    Step,
    Wait,
    keeps_its_node,
    next_step,
)
from berth_descheduler.migration.operator_liveness import OperatorLiveness
from berth_descheduler.migration.plans import announce_eviction
from berth_descheduler.migration.validation import PreEvictionCheck
from berth_kube import (
    PODS,
    RESERVATIONS,
    VOLCANO_POD_GROUPS,
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    KubeClient,
    NotFoundError,
    UnreachableError,
)

# --- evictions -------------------------------------------------------------------------------------------------------
# The two calls that a move makes, creating its Reservation and evicting its pod, and what their answers mean.
#
# `moves` decides when; a refused eviction is repeated by the next observation of the move, not here.

FIRST_BACKOFF_SECONDS: Final = 0.5
LONGEST_BACKOFF_SECONDS: Final = 10.0
_DEFAULT_GRACE_SECONDS: Final = 30.0
_LONGEST_DOUBLING: Final = 10


@dataclass(frozen=True, slots=True)
class ReserveAnswer:
    """The answer to the request for a place.

    With neither `created` nor `refusal`, the request is tried again.
    """

    created: bool = False
    was_ready: bool = True
    grace_seconds: float = _DEFAULT_GRACE_SECONDS
    refusal: MoveReason = MoveReason.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EvictAnswer:
    """The answer to a requested eviction."""

    eviction: Eviction
    detail: str = ""
    refusal: MoveReason = MoveReason.NONE
    """Set where Berth itself refused and requested nothing."""

    retry_after_seconds: float | None = None
    grace_seconds: float = _DEFAULT_GRACE_SECONDS
    is_gone: bool = False
    """The pod was not there any more."""


def backoff_seconds(attempts: int, asked_for: float | None = None) -> float:
    """Return the wait after some refusals.

    It is at least what the server asks for.
    """
    doubled = FIRST_BACKOFF_SECONDS * float(2 ** min(attempts, _LONGEST_DOUBLING))
    return max(min(doubled, LONGEST_BACKOFF_SECONDS), asked_for or 0.0)


def reserve(client: KubeClient, plan: PlanIdentity, index: int, move: PlannedMove, ttl: timedelta) -> ReserveAnswer:
    """Create the Reservation of a move from its live pod.

    An existing Reservation of that name is the plan's own.
    """
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    except NotFoundError:
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="the pod is not there any more")
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    if (refused := why_not_movable(raw_pod, move)) is not None:
        return refused
    preemptable = _is_preemptable(client, raw_pod)
    return _create(client, raw_pod, build_reservation(plan, index, move, raw_pod, ttl, is_preemptable=preemptable))


def _is_preemptable(client: KubeClient, raw_pod: dict[str, Any]) -> bool:
    """Return whether a pod or its group says so; the group is read only where the pod does not."""
    with suppress(BerthError, msgspec.ValidationError):
        pod = msgspec.convert(raw_pod, Pod)
        if is_preemptable(pod, ()):
            return True
        if group := volcano_group_of(pod):
            found = client.get(VOLCANO_POD_GROUPS, group, namespace=pod.metadata.namespace, type=PodGroup)
            return is_preemptable(pod, preemptable_groups([found.metadata]))
    return False


def _create(client: KubeClient, raw_pod: dict[str, Any], body: dict[str, Any]) -> ReserveAnswer:
    try:
        client.create(RESERVATIONS, body)
    except AlreadyExistsError:
        pass
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    return ReserveAnswer(created=True, was_ready=_is_ready(raw_pod), grace_seconds=_grace_seconds(raw_pod))


def _grace_seconds(raw_pod: dict[str, Any]) -> float:
    grace = raw_pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)


def why_not_movable(raw_pod: dict[str, Any], move: PlannedMove) -> ReserveAnswer | None:
    """Return why the live pod is not the planned one, else None."""
    metadata, node = raw_pod["metadata"], raw_pod["spec"].get("nodeName", "")
    if metadata["uid"] != move.pod_uid:
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="another pod has its name by now")
    if metadata.get("deletionTimestamp"):
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="the pod is being deleted")
    if node != move.source:
        detail = f"the pod is on {node or 'no node'}, not on {move.source}"
        return ReserveAnswer(refusal=MoveReason.POD_CHANGED, detail=detail)
    owner = controller_reference(raw_pod)
    if owner is None:
        return ReserveAnswer(refusal=MoveReason.POD_CHANGED, detail="no controller would make the pod again")
    if move.owner is not None and move.owner.uid not in {"", owner.uid}:
        detail = f"the pod belongs to {owner.kind} {owner.name} now"
        return ReserveAnswer(refusal=MoveReason.POD_CHANGED, detail=detail)
    return None


def _is_ready(raw_pod: dict[str, Any]) -> bool:
    conditions = raw_pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def evict(
    client: KubeClient, move: PlannedMove, operator: OperatorLiveness, pre_eviction_check: PreEvictionCheck
) -> EvictAnswer:
    """Evict exactly the planned pod while an operator is alive, which hands its place over.

    A pod without a place needs none. Asks the rules and filters once more before, about the pod as it is now.
    """
    silent = "" if move.is_eviction else operator.problem()
    if silent:
        return EvictAnswer(Eviction.BLOCKED, silent)
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
        if raw_pod["metadata"]["uid"] == move.pod_uid:
            with pre_eviction_check.eviction_lock(raw_pod, has_place=not move.is_eviction):
                refused = _ask_rules(raw_pod, move, pre_eviction_check)
                return refused or replace(_ask_for_eviction(client, move), grace_seconds=_grace_seconds(raw_pod))
    except NotFoundError:
        pass  # the eviction reports what became of it
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.BLOCKED, str(error), retry_after_seconds=error.retry_after_seconds)
    return _ask_for_eviction(client, move)


def _ask_rules(raw_pod: dict[str, Any], move: PlannedMove, pre_eviction_check: PreEvictionCheck) -> EvictAnswer | None:
    """Return why the pod may not be evicted, None if it may.

    Raises `BerthError` where that is unknown.
    """
    if move.is_eviction and (changed := why_not_movable(raw_pod, move)) is not None:
        return EvictAnswer(Eviction.NOT_SENT, changed.detail, refusal=changed.refusal)
    found = pre_eviction_check.refusals(raw_pod, has_place=not move.is_eviction)
    if not found:
        return None
    return EvictAnswer(Eviction.NOT_SENT, "; ".join(one.message for one in found), refusal=MoveReason.FILTERED)


def _ask_for_eviction(client: KubeClient, move: PlannedMove) -> EvictAnswer:
    try:
        client.evict(move.namespace, move.pod, uid=move.pod_uid)
    except (EvictionBlockedError, EvictionInterceptedError) as error:
        answer = Eviction.BLOCKED if isinstance(error, EvictionBlockedError) else Eviction.INTERCEPTED
        return EvictAnswer(answer, error.message, retry_after_seconds=error.retry_after_seconds)
    except (NotFoundError, ConflictError):
        # Gone, or another pod has its name: the watch is about to show it.
        return EvictAnswer(Eviction.BLOCKED, "the pod is not there any more", is_gone=True)
    except UnreachableError as error:
        return EvictAnswer(Eviction.UNANSWERED if error.acted else Eviction.BLOCKED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.UNANSWERED, str(error), retry_after_seconds=error.retry_after_seconds)
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    return EvictAnswer(Eviction.SENT)


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


def _is_gone(observed_wave: WaveObservation, progress: MoveProgress) -> bool:
    return observed_wave.observations[progress.index].presence is Presence.GONE


_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WaveContext:
    """What else decides about the moves of a wave.

    `stopping_since` is in monotonic seconds.
    """

    unready: frozenset[OwnerKey] = frozenset()
    """Controllers that still lack Ready pods because of earlier waves."""

    stop: MoveReason = MoveReason.NONE
    stopping_since: float | None = None


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
        observed_wave = observe_wave(wave, observed, now, timeouts.gap_seconds, horizon=horizon)
        find_successors(wave, observed_wave, observed, self._begun)
        counts = _count_open(wave)
        for progress in wave:
            if progress.finished or progress.in_flight:
                continue
            note_unready_replicas(progress, wave_context.unready, now)
            facts = derive_facts(
                progress,
                observed_wave,
                stop=wave_context.stop,
                stopping_since=wave_context.stopping_since,
                source_lost=progress.move.source in self.lost_sources and not progress.move.stands_alone,
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
            case Evict():
                self._begin_evict(progress, observed_wave, counts)
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
        client, ttl = self._context.client, self._settings.ttl
        self._set_status(progress, MoveState.RESERVING)
        self._calls.make_for(
            progress,
            lambda: reserve(client, self._plan, progress.index, progress.move, ttl),
            lambda answer: self._reserved(progress, answer),
        )

    def _reserved(self, progress: MoveProgress, answer: ReserveAnswer) -> None:
        if answer.created:
            progress.asked, progress.asked_at = True, self._context.clock.monotonic()
            longest = self._settings.max_grace.total_seconds()
            progress.was_ready, progress.grace_seconds = answer.was_ready, min(answer.grace_seconds, longest)
            progress.attempts, progress.retry_at = 0, None
            _LOG.info(telemetry.RESERVED, **self._keys(progress))
            return
        progress.refusal, progress.refusal_detail = answer.refusal, answer.detail
        if not answer.refusal:
            self._back_off(progress, answer.detail, None, telemetry.CALL_FAILED)

    def _begin_evict(self, progress: MoveProgress, observed_wave: WaveObservation, counts: _Counts) -> None:
        """Request the eviction of a move's pod; one without a place begins with it, unless enough are under way.

        It counts as done for the siblings until the answer says otherwise.
        """
        if progress.move.is_eviction and not _is_open(progress):
            if counts.open_moves >= self._settings.max_open_moves:
                return
            counts.open_moves += 1
        observed_wave.count_eviction(progress)
        progress.eviction = Eviction.SENT
        self._calls.make_for(
            progress,
            lambda: evict(
                self._context.client, progress.move, self._context.operator, self._context.pre_eviction_check
            ),
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
            case _:
                assert_never(answer.eviction)

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
        self._set_state(progress, observed_wave, step.state, step.reason, step.message)
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


def _is_open(progress: MoveProgress) -> bool:
    """Return whether a move was begun: a place or, without one, the eviction was asked for."""
    was_asked = progress.move.is_eviction and progress.eviction is not Eviction.NOT_SENT
    return was_asked or progress.reserving_since is not None or progress.seen


def _keeps_its_node(status: MoveStatus) -> bool:
    """Return whether an earlier move left its pod on the source.

    The move ended before this run.
    """
    late = {MoveReason.REPLACEMENT_TIMEOUT, MoveReason.POD_STAYS}
    evicted = status.reason in late or bool(status.replacement)
    known = (MoveReason.POD_GONE, MoveReason.ROOM_NOT_NEEDED)
    reason = next((one for one in known if one == status.reason), MoveReason.NONE)
    return keeps_its_node(status.state, reason, evicted=evicted)
