"""Changes of the clock and pauses of this process: neither counts as waiting time."""

import threading
from collections.abc import Callable
from typing import Final

from berth_core import Clock

_SET_SECONDS: Final = 1.0
"""A smaller difference is drift, which is corrected all the time."""


class ClockWatch:
    """Compares the wall clock with the monotonic one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._read_offset()

    def was_set(self) -> bool:
        """Return whether the clock was set since the last call."""
        offset_before, self._offset = self._offset, self._read_offset()
        return abs(self._offset - offset_before) > _SET_SECONDS

    def _read_offset(self) -> float:
        """Return the wall clock's lead over the monotonic clock, which changes only when the wall clock is set."""
        return self._clock.now().timestamp() - self._clock.monotonic()


_LONGEST_STEP_SECONDS: Final = 1.0
"""A longer pause counts as this: the process was stopped, or had no processor."""


class ActiveTime:
    """Seconds during which this process ran and held its Lease; thread-safe.

    The Lease is held only while the API server answers. An interruption counts for at most a second plus the time for
    which the Lease is trusted without renewal. Callers must read `seconds` at least once a second.
    """

    def __init__(self, clock: Clock, can_act: Callable[[], bool]) -> None:
        self._clock = clock
        self._can_act = can_act
        self._lock = threading.Lock()
        self._looked_at = clock.monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Return the total seconds for which this process could act."""
        with self._lock:
            now = self._clock.monotonic()
            step, self._looked_at = now - self._looked_at, now
            if self._can_act():
                # Of a longer step only this much is sure: in the rest the process may have been frozen, as by SIGSTOP
                # or a VM migration.
                self._seconds += min(step, _LONGEST_STEP_SECONDS)
            return self._seconds
