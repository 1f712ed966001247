"""Every state of a room with what is seen of it leads to one next step."""

from dataclasses import dataclass, replace

import pytest

from berth_core.plan_rooms import RoomReason, RoomState
from berth_descheduler.migration.rooms.next_step import (
    AskForRoom,
    EndRoom,
    KeepRoom,
    PodsOfRoom,
    RoomFacts,
    RoomReservationProgress,
    RoomStep,
    next_room_step,
)
from berth_descheduler.settings import MoveTimeouts

NOW = 1000.0
RELEASED = True
TIMEOUTS = MoveTimeouts(reserve_seconds=60, land_seconds=90, gap_seconds=5, shutdown_seconds=15)

WAITING = RoomFacts(hold=RoomReservationProgress.WAITING, hold_detail="not yet", has_waited=True)
STILL = replace(WAITING, is_moving=False, still_since=NOW - 10)
HELD = RoomFacts(hold=RoomReservationProgress.READY, has_waited=True, is_moving=False, held_since=NOW - 1)
SHAPE = replace(HELD, waiting_pods=PodsOfRoom.NONE)


@dataclass(frozen=True)
class Case:
    facts: RoomFacts
    want: type[RoomStep] = KeepRoom
    want_state: RoomState | None = None
    want_reason: RoomReason = RoomReason.NONE
    want_release: bool = False
    want_words: str = ""


def ends(
    facts: RoomFacts,
    state: RoomState,
    reason: RoomReason = RoomReason.NONE,
    *,
    release: bool = False,
    words: str = "",
) -> Case:
    return Case(facts, EndRoom, state, reason, release, words)


