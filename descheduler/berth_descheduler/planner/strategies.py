"""Owns which strategy a name means, and the one that leaves everything as it is.

It does not own any rule of a strategy.
"""

from importlib.util import find_spec
from typing import assert_never

from berth_core.errors import InputError
from berth_core.objects import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.cluster import NodeIndex
from berth_descheduler.planner.deadlines import Deadline
from berth_descheduler.planner.problems import Problem, Proposal, Strategy
from berth_descheduler.planner.state import State
from berth_descheduler.planner.threshold import Threshold
from berth_descheduler.plugins.defragmentation import DefragmentationArgs, StrategyName


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
            from berth_descheduler.planner.consolidate import Consolidate  # noqa: PLC0415 - needs numpy, an extra

            return Consolidate(deadline)
        case StrategyName.MAKE_ROOM:
            _require_numpy(args.strategy)
            from berth_descheduler.planner.make_room import MakeRoom  # noqa: PLC0415 - needs numpy, an extra

            return MakeRoom(args.room, deadline)
        case _:
            assert_never(args.strategy)


def _require_numpy(name: StrategyName) -> None:
    if find_spec("numpy") is None:
        raise InputError("strategy", name.value, "Threshold, or numpy installed: the extra berth[descheduler] has it")
