"""Owns what has to be so before moves begin: the plan still holds, and no pod that waits would lose its room to them.

It does not look (`plan_review`) and does not skip or stop anything: it says what is to be skipped and why to stop.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from berth_core.clock import Clock
from berth_core.errors import RetryableError
from berth_core.migration_plans import MoveReason, PlannedMove
from berth_descheduler import log_keys
from berth_descheduler.execution.plan_review import Review, Reviewer, names_of, who_waits
from berth_descheduler.planner import Invalid

_LOG = structlog.get_logger(__name__)
_CONFIRM_SECONDS: Final = 1.0
"""What does not hold is looked at once more after this long: a label or a count may lag behind what has happened."""

_PAUSE_SECONDS: Final = 1.0
_LONGEST_BLIND_SECONDS: Final = 180.0
"""How long the cluster may be unreadable before a plan is stopped."""


@dataclass(frozen=True, slots=True)
class Passage:
    """How a gate was passed: what is to be skipped, or why nothing more may begin."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    stop: MoveReason = MoveReason.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class WaveGate:
    """Where a plan waits before it begins, and before each of its waves."""

    reviewer: Reviewer
    clock: Clock
    pending_wait_seconds: float
    """How long pods that come first are waited for."""

    budgets: bool
    """Whether moves whose disruption budget allows none do not hold."""

    stopped: Callable[[], bool]
    """Tells whether there is no point in waiting any more."""

    def pass_through(self, ahead: Callable[[], Mapping[int, PlannedMove]], next_moves: Collection[int]) -> Passage:
        """Wait until the next moves may begin, or may not; `ahead` gives the moves that are still to be made."""
        begun_at = self.clock.monotonic()
        doubted: Mapping[int, Invalid] | None = None
        while not self.stopped():
            waited = self.clock.monotonic() - begun_at
            review = self._look(ahead(), next_moves)
            if isinstance(review, RetryableError):
                if waited >= _LONGEST_BLIND_SECONDS:
                    return Passage(stop=MoveReason.PLAN_STOPPED, message=f"the cluster could not be read: {review}")
            elif review.waiting:
                if waited >= self.pending_wait_seconds:
                    return Passage(stop=MoveReason.PODS_WAITING, message=_why_they_come_first(review, waited))
            elif doubted is not None or not review.invalid:
                return Passage({index: why for index, why in review.invalid.items() if index in (doubted or ())})
            else:
                doubted = review.invalid
                self.clock.sleep(_CONFIRM_SECONDS)
                continue
            self.clock.sleep(_PAUSE_SECONDS)
        return Passage()

    def _look(self, ahead: Mapping[int, PlannedMove], next_moves: Collection[int]) -> Review | RetryableError:
        try:
            return self.reviewer.review(ahead, next_moves, budgets=self.budgets)
        except RetryableError as error:
            _LOG.info(log_keys.CALL_FAILED, **{log_keys.KEY_ERROR: str(error)})
            return error


def _why_they_come_first(review: Review, waited: float) -> str:
    what = f"{who_waits(review.waiting)} for the room that the moves would take"
    return f"{what}, {waited:.0f} s by now: {names_of(review.waiting)}"
