"""Owns the protocol by which a cycle tells others how it fares, and the two observers that need nothing else.

It does not own what observers make of it: `progress` shows it, `metrics` counts it.
"""

from collections.abc import Sequence
from typing import Protocol

from berth_core.migration_plans import MoveStatus
from berth_descheduler.outcome import Outcome, Phase
from berth_descheduler.planner import Plan


class CycleObserver(Protocol):
    """Who is told what a cycle does; called in the cycle's thread, and must not raise."""

    def phase_begun(self, phase: Phase) -> None:
        """Take note that a phase begins."""

    def phase_ended(self, phase: Phase, seconds: float) -> None:
        """Take note that a phase is over."""

    def planned(self, plan: Plan) -> None:
        """Take note of what the planner found."""

    def plan_published(self, name: str, *, approved: bool) -> None:
        """Take note that a plan can be seen in the cluster; where it is not approved, a person is asked to."""

    def plan_begun(self, name: str, moves: int) -> None:
        """Take note that a plan is being carried out."""

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:
        """Take note of all moves' states; `wave` is the one under way. Called at every look, changed or not."""

    def cycle_ended(self, outcome: Outcome) -> None:
        """Take note of what the cycle did."""


class Unobserved:
    """An observer that does nothing; also the base of those that want to hear of some things only."""

    def phase_begun(self, phase: Phase) -> None:
        """Ignore it."""

    def phase_ended(self, phase: Phase, seconds: float) -> None:
        """Ignore it."""

    def planned(self, plan: Plan) -> None:
        """Ignore it."""

    def plan_published(self, name: str, *, approved: bool) -> None:
        """Ignore it."""

    def plan_begun(self, name: str, moves: int) -> None:
        """Ignore it."""

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:
        """Ignore it."""

    def cycle_ended(self, outcome: Outcome) -> None:
        """Ignore it."""
