"""Owns which strategy a name means, and the one that leaves everything as it is.

It does not own any rule of a strategy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final, assert_never

from berth_core.clock import Deadline
from berth_core.errors import InputError
from berth_core.migration_plans import Objective
from berth_core.objects import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.interfaces import BalancePlugin
from berth_descheduler.planner.arguments import PLUGIN_NAME, DefragmentationArgs, StrategyName
from berth_descheduler.planner.problem import Problem, Proposal, Strategy
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.simulation.cluster import NodeIndex
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.planner.strategies.threshold import Threshold


class LeaveAsIs:
    """Chooses no moves, and has nothing to say of why not."""

    def possible_sources(self, _problem: Problem) -> tuple[NodeIndex, ...]:
        """Return none."""
        return ()

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return none."""
        return ()

    def propose(self, _problem: Problem, _state: State) -> Proposal:
        """Return nothing."""
        return Proposal((), ())


def make_strategy(args: DefragmentationArgs, deadline: Deadline) -> Strategy:
    """Return the strategy of the arguments; raises `InputError` where it needs what is not installed."""
    match args.strategy:
        case StrategyName.THRESHOLD:
            return Threshold()
        case StrategyName.CONSOLIDATE:
            _require_numpy(args.strategy)
            from berth_descheduler.planner.strategies.consolidate import Consolidate  # noqa: PLC0415 - needs numpy, an extra

            return Consolidate(deadline)
        case StrategyName.MAKE_ROOM:
            _require_numpy(args.strategy)
            from berth_descheduler.planner.strategies.make_room import MakeRoom  # noqa: PLC0415 - needs numpy, an extra

            return MakeRoom(args.room, deadline)
        case _:
            assert_never(args.strategy)


def _require_numpy(name: StrategyName) -> None:
    if find_spec("numpy") is None:
        raise InputError("strategy", name.value, "Threshold, or numpy installed: the extra berth[descheduler] has it")


# --- balance ---------------------------------------------------------------------------------------------------------
# The balance plugins that come with Berth: `Defragmentation`, and the one of a profile that enables none.

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

    def strategy(self, deadline: Deadline) -> Strategy:
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

    def strategy(self, _deadline: Deadline) -> Strategy:
        """Return the strategy that leaves everything as it is."""
        return LeaveAsIs()

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=", ".join(self.plugins), strategy=SINGLE_PODS)


def balance_of(settings: PlannerSettings) -> BalancePlugin[Strategy]:
    """Return what chooses a plan's moves for the cluster as a whole."""
    enabled = settings.plugins.balance
    return Defragmentation(settings.args) if enabled is None else enabled.plugin
