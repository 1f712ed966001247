"""Carries out the steps of rooms: observes them, acts as `next_step` decides, and records their statuses.

Rooms are level-triggered, like moves: a killed run leaves waiting Reservations, and the next run continues from what it
observes. Only the end of a room is read from the plan's status.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec
import structlog

from berth_core import (
    MigrationPlan,
    MoveReason,
    Reservation,
    RoomReason,
    RoomState,
    RoomStatus,
    expires_at,
    first_few,
    parse_timestamp,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.memory import MoveMemory, Refused
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.migration.retries import backoff_seconds
from berth_descheduler.migration.rooms.next_step import (
    AskForRoom,
    EndRoom,
    KeepRoom,
    RoomFacts,
    RoomReservationProgress,
    RoomStep,
    next_room_step,
)
from berth_descheduler.migration.rooms.observation import RoomProgress, observe_room, start_rooms, takers
from berth_descheduler.migration.rooms.requests import (
    _NODES_SHOWN,
    RoomAnswer,
    WaitRequest,
    ask_for_room,
    ask_to_wait,
    delete_reservation,
    extend,
    open_nodes,
)

_LOG = structlog.get_logger(__name__)

_UNNEEDED: Final = frozenset({RoomReason.POD_GONE, RoomReason.POD_PLACED})

_READY: Final = frozenset(
    {RoomReservationProgress.WAITING, RoomReservationProgress.READY, RoomReservationProgress.BOUND}
)


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """The progress of the rest of the plan; `stopping_since` in monotonic seconds."""

    moves: Sequence[MoveMemory]
    lost_sources: Collection[str]
    """Sources on which a planned pod has to stay."""

    stop: MoveReason = MoveReason.NONE
    stopping_since: float | None = None


class RoomController:
    """Reconciles the rooms of one plan; without rooms it does nothing."""

    def __init__(self, context: PlanContext, calls: BackgroundCalls, plan: MigrationPlan) -> None:
        self._context = context
        self._settings = context.execution
        self._calls = calls
        self._plan = PlanIdentity.of(plan)
        self._rooms = start_rooms(plan)
        self._request = WaitRequest.of(plan)

    @property
    def statuses(self) -> tuple[RoomStatus, ...]:
        """Return the rooms' statuses, in the order of the plan."""
        return tuple(one.status for one in self._rooms)

    @property
    def are_asked_for(self) -> bool:
        """Return whether every room's Reservation waits on its nodes.

        A room that is over needs none.
        """
        return all(one.ended or one.hold in _READY for one in self._rooms)

    @property
    def are_over(self) -> bool:
        """Return whether all rooms are over."""
        return all(one.ended and not one.in_flight for one in self._rooms)

    def cancel(self, memory: MoveMemory) -> None:
        """Cancel a move that no room needs any more.

        A move whose pod was evicted goes on.
        """
        served = [one for one in self._rooms if memory.index in one.moves]
        if not served or any(one.is_wanted for one in served):
            return
        detail = f"it serves no room any more: {_describe(served[0])}"
        memory.refused = Refused(MoveReason.ROOM_NOT_NEEDED, detail)

    def reconcile(self, observed: ObservedPlan, plan: PlanProgress) -> None:
        """Observe every room once, decide and act."""
        now, timeouts = self._context.clock.monotonic(), self._settings.timeouts
        for one in self._rooms:
            if one.ended or one.in_flight:
                continue
            if one.room.waits:
                self._reconcile_waiting(one, plan)
                continue
            facts = _beside_moves(one, observe_room(one, observed, now, timeouts.gap_seconds), plan, now)
            self._act(one, next_room_step(facts, timeouts, now), observed.reservations.get(one.key))

    # --- acting -----------------------------------------------------------------------------------------------------

    def _act(self, one: RoomProgress, step: RoomStep, seen: Reservation | None) -> None:
        match step:
            case AskForRoom():
                self._ask(one)
            case KeepRoom():
                self._set_status(one, step.state, message=step.message, seen=seen)
                self._renew(one, seen)
            case EndRoom():
                self._end(one, step, seen)
            case _:
                assert_never(step)

    def _ask(self, one: RoomProgress) -> None:
        if one.retry_at is not None and self._context.clock.monotonic() < one.retry_at:
            return
        client, clock, ttl, request = self._context.client, self._context.clock, self._settings.ttl, self._request
        self._calls.make_for(
            one,
            lambda: (
                ask_to_wait(client, clock, request, one.room)
                if one.room.waits
                else ask_for_room(client, self._plan, one.index, one.room, ttl)
            ),
            lambda answer: self._asked(one, answer),
        )

    def _asked(self, one: RoomProgress, answer: RoomAnswer) -> None:
        if answer.created:
            one.asked_at = self._context.clock.monotonic()
            _LOG.info(telemetry.RESERVED, **self._keys(one))
            return
        one.refusal, one.refusal_detail = answer.refusal, answer.detail
        if not answer.refusal:
            one.retry_at = self._context.clock.monotonic() + backoff_seconds(one.attempts)
            one.attempts += 1
            _LOG.info(telemetry.CALL_FAILED, **self._keys(one), **{telemetry.KEY_MESSAGE: answer.detail})

    def _reconcile_waiting(self, one: RoomProgress, plan: PlanProgress) -> None:
        """Create the Reservation of a room that waits; from then on it needs the plan no more."""
        reasons = {reason.value: reason for reason in RoomReason}
        if one.asked_at is not None:
            nodes = first_few(one.room.nodes, _NODES_SHOWN)
            text = f"its Reservation {one.reservation} waits until pods on {nodes} have ended, at most {one.room.ttl}"
            one.status = msgspec.structs.replace(one.status, reservation=one.reservation)
            self._set_status(one, RoomState.WAITING, message=text, seen=None)
        elif one.refusal:
            state = RoomState.RELEASED if one.refusal in _UNNEEDED else RoomState.FAILED
            self._set_status(one, state, one.refusal, one.refusal_detail, seen=None)
        elif plan.stop:
            reason = reasons.get(plan.stop.value, RoomReason.PLAN_STOPPED)
            self._set_status(one, RoomState.RELEASED, reason, "the plan was stopped before it began", seen=None)
        else:
            self._ask(one)
            return
        one.ended = True

    def _renew(self, one: RoomProgress, seen: Reservation | None) -> None:
        """Extend the Reservation's TTL while its room is awaited.

        If this run dies, the Reservation expires.
        """
        client, ttl, now = self._context.client, self._settings.ttl, self._context.clock.now()
        if seen is not None and seen.is_live and _is_due(seen, now, ttl / 2):
            self._calls.make_for(one, lambda: extend(client, seen, now, ttl))

    def _end(self, one: RoomProgress, step: EndRoom, seen: Reservation | None) -> None:
        """End a room and open its nodes to all pods again.

        Nodes that another room needs stay closed.
        """
        one.ended = True
        self._set_status(one, step.state, step.reason, step.message, seen=seen)
        needed = {node for other in self._rooms if not other.ended for node in other.room.nodes}
        nodes = [node for node in one.room.nodes if node not in needed]
        client, now, ttl = self._context.client, self._context.clock.now(), self._settings.reservation_ttl

        def finalize() -> None:
            if step.release and (one.asked_at is not None or seen is not None):
                delete_reservation(client, one.room, one.reservation)
            elif step.state is RoomState.HELD and seen is not None:
                extend(client, seen, now, ttl)
            open_nodes(client, nodes)

        self._calls.make_for(one, finalize)

    # --- reporting --------------------------------------------------------------------------------------------------

    def _set_status(
        self,
        one: RoomProgress,
        state: RoomState,
        reason: RoomReason = RoomReason.NONE,
        message: str = "",
        *,
        seen: Reservation | None,
    ) -> None:
        before = one.status
        one.status = msgspec.structs.replace(
            before,
            state=state,
            reason=reason.value,
            message=message,
            reservation=one.reservation if seen is not None else before.reservation,
            taken=takers(seen) or before.taken,
        )
        if before.state is not state:
            keys = {
                telemetry.KEY_STATE: state.value,
                telemetry.KEY_REASON: reason.value,
                telemetry.KEY_MESSAGE: message,
            }
            _LOG.info(telemetry.ROOM_CHANGED, **self._keys(one), **keys)

    def _keys(self, one: RoomProgress) -> dict[str, str]:
        return {
            telemetry.KEY_PLAN: self._plan.name,
            telemetry.KEY_ROOM: one.room.name,
            telemetry.KEY_RESERVATION: one.key,
        }


