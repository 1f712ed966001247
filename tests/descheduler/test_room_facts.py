"""What the API shows of a room's Reservation and of the pods that wait, read as the facts of the room."""
# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import Pod
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, MigrationPlanStatus, PlannedMove
from berth_core.plan_rooms import Room, RoomSlot, RoomState, RoomStatus
from berth_core.reservations import (
    ObjectReference,
    Reservation,
    ReservationPhase,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
)
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.migration.rooms.memory import RoomMemory, start_rooms
from berth_descheduler.migration.rooms.moves import moves_of_rooms
from berth_descheduler.migration.rooms.next_step import PodsOfRoom, RoomFacts, RoomReservationProgress
from berth_descheduler.migration.rooms.observation import observe_room
from builders import NOON_TEXT, meta, pod, reservation

NOW, GAP = 1000.0, 5.0
NAMES = ("large-0", "large-1")


def slot_of(name: str) -> RoomSlot:
    return RoomSlot(node="node-a", pod=name, pod_uid=f"uid-{name}")


ROOM = Room(name="shop/train", namespace="shop", gang="train", slots=tuple(slot_of(name) for name in NAMES))
SHAPE = Room(name="cpu=4", namespace="shop", requests={"cpu": "4"}, slots=(RoomSlot(node="node-a"),) * 2)


def plan_for(*rooms: Room, statuses: tuple[RoomStatus, ...] = (), moves: tuple[PlannedMove, ...] = ()) -> MigrationPlan:
    return MigrationPlan(
        metadata=meta("plan-1"),
        spec=MigrationPlanSpec(rooms=rooms, moves=moves),
        status=MigrationPlanStatus(rooms=statuses),
    )


def begun(room: Room = ROOM) -> RoomMemory:
    (progress,) = start_rooms(plan_for(room))
    progress.asked_at = NOW - 10
    return progress


def held(*states: SlotState, phase: ReservationPhase = ReservationPhase.AVAILABLE, **rest: Any) -> Reservation:
    """The room's Reservation with slots in these states; what is on its way or taken has an owner."""
    owned = {SlotState.HANDING_OVER, SlotState.TAKEN}
    slots = tuple(
        Slot(
            task="room-0",
            index=index,
            state=state,
            node="node-a",
            owner=ObjectReference(name=NAMES[index], uid=f"uid-{NAMES[index]}") if state in owned else None,
        )
        for index, state in enumerate(states)
    )
    state = ReservationState(phase=phase, reason="Because", message="it is so")
    status = ReservationStatus(state=state, slots=slots)
    return reservation(begun().reservation, namespace="shop", status=status, **rest)


def waits(name: str, *, node: str = "", **rest: Any) -> Pod:
    phase = "Running" if node else "Pending"
    return pod(name, namespace="shop", uid=f"uid-{name}", node=node, **({"phase": phase} | rest))


def look(progress: RoomMemory, *seen: Reservation | Pod) -> RoomFacts:
    observed = ObservedPlan(
        reservations={one.key: one for one in seen if isinstance(one, Reservation)},
        pods={one.metadata.uid: one for one in seen if isinstance(one, Pod)},
    )
    return observe_room(progress, observed, NOW, GAP)


# --- how far the holding is

HELD, PENDING, TAKEN = SlotState.HELD, SlotState.PENDING, SlotState.TAKEN


@dataclass(frozen=True)
class Holding:
    reservation: Reservation
    want: RoomReservationProgress
    want_detail: str = "Because: it is so"


HOLDINGS = {
    "nobody has looked at it": Holding(
        reservation(begun().reservation, namespace="shop"),
        RoomReservationProgress.PENDING,
        "no operator has looked at it; is berth-operator running?",
    ),
    "it is pending": Holding(held(PENDING, PENDING, phase=ReservationPhase.PENDING), RoomReservationProgress.PENDING),
    "it waits": Holding(held(HELD, PENDING, phase=ReservationPhase.WAITING), RoomReservationProgress.WAITING),
    "all slots are held": Holding(held(HELD, HELD), RoomReservationProgress.READY),
    "all slots are held or further": Holding(held(TAKEN, SlotState.HANDING_OVER), RoomReservationProgress.READY),
    "it is over, and well": Holding(
        held(TAKEN, TAKEN, phase=ReservationPhase.SUCCEEDED), RoomReservationProgress.BOUND
    ),
    "it failed": Holding(held(SlotState.LOST, TAKEN, phase=ReservationPhase.FAILED), RoomReservationProgress.LOST),
    "it is being deleted": Holding(
        held(HELD, HELD, deleted=NOON_TEXT), RoomReservationProgress.LOST, "the Reservation is being deleted"
    ),
}


@pytest.mark.parametrize("case", HOLDINGS.values(), ids=HOLDINGS)
def test_how_far_a_room_is_held_when(case: Holding) -> None:
    facts = look(begun(), case.reservation, *map(waits, NAMES))
    assert (facts.hold, facts.hold_detail) == (case.want, case.want_detail)


