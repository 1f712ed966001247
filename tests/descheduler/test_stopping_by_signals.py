"""A signal ends a block as Ctrl-C does where something has to be cleared up, and asks a run politely first."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from berth_service.signals import interrupt_on_signals, stop_on_signals

ENDING = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _heard_signals() -> Iterator[None]:
    """Let the signals be heard, also where the test run was started with some of them ignored, as by nohup."""
    before = {one: signal.signal(one, signal.SIG_DFL) for one in ENDING}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@contextmanager
def closing_with(clear_up: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        clear_up()


@pytest.mark.parametrize("number", ENDING)
def test_a_block_clears_up_undisturbed_when_a_signal_ends_it(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in ENDING}
    cleared_up: list[signal.Signals] = []

    def clear_up() -> None:
        for again in ENDING:
            send(again)
            cleared_up.append(again)

    with pytest.raises(KeyboardInterrupt), interrupt_on_signals(), closing_with(clear_up):
        send(number)
    assert cleared_up == ENDING
    assert {one: signal.getsignal(one) for one in ENDING} == before


def test_a_closed_terminal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt_on_signals():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_asked_to_stop_first(number: signal.Signals) -> None:
    with stop_on_signals() as stop:
        assert not stop.is_set()
        send(number)
        assert stop.wait(60)
