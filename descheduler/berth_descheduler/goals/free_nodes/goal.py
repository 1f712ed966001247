"""The goals that free nodes: `Threshold` and `Consolidate`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Final

from berth_core import (
    NODE_PRICES_CONFIG_MAP,
    Deadline,
    DeschedulerPolicy,
    InputError,
    Objective,
    RunMode,
    Snapshot,
)
from berth_core.snapshot import ObjectKind
from berth_descheduler.framework.rules import Rule
from berth_descheduler.goals.free_nodes.arguments import (
    MIN_SAVINGS,
    NODE_PRICE,
    PRICE_ARGUMENTS,
    PRICE_OPTIONS,
    PriceArguments,
    price_arguments_of,
)
from berth_descheduler.goals.free_nodes.price_map import PRICE_MAP
from berth_descheduler.goals.free_nodes.prices import CONFIG_MAP
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
from berth_descheduler.planner.weights import format_weight

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


class ConsolidateGoal(FreeNodesGoal[PriceArguments, int]):
    """Frees as many nodes as possible, or those that cost most."""

    name: ClassVar[str] = "Consolidate"
    arguments: ClassVar[Mapping[str, str]] = PRICE_ARGUMENTS
    options: ClassVar[tuple[GoalOption, ...]] = PRICE_OPTIONS
    may_read: ClassVar[tuple[ObjectKind, ...]] = (PRICE_MAP,)

    def read(self, raw: Mapping[str, Any]) -> PriceArguments:
        return PriceArguments.parse(raw)

    def check_own(self, own: PriceArguments) -> None:
        own.check()

    def write(self, own: PriceArguments) -> dict[str, Any]:
        return own.to_mapping()

    def read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return price_arguments_of(options)

    def rules(self, own: PriceArguments) -> tuple[Rule, ...]:
        return (own.node_prices,) if own.node_prices else ()

    def reads(self, own: PriceArguments) -> tuple[ObjectKind, ...]:
        return self.may_read if own.node_prices.config_map else ()

    def not_known(self, own: PriceArguments, snapshot: Snapshot | None) -> Iterator[ArgumentWarning]:
        """Say that the prices are in the cluster, where they are not in the snapshot."""
        if own.node_prices.config_map and (snapshot is None or PRICE_MAP.name not in snapshot.beside):
            text = f"the prices are in the ConfigMap {NODE_PRICES_CONFIG_MAP} of the cluster and are not known here"
            yield ArgumentWarning(f"{NODE_PRICE}.{CONFIG_MAP}", text)

    def request(self, args: GoalArguments) -> int:
        """Return what each move has to save."""
        price_arguments: PriceArguments = args.own
        return price_arguments.min_savings_per_move

    def strategy(self, asked: int, deadline: Deadline) -> Strategy:
        from berth_descheduler.goals.free_nodes.consolidate import Consolidate  # noqa: PLC0415 - numpy takes a while to import

        return Consolidate(deadline, min_savings_per_move=asked)

    def findings(
        self, args: GoalArguments, policy: DeschedulerPolicy, planner: PlannerSettings, *, is_repeated: bool
    ) -> Iterator[ArgumentWarning]:
        """Look for savings that no node can reach."""
        del policy, planner, is_repeated
        price_arguments: PriceArguments = args.own
        prices, min_savings = price_arguments.node_prices, price_arguments.min_savings_per_move
        if prices.config_map:
            return
        highest = max((*prices.instance_types.values(), prices.default or 0))
        if min_savings > highest and not (prices.annotation or prices.label):
            text = f"{format_weight(min_savings)} is above every price of nodePrice: no node is worth a move"
            yield ArgumentWarning(MIN_SAVINGS, text)

    def limits(self, args: GoalArguments) -> Iterator[GoalLimit[int]]:
        price_arguments: PriceArguments = args.own
        if min_savings := price_arguments.min_savings_per_move:
            condition = f"without {MIN_SAVINGS}: {format_weight(min_savings)}"
            yield GoalLimit(MIN_SAVINGS, condition, lambda _: 0, is_about_moves=True)


def _lets_nodes_rest(planner: PlannerSettings) -> bool:
    return any(rule.span for rule in planner.rules if isinstance(rule, SourceCoolDown | NodeCoolDown))
