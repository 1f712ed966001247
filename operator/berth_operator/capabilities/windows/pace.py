"""How many Reservations the windows of a namespace begin in a minute.

The record does not follow the objects, so that deleting windows or Reservations makes no room in it. It is in memory
only: a new leader begins anew.
"""

import threading
from collections import defaultdict, deque
from typing import Final

from berth_core import Clock

MINUTE_SECONDS: Final = 60.0


class OpeningPace:
    """When the windows of each namespace began Reservations; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: defaultdict[str, deque[float]] = defaultdict(deque)
        """By namespace the monotonic seconds at which Reservations were begun, of the last minute."""

    def begin(self, namespace: str, limit: int | None) -> float:
        """Count one more Reservation and return 0, or return the seconds until one may begin.

        `limit` may begin in any minute; None for any number.
        """
        if limit is None:
            return 0.0
        now = self._clock.monotonic()
        with self._lock:
            begun = self._begun[namespace]
            while begun and begun[0] <= now - MINUTE_SECONDS:
                begun.popleft()
            if len(begun) >= limit:
                return (begun[-limit] if limit else now) + MINUTE_SECONDS - now
            begun.append(now)
        return 0.0
