"""The measurements of the cluster's capacity since the start of the service, for a view over time."""

import threading
from collections import deque
from datetime import datetime
from typing import Final

from berth_descheduler.planner import CapacityReport
from berth_descheduler.report import CapacityPoint, describe_point

_KEPT: Final = 288
"""A day of measurements at the default interval of five minutes."""


class CapacityHistory:
    """The newest measurements; written by one thread and read by others."""

    def __init__(self) -> None:
        self._points: deque[CapacityPoint] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def keep(self, report: CapacityReport, measured_at: datetime) -> None:
        """Add a measurement, and forget the oldest if there are too many."""
        with self._lock:
            self._points.append(describe_point(report, measured_at))

    def points(self) -> tuple[CapacityPoint, ...]:
        """Return the measurements, the oldest first."""
        with self._lock:
            return tuple(self._points)
