"""The facts of a room, derived from the observed objects and from what this run did and when."""

from collections.abc import Iterable

from berth_core import Pod, Reservation, ReservationPhase, Room, RoomSlot, RoomState, SlotState, first_few
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.migration.rooms.memory import RoomMemory
from berth_descheduler.migration.rooms.next_step import PodsOfRoom, RoomFacts, RoomReservationProgress

_FILLED = frozenset({SlotState.HELD, SlotState.HANDING_OVER, SlotState.TAKEN})

_PODS_SHOWN = 3


def observe_room(memory: RoomMemory, observed: ObservedPlan, now: float, gap_seconds: float) -> RoomFacts:
    """Return the facts of a room; updates the times in its memory."""
    reservation = observed.reservations.get(memory.key)
    memory.hold, detail = _hold(memory, reservation, now, gap_seconds)
    waiting_pods, waiting_pods_text = _waiting_pods(memory.room, reservation, observed)
    is_settled = memory.hold in {
        RoomReservationProgress.WAITING,
        RoomReservationProgress.READY,
        RoomReservationProgress.BOUND,
    }
    memory.unsettled_since = None if is_settled else _since(memory.unsettled_since, now)
    memory.held_since = _since(memory.held_since, now) if memory.hold is RoomReservationProgress.READY else None
    memory.placed_since = _since(memory.placed_since, now) if waiting_pods is PodsOfRoom.PLACED else None
    slots = reservation.status.slots if reservation is not None else ()
    return RoomFacts(
        hold=memory.hold,
        hold_detail=detail,
        waiting_pods=waiting_pods,
        waiting_pods_detail=waiting_pods_text,
        has_waited=is_settled or memory.status.state is not RoomState.PENDING,
        changes_hands=any(slot.state is SlotState.HANDING_OVER for slot in slots),
        any_taken=any(slot.state is SlotState.TAKEN for slot in slots),
        refusal=memory.refusal,
        refusal_detail=memory.refusal_detail,
        is_selected=bool(memory.room.selector),
        asked_since=memory.unsettled_since,
        held_since=memory.held_since,
        placed_since=memory.placed_since,
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
    memory: RoomMemory, reservation: Reservation | None, now: float, gap_seconds: float
) -> tuple[RoomReservationProgress, str]:
    """Return the progress of the room's Reservation, with a detail for people.

    A missing Reservation counts as deleted once it was seen or is long due.
    """
    if reservation is not None:
        memory.seen = True
        return _read_hold(reservation)
    if memory.asked_at is None and not memory.seen:
        return RoomReservationProgress.NOT_CREATED, ""
    if not memory.seen and memory.asked_at is not None and now - memory.asked_at < gap_seconds:
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


def _waiting_pods(room: Room, reservation: Reservation | None, observed: ObservedPlan) -> tuple[PodsOfRoom, str]:
    """Return the state of the pods that have no slot yet, with a sentence that names them."""
    if room.is_shape:
        return PodsOfRoom.NONE, ""
    served_uids = {slot.pod_uid for slot in takers(reservation)}
    open_slots = [slot for slot in room.slots if slot.pod_uid not in served_uids]
    pods = {slot.pod_uid: observed.pods.get(slot.pod_uid) for slot in open_slots}
    gone_pods = [slot.pod for slot in open_slots if _is_gone(pods[slot.pod_uid])]
    if gone_pods:
        verb = "is" if len(gone_pods) == 1 else "are"
        return PodsOfRoom.GONE, f"{_names(room.namespace, gone_pods)} {verb} gone"
    placed_pods = [pod for pod in pods.values() if pod is not None and pod.spec.node_name]
    if open_slots and len(placed_pods) == len(open_slots):
        nodes_text = ", ".join(sorted({pod.spec.node_name for pod in placed_pods})[:_PODS_SHOWN])
        return (
            PodsOfRoom.PLACED,
            f"{_names(room.namespace, [slot.pod for slot in open_slots])} got a place on {nodes_text}",
        )
    return PodsOfRoom.WAITING, ""


def _is_gone(pod: Pod | None) -> bool:
    return pod is None or pod.is_terminating or pod.is_terminal


def _names(namespace: str, pods: Iterable[str]) -> str:
    return first_few([f"{namespace}/{pod}" for pod in pods], _PODS_SHOWN)
