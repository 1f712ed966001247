"""The goal of plans that move only the pods that deschedule plugins name."""

from collections.abc import Mapping
from typing import Any, ClassVar

from berth_core import Deadline
from berth_descheduler.goals.move_pods.strategy import NoopStrategy
from berth_descheduler.planner import Plan, Strategy
from berth_descheduler.planner.goal import Goal, GoalArguments, Merit
from berth_descheduler.planner.sentences import describe_named_pods


class MovePodsGoal(Goal[None, None]):
    """Moves the pods that deschedule plugins name, and no others."""

    name: ClassVar[str] = "SinglePods"
    is_offered: ClassVar[bool] = False

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read nothing: there are no arguments."""

    def request(self, args: GoalArguments) -> None:
        """Ask for nothing: the pods are named before the strategy is asked."""

    def strategy(self, asked: None, deadline: Deadline) -> Strategy:
        del asked, deadline
        return NoopStrategy()

    def worth(self, plan: Plan) -> Merit:
        return (len(plan.moves),)

    def sentence(self, plan: Plan) -> str:
        return describe_named_pods(plan)
