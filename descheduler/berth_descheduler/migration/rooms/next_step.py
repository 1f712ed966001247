"""Decides the next step of a room from its current facts.

The decisions are pure. A room is asked for before the first move: its Reservation waits on the chosen nodes, which a
taint of the plan keeps from others. So only the room can take what the moves free there. It is held when all of its
slots are; from then on the operator hands them to the waiting pods.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias, assert_never

from berth_core import RoomReason, RoomState
from berth_descheduler.migration.moves.given_up import joined
from berth_descheduler.migration.moves.memory import has_elapsed
from berth_descheduler.settings import MoveTimeouts


class RoomReservationProgress(Enum):
    """How far the Reservation of a room has come."""

    NOT_CREATED = auto()
    """There is no Reservation, and this run has made none."""
    PENDING = auto()
    """The operator or the scheduler has not acted on it yet, or the watch has not reported it."""
    WAITING = auto()
    """It waits on the chosen nodes."""
    READY = auto()
    """All of its slots are held or further."""
    BOUND = auto()
    LOST = auto()
    """The Reservation failed or was deleted."""


class PodsOfRoom(Enum):
    """The state of the pods that a room is made for."""

    NONE = auto()
    """No pod is named: the room is for a shape."""
    WAITING = auto()
    GONE = auto()
    """At least one of them was deleted or has ended."""
    PLACED = auto()
    """All of them are on nodes."""


@dataclass(frozen=True, slots=True)
class RoomFacts:
    """All facts of one room at one instant; times are in monotonic seconds, None where not begun."""

    hold: RoomReservationProgress = RoomReservationProgress.NOT_CREATED
    hold_detail: str = ""
    waiting_pods: PodsOfRoom = PodsOfRoom.WAITING
    waiting_pods_detail: str = ""
    has_waited: bool = False
    """Its Reservation has waited on the chosen nodes, or got further."""

    changes_hands: bool = False
    """A slot is being handed to its owner."""

    any_taken: bool = False
    refusal: RoomReason = RoomReason.NONE
    """Set when the API server refused the Reservation for good."""

    refusal_detail: str = ""
    spoilt: str = ""
    """Why the remaining moves cannot make the room any more, "" while they can."""

    is_moving: bool = True
    """A move that makes the room is pending or under way."""

    is_selected: bool = False
    """Pods that do not exist yet may take the room."""

    stop: RoomReason = RoomReason.NONE
    """Set when the plan begins nothing new."""

    asked_since: float | None = None
    still_since: float | None = None
    """Since when no move is left that makes the room."""

    held_since: float | None = None
    placed_since: float | None = None
    stopping_since: float | None = None


@dataclass(frozen=True, slots=True)
class AskForRoom:
    """Create the Reservation."""


@dataclass(frozen=True, slots=True)
class KeepRoom:
    """Do nothing; reports the room's state and what it waits for."""

    state: RoomState
    message: str = ""


@dataclass(frozen=True, slots=True)
class EndRoom:
    """The room is over; with `release` its Reservation is deleted."""

    state: RoomState
    reason: RoomReason = RoomReason.NONE
    message: str = ""
    release: bool = False


_NOTHING: Final = frozenset({RoomReservationProgress.NOT_CREATED, RoomReservationProgress.LOST})

RoomStep: TypeAlias = AskForRoom | KeepRoom | EndRoom


