"""Owns the derivation of a room's facts from what is seen and from what this run itself did and when.

It does not decide (`rooms`) and does not act (`room_keeper`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from berth_core.migration_plans import MigrationPlan
from berth_core.objects import Pod
from berth_core.plan_rooms import Room, RoomReason, RoomSlot, RoomState, RoomStatus
from berth_core.reservations import Reservation, ReservationPhase, SlotState
from berth_descheduler.execution.observation import Observed
from berth_descheduler.execution.room_moves import moves_of_rooms
from berth_descheduler.execution.room_objects import room_reservation_name
from berth_descheduler.execution.rooms import Hold, RoomFacts, Waiters
from berth_descheduler.wording import first_few

_FILLED = frozenset({SlotState.HELD, SlotState.HANDING_OVER, SlotState.TAKEN})
_PODS_SHOWN = 3


@dataclass(slots=True)
class RoomProgress:
    """One room, and what this run did for it and when (monotonic seconds)."""

    index: int
    room: Room
    reservation: str
    """Name of the Reservation, derived from plan and index."""

    moves: frozenset[int]
    """The positions of the moves that make it."""

    status: RoomStatus
    ended: bool = False
    """Nothing more is to be done for it."""

    in_flight: bool = False
    """A call is under way; nothing is decided until it is answered."""

    hold: Hold = Hold.UNASKED
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
        """Tell whether moves may still have to make it."""
        return not self.ended and not self.spoilt and self.hold not in {Hold.HELD, Hold.TAKEN}


def start_rooms(plan: MigrationPlan) -> tuple[RoomProgress, ...]:
    """Return the progress of all rooms of a plan; what was recorded as over stays over."""
    served = moves_of_rooms(plan.spec.rooms, plan.spec.moves)
    rooms = []
    for index, (room, status) in enumerate(zip(plan.spec.rooms, plan.room_statuses, strict=True)):
        name = room_reservation_name(plan.metadata.name, index)
        rooms.append(RoomProgress(index, room, name, served[index], status, ended=status.has_ended(room)))
    return tuple(rooms)


def see_room(progress: RoomProgress, observed: Observed, now: float, gap_seconds: float) -> RoomFacts:
    """Return what is seen of a room; brings the times in its progress up to date."""
    reservation = observed.reservations.get(progress.key)
    progress.hold, detail = _hold(progress, reservation, now, gap_seconds)
    waiters, who = _waiters(progress.room, reservation, observed)
    settled = progress.hold in {Hold.WAITING, Hold.HELD, Hold.TAKEN}
    progress.unsettled_since = None if settled else _since(progress.unsettled_since, now)
    progress.held_since = _since(progress.held_since, now) if progress.hold is Hold.HELD else None
    progress.placed_since = _since(progress.placed_since, now) if waiters is Waiters.PLACED else None
    slots = reservation.status.slots if reservation is not None else ()
    return RoomFacts(
        hold=progress.hold,
        hold_detail=detail,
        waiters=waiters,
        waiters_detail=who,
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
    """Return who runs where in the slots of a Reservation."""
    slots = reservation.status.slots if reservation is not None else ()
    return tuple(
        RoomSlot(node=slot.node, pod=slot.owner.name, pod_uid=slot.owner.uid)
        for slot in slots
        if slot.state is SlotState.TAKEN and slot.owner is not None
    )


def _since(known: float | None, now: float) -> float:
    return now if known is None else known


def _hold(progress: RoomProgress, reservation: Reservation | None, now: float, gap_seconds: float) -> tuple[Hold, str]:
    """Return how far the holding is; a Reservation that was seen, or is long due, and is not there was deleted."""
    if reservation is not None:
        progress.seen = True
        return _read_hold(reservation)
    if progress.asked_at is None and not progress.seen:
        return Hold.UNASKED, ""
    if not progress.seen and progress.asked_at is not None and now - progress.asked_at < gap_seconds:
        return Hold.ASKED, "not seen yet"
    return Hold.LOST, "the Reservation was deleted"


def _read_hold(reservation: Reservation) -> tuple[Hold, str]:
    """Return how far the holding is by its Reservation, with reason and message."""
    state = reservation.status.state
    detail = ": ".join(part for part in (state.reason, state.message) if part) if state else ""
    if reservation.phase is ReservationPhase.SUCCEEDED:
        return Hold.TAKEN, detail
    if reservation.phase is ReservationPhase.FAILED:
        return Hold.LOST, detail
    if reservation.metadata.deletion_timestamp:
        return Hold.LOST, "the Reservation is being deleted"
    slots = reservation.status.slots
    if slots and all(slot.state in _FILLED for slot in slots):
        return Hold.HELD, detail
    if reservation.phase is ReservationPhase.WAITING:
        return Hold.WAITING, detail
    return Hold.ASKED, detail if state else "no operator has looked at it; is berth-operator running?"


def _waiters(room: Room, reservation: Reservation | None, observed: Observed) -> tuple[Waiters, str]:
    """Return what has become of the pods that have not taken their slots, and of which ones it is said."""
    if room.is_shape:
        return Waiters.NONE, ""
    served = {slot.pod_uid for slot in takers(reservation)}
    open_slots = [slot for slot in room.slots if slot.pod_uid not in served]
    pods = {slot.pod_uid: observed.pods.get(slot.pod_uid) for slot in open_slots}
    gone = [slot.pod for slot in open_slots if _is_gone(pods[slot.pod_uid])]
    if gone:
        verb = "is" if len(gone) == 1 else "are"
        return Waiters.GONE, f"{_names(room.namespace, gone)} {verb} gone"
    placed = [pod for pod in pods.values() if pod is not None and pod.spec.node_name]
    if open_slots and len(placed) == len(open_slots):
        where = ", ".join(sorted({pod.spec.node_name for pod in placed})[:_PODS_SHOWN])
        return Waiters.PLACED, f"{_names(room.namespace, [slot.pod for slot in open_slots])} got a place on {where}"
    return Waiters.WAITING, ""


def _is_gone(pod: Pod | None) -> bool:
    return pod is None or pod.is_terminating or pod.is_terminal


def _names(namespace: str, pods: Iterable[str]) -> str:
    return first_few([f"{namespace}/{pod}" for pod in pods], _PODS_SHOWN)
