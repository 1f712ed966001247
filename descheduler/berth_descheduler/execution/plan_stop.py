"""Owns whether a plan that is carried out may begin anything new: if not, why, and since when.

It does not own what becomes of the moves and rooms that are under way then (`moves`, `rooms`).
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from berth_core.clock import Clock, parse_timestamp
from berth_core.migration_plans import MigrationPlan, MoveReason, MoveState, MoveStatus
from berth_descheduler import log_keys
from berth_descheduler.execution.observation import Observed
from berth_descheduler.settings import ExecutionSettings

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What ends a plan before its last move."""

    clock: Clock
    settings: ExecutionSettings
    asked: threading.Event
    """Set from outside, by a signal."""


class PlanStop:
    """Whether nothing new may begin for one plan; `since` in monotonic seconds."""

    def __init__(self, bounds: Bounds, plan: MigrationPlan) -> None:
        self._bounds = bounds
        self._plan = plan.metadata.name
        self._start_time = plan.status.start_time
        self.reason = MoveReason.NONE
        self.message = ""
        self.since: float | None = None
        self.plan_deleted = False

    @property
    def has_begun(self) -> bool:
        """Tell whether nothing new may begin."""
        return bool(self.reason)

    def note(self, observed: Observed, statuses: Sequence[MoveStatus]) -> None:
        """Begin to stop where somebody asks for it or too much has failed; a stop from outside outranks the other."""
        self.plan_deleted = self.plan_deleted or not observed.plan_exists
        if self.reason is MoveReason.INTERRUPTED:
            return
        if self.plan_deleted:
            self._begin(MoveReason.INTERRUPTED, "the plan was deleted", log_keys.PLAN_DELETED)
        elif self._bounds.asked.is_set():
            self._begin(MoveReason.INTERRUPTED, "asked to stop", log_keys.STOPPING)
        elif observed.plan_aborted and self.reason is not MoveReason.ABORTED:
            self._begin(MoveReason.ABORTED, "somebody aborted it", log_keys.PLAN_ABORTED)
        else:
            self._note_limits(statuses)

    def begin(self, reason: MoveReason, message: str) -> None:
        """Begin to stop for what the plan itself has come to, unless it stops already."""
        if not self.has_begun:
            self._begin(reason, message, log_keys.PLAN_STOPPED)

    def _note_limits(self, statuses: Sequence[MoveStatus]) -> None:
        failed, settings = sum(map(has_failed, statuses)), self._bounds.settings
        if failed > max(1, int(settings.max_failed_share * len(statuses))):
            self.begin(MoveReason.PLAN_STOPPED, f"{failed} of {len(statuses)} moves failed")
        elif self._is_out_of_time():
            self.begin(MoveReason.PLAN_STOPPED, f"it took longer than {settings.max_seconds:g} s")

    def _begin(self, reason: MoveReason, message: str, event: str) -> None:
        self.reason, self.message, self.since = reason, message, self._bounds.clock.monotonic()
        _LOG.warning(event, **{log_keys.KEY_PLAN: self._plan, log_keys.KEY_REASON: message})

    def _is_out_of_time(self) -> bool:
        """Tell whether the plan has been carried out for as long as it may, by whichever run began it."""
        most = self._bounds.settings.max_seconds
        if most is None or not self._start_time:
            return False
        return (self._bounds.clock.now() - parse_timestamp(self._start_time)).total_seconds() > most


def has_failed(status: MoveStatus) -> bool:
    """Tell whether a move counts as a failure of the plan; one that was not begun does not."""
    return status.state in {MoveState.FAILED, MoveState.ELSEWHERE}
