"""Notices a run that is stuck, such as in a plugin that never returns."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from berth_core import Clock

_STUCK_SECONDS: Final = 1800.0
"""Far longer than any step of a run takes; planning has a time limit, and waits ask for the time at each look."""


class RunWatch:
    """Records when the current run last asked for the time, which each of its steps and waits does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked_at: float | None = None
        """None while there is no run."""

    @contextmanager
    def running(self) -> Iterator[Clock]:
        """Yield the clock of a run, which is watched until the end of the context."""
        self._asked_at = self._clock.monotonic()
        try:
            yield _WatchedClock(self._clock, self)
        finally:
            self._asked_at = None

    def silent_seconds(self) -> float:
        """Return for how long the current run has done nothing, 0 if there is none."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else self._clock.monotonic() - asked_at

    def is_stuck(self) -> bool:
        """Return whether only a new process would go on with the run."""
        return self.silent_seconds() > _STUCK_SECONDS

    def note(self) -> None:
        """Record that the run works; threads that outlive it do not count."""
        if self._asked_at is not None:
            self._asked_at = self._clock.monotonic()


class _WatchedClock:
    """A clock that reports to a watch that it was asked."""

    def __init__(self, clock: Clock, watch: RunWatch) -> None:
        self._clock = clock
        self._watch = watch

    def now(self) -> datetime:
        self._watch.note()
        return self._clock.now()

    def monotonic(self) -> float:
        self._watch.note()
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._watch.note()
        self._clock.sleep(seconds)
