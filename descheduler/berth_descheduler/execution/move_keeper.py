"""Owns the keeping of a plan's moves on their way: looks at them, acts as `moves` decides, and notes how they fare.

It does not own their order nor when nothing new may begin (`executor`, `plan_stop`), nor what calls mean (`evictions`).

Like the rooms, the moves are driven by what is: a run that is killed leaves Reservations and evicted pods, and the next
goes on from what it sees.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

import structlog

from berth_core.clock import Clock
from berth_core.errors import BerthError
from berth_core.migration_plans import MigrationPlan, MoveReason, MoveState, MoveStatus
from berth_descheduler import log_keys
from berth_descheduler.execution.announcements import announce_eviction
from berth_descheduler.execution.background_calls import BackgroundCalls
from berth_descheduler.execution.evictions import EvictAnswer, ReserveAnswer, backoff_seconds, evict, reserve
from berth_descheduler.execution.facts import (
    Kinship,
    Look,
    MoveProgress,
    derive_facts,
    look_at,
    note_siblings,
    start_progress,
    was_evicted,
)
from berth_descheduler.execution.last_word import LastWord
from berth_descheduler.execution.moves import Evict, Eviction, Finish, Reserve, Step, Wait, keeps_its_node, next_step
from berth_descheduler.execution.observation import Observed
from berth_descheduler.execution.operator_pulse import OperatorPulse
from berth_descheduler.execution.plan_objects import PlanIdentity
from berth_descheduler.settings import ExecutionSettings
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import RESERVATIONS

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MoveTools:
    """What the keeper works with."""

    client: KubeClient
    clock: Clock
    settings: ExecutionSettings
    calls: BackgroundCalls
    operator: OperatorPulse
    last_word: LastWord
    """Who is asked before each eviction."""


@dataclass(frozen=True, slots=True)
class Around:
    """What else counts for the moves of a wave at one look; `stopping_since` in monotonic seconds."""

    unready: frozenset[Kinship] = frozenset()
    """Controllers that have not got back what earlier waves took from them."""

    stop: MoveReason = MoveReason.NONE
    stopping_since: float | None = None


@dataclass(slots=True)
class _Counts:
    """What limits how much begins at once."""

    open_moves: int = 0
    open_sources: set[str] = field(default_factory=set)


class MoveKeeper:
    """Keeps the moves of one plan."""

    def __init__(self, tools: MoveTools, plan: MigrationPlan, moves: Sequence[MoveProgress]) -> None:
        self._tools = tools
        self._plan = PlanIdentity.of(plan)
        self._moves = moves
        self.lost_sources = {one.move.source for one in moves if one.finished and _stays(one.status)}
        """Nodes on which a pod has to stay that was to leave."""

    @property
    def statuses(self) -> tuple[MoveStatus, ...]:
        """Return the moves' statuses, in the order of the plan."""
        return tuple(one.status for one in self._moves)

    def tend(self, wave: Sequence[MoveProgress], observed: Observed, around: Around) -> None:
        """Look at a wave once, then decide and act for each of its moves."""
        now, timeouts = self._tools.clock.monotonic(), self._tools.settings.timeouts
        horizon = self._tools.clock.now() + timedelta(seconds=timeouts.land_seconds)
        look = look_at(wave, observed, now, timeouts.gap_seconds, horizon=horizon)
        counts = _count_open(wave)
        for progress in wave:
            if progress.finished or progress.in_flight:
                continue
            note_siblings(progress, around.unready, now)
            facts = derive_facts(
                progress,
                look,
                stop=around.stop,
                stopping_since=around.stopping_since,
                source_lost=progress.move.source in self.lost_sources and not progress.move.stands_alone,
            )
            self._act(progress, next_step(facts, timeouts, now), look, counts)

    def skip(self, progress: MoveProgress, reason: MoveReason, message: str) -> None:
        """End a move for which nothing was begun."""
        self._set_status(progress, MoveState.SKIPPED, reason, message)
        if keeps_its_node(MoveState.SKIPPED, reason, evicted=False):
            self.lost_sources.add(progress.move.source)

    def give_up(self, progress: MoveProgress, message: str) -> None:
        """End a move that does not end by itself."""
        self._set_status(progress, MoveState.FAILED, MoveReason.PLAN_STOPPED, message)

    # --- acting -----------------------------------------------------------------------------------------------------

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
        self._tools.calls.make_for(
            progress,
            lambda: reserve(client, self._plan, progress.index, progress.move, ttl),
            lambda answer: self._reserved(progress, answer),
        )

    def _reserved(self, progress: MoveProgress, answer: ReserveAnswer) -> None:
        if answer.created:
            progress.asked, progress.asked_at = True, self._tools.clock.monotonic()
            longest = self._tools.settings.max_grace.total_seconds()
            progress.was_ready, progress.grace_seconds = answer.was_ready, min(answer.grace_seconds, longest)
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
        self._tools.calls.make_for(
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
                client, clock = self._tools.client, self._tools.clock
                self._tools.calls.make(lambda: announce_eviction(client, clock, self._plan.name, progress.move))
            case Eviction.BLOCKED | Eviction.INTERCEPTED | Eviction.UNANSWERED:
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
            self.lost_sources.add(progress.move.source)
        self._set_state(progress, look, step.state, step.reason, step.message)
        if step.release and (progress.reserving_since is not None or progress.seen):
            self._tools.calls.make_for(progress, lambda: self._release(progress))

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

    def _keys(self, progress: MoveProgress) -> dict[str, str]:
        return {
            log_keys.KEY_PLAN: self._plan.name,
            log_keys.KEY_POD: f"{progress.move.namespace}/{progress.move.pod}",
            log_keys.KEY_NODE: progress.move.target,
        }


def start_moves(plan: MigrationPlan, skipped: Mapping[int, MoveStatus], *, adopted: bool) -> list[MoveProgress]:
    """Return the progress of all moves; of an adopted plan, what was recorded as over stays over."""
    recorded = dict(enumerate(plan.move_statuses)) if adopted else {}
    moves = []
    for index, move in enumerate(plan.spec.moves):
        status = skipped.get(index) or recorded.get(index)
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
