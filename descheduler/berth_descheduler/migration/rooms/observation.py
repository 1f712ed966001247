"""The facts of a room, derived from the observed objects and from what this run did and when."""

from collections.abc import Iterable
from dataclasses import dataclass

from berth_core import (
    MigrationPlan,
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
from berth_descheduler.migration.manifests.room_reservations import job_reservation_name, room_reservation_name
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.migration.rooms.moves import moves_of_rooms
from berth_descheduler.migration.rooms.next_step import RoomFacts, RoomReservationProgress, WaitingPods

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
