"""How a signal asks a program to stop: a run once politely, then as ever; whoever has things to clear up, at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; a second signal ends the process as ever."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Let SIGTERM and a terminal that is closed interrupt the block as Ctrl-C does, so that it clears up after itself.

    The clearing up is not interrupted by another of them; one that is ignored from the start stays so, as under nohup.
    """
    before = {number: signal.getsignal(number) for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
