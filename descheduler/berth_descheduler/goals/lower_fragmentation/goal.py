"""The goal `MinimizeFragmentation`: the workload can use more of what is free."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, ClassVar

from berth_core import Deadline, percent
from berth_descheduler.goals.lower_fragmentation.view import (
    describe_fragmentation,
    fragmentation_figures,
    fragmented_rows,
    judge_fragmentation,
)
from berth_descheduler.planner import Plan, Strategy
from berth_descheduler.planner.goal import Goal, GoalArguments, Merit
from berth_descheduler.planner.sentences import Figure


class MinimizeFragmentationGoal(Goal[None, None]):
    """Lowers what the workload cannot use of a free resource."""

    name: ClassVar[str] = "MinimizeFragmentation"
    empties_nodes: ClassVar[bool] = False
    whole_nodes: ClassVar[bool | None] = False
    counted: ClassVar[str] = "millionths of what is free made usable"

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read nothing: `resourceType` says it all."""

    def request(self, args: GoalArguments) -> None:
        """Ask for nothing: the planner's settings name the resource."""

    def strategy(self, asked: None, deadline: Deadline) -> Strategy:
        from berth_descheduler.goals.lower_fragmentation.strategy import MinimizeFragmentation  # noqa: PLC0415 - numpy takes a while to import

        del asked
        return MinimizeFragmentation(deadline)

    def worth(self, plan: Plan) -> Merit:
        return _less_fragmented(plan), sum(move.stands_alone for move in plan.moves)

    def sentence(self, plan: Plan) -> str:
        return describe_fragmentation(plan)

    def advantage(self, better: Plan, plan: Plan) -> str:
        better_gain, plan_gain = _less_fragmented(better), _less_fragmented(plan)
        if better_gain > plan_gain:
            return f"{percent(-better_gain)} instead of {percent(-plan_gain)} would be fragmented"
        return super().advantage(better, plan)

    def judgement(self, plan: Plan) -> str:
        least_share = plan.least_fragmented
        if plan.quality is None or least_share is None:
            return super().judgement(plan)
        return judge_fragmentation(least_share, plan.quality)

    def figures(self, plan: Plan) -> Iterator[Figure]:
        return fragmentation_figures(plan.fragmentation)

    def bound_figures(self, plan: Plan) -> Iterator[Figure]:
        if (least_share := plan.least_fragmented) is None:
            yield from super().bound_figures(plan)
        else:
            yield Figure("bound", percent(least_share), "fragmented at least, for any plan")

    def unused_rows(self, plan: Plan) -> Iterator[tuple[str, tuple[str, str]]]:
        return fragmented_rows(plan.fragmentation)


def _less_fragmented(plan: Plan) -> Fraction:
    return Fraction(0) if plan.fragmentation is None else -plan.fragmentation.share_after