def _beside_moves(one: RoomProgress, facts: RoomFacts, plan: PlanProgress, now: float) -> RoomFacts:
    """Return a room's facts with those of its moves and its plan."""
    is_moving = any(not move.finished for move in plan.moves if move.index in one.moves)
    lost = sorted(set(one.room.nodes).intersection(plan.lost_sources))
    one.spoilt = f"a pod had to stay on {', '.join(lost)}" if lost else ""
    one.still_since = None if is_moving else (one.still_since or now)
    reasons = {reason.value: reason for reason in RoomReason}
    return replace(
        facts,
        spoilt=one.spoilt,
        is_moving=is_moving,
        still_since=one.still_since,
        stop=reasons.get(plan.stop.value, RoomReason.PLAN_STOPPED),
        stopping_since=plan.stopping_since,
    )


def _is_due(seen: Reservation, now: datetime, least: timedelta) -> bool:
    """Return whether a Reservation ends within this time."""
    ends = expires_at(seen.spec, parse_timestamp(seen.metadata.creation_timestamp or ""))
    return ends is not None and ends - now < least


def _describe(one: RoomProgress) -> str:
    """Return why a room needs no more moves, for a sentence."""
    if one.ended:
        status = one.status
        why = f" ({': '.join(part for part in (status.reason, status.message) if part)})" if status.reason else ""
        return f"that for {one.room.name} is {status.state.value}{why}"
    return one.spoilt or f"that for {one.room.name} is held already"