CASES = {
    # --- before it waits
    "nothing was asked for": Case(RoomFacts(), AskForRoom),
    "it was refused for good": ends(
        RoomFacts(refusal=RoomReason.RESERVATION_FAILED, refusal_detail="no right"),
        RoomState.FAILED,
        RoomReason.RESERVATION_FAILED,
        words="no right",
    ),
    "its pod was gone when it was to be asked for": ends(
        RoomFacts(refusal=RoomReason.POD_GONE), RoomState.RELEASED, RoomReason.POD_GONE
    ),
    "nothing was asked for and its moves are not made": ends(
        RoomFacts(spoilt="a pod had to stay", is_moving=False), RoomState.FAILED, RoomReason.ROOM_NOT_MADE
    ),
    "the operator has not looked yet": Case(
        RoomFacts(hold=RoomReservationProgress.PENDING, asked_since=NOW - 59), want_state=RoomState.PENDING
    ),
    "the operator does not look": ends(
        RoomFacts(hold=RoomReservationProgress.PENDING, hold_detail="is it running?", asked_since=NOW - 60),
        RoomState.FAILED,
        RoomReason.RESERVATION_TIMEOUT,
        release=RELEASED,
        words="is it running?",
    ),
    # --- while it waits
    "it waits": Case(WAITING, want_state=RoomState.WAITING, want_words="not yet"),
    "its place was found and is about to run": Case(
        replace(WAITING, hold=RoomReservationProgress.PENDING), want_state=RoomState.WAITING
    ),
    "its moves are over": Case(STILL, want_state=RoomState.WAITING),
    "its moves are over for long": ends(
        replace(STILL, still_since=NOW - 60),
        RoomState.FAILED,
        RoomReason.ROOM_NOT_MADE,
        release=RELEASED,
        words="not held within 60 s: not yet",
    ),
    "a pod had to stay, and other moves are under way": Case(
        replace(WAITING, spoilt="a pod had to stay"), want_state=RoomState.WAITING
    ),
    "a pod had to stay": ends(
        replace(STILL, spoilt="a pod had to stay"), RoomState.FAILED, RoomReason.ROOM_NOT_MADE, release=RELEASED
    ),
    "its Reservation failed": ends(
        replace(WAITING, hold=RoomReservationProgress.LOST, hold_detail="Expired"),
        RoomState.FAILED,
        RoomReason.RESERVATION_FAILED,
        release=RELEASED,
        words="Expired",
    ),
    "its pod is gone": ends(
        replace(WAITING, waiting_pods=PodsOfRoom.GONE, waiting_pods_detail="shop/large is gone"),
        RoomState.RELEASED,
        RoomReason.POD_GONE,
        release=RELEASED,
        words="shop/large is gone",
    ),
    "its pod has just found a place": Case(
        replace(WAITING, waiting_pods=PodsOfRoom.PLACED, placed_since=NOW - 4), want_state=RoomState.WAITING
    ),
    "its pod found a place by itself": ends(
        replace(WAITING, waiting_pods=PodsOfRoom.PLACED, placed_since=NOW - 5),
        RoomState.RELEASED,
        RoomReason.POD_PLACED,
        release=RELEASED,
    ),
    "its pod had a place before anything was asked for": ends(
        RoomFacts(waiting_pods=PodsOfRoom.PLACED, placed_since=NOW),
        RoomState.RELEASED,
        RoomReason.POD_PLACED,
        release=RELEASED,
    ),
    "the plan is stopped": ends(
        replace(WAITING, stop=RoomReason.INTERRUPTED, stopping_since=NOW),
        RoomState.RELEASED,
        RoomReason.INTERRUPTED,
        release=RELEASED,
    ),
    # --- held
    "it is held": Case(HELD, want_state=RoomState.HELD),
    "it is held before all moves were made": Case(replace(HELD, is_moving=True), want_state=RoomState.HELD),
    "nobody takes it": ends(
        replace(HELD, held_since=NOW - 90), RoomState.FAILED, RoomReason.NOT_TAKEN, release=RELEASED
    ),
    "it changes hands at last": Case(replace(HELD, held_since=NOW - 90, changes_hands=True), want_state=RoomState.HELD),
    "its pod is gone while it changes hands": Case(
        replace(HELD, waiting_pods=PodsOfRoom.GONE, changes_hands=True), want_state=RoomState.HELD
    ),
    "its pod is gone though it is held": ends(
        replace(HELD, waiting_pods=PodsOfRoom.GONE), RoomState.RELEASED, RoomReason.POD_GONE, release=RELEASED
    ),
    "the plan is stopped while it is about to change hands": Case(
        replace(HELD, stop=RoomReason.ABORTED, stopping_since=NOW - 14), want_state=RoomState.HELD
    ),
    "the plan is stopped and it does not change hands": ends(
        replace(HELD, stop=RoomReason.ABORTED, stopping_since=NOW - 15),
        RoomState.RELEASED,
        RoomReason.ABORTED,
        release=RELEASED,
    ),
    "a shape's is held for whom may come": ends(
        replace(SHAPE, is_selected=True), RoomState.HELD, words="for the selected pods"
    ),
    "a shape's is held for nobody": ends(SHAPE, RoomState.HELD, words="without an owner"),
    # --- taken
    "it is taken": ends(RoomFacts(hold=RoomReservationProgress.BOUND), RoomState.TAKEN),
    "it is taken though the plan is stopped": ends(
        RoomFacts(hold=RoomReservationProgress.BOUND, stop=RoomReason.INTERRUPTED, stopping_since=NOW), RoomState.TAKEN
    ),
    "some took it, and the others found a place by themselves": ends(
        replace(HELD, waiting_pods=PodsOfRoom.PLACED, any_taken=True, placed_since=NOW - 5),
        RoomState.TAKEN,
        RoomReason.POD_PLACED,
        release=RELEASED,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_next_step_of_a_room_when(case: Case) -> None:
    step = next_room_step(case.facts, TIMEOUTS, NOW)
    assert type(step) is case.want
    if isinstance(step, KeepRoom):
        assert step.state is case.want_state
        assert case.want_words in step.message
    if isinstance(step, EndRoom):
        assert (step.state, step.reason, step.release) == (case.want_state, case.want_reason, case.want_release)
        assert case.want_words in step.message
