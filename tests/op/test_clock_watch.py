"""That the clock was set is noticed once, and that time passes is no reason to think so."""

from datetime import timedelta

import pytest

from berth_operator.runtime.active_time import ClockWatch
from builders import FakeClock


def test_time_that_passes_sets_no_clock() -> None:
    clock = FakeClock()
    watch = ClockWatch(clock)
    clock.advance(3600)
    assert not watch.was_set()


@pytest.mark.parametrize("seconds", [2, -2, 3600, -3600])
def test_a_clock_that_was_set_is_noticed_once(seconds: float) -> None:
    clock = FakeClock()
    watch = ClockWatch(clock)
    clock._now += timedelta(seconds=seconds)
    assert watch.was_set()
    assert not watch.was_set()


def test_a_clock_that_is_corrected_bit_by_bit_was_not_set() -> None:
    clock = FakeClock()
    watch = ClockWatch(clock)
    for _ in range(10):
        clock._now += timedelta(seconds=0.5)
        assert not watch.was_set()
