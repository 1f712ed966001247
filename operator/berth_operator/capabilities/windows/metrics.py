"""The metrics of windows."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from berth_operator.metrics import REGISTRY

WINDOWS: Final = Gauge("berth_windows", "ReservationWindows by state", ["state"], registry=REGISTRY)
OCCURRENCES: Final = Counter(
    "berth_window_occurrences", "Occurrences of windows: opened, missed or left out", ["result"], registry=REGISTRY
)
LATE_SECONDS: Final = Histogram(
    "berth_window_late_seconds",
    "Seconds from the time at which an occurrence reserves until its Reservation exists",
    registry=REGISTRY,
    buckets=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0),
)
