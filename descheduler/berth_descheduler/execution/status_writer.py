"""Owns the writing of a plan's status: on change, and no more often than an interval allows.

It does not own what stands in it. What it writes is for people; only terminal states of moves are read again.
"""

from concurrent.futures import Executor, Future

import structlog

from berth_core.clock import Clock
from berth_core.errors import BerthError
from berth_core.migration_plans import MigrationPlanStatus
from berth_descheduler import log_keys
from berth_descheduler.execution.plan_objects import build_status_patch
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import MIGRATION_PLANS

_LOG = structlog.get_logger(__name__)


class PlanStatusWriter:
    """Writes the status of one plan in the background; only the newest one counts."""

    def __init__(self, client: KubeClient, plan: str, pool: Executor, *, interval_seconds: float, clock: Clock) -> None:
        self._client = client
        self._plan = plan
        self._pool = pool
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._written: MigrationPlanStatus | None = None
        self._begun_at: float | None = None
        self._writing: Future[bool] | None = None

    def offer(self, status: MigrationPlanStatus) -> None:
        """Begin to write a status unless it is written, another write is under way or the last is too recent."""
        if self._writing is not None and self._writing.done():
            if not self._writing.result():
                self._written = None
            self._writing = None
        now = self._clock.monotonic()
        too_soon = self._begun_at is not None and now - self._begun_at < self._interval_seconds
        if self._writing is not None or too_soon or status == self._written:
            return
        self._begun_at, self._written = now, status
        self._writing = self._pool.submit(write_status, self._client, self._plan, status)


def write_status(client: KubeClient, plan: str, status: MigrationPlanStatus) -> bool:
    """Write a plan's status and tell whether it is there; it is only for people, so a failure stops nothing."""
    try:
        client.merge_patch(MIGRATION_PLANS, plan, build_status_patch(status), subresource="status")
    except NotFoundError:
        return True
    except BerthError as error:
        _LOG.warning(log_keys.STATUS_FAILED, **{log_keys.KEY_PLAN: plan, log_keys.KEY_ERROR: str(error)})
        return False
    return True
