"""Owns noticing that the clock was set or that this process did not act: neither is time that anything has waited for.

It does not own what follows from that.
"""

import threading
from collections.abc import Callable
from typing import Final

from berth_core.clock import Clock

_SET_SECONDS: Final = 1.0
"""A smaller difference is the clock's own: it is corrected all the time."""


class ClockWatch:
    """Compares the time of day with the seconds that have passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._read_offset()

    def was_set(self) -> bool:
        """Tell whether the clock was set forward or back since this was last asked."""
        before, self._offset = self._offset, self._read_offset()
        return abs(self._offset - before) > _SET_SECONDS

    def _read_offset(self) -> float:
        """Return how far the time of day is ahead of the seconds that have passed, which only setting it changes."""
        return self._clock.now().timestamp() - self._clock.monotonic()


_LONGEST_STEP_SECONDS: Final = 1.0
"""A longer pause between two looks counts as this: the process was stopped, or had no processor."""


class AttendedTime:
    """Counts the seconds during which this process could act: it ran, and it held its Lease; thread-safe.

    The Lease is held only while the API server answers. Of an interruption, at most a second and what the Lease is
    believed in without a renewal are counted. `seconds` has to be read at least once a second.
    """

    def __init__(self, clock: Clock, can_act: Callable[[], bool]) -> None:
        self._clock = clock
        self._can_act = can_act
        self._lock = threading.Lock()
        self._looked_at = clock.monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Return how long this process has been able to act in all."""
        with self._lock:
            now = self._clock.monotonic()
            step, self._looked_at = now - self._looked_at, now
            if self._can_act():
                self._seconds += min(step, _LONGEST_STEP_SECONDS)
            return self._seconds
