"""What has to be so before moves begin: the plan holds on a second look, too, and other pods have had their time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from berth_core.errors import RetryableError
from berth_core.migration_plans import MoveReason, PlannedMove
from berth_descheduler.migration.validation.before_moves import ValidationResult, WaveValidator
from berth_descheduler.migration.validation.plan_review import Review
from berth_descheduler.migration.validation.revalidation import Invalid
from builders import FakeClock

MOVES = {0: PlannedMove(namespace="shop", pod="web-1", source="a", target="b")}
UNFIT, GONE = Invalid(MoveReason.TARGET_UNFIT, "full"), Invalid(MoveReason.POD_GONE, "gone")
FINE, WAITING = Review(), Review(waiting=("shop/web-9", "shop/web-8"))


@dataclass
class Script:
    """A reviewer that says one thing after the other, the last one for ever."""

    says: list[Review | RetryableError]
    asked: int = field(default=0)

    most_at_once: int = 25

    def review(
        self, ahead: Mapping[int, PlannedMove], next_moves: Collection[int], *, budgets: bool = False, **_: object
    ) -> Review:
        assert (ahead, list(next_moves)) == (MOVES, list(MOVES))
        said = self.says[min(self.asked, len(self.says) - 1)]
        self.asked += 1
        assert not budgets
        if isinstance(said, RetryableError):
            raise said
        return said


def passage(
    *says: Review | RetryableError, clock: FakeClock | None = None, stopped_after: float = 10_000
) -> ValidationResult:
    clock = clock or FakeClock()
    end = clock.monotonic() + stopped_after
    gate = WaveValidator(Script(list(says)), clock, 60.0, budgets=False, stopped=lambda: clock.monotonic() >= end)
    return gate.validate(lambda: MOVES, MOVES)


def test_where_all_is_well_nothing_is_waited_for() -> None:
    clock = FakeClock()
    assert passage(FINE, clock=clock) == ValidationResult()
    assert clock.slept == []


def test_what_does_not_hold_in_two_looks_is_skipped() -> None:
    assert passage(Review({0: UNFIT})) == ValidationResult({0: UNFIT})


def test_what_holds_in_the_second_look_is_not_skipped() -> None:
    assert passage(Review({0: UNFIT}), FINE) == ValidationResult()
    assert passage(Review({0: UNFIT}), Review({1: GONE})) == ValidationResult()


def test_pods_that_wait_are_waited_for_and_then_the_plan_goes_on() -> None:
    clock = FakeClock()
    assert passage(WAITING, WAITING, FINE, clock=clock) == ValidationResult()
    assert 0 < sum(clock.slept) < 60


def test_pods_that_wait_for_too_long_stop_the_plan_and_are_named() -> None:
    clock = FakeClock()
    found = passage(WAITING, clock=clock)
    assert found.stop is MoveReason.PODS_WAITING
    assert "2 pods wait" in found.message
    assert found.message.endswith("shop/web-8, shop/web-9")
    assert 60 <= sum(clock.slept) <= 62


def test_a_cluster_that_cannot_be_read_is_asked_again_and_in_the_end_stops_the_plan() -> None:
    away = RetryableError("away")
    assert passage(away, away, FINE) == ValidationResult()
    clock = FakeClock()
    found = passage(away, clock=clock)
    assert found.stop is MoveReason.PLAN_STOPPED
    assert "away" in found.message
    assert sum(clock.slept) <= 200


@pytest.mark.parametrize("says", [WAITING, RetryableError("away")], ids=["pods wait", "nothing to be seen"])
def test_who_is_asked_to_stop_waits_no_longer(says: Review | RetryableError) -> None:
    clock = FakeClock()
    assert passage(says, clock=clock, stopped_after=3) == ValidationResult()
    assert sum(clock.slept) <= 4
