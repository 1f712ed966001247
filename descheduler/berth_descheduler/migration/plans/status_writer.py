"""Writes a plan's status on change, and no more often than an interval allows."""

from concurrent.futures import Executor, Future
from typing import Final

import structlog

from berth_core import BerthError, Clock, MigrationPlanStatus
from berth_descheduler import telemetry
from berth_descheduler.migration.manifests.plans import build_status_patch
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)


_WRITES_APART: Final = 5
"""The least interval between two writes, in durations of the last write."""


class PlanStatusWriter:
    """Writes the status of one plan in the background; only the newest status counts."""

    def __init__(self, client: KubeClient, plan: str, pool: Executor, *, interval_seconds: float, clock: Clock) -> None:
        self._client = client
        self._plan = plan
        self._pool = pool
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._written: MigrationPlanStatus | None = None
        self._begun_at: float | None = None
        self._writing: Future[bool] | None = None
        self._write_seconds = 0.0
        """How long the last write took; a large plan on a busy API server is written less often."""

    def offer(self, status: MigrationPlanStatus) -> None:
        """Begin to write a changed status, unless a write is under way or too recent."""
        if self._writing is not None and self._writing.done():
            if not self._writing.result():
                # A failed write counts as none, so the same status is written again at the next offer.
                self._written = None
            self._writing = None
        now = self._clock.monotonic()
        # Each write sends all moves and wakes every watcher of the plan.
        interval = max(self._interval_seconds, _WRITES_APART * self._write_seconds)
        is_too_soon = self._begun_at is not None and now - self._begun_at < interval
        if self._writing is not None or is_too_soon or status == self._written:
            return
        self._begun_at, self._written = now, status
        self._writing = self._pool.submit(self._write, status)

    def _write(self, status: MigrationPlanStatus) -> bool:
        begun_at = self._clock.monotonic()
        is_written = write_status(self._client, self._plan, status)
        self._write_seconds = self._clock.monotonic() - begun_at
        return is_written


def write_status(client: KubeClient, plan: str, status: MigrationPlanStatus) -> bool:
    """Write a plan's status and return whether that worked; it is only for people, so a failure stops nothing."""
    try:
        # Without a resourceVersion: only the run writes the status, and a conflict with an approval or an abort, which
        # change the spec, would only delay it.
        client.merge_patch(MIGRATION_PLANS, plan, build_status_patch(status), subresource="status")
    except NotFoundError:
        return True
    except BerthError as error:
        _LOG.warning(telemetry.STATUS_FAILED, **{telemetry.KEY_PLAN: plan, telemetry.KEY_ERROR: str(error)})
        return False
    return True
