"""What became of rooms is said in a sentence, and decides how the plan has ended."""

from dataclasses import dataclass

import pytest

from berth_core.migration_plans import MoveState, MoveStatus, PlanPhase
from berth_core.plan_rooms import RoomReason, RoomSlot, RoomState, RoomStatus
from berth_descheduler.outcome import PlanOutcome, conclude
from berth_descheduler.room_outcomes import describe_rooms

LANDED, FAILED_MOVE, ELSEWHERE, SKIPPED = (
    MoveState.LANDED,
    MoveState.FAILED,
    MoveState.ELSEWHERE,
    MoveState.SKIPPED,
)


def room(state: RoomState, reason: RoomReason = RoomReason.NONE, message: str = "", *pods: str) -> RoomStatus:
    taken = tuple(RoomSlot(node=f"node-{number}", pod=pod) for number, pod in enumerate(pods))
    return RoomStatus(
        name="shop/large", state=state, reason=reason, message=message, reservation="plan-1-room", taken=taken
    )


TAKEN = room(RoomState.TAKEN, RoomReason.NONE, "", "large")
HELD = room(RoomState.HELD)
UNNEEDED = room(RoomState.RELEASED, RoomReason.POD_GONE, "shop/large is gone")
STOPPED = room(RoomState.RELEASED, RoomReason.INTERRUPTED, "the plan was stopped")
NOT_MADE = room(RoomState.FAILED, RoomReason.ROOM_NOT_MADE, "a pod had to stay on a")
NOT_TAKEN = room(RoomState.FAILED, RoomReason.NOT_TAKEN, "nobody took it")

SENTENCES = {
    "no rooms": ((), ""),
    "taken": ((TAKEN,), "Room for shop/large: taken by large on node-0."),
    "taken by a gang": (
        (room(RoomState.TAKEN, RoomReason.NONE, "", *"abcde"),),
        "Room for shop/large: taken by a on node-0, b on node-1, c on node-2 and 2 more.",
    ),
    "held": ((HELD,), "Room for shop/large: held by Reservation plan-1-room."),
    "not needed": ((UNNEEDED,), "Room for shop/large: not needed any more (PodGone: shop/large is gone)."),
    "given back": ((STOPPED,), "Room for shop/large: given back (Interrupted: the plan was stopped)."),
    "not made": ((NOT_MADE,), "Room for shop/large: not made (RoomNotMade: a pod had to stay on a)."),
    "not taken": ((NOT_TAKEN,), "Room for shop/large: not taken (NotTaken: nobody took it)."),
    "a few": (
        (TAKEN, UNNEEDED),
        (
            "Room for shop/large: taken by large on node-0. "
            "Room for shop/large: not needed any more (PodGone: shop/large is gone)."
        ),
    ),
    "many": (
        (TAKEN, TAKEN, HELD, UNNEEDED, NOT_MADE, NOT_MADE, NOT_TAKEN),
        (
            "2 of 7 rooms taken by the pods that they were made for, 1 held, 1 released (PodGone 1), "
            "3 failed (RoomNotMade 2, NotTaken 1)."
        ),
    ),
}


@pytest.mark.parametrize(("rooms", "want"), SENTENCES.values(), ids=SENTENCES)
def test_rooms_are_told(rooms: tuple[RoomStatus, ...], want: str) -> None:
    assert describe_rooms(rooms) == want


@dataclass(frozen=True)
class End:
    moves: tuple[MoveState, ...]
    rooms: tuple[RoomStatus, ...]
    want: PlanPhase


ENDS = {
    "all is taken": End((LANDED, LANDED), (TAKEN,), PlanPhase.SUCCEEDED),
    "all is taken, with fewer moves than were planned": End((LANDED, SKIPPED), (TAKEN,), PlanPhase.SUCCEEDED),
    "what is not needed any more is no failure": End((SKIPPED,), (UNNEEDED,), PlanPhase.SUCCEEDED),
    "one was not made": End((LANDED, FAILED_MOVE), (TAKEN, NOT_MADE), PlanPhase.PARTIAL),
    "none was made, and a pod was moved": End((LANDED, FAILED_MOVE), (NOT_MADE,), PlanPhase.PARTIAL),
    "none was made, and nothing was moved": End((SKIPPED,), (NOT_MADE,), PlanPhase.FAILED),
    "all is taken, and a pod landed elsewhere": End((ELSEWHERE,), (TAKEN,), PlanPhase.PARTIAL),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_a_plan_ends_by_its_rooms_when(case: End) -> None:
    statuses = tuple(MoveStatus(namespace="shop", pod="web", state=state) for state in case.moves)
    assert conclude(statuses, case.rooms, interrupted=False) is case.want
    assert conclude(statuses, case.rooms, interrupted=True) is PlanPhase.ABORTED


def test_a_plan_whose_room_was_not_made_did_not_end_well() -> None:
    ended = PlanOutcome(plan="plan-1", phase=PlanPhase.PARTIAL, rooms=(NOT_MADE,), frees_nodes=False)
    assert not ended.clean
    assert ended.sentence.endswith("Room for shop/large: not made (RoomNotMade: a pod had to stay on a).")
