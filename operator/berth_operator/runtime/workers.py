"""What each worker's thread does: takes keys from the queue and reconciles them, until each succeeds."""

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from berth_core import BerthError
from berth_operator import metrics, telemetry
from berth_operator.runtime.workqueue import Key, WorkQueue

_FIRST_RETRY_SECONDS: Final = 0.2
_LONGEST_RETRY_SECONDS: Final = 10.0
_MAX_DOUBLINGS: Final = 10
"""More doublings would exceed a float after hours of failures; the pause is at its longest much earlier."""

_LOG = structlog.get_logger(__name__)


class Workers:
    """Reconcile keys in as many threads as call `work`, and queue again, after a pause, those that fail."""

    def __init__(self, queue: WorkQueue, dispatch: Callable[[Key], None], leads: Callable[[], bool]) -> None:
        self._queue, self._dispatch, self._leads = queue, dispatch, leads
        self._failures: dict[Key, int] = {}
        self.dropped = threading.Event()
        """Keys were dropped without the lease, so everything has to be resynced."""

    def work(self) -> None:
        """Reconcile keys until stopped; they are dropped without the lease, for its holder resyncs."""
        while (key := self._queue.take()) is not None:
            try:
                if self._leads():
                    self.reconcile(key)
                else:
                    # The key is not queued again: without the Lease it would come back at once, for as long as another
                    # replica leads.
                    self.dropped.set()
            finally:
                self._queue.done(key)

    def reconcile(self, key: Key) -> None:
        """Reconcile one key, which comes back after a pause if that fails."""
        started = time.monotonic()
        try:
            self._dispatch(key)
        except BerthError as error:
            self._retry(key, error)
            _LOG.info(telemetry.ACTION_FAILED, **{telemetry.KEY_UID: key.name, telemetry.KEY_ERROR: str(error)})
        except Exception as error:  # noqa: BLE001 - logged; one key must not end the loop
            self._retry(key, error)
            _LOG.exception(telemetry.RECONCILE_CRASHED, **{telemetry.KEY_UID: key.name})
        else:
            self._failures.pop(key, None)
        metrics.RECONCILE_SECONDS.labels(kind=key.kind).observe(time.monotonic() - started)

    def forget_failures(self, key: Key) -> None:
        """Reset the back-off of a Reservation or a window."""
        self._failures.pop(key, None)

    def _retry(self, key: Key, error: Exception) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        metrics.ACTION_FAILURES.labels(error=type(error).__name__).inc()
        # Exponential back-off for each key, like the rate limiter of client-go's workqueues, with a maximum of seconds
        # instead of minutes: a place that is not held is in danger.
        delay = min(_FIRST_RETRY_SECONDS * 2 ** min(failures, _MAX_DOUBLINGS), _LONGEST_RETRY_SECONDS)
        self._queue.add(key, delay)
