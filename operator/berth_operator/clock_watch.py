"""Owns noticing that the clock was set: what waits for a time of day was reckoned by the clock as it was before.

It does not own what follows from that.
"""

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
