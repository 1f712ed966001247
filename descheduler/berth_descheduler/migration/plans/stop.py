"""Whether a running plan may begin anything new: if not, why, and since when."""

import threading
from collections.abc import Collection, Sequence
from typing import Final

import structlog

from berth_core import (
    Clock,
    MigrationPlan,
    MoveReason,
    MoveState,
    MoveStatus,
    Outlook,
    PlannedMove,
    count,
    read_timestamp,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.settings import ExecutionSettings

_LOG = structlog.get_logger(__name__)

_OUTDATED_SHARE: Final = 0.25
_FEWEST_OVERTAKEN: Final = 4
_OVERTAKEN: Final = frozenset(reason for reason in MoveReason if reason.outlook is Outlook.OVERTAKEN)


def count_overtaken(moves: Sequence[PlannedMove], statuses: Sequence[MoveStatus]) -> int:
    """Return how many moves were skipped because others had changed pods and nodes.

    Moves off a source where a pod stays for another reason do not count: a new plan would meet that reason again.
    """
    skipped_indices = [index for index, status in enumerate(statuses) if _is_overtaken(status)]
    if not skipped_indices:
        return 0
    pairs = zip(moves, statuses, strict=True)
    sources_with_pods = {move.source for move, status in pairs if _keeps_pod(status)}
    return sum(moves[index].source not in sources_with_pods for index in skipped_indices)


def is_outdated(overtaken: int, ahead: int) -> bool:
    """Return whether a quarter of what is left cannot be done; a few moves never outdate a plan."""
    return overtaken >= max(_FEWEST_OVERTAKEN, _OUTDATED_SHARE * (overtaken + ahead))


def _keeps_pod(status: MoveStatus) -> bool:
    """Return whether a pod stays for a reason that a new plan would meet again."""
    return has_failed(status) or (_is_skipped(status) and not _is_overtaken(status))


def _is_skipped(status: MoveStatus) -> bool:
    return status.state is MoveState.SKIPPED


def _is_overtaken(status: MoveStatus) -> bool:
    # A reason that another version of Berth has recorded may be unknown here.
    return _is_skipped(status) and status.reason in _OVERTAKEN


class PlanStop:
    """Whether nothing new may begin for one plan; `since` in monotonic seconds.

    `replans` says whether the run plans again what an outdated plan leaves.
    """

    def __init__(
        self,
        plan: MigrationPlan,
        *,
        clock: Clock,
        settings: ExecutionSettings,
        asked: threading.Event,
        replans: bool = False,
    ) -> None:
        self._moves = plan.spec.moves
        self._replans = replans
        self._clock = clock
        self._settings = settings
        self._asked = asked
        self._plan = plan.metadata.name
        self._start_time = plan.status.start_time
        self.reason = MoveReason.NONE
        self.message = ""
        self.since: float | None = None
        self.plan_deleted = False

    @property
    def has_begun(self) -> bool:
        """Return whether nothing new may begin."""
        return bool(self.reason)

    def note(self, observed: ObservedPlan, statuses: Sequence[MoveStatus]) -> None:
        """Begin to stop on request or after too many failures; a request outranks failures."""
        self.plan_deleted = self.plan_deleted or not observed.plan_exists
        if self.reason is MoveReason.INTERRUPTED:
            return
        if self.plan_deleted:
            self._begin(MoveReason.INTERRUPTED, "the plan was deleted", telemetry.PLAN_DELETED)
        elif self._asked.is_set():
            self._begin(MoveReason.INTERRUPTED, "asked to stop", telemetry.STOPPING)
        elif observed.plan_aborted and self.reason is not MoveReason.ABORTED:
            self._begin(MoveReason.ABORTED, "it was aborted on request", telemetry.PLAN_ABORTED)
        else:
            self._note_limits(statuses)

    def begin(self, reason: MoveReason, message: str) -> None:
        """Begin to stop for the plan's own state, unless it stops already."""
        if not self.has_begun:
            self._begin(reason, message, telemetry.PLAN_STOPPED)

    def _note_limits(self, statuses: Sequence[MoveStatus]) -> None:
        failed_moves, settings = sum(map(has_failed, statuses)), self._settings
        # One failure never stops a plan, however short the plan is.
        if failed_moves > max(1, int(settings.max_failed_share * len(statuses))):
            self.begin(MoveReason.PLAN_STOPPED, f"{failed_moves} of {len(statuses)} moves failed")
        elif self._is_out_of_time():
            self.begin(MoveReason.PLAN_STOPPED, f"it took longer than {settings.max_seconds:g} s")

    def note_overtaken(self, statuses: Sequence[MoveStatus], doomed: Collection[int] = ()) -> None:
        """Begin to stop where too many of the moves that are left cannot be made any more.

        `doomed` are positions of moves that will be skipped for that reason.
        """
        if not self._replans or self.has_begun:
            return
        ahead = {index for index, status in enumerate(statuses) if status.state is MoveState.PENDING}
        overtaken_next = ahead.intersection(doomed)
        overtaken = count_overtaken(self._moves, statuses) + len(overtaken_next)
        moves_left = len(ahead) - len(overtaken_next)
        if ahead and is_outdated(overtaken, moves_left):
            self.begin(
                MoveReason.OUTDATED, f"{overtaken} of {count(overtaken + moves_left, 'move')} left cannot be made now"
            )

    def _begin(self, reason: MoveReason, message: str, event: str) -> None:
        self.reason, self.message, self.since = reason, message, self._clock.monotonic()
        _LOG.warning(event, **{telemetry.KEY_PLAN: self._plan, telemetry.KEY_REASON: message})

    def _is_out_of_time(self) -> bool:
        """Return whether the plan has used up its time, counted from the run that began it."""
        max_seconds = self._settings.max_seconds
        begun_at = read_timestamp(self._start_time)
        if max_seconds is None or begun_at is None:
            return False
        # By the wall clock, since the time has to go on counting over a restart.
        return (self._clock.now() - begun_at).total_seconds() > max_seconds


def has_failed(status: MoveStatus) -> bool:
    """Return whether a move counts as a failure of the plan.

    A skipped move does not, nor one whose replacement others have removed.
    """
    return status.state in {MoveState.FAILED, MoveState.ELSEWHERE} and status.reason != MoveReason.REPLACEMENT_GONE
