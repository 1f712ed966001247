"""Stop by signal: a run stops gracefully at the first and ends at the second; a command with clean-up stops at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; a second signal ends the process."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        # A pod gets SIGTERM first and SIGKILL after its grace period; people who press Ctrl-C twice do not want to wait
        # that long.
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
    """Interrupt the block on SIGTERM and SIGHUP as on Ctrl-C, so that it cleans up.

    The clean-up is not interrupted by another signal. A signal that is ignored from the start stays ignored, as under
    nohup.
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
