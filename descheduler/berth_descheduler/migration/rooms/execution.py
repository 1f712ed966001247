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

from berth_core import MigrationPlan, MoveReason, Reservation, RoomReason, RoomState, RoomStatus, expires_at, first_few
from berth_descheduler import telemetry
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.memory import FinalRefusal, MoveMemory
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.migration.rooms.memory import RoomMemory, start_rooms
from berth_descheduler.migration.rooms.next_step import (
    AskForRoom,
    EndRoom,
    KeepRoom,
    RoomFacts,
    RoomReservationProgress,
    RoomStep,
    next_room_step,
)
from berth_descheduler.migration.rooms.observation import observe_room, takers
from berth_descheduler.migration.rooms.requests import (
    NODES_SHOWN,
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
    """The progress of the rest of the plan."""

    moves: Sequence[MoveMemory]
    lost_sources: Collection[str]
    """Sources on which a planned pod has to stay."""

    stop: MoveReason = MoveReason.NONE
    stopping_since: float | None = None
    """In monotonic seconds."""


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
        return tuple(memory.status for memory in self._rooms)

    @property
    def are_asked_for(self) -> bool:
        """Return whether every room that is not over has a Reservation that waits on its nodes."""
        return all(memory.ended or memory.hold in _READY for memory in self._rooms)

    @property
    def are_over(self) -> bool:
        """Return whether all rooms are over."""
        return all(memory.ended and not memory.in_flight for memory in self._rooms)

    def cancel(self, memory: MoveMemory) -> None:
        """Cancel a move that no room needs any more; one whose pod was evicted goes on."""
        served_rooms = [room for room in self._rooms if memory.index in room.moves]
        if not served_rooms or any(room.is_wanted for room in served_rooms):
            return
        detail = f"it serves no room any more: {_describe(served_rooms[0])}"
        memory.refused = FinalRefusal(MoveReason.ROOM_NOT_NEEDED, detail)

    def reconcile(self, observed: ObservedPlan, plan: PlanProgress) -> None:
        """Observe every room once, decide and act."""
        now, timeouts = self._context.clock.monotonic(), self._settings.timeouts
        for memory in self._rooms:
            if memory.ended or memory.in_flight:
                continue
            if memory.room.waits:
                self._reconcile_waiting(memory, plan)
                continue
            room_facts = _beside_moves(memory, observe_room(memory, observed, now, timeouts.gap_seconds), plan, now)
            self._act(memory, next_room_step(room_facts, timeouts, now), observed.reservations.get(memory.key))

    def _act(self, memory: RoomMemory, step: RoomStep, seen: Reservation | None) -> None:
        match step:
            case AskForRoom():
                self._ask(memory)
            case KeepRoom():
                self._set_status(memory, step.state, message=step.message, seen=seen)
                self._renew(memory, seen)
            case EndRoom():
                self._end(memory, step, seen)
            case _:
                assert_never(step)

    def _ask(self, memory: RoomMemory) -> None:
        if memory.retry.is_too_early(self._context.clock.monotonic()):
            return
        client, clock, ttl, request = self._context.client, self._context.clock, self._settings.ttl, self._request
        self._calls.make_for(
            memory,
            lambda: (
                ask_to_wait(client, clock, request, memory.room)
                if memory.room.waits
                else ask_for_room(client, self._plan, memory.index, memory.room, ttl)
            ),
            lambda answer: self._asked(memory, answer),
        )

    def _asked(self, memory: RoomMemory, answer: RoomAnswer) -> None:
        if answer.created:
            memory.asked_at = self._context.clock.monotonic()
            _LOG.info(telemetry.RESERVED, **self._keys(memory))
            return
        memory.refusal, memory.refusal_detail = answer.refusal, answer.detail
        if not answer.refusal:
            memory.retry = memory.retry.after_refusal(self._context.clock.monotonic())
            _LOG.info(telemetry.CALL_FAILED, **self._keys(memory), **{telemetry.KEY_MESSAGE: answer.detail})

    def _reconcile_waiting(self, memory: RoomMemory, plan: PlanProgress) -> None:
        """Create the Reservation of a room that waits; from then on it needs the plan no more."""
        if memory.asked_at is not None:
            nodes = first_few(memory.room.nodes, NODES_SHOWN)
            ends = f"until pods on {nodes} have ended, at most {memory.room.ttl}"
            text = f"its Reservation {memory.reservation} waits {ends}"
            memory.status = msgspec.structs.replace(memory.status, reservation=memory.reservation)
            self._set_status(memory, RoomState.WAITING, message=text, seen=None)
        elif memory.refusal:
            state = RoomState.RELEASED if memory.refusal in _UNNEEDED else RoomState.FAILED
            self._set_status(memory, state, memory.refusal, memory.refusal_detail, seen=None)
        elif plan.stop:
            reason, message = _reason_of(plan.stop), "the plan was stopped before it began"
            self._set_status(memory, RoomState.RELEASED, reason, message, seen=None)
        else:
            self._ask(memory)
            return
        memory.ended = True

    def _renew(self, memory: RoomMemory, seen: Reservation | None) -> None:
        """Extend the Reservation's TTL while its room is awaited, so that it expires if this run dies."""
        client, ttl, now = self._context.client, self._settings.ttl, self._context.clock.now()
        # At half of the TTL, so that one failed write does not let the room expire.
        if seen is not None and seen.is_live and _is_due(seen, now, ttl / 2):
            self._calls.make_for(memory, lambda: extend(client, seen, now, ttl))

    def _end(self, memory: RoomMemory, step: EndRoom, seen: Reservation | None) -> None:
        """End a room, and open its nodes to all pods again, except those that another room needs."""
        memory.ended = True
        self._set_status(memory, step.state, step.reason, step.message, seen=seen)
        needed_nodes = {node for other_room in self._rooms if not other_room.ended for node in other_room.room.nodes}
        nodes = [node for node in memory.room.nodes if node not in needed_nodes]
        client, now, ttl = self._context.client, self._context.clock.now(), self._settings.reservation_ttl

        def finalize() -> None:
            if step.release and (memory.asked_at is not None or seen is not None):
                delete_reservation(client, memory.room, memory.reservation)
            elif step.state is RoomState.HELD and seen is not None:
                extend(client, seen, now, ttl)
            # After the Reservation: opened first, the nodes would take any pod while its placeholders still wait.
            open_nodes(client, nodes)

        self._calls.make_for(memory, finalize)

    def _set_status(
        self,
        memory: RoomMemory,
        state: RoomState,
        reason: RoomReason = RoomReason.NONE,
        message: str = "",
        *,
        seen: Reservation | None,
    ) -> None:
        status_before = memory.status
        memory.status = msgspec.structs.replace(
            status_before,
            state=state,
            reason=reason.value,
            message=message,
            reservation=memory.reservation if seen is not None else status_before.reservation,
            taken=takers(seen) or status_before.taken,
        )
        if status_before.state is not state:
            keys = {
                telemetry.KEY_STATE: state.value,
                telemetry.KEY_REASON: reason.value,
                telemetry.KEY_MESSAGE: message,
            }
            _LOG.info(telemetry.ROOM_CHANGED, **self._keys(memory), **keys)

    def _keys(self, memory: RoomMemory) -> dict[str, str]:
        return {
            telemetry.KEY_PLAN: self._plan.name,
            telemetry.KEY_ROOM: memory.room.name,
            telemetry.KEY_RESERVATION: memory.key,
        }


def _beside_moves(memory: RoomMemory, facts: RoomFacts, plan: PlanProgress, now: float) -> RoomFacts:
    """Return a room's facts with those of its moves and its plan."""
    is_moving = any(not move.finished for move in plan.moves if move.index in memory.moves)
    lost_nodes = sorted(set(memory.room.nodes).intersection(plan.lost_sources))
    memory.spoilt = f"a pod had to stay on {', '.join(lost_nodes)}" if lost_nodes else ""
    memory.still_since = None if is_moving else (memory.still_since or now)
    return replace(
        facts,
        spoilt=memory.spoilt,
        is_moving=is_moving,
        still_since=memory.still_since,
        stop=_reason_of(plan.stop),
        stopping_since=plan.stopping_since,
    )


def _reason_of(stop: MoveReason) -> RoomReason:
    """Return why a room ends with a plan that stops."""
    return next((reason for reason in RoomReason if reason.value == stop.value), RoomReason.PLAN_STOPPED)


def _is_due(seen: Reservation, now: datetime, least: timedelta) -> bool:
    """Return whether a Reservation ends within `least`."""
    ends = expires_at(seen)
    return ends is not None and ends - now < least


def _describe(memory: RoomMemory) -> str:
    """Return why a room needs no more moves, for a sentence."""
    if memory.ended:
        status = memory.status
        reason_text = (
            f" ({': '.join(part for part in (status.reason, status.message) if part)})" if status.reason else ""
        )
        return f"that for {memory.room.name} is {status.state.value}{reason_text}"
    return memory.spoilt or f"that for {memory.room.name} is held already"
