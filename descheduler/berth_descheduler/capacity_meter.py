"""The thread that measures the cluster's fragmentation at an interval, for the metrics."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

import structlog

from berth_core import BerthError, Clock
from berth_descheduler import telemetry
from berth_descheduler.metrics import CapacityMetrics
from berth_descheduler.picture import Picture
from berth_descheduler.planner import CapacityReport, CapacityShape, report_capacity
from berth_service.memory import release_memory

_LOG = structlog.get_logger(__name__)

_END_SECONDS: Final = 5.0
"""How long the end waits for a measurement under way."""


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """How often fragmentation is measured, and for which shapes."""

    every_seconds: float | None = 300.0
    """None: never."""

    shapes: tuple[CapacityShape, ...] = ()
    """Default: a half, a quarter and an eighth of the most frequent size of node."""


class CapacityMeter:
    """Measures capacity at once and then at an interval; logs errors and tries again."""

    def __init__(
        self,
        picture: Picture,
        clock: Clock,
        metrics: CapacityMetrics,
        settings: CapacitySettings,
        keep: Callable[[CapacityReport, datetime], None] = lambda _report, _measured_at: None,
    ) -> None:
        self._keep = keep
        self._picture = picture
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capacity-meter", daemon=True)

    def __enter__(self) -> Self:
        if self._settings.every_seconds is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def measure(self) -> None:
        """Read the cluster and show how fragmented it is; raises a `KubeError`."""
        begun_at = self._clock.monotonic()
        read = self._picture.capacity()
        report = report_capacity(read, self._settings.shapes, sizes_of_nodes=True)
        self._metrics.show_snapshot(read)
        self._metrics.show(report, self._clock.monotonic() - begun_at)
        self._keep(report, self._clock.now())

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.measure()
            except BerthError as error:
                _LOG.warning(telemetry.CAPACITY_UNKNOWN, **{telemetry.KEY_ERROR: str(error)})
            release_memory()  # it has read all pods
            self._stop.wait(self._settings.every_seconds)
