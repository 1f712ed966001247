"""What the service has measured of the cluster's capacity since its start, for those who look at it over time."""

import threading
from collections import deque
from datetime import datetime
from typing import Final

from berth_descheduler.planner import CapacityReport
from berth_descheduler.report import CapacityPoint, describe_point

_KEPT: Final = 288
"""A day of measurements every five minutes, the default."""


class CapacityHistory:
    """The newest measurements; written by one thread and read by others."""

    def __init__(self) -> None:
        self._points: deque[CapacityPoint] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def keep(self, report: CapacityReport, measured_at: datetime) -> None:
        """Add a measurement; the oldest of too many is forgotten."""
        with self._lock:
            self._points.append(describe_point(report, measured_at))

    def points(self) -> tuple[CapacityPoint, ...]:
        """Return the measurements, the oldest first."""
        with self._lock:
            return tuple(self._points)
