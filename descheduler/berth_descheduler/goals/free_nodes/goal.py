"""The goals that free nodes: `Threshold` and `Consolidate`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Final

from berth_core import Deadline, DeschedulerPolicy, InputError, Objective, RunMode
from berth_descheduler.goals.free_nodes.threshold import Threshold, ThresholdRules
from berth_descheduler.goals.free_nodes.view import (
    describe_freed_nodes,
    freed_money,
    moves_single_pods,
    nodes_freed_instead,
)
from berth_descheduler.planner import Plan, PlannerSettings, Strategy, Thresholds, plain_percentage
from berth_descheduler.planner.cool_downs import NodeCoolDown, SourceCoolDown
from berth_descheduler.planner.goal import (
    ArgumentWarning,
    Asked,
    Goal,
    GoalArguments,
    GoalLimit,
    GoalOption,
    Merit,
    Own,
)
from berth_descheduler.planner.sentences import pods_moved_instead
from berth_descheduler.planner.weights import format_weight, parse_weight

MIN_SAVINGS: Final = "minSavingsPerMove"
_NARROW_PERCENT: Final = 10
_ALL_PERCENT: Final = Fraction(100)
_BELOW_ANY_USE: Final = Fraction(-1)


class FreeNodesGoal(Goal[Own, Asked]):
    """Frees nodes; with `wholeNodes: false`, moves the single pods that it can move off them."""

    frees_nodes: ClassVar[bool] = True

    def frees_whole_nodes(self, objective: Objective) -> bool:
        return objective.args.get("wholeNodes") is not False

    def worth(self, plan: Plan) -> Merit:
        if moves_single_pods(plan):
            return (len(plan.moves),)
        # Money first where nodes have prices: two small nodes may cost less than a large one.
        nodes, money = len(plan.freed_nodes), freed_money(plan)
        return nodes if money is None else money, nodes, sum(move.stands_alone for move in plan.moves)

    def sentence(self, plan: Plan) -> str:
        return describe_freed_nodes(plan)

    def advantage(self, better: Plan, plan: Plan) -> str:
        describe = pods_moved_instead if moves_single_pods(better) else nodes_freed_instead
        return describe(better, plan)


class ThresholdGoal(FreeNodesGoal[None, ThresholdRules]):
    """Empties nodes below a threshold by the rules of the original proposal."""

    name: ClassVar[str] = "Threshold"
    whole_nodes: ClassVar[bool | None] = None
    protection_percent: ClassVar[int] = 95
    shared_options: ClassVar[tuple[str, ...]] = ("low_threshold", "defragment_threshold", "number_of_nodes")

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read nothing: the thresholds are arguments of every goal, for the proposal knows no goals."""

    def check(self, args: GoalArguments) -> None:
        """Refuse thresholds by which a node would be source and target, or a target above its protection."""
        for name, low in args.low.percentages:
            defragment = args.defragment.get(name)
            if defragment is not None and low > defragment:
                raise InputError(
                    f"lowThresholds.{name}",
                    plain_percentage(low),
                    f"at most defragmentThresholds.{name}, which is {plain_percentage(defragment)}",
                )
        for name, defragment in args.defragment.percentages:
            protection = args.protection.get(name)
            if protection is not None and defragment >= protection:
                raise InputError(
                    f"defragmentThresholds.{name}",
                    plain_percentage(defragment),
                    f"less than protectionThresholds.{name}, which is {plain_percentage(protection)}",
                )

    def named_resources(self, args: GoalArguments) -> dict[str, str]:
        maps = (("lowThresholds", args.low), ("defragmentThresholds", args.defragment))
        return {f"{name}.{resource}": resource for name, thresholds in maps for resource, _ in thresholds.percentages}

    def request(self, args: GoalArguments) -> ThresholdRules:
        return ThresholdRules(args.low, args.defragment, args.number_of_nodes, args.empties_whole_nodes)

    def strategy(self, asked: ThresholdRules, deadline: Deadline) -> Strategy:
        del deadline
        return Threshold(asked)

    def findings(
        self, args: GoalArguments, policy: DeschedulerPolicy, planner: PlannerSettings, *, is_repeated: bool
    ) -> Iterator[ArgumentWarning]:
        """Look for thresholds that no node can pass, and for single pods that every run takes off the same nodes."""
        pods_come_back = policy.spec.mode is RunMode.AUTO and is_repeated
        if pods_come_back and not (args.empties_whole_nodes or _lets_nodes_rest(planner)):
            text = (
                "0 lets every run take single pods off the same low nodes, which fill up again: an hour lets them rest"
            )
            yield ArgumentWarning("coolDownTime", text)
        if args.low.get(args.resource_type) == 0:
            text = f"no node is below 0 percent of {args.resource_type}: nothing is ever moved"
            yield ArgumentWarning("lowThresholds", text)
        defragment, protection = args.defragment.get(args.resource_type), args.protection.get(args.resource_type)
        if defragment is not None and protection is not None and protection - defragment < _NARROW_PERCENT:
            text = f"{int(defragment)} is just below protectionThresholds, {int(protection)}: few nodes are targets"
            yield ArgumentWarning("defragmentThresholds", text)

    def limits(self, args: GoalArguments) -> Iterator[GoalLimit[ThresholdRules]]:
        """Yield the thresholds; more low nodes are fewer targets, so that low ones help only by themselves."""
        if args.number_of_nodes:
            condition = f"without numberOfNodes: {args.number_of_nodes}"
            yield GoalLimit("numberOfNodes", condition, lambda rules: replace(rules, number_of_nodes=0))
        raised = Thresholds(
            tuple((name, args.defragment.get(name) or _ALL_PERCENT) for name, _ in args.low.percentages)
        )
        if raised != args.low:
            yield GoalLimit(
                "lowThresholds",
                f"with lowThresholds: {raised.written()} instead of {args.low.written()}",
                lambda rules: replace(rules, low=raised),
                helps_only_alone=True,
            )
        any_use = Thresholds(tuple((name, _BELOW_ANY_USE) for name, _ in args.defragment.percentages))
        condition = f"without defragmentThresholds: {args.defragment.written()}"
        yield GoalLimit("defragmentThresholds", condition, lambda rules: replace(rules, defragment=any_use))


