"""Owns the balance plugins that come with Berth: `Defragmentation`, and the one of a profile that enables none.

It does not own how moves are chosen: those are the planner's strategies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_core.migration_plans import Objective
from berth_descheduler.planner.deadlines import Deadline
from berth_descheduler.planner.problems import Strategy
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.strategies import LeaveAsIs, make_strategy
from berth_descheduler.plugins.defragmentation import PLUGIN_NAME, DefragmentationArgs
from berth_descheduler.plugins.protocols import BalancePlugin

SINGLE_PODS: Final = "SinglePods"
"""In place of a strategy, where only single pods that plugins name are moved."""


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """Empties nodes or makes room, by the strategy of its arguments."""

    args: DefragmentationArgs = field(default_factory=DefragmentationArgs)

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "Defragmentation":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        return cls(DefragmentationArgs.parse(args))

    def strategy(self, _settings: PlannerSettings, deadline: Deadline) -> Strategy:
        """Return the strategy; raises `InputError` where it needs what is not installed."""
        return make_strategy(self.args, deadline)

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=PLUGIN_NAME, strategy=self.args.strategy.value, args=self.args.to_mapping())


@dataclass(frozen=True, slots=True)
class NoBalance:
    """Moves nothing: what single pods are named for is all that such a profile does."""

    plugins: tuple[str, ...] = ()
    """The deschedule plugins that are enabled beside it."""

    def strategy(self, _settings: PlannerSettings, _deadline: Deadline) -> Strategy:
        """Return the strategy that leaves everything as it is."""
        return LeaveAsIs()

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=", ".join(self.plugins), strategy=SINGLE_PODS)


def balance_of(settings: PlannerSettings) -> BalancePlugin:
    """Return what chooses a plan's moves for the cluster as a whole."""
    enabled = settings.plugins.balance
    return Defragmentation(settings.args) if enabled is None else enabled.plugin
