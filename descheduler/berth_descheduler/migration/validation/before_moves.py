"""Before moves begin, the plan must still be valid and no pending pod may lose its room to them.

The result names the moves to skip and the reason to stop; the caller acts on it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from berth_core import Clock, MoveReason, PlannedMove, RetryableError
from berth_descheduler import telemetry
from berth_descheduler.migration.validation.pending_pods import pods_waiting_message
from berth_descheduler.migration.validation.plan_review import PlanValidator, Review
from berth_descheduler.migration.validation.revalidation import Invalid

_LOG = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""Pause between two looks: a label or a count may lag behind, so an invalid move is looked at once more."""

_LONGEST_BLIND_SECONDS: Final = 180.0
"""How long the cluster may be unreadable before a plan is stopped."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Which moves to skip, or why nothing more may begin."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    stop: MoveReason = MoveReason.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class WaveValidator:
    """Validates the moves of a plan before it begins, and lets it wait for pending pods."""

    reviewer: PlanValidator
    clock: Clock
    pending_wait_seconds: float
    """How long to wait for pending pods."""

    budgets: bool
    """Whether an exhausted disruption budget makes a move invalid."""

    stopped: Callable[[], bool]
    """Returns whether waiting is pointless."""

    def validate(self, ahead: Callable[[], Mapping[int, PlannedMove]], next_moves: Collection[int]) -> ValidationResult:
        """Wait for the decision whether the next moves may begin; `ahead` returns the remaining moves."""
        looks = Looks(self.pending_wait_seconds, self.clock.monotonic())
        while not self.stopped():
            now = self.clock.monotonic()
            validation = looks.judge(look(self.reviewer, ahead(), next_moves, budgets=self.budgets), now)
            if validation is not None:
                return validation
            self.clock.sleep(LOOK_SECONDS)
        return ValidationResult()


@dataclass(slots=True)
class Looks:
    """Judges one look after another at moves before they begin."""

    pending_wait_seconds: float
    begun_at: float
    doubted: Mapping[int, Invalid] | None = None
    """What the first look found to be invalid."""

    def judge(self, review: Review | RetryableError, now: float) -> ValidationResult | None:
        """Return the result, or None if it takes another look; `now` is when this look began."""
        waited = now - self.begun_at
        # An unreadable cluster is not a valid plan: nothing begins, but an API server that restarts takes a minute or
        # two.
        if isinstance(review, RetryableError):
            if waited < _LONGEST_BLIND_SECONDS:
                return None
            return ValidationResult(stop=MoveReason.PLAN_STOPPED, message=f"the cluster could not be read: {review}")
        if review.waiting:
            if waited < self.pending_wait_seconds:
                return None
            return ValidationResult(stop=MoveReason.PODS_WAITING, message=pods_waiting_message(review.waiting, waited))
        if self.doubted is None and review.invalid:
            self.doubted = review.invalid
            return None
        return ValidationResult(
            {index: invalid_move for index, invalid_move in review.invalid.items() if index in (self.doubted or ())}
        )


def look(
    reviewer: PlanValidator,
    ahead: Mapping[int, PlannedMove],
    next_moves: Collection[int],
    *,
    budgets: bool = False,
    under_way: Mapping[int, PlannedMove] | None = None,
    waiting: Collection[int] = (),
) -> Review | RetryableError:
    """Return what speaks against the next moves, or why that cannot be seen for now."""
    try:
        return reviewer.review(ahead, next_moves, budgets=budgets, under_way=under_way, waiting=waiting)
    except RetryableError as error:
        _LOG.info(telemetry.CALL_FAILED, **{telemetry.KEY_ERROR: str(error)})
        return error
