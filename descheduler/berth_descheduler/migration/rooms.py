"""Decides the next step of a room from its current facts.

The decisions are pure. A room is asked for before the first move: its Reservation waits on the chosen nodes, which are
kept from others by a taint of the plan's. So whatever the moves free there can only become its. It is held when all of
its slots are; from then on the operator hands them to the waiting pods.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias, assert_never

from berth_core import (
    MigrationPlan,
    PlannedMove,
    Pod,
    Reservation,
    ReservationPhase,
    Room,
    RoomReason,
    RoomSlot,
    RoomState,
    RoomStatus,
    SlotState,
    first_few,
)
from berth_descheduler.migration.context import ObservedPlan
from berth_descheduler.migration.manifests import job_reservation_name, room_reservation_name
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


class WaitingPods(Enum):
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
    """All facts of one room at one instant.

    Times are in monotonic seconds, None where not begun.
    """

    hold: RoomReservationProgress = RoomReservationProgress.NOT_CREATED
    hold_detail: str = ""
    waiting_pods: WaitingPods = WaitingPods.WAITING
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
    """Return the next step of a room.

    `now` is in the monotonic seconds of the facts.
    """
    return _already_over(facts, timeouts, now) or _stopped(facts, timeouts, now) or _go_on(facts, timeouts, now)


def _already_over(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep | None:
    """Return how a taken, lost or unneeded room ends.

    None where it goes on: a hand-over under way is not interrupted.
    """
    if facts.hold is RoomReservationProgress.BOUND:
        return EndRoom(RoomState.TAKEN)
    if facts.changes_hands:
        return None
    match facts.waiting_pods:
        case WaitingPods.GONE:
            return EndRoom(RoomState.RELEASED, RoomReason.POD_GONE, facts.waiting_pods_detail, release=True)
        case WaitingPods.PLACED if facts.hold in _NOTHING or _elapsed(facts.placed_since, timeouts.gap_seconds, now):
            # The Reservation shows who took a slot a moment after the pod is on its node.
            if facts.any_taken:
                return EndRoom(RoomState.TAKEN, RoomReason.POD_PLACED, facts.waiting_pods_detail, release=True)
            return EndRoom(RoomState.RELEASED, RoomReason.POD_PLACED, facts.waiting_pods_detail, release=True)
        case _:
            return None


def _stopped(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep | None:
    """Return how the room of a stopped plan ends.

    None while the plan goes on, and while a held room is still handed over.
    """
    if not facts.stop:
        return None
    if facts.hold is RoomReservationProgress.READY and not _elapsed(
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
        and _elapsed(facts.asked_since, timeouts.reserve_seconds, now)
        and facts.is_moving
    ):
        message = _joined(f"its Reservation did not wait within {timeouts.reserve_seconds:g} s", facts.hold_detail)
        return EndRoom(RoomState.FAILED, RoomReason.RESERVATION_TIMEOUT, message, release=True)
    if not facts.is_moving and _elapsed(facts.still_since, timeouts.reserve_seconds, now):
        message = f"the moves are over, and the room was not held within {timeouts.reserve_seconds:g} s"
        return EndRoom(RoomState.FAILED, RoomReason.ROOM_NOT_MADE, _joined(message, facts.hold_detail), release=True)
    return KeepRoom(RoomState.WAITING if facts.has_waited else RoomState.PENDING, facts.hold_detail)


def _await_taking(facts: RoomFacts, timeouts: MoveTimeouts, now: float) -> RoomStep:
    if facts.waiting_pods is WaitingPods.NONE:
        who = "for the selected pods" if facts.is_selected else "without an owner"
        return EndRoom(RoomState.HELD, message=f"it is held {who} until its Reservation ends")
    if _elapsed(facts.held_since, timeouts.land_seconds, now) and not facts.changes_hands:
        message = _joined(f"no pod took the room within {timeouts.land_seconds:g} s", facts.hold_detail)
        return EndRoom(RoomState.FAILED, RoomReason.NOT_TAKEN, message, release=True)
    return KeepRoom(RoomState.HELD, facts.hold_detail)


def _elapsed(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since >= seconds


def _joined(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what


# --- room moves ------------------------------------------------------------------------------------------------------
# Which moves of a plan make which room: moves off the room's nodes, and moves that make way for these.


def moves_of_rooms(rooms: Sequence[Room], moves: Sequence[PlannedMove]) -> tuple[frozenset[int], ...]:
    """Return the positions of the moves that make each room.

    A move may serve several rooms.
    """
    return tuple(_moves_of(room, moves) for room in rooms)


def _moves_of(room: Room, moves: Sequence[PlannedMove]) -> frozenset[int]:
    """Return the moves of one room.

    A move that makes way for another stands before it, so one pass from the end finds all.
    """
    nodes = set(room.nodes)
    found: dict[int, PlannedMove] = {}
    for index in reversed(range(len(moves))):
        move = moves[index]
        if move.source in nodes or any(_makes_way(move, later) for later in found.values()):
            found[index] = move
    return frozenset(found)


def _makes_way(move: PlannedMove, later: PlannedMove) -> bool:
    """Return whether a later move needs this one.

    It does for space on its target, or to find its pod.
    """
    if move.source == later.target:
        return True
    return (move.namespace, move.pod, move.target) == (later.namespace, later.pod, later.source)


# --- room facts ------------------------------------------------------------------------------------------------------
# The facts of a room, derived from the observed objects and from what this run did and when.

_FILLED = frozenset({SlotState.HELD, SlotState.HANDING_OVER, SlotState.TAKEN})
_PODS_SHOWN = 3


@dataclass(slots=True)
class RoomProgress:
    """One room with what this run did for it and when.

    Times are in monotonic seconds.
    """

    index: int
    room: Room
    reservation: str
    """Name of the Reservation, derived from plan and index."""

    moves: frozenset[int]
    """The positions of the moves that make it."""

    status: RoomStatus
    ended: bool = False
    """The room is over: nothing more is done for it."""

    in_flight: bool = False
    """A call is under way; nothing is decided until it is answered."""

    hold: RoomReservationProgress = RoomReservationProgress.NOT_CREATED
    spoilt: str = ""
    """Why it cannot be made any more."""

    seen: bool = False
    refusal: RoomReason = RoomReason.NONE
    refusal_detail: str = ""
    attempts: int = 0
    retry_at: float | None = None
    asked_at: float | None = None
    unsettled_since: float | None = None
    still_since: float | None = None
    held_since: float | None = None
    placed_since: float | None = None

    @property
    def key(self) -> str:
        """Return `namespace/name` of the Reservation."""
        return f"{self.room.namespace}/{self.reservation}"

    @property
    def is_wanted(self) -> bool:
        """Return whether moves may still have to make it."""
        return (
            not self.ended
            and not self.spoilt
            and self.hold not in {RoomReservationProgress.READY, RoomReservationProgress.BOUND}
        )


def start_rooms(plan: MigrationPlan) -> tuple[RoomProgress, ...]:
    """Return the progress of all rooms of a plan.

    A recorded end stays.
    """
    served = moves_of_rooms(plan.spec.rooms, plan.spec.moves)
    rooms = []
    for index, (room, status) in enumerate(zip(plan.spec.rooms, plan.room_statuses, strict=True)):
        name = job_reservation_name(room.job) if room.job else room_reservation_name(plan.metadata.name, index)
        rooms.append(RoomProgress(index, room, name, served[index], status, ended=status.has_ended(room)))
    return tuple(rooms)


def observe_room(progress: RoomProgress, observed: ObservedPlan, now: float, gap_seconds: float) -> RoomFacts:
    """Return the facts of a room; updates the times in its progress."""
    reservation = observed.reservations.get(progress.key)
    progress.hold, detail = _hold(progress, reservation, now, gap_seconds)
    waiting_pods, who = _waiting_pods(progress.room, reservation, observed)
    settled = progress.hold in {
        RoomReservationProgress.WAITING,
        RoomReservationProgress.READY,
        RoomReservationProgress.BOUND,
    }
    progress.unsettled_since = None if settled else _since(progress.unsettled_since, now)
    progress.held_since = _since(progress.held_since, now) if progress.hold is RoomReservationProgress.READY else None
    progress.placed_since = _since(progress.placed_since, now) if waiting_pods is WaitingPods.PLACED else None
    slots = reservation.status.slots if reservation is not None else ()
    return RoomFacts(
        hold=progress.hold,
        hold_detail=detail,
        waiting_pods=waiting_pods,
        waiting_pods_detail=who,
        has_waited=settled or progress.status.state is not RoomState.PENDING,
        changes_hands=any(slot.state is SlotState.HANDING_OVER for slot in slots),
        any_taken=any(slot.state is SlotState.TAKEN for slot in slots),
        refusal=progress.refusal,
        refusal_detail=progress.refusal_detail,
        is_selected=bool(progress.room.selector),
        asked_since=progress.unsettled_since,
        held_since=progress.held_since,
        placed_since=progress.placed_since,
    )


def takers(reservation: Reservation | None) -> tuple[RoomSlot, ...]:
    """Return the owners in the slots of a Reservation, with their nodes."""
    slots = reservation.status.slots if reservation is not None else ()
    return tuple(
        RoomSlot(node=slot.node, pod=slot.owner.name, pod_uid=slot.owner.uid)
        for slot in slots
        if slot.state is SlotState.TAKEN and slot.owner is not None
    )


def _since(known: float | None, now: float) -> float:
    return now if known is None else known


def _hold(
    progress: RoomProgress, reservation: Reservation | None, now: float, gap_seconds: float
) -> tuple[RoomReservationProgress, str]:
    """Return the progress of the room's Reservation, with a detail.

    A missing Reservation counts as deleted once it was seen or is long due.
    """
    if reservation is not None:
        progress.seen = True
        return _read_hold(reservation)
    if progress.asked_at is None and not progress.seen:
        return RoomReservationProgress.NOT_CREATED, ""
    if not progress.seen and progress.asked_at is not None and now - progress.asked_at < gap_seconds:
        return RoomReservationProgress.PENDING, "not seen yet"
    return RoomReservationProgress.LOST, "the Reservation was deleted"


def _read_hold(reservation: Reservation) -> tuple[RoomReservationProgress, str]:
    """Return the progress that a Reservation's status shows, with reason and message."""
    state = reservation.status.state
    detail = ": ".join(part for part in (state.reason, state.message) if part) if state else ""
    if reservation.phase is ReservationPhase.SUCCEEDED:
        return RoomReservationProgress.BOUND, detail
    if reservation.phase is ReservationPhase.FAILED:
        return RoomReservationProgress.LOST, detail
    if reservation.metadata.deletion_timestamp:
        return RoomReservationProgress.LOST, "the Reservation is being deleted"
    slots = reservation.status.slots
    if slots and all(slot.state in _FILLED for slot in slots):
        return RoomReservationProgress.READY, detail
    if reservation.phase is ReservationPhase.WAITING:
        return RoomReservationProgress.WAITING, detail
    return (
        RoomReservationProgress.PENDING,
        detail if state else "no operator has looked at it; is berth-operator running?",
    )