class ConsolidateGoal(FreeNodesGoal[int, int]):
    """Frees as many nodes as possible, or those that weigh most.

    Its own argument is what each move has to save an hour, in millionths.
    """

    name: ClassVar[str] = "Consolidate"
    arguments: ClassVar[Mapping[str, str]] = {
        MIN_SAVINGS: "`Consolidate` with `nodePrice`: what each move has to save an hour; 0 by default.",
    }
    options: ClassVar[tuple[GoalOption, ...]] = (
        GoalOption(
            "--min-savings-per-move",
            "AMOUNT",
            "consolidate: what each move has to save; default: 0.",
            fields=(MIN_SAVINGS,),
        ),
    )

    def read(self, raw: Mapping[str, Any]) -> int:
        return parse_weight(MIN_SAVINGS, raw.get(MIN_SAVINGS, 0))

    def write(self, own: int) -> dict[str, Any]:
        return {MIN_SAVINGS: format_weight(own)} if own else {}

    def read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {MIN_SAVINGS: options["min_savings_per_move"] or 0}

    def check(self, args: GoalArguments) -> None:
        """Refuse savings where no argument says what nodes cost."""
        if args.own and not args.weighs_nodes:
            expected = "nothing without nodePrice, by which a node's moves save something"
            raise InputError(MIN_SAVINGS, format_weight(args.own), expected)

    def request(self, args: GoalArguments) -> int:
        min_savings: int = args.own
        return min_savings

    def strategy(self, asked: int, deadline: Deadline) -> Strategy:
        from berth_descheduler.goals.free_nodes.consolidate import Consolidate  # noqa: PLC0415 - numpy takes a while to import

        return Consolidate(deadline, min_savings_per_move=asked)

    def limits(self, args: GoalArguments) -> Iterator[GoalLimit[int]]:
        if args.own:
            condition = f"without {MIN_SAVINGS}: {format_weight(args.own)}"
            yield GoalLimit(MIN_SAVINGS, condition, lambda _: 0, is_about_moves=True)


def _lets_nodes_rest(planner: PlannerSettings) -> bool:
    return any(rule.span for rule in planner.rules if isinstance(rule, SourceCoolDown | NodeCoolDown))