def test_a_reservation_that_is_not_seen_was_not_asked_for_or_comes_or_was_deleted() -> None:
    (fresh,) = start_rooms(plan_for(ROOM))
    assert look(fresh).hold is RoomReservationProgress.NOT_CREATED
    fresh.asked_at = NOW - 4
    assert look(fresh).hold is RoomReservationProgress.PENDING
    fresh.asked_at = NOW - 5
    assert look(fresh).hold is RoomReservationProgress.LOST
    seen = begun()
    look(seen, held(HELD, HELD))
    seen.asked_at = NOW
    assert look(seen).hold is RoomReservationProgress.LOST


# --- what has become of the pods


@dataclass(frozen=True)
class Waiting:
    pods: tuple[Pod, ...]
    want: PodsOfRoom
    want_words: str = ""
    reservation: Reservation = field(default_factory=lambda: held(HELD, HELD))
    room: Room = ROOM


WAITINGS = {
    "both wait": Waiting((waits(NAMES[0]), waits(NAMES[1])), PodsOfRoom.WAITING),
    "one is gone": Waiting((waits(NAMES[0]),), PodsOfRoom.GONE, "shop/large-1 is gone"),
    "one is being deleted": Waiting(
        (waits(NAMES[0]), waits(NAMES[1], deleted=NOON_TEXT)), PodsOfRoom.GONE, "shop/large-1 is gone"
    ),
    "one has ended": Waiting(
        (waits(NAMES[0], phase="Failed"), waits(NAMES[1])), PodsOfRoom.GONE, "shop/large-0 is gone"
    ),
    "another has its name": Waiting((waits(NAMES[0]), pod(NAMES[1], uid="another")), PodsOfRoom.GONE),
    "one found a place": Waiting((waits(NAMES[0], node="x"), waits(NAMES[1])), PodsOfRoom.WAITING),
    "both found a place": Waiting(
        (waits(NAMES[0], node="x"), waits(NAMES[1], node="y")),
        PodsOfRoom.PLACED,
        "shop/large-0, shop/large-1 got a place on x, y",
    ),
    "one took its slot and has ended, the other waits": Waiting(
        (waits(NAMES[1]),), PodsOfRoom.WAITING, reservation=held(TAKEN, HELD)
    ),
    "one took its slot, the other found a place": Waiting(
        (waits(NAMES[0], node="node-a"), waits(NAMES[1], node="y")),
        PodsOfRoom.PLACED,
        "shop/large-1 got a place on y",
        reservation=held(TAKEN, HELD),
    ),
    "a shape has no pods": Waiting((), PodsOfRoom.NONE, room=SHAPE),
}


@pytest.mark.parametrize("case", WAITINGS.values(), ids=WAITINGS)
def test_what_became_of_those_that_wait_when(case: Waiting) -> None:
    facts = look(begun(case.room), case.reservation, *case.pods)
    assert facts.waiting_pods is case.want
    assert case.want_words in facts.waiting_pods_detail


def test_times_count_from_the_first_look_and_anew_after_a_break() -> None:
    progress = begun()
    waiting = list(map(waits, NAMES))
    assert look(progress, held(HELD, HELD), *waiting).held_since == NOW
    assert look(progress, held(HELD, PENDING, phase=ReservationPhase.PENDING), *waiting).held_since is None
    assert progress.unsettled_since == NOW
    assert look(progress, held(HELD, PENDING, phase=ReservationPhase.WAITING), *waiting).asked_since is None


# --- what is known at the start


def test_a_room_that_has_ended_stays_so_and_another_begins_anew() -> None:
    statuses = tuple(RoomStatus(name=state, state=state) for state in RoomState)
    rooms = start_rooms(plan_for(*[ROOM] * len(statuses), statuses=statuses))
    ended = {one.status.state for one in rooms if one.ended}
    assert ended == {RoomState.TAKEN, RoomState.RELEASED, RoomState.FAILED}
    (shape,) = start_rooms(plan_for(SHAPE, statuses=(RoomStatus(name="s", state=RoomState.HELD),)))
    assert shape.ended


def move(pod_name: str, source: str, target: str) -> PlannedMove:
    return PlannedMove(namespace="shop", pod=pod_name, source=source, target=target)


def test_moves_serve_the_rooms_that_they_make_and_those_that_they_make_way_for() -> None:
    rooms = [msgspec.structs.replace(ROOM, slots=(RoomSlot(node=node),)) for node in ("a", "b", "f")]
    moves = [
        move("aside", "c", "d"),  # makes way on c
        move("first", "a", "c"),
        move("twice", "e", "b"),  # brings a pod to b that leaves it later on
        move("twice", "b", "g"),
        move("other", "a", "h"),
        move("late", "h", "i"),  # leaves the target of a move that is over by then
    ]
    assert [set(one) for one in moves_of_rooms(rooms, moves)] == [{0, 1, 4}, {2, 3}, set()]
