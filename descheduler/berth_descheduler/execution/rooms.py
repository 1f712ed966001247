"""Owns the life of one room as a pure decision: what is seen of it now, what is to be done next.

It does not look and does not act (`room_keeper` does both), nor does it decide about the moves that make the room.

A room is asked for before the first move: its Reservation waits on the chosen nodes, which are kept from others by a
taint of the plan's. So whatever the moves free there can only become its. It is held when all of its slots are; from
then on the operator hands them to the waiting pods.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias, assert_never

from berth_core.plan_rooms import RoomReason, RoomState
from berth_descheduler.settings import MoveTimeouts


class Hold(Enum):
    """How far the holding of a room is, read off its Reservation."""

    UNASKED = auto()
    """There is no Reservation, and this run has made none."""
    ASKED = auto()
    """The operator or the scheduler has not looked at it yet, or the watch has not shown it."""
    WAITING = auto()
    """It waits on the chosen nodes."""
    HELD = auto()
    """All of its slots are held or further."""
    TAKEN = auto()
    LOST = auto()
    """The Reservation failed or was deleted."""


class Waiters(Enum):
    """What has become of the pods that a room is for."""

    NONE = auto()
    """Nobody is named: the room is for a shape."""
    WAITING = auto()
    GONE = auto()
    """One of them at least was deleted or has ended."""
    PLACED = auto()
    """All of them are on nodes."""


@dataclass(frozen=True, slots=True)
class RoomFacts:
    """All that is known of one room at one instant; times in monotonic seconds, None: not begun."""

    hold: Hold = Hold.UNASKED
    hold_detail: str = ""
    waiters: Waiters = Waiters.WAITING
    waiters_detail: str = ""
    has_waited: bool = False
    """Its Reservation has waited on the chosen nodes, or got further."""

    changes_hands: bool = False
    """A slot is just being handed to its owner."""

    any_taken: bool = False
    refusal: RoomReason = RoomReason.NONE
    """Set when making the Reservation was refused for good."""

    refusal_detail: str = ""
    spoilt: str = ""
    """Why the moves that are left cannot make the room any more, "" while they can."""

    is_moving: bool = True
    """A move that makes the room is still to come or under way."""

    is_selected: bool = False
    """Pods that do not exist yet may take the room."""

    stop: RoomReason = RoomReason.NONE
    """Set when the plan is to begin nothing new."""

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
    """Do nothing; what the room's state is and what it waits for."""

    state: RoomState
    message: str = ""


@dataclass(frozen=True, slots=True)
class EndRoom:
    """The room is over; with `release` its Reservation is deleted."""

    state: RoomState
    reason: RoomReason = RoomReason.NONE
    message: str = ""
    release: bool = False


_NOTHING: Final = frozenset({Hold.UNASKED, Hold.LOST})

RoomStep: TypeAlias = AskForRoom | KeepRoom | EndRoom


def next_room_step(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    """Decide what is to be done for a room; `now` in the monotonic seconds of the facts."""
    return _already_over(facts, timeouts, now) or _stopped(facts, timeouts, now) or _go_on(facts, timeouts, now)


def _already_over(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep | None:
    """Return how a room ends that is taken, lost or not needed any more; a slot that changes hands is let do so."""
    if facts.hold is Hold.TAKEN:
        return EndRoom(RoomState.TAKEN)
    if facts.changes_hands:
        return None
    match facts.waiters:
        case Waiters.GONE:
            return EndRoom(RoomState.RELEASED, RoomReason.POD_GONE, facts.waiters_detail, release=True)
        case Waiters.PLACED if facts.hold in _NOTHING or _elapsed(facts.placed_since, timeouts.gap_seconds, now):
            # What took a slot shows in the Reservation a moment after the pod is on its node.
            if facts.any_taken:
                return EndRoom(RoomState.TAKEN, RoomReason.POD_PLACED, facts.waiters_detail, release=True)
            return EndRoom(RoomState.RELEASED, RoomReason.POD_PLACED, facts.waiters_detail, release=True)
        case _:
            return None


def _stopped(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep | None:
    """Return how a room ends whose plan is stopped; one that is held already is still handed over."""
    if not facts.stop:
        return None
    if facts.hold is Hold.HELD and not _elapsed(facts.stopping_since, timeouts.shutdown_seconds, now):
        return None
    return EndRoom(RoomState.RELEASED, facts.stop, "the plan was stopped before the room was taken", release=True)


def _go_on(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    match facts.hold:
        case Hold.UNASKED:
            return _begin(facts)
        case Hold.LOST:
            return EndRoom(RoomState.FAILED, RoomReason.RESERVATION_FAILED, facts.hold_detail, release=True)
        case Hold.ASKED | Hold.WAITING:
            return _await_room(facts, timeouts, now)
        case Hold.HELD:
            return _await_taking(facts, timeouts, now)
        case Hold.TAKEN:
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
    if facts.hold is Hold.ASKED and _elapsed(facts.asked_since, timeouts.reserve_seconds, now) and facts.is_moving:
        message = _joined(f"its Reservation did not wait within {timeouts.reserve_seconds:g} s", facts.hold_detail)
        return EndRoom(RoomState.FAILED, RoomReason.RESERVATION_TIMEOUT, message, release=True)
    if not facts.is_moving and _elapsed(facts.still_since, timeouts.reserve_seconds, now):
        message = f"the moves are over, and the room was not held within {timeouts.reserve_seconds:g} s"
        return EndRoom(RoomState.FAILED, RoomReason.ROOM_NOT_MADE, _joined(message, facts.hold_detail), release=True)
    return KeepRoom(RoomState.WAITING if facts.has_waited else RoomState.PENDING, facts.hold_detail)


def _await_taking(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    if facts.waiters is Waiters.NONE:
        who = "for the pods that are selected" if facts.is_selected else "for nobody in particular"
        return EndRoom(RoomState.HELD, message=f"it is held {who} until its Reservation ends")
    if _elapsed(facts.held_since, timeouts.land_seconds, now) and not facts.changes_hands:
        message = _joined(f"nobody took the room within {timeouts.land_seconds:g} s", facts.hold_detail)
        return EndRoom(RoomState.FAILED, RoomReason.NOT_TAKEN, message, release=True)
    return KeepRoom(RoomState.HELD, facts.hold_detail)


def _elapsed(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since >= seconds


def _joined(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what