def _waiting_pods(room: Room, reservation: Reservation | None, observed: ObservedPlan) -> tuple[WaitingPods, str]:
    """Return the state of the pods that have no slot yet.

    With it comes a sentence that names them.
    """
    if room.is_shape:
        return WaitingPods.NONE, ""
    served = {slot.pod_uid for slot in takers(reservation)}
    open_slots = [slot for slot in room.slots if slot.pod_uid not in served]
    pods = {slot.pod_uid: observed.pods.get(slot.pod_uid) for slot in open_slots}
    gone = [slot.pod for slot in open_slots if _is_gone(pods[slot.pod_uid])]
    if gone:
        verb = "is" if len(gone) == 1 else "are"
        return WaitingPods.GONE, f"{_names(room.namespace, gone)} {verb} gone"
    placed = [pod for pod in pods.values() if pod is not None and pod.spec.node_name]
    if open_slots and len(placed) == len(open_slots):
        where = ", ".join(sorted({pod.spec.node_name for pod in placed})[:_PODS_SHOWN])
        return WaitingPods.PLACED, f"{_names(room.namespace, [slot.pod for slot in open_slots])} got a place on {where}"
    return WaitingPods.WAITING, ""


def _is_gone(pod: Pod | None) -> bool:
    return pod is None or pod.is_terminating or pod.is_terminal


def _names(namespace: str, pods: Iterable[str]) -> str:
    return first_few([f"{namespace}/{pod}" for pod in pods], _PODS_SHOWN)
