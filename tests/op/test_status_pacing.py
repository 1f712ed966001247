"""The steps of placeholders on their way are written as one status; whatever is acted on is written at once."""

import time

import pytest

from berth_core.reservations import ReservationPhase, ReservationState, ReservationStatus, Slot, SlotState
from berth_operator.pacing import PATIENCE_SECONDS, Pacing, may_wait
from handover_builders import slot

NOTHING = ReservationStatus()


def status(phase: ReservationPhase, *slots: Slot) -> ReservationStatus:
    return ReservationStatus(state=ReservationState(phase=phase), slots=slots)


PENDING = status(ReservationPhase.PENDING, slot(SlotState.PENDING))
HALF = status(ReservationPhase.PENDING, slot(SlotState.PENDING), slot(SlotState.HELD, 1))
AVAILABLE = status(ReservationPhase.AVAILABLE, slot(SlotState.HELD))
CASES = {
    "a new Reservation begins": (NOTHING, PENDING, True),
    "one more placeholder runs": (PENDING, HALF, True),
    "it waits for room": (PENDING, status(ReservationPhase.WAITING), True),
    "it is Available": (PENDING, AVAILABLE, False),
    "it is Available no more": (AVAILABLE, PENDING, False),
    "it is Available and changes": (AVAILABLE, AVAILABLE, False),
    "it has failed": (PENDING, status(ReservationPhase.FAILED), False),
    "an owner is taking a slot": (PENDING, status(ReservationPhase.PENDING, slot(SlotState.HANDING_OVER)), False),
    "a slot is lost": (PENDING, status(ReservationPhase.PENDING, slot(SlotState.LOST)), False),
}


@pytest.mark.parametrize(("prior", "new", "want"), CASES.values(), ids=CASES.keys())
def test_a_status_may_wait_when(prior: ReservationStatus, new: ReservationStatus, want: bool) -> None:  # noqa: FBT001
    assert may_wait(prior, new) is want


def test_a_status_waits_for_so_long_however_often_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pacing = Pacing(lambda: 0.0)
    left = []
    for step in (0.0, 0.2, 0.2, 0.2):
        now += step
        left.append(round(pacing.seconds_left("uid", NOTHING, PENDING), 3))
    assert left == [PATIENCE_SECONDS, 0.3, 0.1, 0.0]
    assert pacing.seconds_left("uid", PENDING, HALF) == PATIENCE_SECONDS


def test_what_is_written_already_does_not_wait() -> None:
    assert Pacing(lambda: 0.0).seconds_left("uid", PENDING, PENDING) == 0


@pytest.mark.parametrize(("late", "want"), [(0.0, 0.5), (0.1, 1.5), (60.0, 15.0)])
def test_a_status_waits_longer_while_much_is_to_be_done(late: float, want: float) -> None:
    assert Pacing(lambda: late).seconds_left("uid", NOTHING, PENDING) == pytest.approx(want)


def test_proofs_wait_while_the_workers_are_behind_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now, late = 100.0, 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pacing = Pacing(lambda: late)
    answers = []
    for step in (0.0, 29.9, 0.2):
        now += step
        answers.append(pacing.may_prove("uid"))
    assert answers == [False, False, True]
    late = 0.1
    assert pacing.may_prove("another")


def test_a_status_waits_longer_where_the_cluster_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pacing = Pacing(lambda: 0.0)
    for number in range(100):
        pacing.seconds_left(f"uid-{number}", NOTHING, PENDING)
    now += 3.0
    for number in range(100):
        pacing.seconds_left(f"uid-{number}", NOTHING, AVAILABLE)
    assert pacing.seconds_left("uid", NOTHING, PENDING) == pytest.approx(6.0, abs=0.01)


def test_proofs_wait_while_many_reservations_are_on_their_way() -> None:
    pacing = Pacing(lambda: 0.0)
    for number in range(51):
        pacing.seconds_left(f"uid-{number}", NOTHING, PENDING)
    assert not pacing.may_prove("uid")
    pacing.forget("uid-0")
    assert pacing.may_prove("uid")
