"""What plans are for: one folder for each goal, with its strategy, arguments and words, and the list of all."""

from typing import Any, Final

from berth_core import InputError
from berth_descheduler.goals.free_nodes.goal import ConsolidateGoal, ThresholdGoal
from berth_descheduler.goals.lower_fragmentation.goal import MinimizeFragmentationGoal
from berth_descheduler.goals.make_room.goal import MakeRoomGoal
from berth_descheduler.goals.move_pods.goal import MovePodsGoal
from berth_descheduler.planner.goal import Goal

GOALS: Final[tuple[Goal[Any, Any], ...]] = (
    ThresholdGoal(),
    ConsolidateGoal(),
    MakeRoomGoal(),
    MinimizeFragmentationGoal(),
    MovePodsGoal(),
)

OFFERED_GOALS: Final = tuple(goal for goal in GOALS if goal.is_offered)
"""Those that a policy or a command can ask for, in the order in which people are told of them."""

_BY_NAME: Final = {goal.name: goal for goal in GOALS}

DEFAULT_GOAL: Final = _BY_NAME[ThresholdGoal.name]
"""Of policies that do not say another."""

DEFAULT_GOAL_OF_COMMANDS: Final = _BY_NAME[ConsolidateGoal.name]
"""Of commands; it is also how plans of strategies by others are judged."""


def read_goal(raw: object) -> Goal[Any, Any]:
    """Return the goal of the argument `strategy`, in any case and with or without hyphens; raises `InputError`."""
    names = {goal.name.lower(): goal for goal in OFFERED_GOALS}
    # Policies write `MinimizeFragmentation` as the kind that it is, command lines `minimize-fragmentation` as they
    # write options.
    goal = names.get(raw.lower().replace("-", "")) if isinstance(raw, str) else None
    if goal is None:
        raise InputError("strategy", raw, f"one of {', '.join(goal.name for goal in OFFERED_GOALS)}")
    return goal


def goal_named(name: str) -> Goal[Any, Any]:
    """Return the goal of a plan that records this strategy; plans of strategies by others free nodes."""
    return _BY_NAME.get(name, DEFAULT_GOAL_OF_COMMANDS)


__all__ = ["DEFAULT_GOAL", "DEFAULT_GOAL_OF_COMMANDS", "GOALS", "OFFERED_GOALS", "goal_named", "read_goal"]
