"""Long runs that play in a thread beside the tests, one after the other.

A test that takes a run as a fixture only waits for its result, after the tests that fill the time until then.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

T = TypeVar("T")

LONGEST_SECONDS: Final = 1500.0
"""Until all of them are over, on a machine that is busy with other tests as well."""

_turn: Final = threading.Lock()
"""Held by the run that plays: two control planes that come and go would slow down all that is waited for."""


class BackgroundRun(Generic[T]):
    """Plays in a thread of its own as soon as no other run does, and keeps what came of it."""

    def __init__(self, name: str, play: Callable[[], T]) -> None:
        self._play = play
        self._found: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until it is over; one that has not begun yet, as when the tests are broken off, never does."""
        self._found.cancel()
        self._thread.join(LONGEST_SECONDS)

    def result(self) -> T:
        """Return what came of it, or raise what went wrong."""
        return self._found.result(timeout=LONGEST_SECONDS)

    def _run(self) -> None:
        with _turn:
            if not self._found.set_running_or_notify_cancel():
                return
            try:
                self._found.set_result(self._play())
            except BaseException as error:  # noqa: BLE001 - the thread's boundary: `result` raises it
                self._found.set_exception(error)