def next_room_step(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    """Return the next step of a room; `now` is in monotonic seconds, as are the times in the facts."""
    return _already_over(facts, timeouts, now) or _stopped(facts, timeouts, now) or _go_on(facts, timeouts, now)


def _already_over(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep | None:
    """Return how a taken, lost or unneeded room ends, None where it goes on.

    A hand-over under way is not interrupted.
    """
    if facts.hold is RoomReservationProgress.BOUND:
        return EndRoom(RoomState.TAKEN)
    if facts.changes_hands:
        return None
    match facts.waiting_pods:
        case PodsOfRoom.GONE:
            return EndRoom(RoomState.RELEASED, RoomReason.POD_GONE, facts.waiting_pods_detail, release=True)
        case PodsOfRoom.PLACED if facts.hold in _NOTHING or has_elapsed(facts.placed_since, timeouts.gap_seconds, now):
            # The Reservation shows who took a slot a moment after the pod is on its node.
            if facts.any_taken:
                return EndRoom(RoomState.TAKEN, RoomReason.POD_PLACED, facts.waiting_pods_detail, release=True)
            return EndRoom(RoomState.RELEASED, RoomReason.POD_PLACED, facts.waiting_pods_detail, release=True)
        case _:
            return None


def _stopped(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep | None:
    """Return how the room of a stopped plan ends.

    It is None while the plan goes on, and while a held room may still be handed over.
    """
    if not facts.stop:
        return None
    if facts.hold is RoomReservationProgress.READY and not has_elapsed(
        facts.stopping_since, timeouts.shutdown_seconds, now
    ):
        return None
    return EndRoom(RoomState.RELEASED, facts.stop, "the plan was stopped before the room was taken", release=True)


def _go_on(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    match facts.hold:
        case RoomReservationProgress.NOT_CREATED:
            return _begin(facts)
        case RoomReservationProgress.LOST:
            return EndRoom(RoomState.FAILED, RoomReason.RESERVATION_FAILED, facts.hold_detail, release=True)
        case RoomReservationProgress.PENDING | RoomReservationProgress.WAITING:
            return _await_room(facts, timeouts, now)
        case RoomReservationProgress.READY:
            return _await_taking(facts, timeouts, now)
        case RoomReservationProgress.BOUND:
            return EndRoom(RoomState.TAKEN)
        case _:
            assert_never(facts.hold)


def _begin(facts: RoomFacts) -> RoomStep:
    if facts.refusal:
        state = RoomState.RELEASED if facts.refusal is RoomReason.POD_GONE else RoomState.FAILED
        return EndRoom(state, facts.refusal, facts.refusal_detail)
    if facts.spoilt and not facts.is_moving:
        return EndRoom(RoomState.FAILED, RoomReason.ROOM_NOT_MADE, facts.spoilt)
    return AskForRoom()


def _await_room(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    if facts.spoilt and not facts.is_moving:
        return EndRoom(RoomState.FAILED, RoomReason.ROOM_NOT_MADE, facts.spoilt, release=True)
    if (
        facts.hold is RoomReservationProgress.PENDING
        and has_elapsed(facts.asked_since, timeouts.reserve_seconds, now)
        and facts.is_moving
    ):
        message = joined(f"its Reservation did not wait within {timeouts.reserve_seconds:g} s", facts.hold_detail)
        return EndRoom(RoomState.FAILED, RoomReason.RESERVATION_TIMEOUT, message, release=True)
    if not facts.is_moving and has_elapsed(facts.still_since, timeouts.reserve_seconds, now):
        message = f"the moves are over, and the room was not held within {timeouts.reserve_seconds:g} s"
        return EndRoom(RoomState.FAILED, RoomReason.ROOM_NOT_MADE, joined(message, facts.hold_detail), release=True)
    return KeepRoom(RoomState.WAITING if facts.has_waited else RoomState.PENDING, facts.hold_detail)


def _await_taking(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    if facts.waiting_pods is PodsOfRoom.NONE:
        claimant = "for the selected pods" if facts.is_selected else "without an owner"
        return EndRoom(RoomState.HELD, message=f"it is held {claimant} until its Reservation ends")
    if has_elapsed(facts.held_since, timeouts.land_seconds, now) and not facts.changes_hands:
        message = joined(f"no pod took the room within {timeouts.land_seconds:g} s", facts.hold_detail)
        return EndRoom(RoomState.FAILED, RoomReason.NOT_TAKEN, message, release=True)
    return KeepRoom(RoomState.HELD, facts.hold_detail)
