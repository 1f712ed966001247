"""Owns the thread that measures the cluster's fragmentation every so often, for the metrics.

It does not own the numbers (`planner.stranded_capacity`) nor their names (`metrics`).
"""

import threading
from dataclasses import dataclass
from typing import Final, Self

import structlog

from berth_core.clock import Clock
from berth_core.errors import BerthError
from berth_descheduler import log_keys
from berth_descheduler.metrics import CapacityMetrics
from berth_descheduler.planner.asked_shapes import AskedShape
from berth_descheduler.planner.stranded_capacity import report_capacity
from berth_descheduler.snapshots import read_capacity
from berth_kube.client import KubeClient

_END_SECONDS: Final = 5.0
"""How long a measurement under way is waited for at the end."""

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """How often fragmentation is measured, and for which shapes."""

    every_seconds: float | None = 300.0
    """None: never."""

    shapes: tuple[AskedShape, ...] = ()
    """Where none is named: a half, a quarter and an eighth of the most frequent size of node."""


class CapacityMeter:
    """Measures at once and then every so often until it is left; what goes wrong is logged and tried again."""

    def __init__(self, client: KubeClient, clock: Clock, metrics: CapacityMetrics, settings: CapacitySettings) -> None:
        self._client = client
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
        report = report_capacity(read_capacity(self._client), self._settings.shapes, sizes_of_nodes=True)
        self._metrics.show(report, self._clock.monotonic() - begun_at)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.measure()
            except BerthError as error:
                _LOG.warning(log_keys.CAPACITY_UNKNOWN, **{log_keys.KEY_ERROR: str(error)})
            self._stop.wait(self._settings.every_seconds)
