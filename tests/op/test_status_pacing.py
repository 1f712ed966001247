"""The steps of placeholders on their way are written as one status; whatever is acted on is written at once."""

import time

import pytest

from berth_core import Pod
from berth_core.reservations import Reservation, ReservationPhase, ReservationState, ReservationStatus, Slot, SlotState
from berth_operator.reservation.throttle import PATIENCE_SECONDS, Throttle, may_wait, only_starts
from builders import NOON_TEXT
from handover_builders import UNSCHEDULABLE, place, placeholder, slot

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
    pacing = Throttle(lambda: 0.0)
    left = []
    for step in (0.0, 0.2, 0.2, 0.2):
        now += step
        left.append(round(pacing.status_delay("uid", NOTHING, PENDING), 3))
    assert left == [PATIENCE_SECONDS, 0.3, 0.1, 0.0]
    assert pacing.status_delay("uid", PENDING, HALF) == PATIENCE_SECONDS


RUNS, BOUND, NEW = placeholder(0), placeholder(1, phase="Pending"), placeholder(1, node="")
STARTS = {
    "a slot has no placeholder yet": (place(replicas=2), (RUNS,), False),
    "a placeholder has no node yet": (place(replicas=2), (RUNS, NEW), True),
    "a placeholder has a node and does not run yet": (place(replicas=2), (RUNS, BOUND), True),
    "all run": (place(replicas=2), (RUNS, placeholder(1)), False),
    "as many run as are wanted": (place(replicas=2, min_available=1), (RUNS, NEW), False),
    "the scheduler has found no place": (
        place(replicas=2),
        (RUNS, placeholder(1, node="", conditions=[UNSCHEDULABLE])),
        False,
    ),
    "a placeholder has ended": (place(replicas=2), (RUNS, placeholder(1, phase="Failed")), False),
    "a placeholder is being deleted": (place(replicas=2), (RUNS, placeholder(1, node="", deleted=NOON_TEXT)), False),
    "it is over": (place(phase=ReservationPhase.FAILED, replicas=2), (RUNS, NEW), False),
}


@pytest.mark.parametrize(("reservation", "placeholders", "want"), STARTS.values(), ids=STARTS.keys())
def test_a_reservation_only_waits_for_pods_to_start_or_not_when(
    reservation: Reservation,
    placeholders: tuple[Pod, ...],
    want: bool,  # noqa: FBT001 - the case
) -> None:
    assert only_starts(reservation, placeholders) is want


def test_a_reservation_whose_pods_only_start_is_looked_at_at_once_and_then_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pacing = Throttle(lambda: 0.0)
    left = []
    for step in (0.0, 0.25, 0.25, 0.5, 0.5):
        now += step
        left.append(pacing.reconcile_delay("uid", only_starts=True))
    assert left == [0.0, 0.75, 0.5, 0.0, 0.5]
    assert pacing.reconcile_delay("uid", only_starts=False) == 0


def test_a_reservation_whose_placeholders_were_just_created_is_looked_at_again_a_second_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own writes and each step of a placeholder are events."""
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    pacing = Throttle(lambda: 0.0)
    assert pacing.reconcile_delay("uid", only_starts=False) == 0
    assert pacing.reconcile_delay("uid", only_starts=True) == 1.0
    assert pacing.reconcile_delay("uid", only_starts=False) == 0, "what has started is seen at once"
    for number in range(51):
        pacing.status_delay(f"other-{number}", ReservationStatus(), PENDING)
    assert pacing.reconcile_delay("uid", only_starts=True) == 5.0, "beside many others later"


def test_what_is_written_already_does_not_wait() -> None:
    assert Throttle(lambda: 0.0).status_delay("uid", PENDING, PENDING) == 0


@pytest.mark.parametrize(("late", "want"), [(0.0, 0.5), (0.1, 1.5), (60.0, 15.0)])
def test_a_status_waits_longer_while_much_is_to_be_done(late: float, want: float) -> None:
    assert Throttle(lambda: late).status_delay("uid", NOTHING, PENDING) == pytest.approx(want)


def test_a_status_waits_longer_beside_many_others_that_are_under_way() -> None:
    pacing = Throttle(lambda: 0.0)
    left = [pacing.status_delay(f"uid-{number}", NOTHING, PENDING) for number in range(1001)]
    assert left[0] == pytest.approx(0.5)
    assert left[50] == pytest.approx(1.5)
    assert left[100] == pytest.approx(7.5)
    assert left[1000] == pytest.approx(60.0)


def test_hundreds_that_take_half_a_minute_report_nothing_before_they_are_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pacing = Throttle(lambda: 0.5)
    uids = [f"uid-{number}" for number in range(300)]
    for uid in uids:
        pacing.status_delay(uid, NOTHING, PENDING)
    now += 30
    assert all(pacing.status_delay(uid, NOTHING, PENDING) > 0 for uid in uids)


def test_proofs_wait_while_the_workers_are_behind_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now, late = 100.0, 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pacing = Throttle(lambda: late)
    answers = []
    for step in (0.0, 29.9, 0.2):
        now += step
        answers.append(pacing.may_probe("uid"))
    assert answers == [False, False, True]
    late = 0.1
    assert pacing.may_probe("another")


def test_a_status_waits_longer_where_the_cluster_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pacing = Throttle(lambda: 0.0)
    for number in range(100):
        pacing.status_delay(f"uid-{number}", NOTHING, PENDING)
    now += 3.0
    for number in range(100):
        pacing.status_delay(f"uid-{number}", NOTHING, AVAILABLE)
    assert pacing.status_delay("uid", NOTHING, PENDING) == pytest.approx(6.0, abs=0.01)


def test_proofs_wait_while_many_reservations_are_on_their_way() -> None:
    pacing = Throttle(lambda: 0.0)
    for number in range(51):
        pacing.status_delay(f"uid-{number}", NOTHING, PENDING)
    assert not pacing.may_probe("uid")
    pacing.forget("uid-0")
    assert pacing.may_probe("uid")
