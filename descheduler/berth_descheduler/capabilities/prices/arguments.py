"""The argument `nodePrice` of `Consolidate`, and its option."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from berth_core import NODE_PRICES_CONFIG_MAP, DeschedulerPolicy, InputError, Snapshot
from berth_core.object_lists import ObjectKind
from berth_descheduler.capabilities.prices.node_prices import CONFIG_MAP, NodePrices
from berth_descheduler.capabilities.prices.price_map import PRICE_MAP
from berth_descheduler.framework.rules import Rule
from berth_descheduler.goals.free_nodes.goal import MIN_SAVINGS
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.planner.goal import ArgumentGroup, ArgumentWarning, GoalArguments, GoalOption
from berth_descheduler.planner.weights import format_weight

NODE_PRICE: Final = "nodePrice"

_PLACES: Final = frozenset({"annotation", "label", CONFIG_MAP, "default"})
_TRUE: Final = "true"


class PriceArguments(ArgumentGroup[NodePrices]):
    """What nodes cost: with any price, the most money is freed."""

    arguments: ClassVar[Mapping[str, str]] = {
        NODE_PRICE: "`Consolidate`: prices of nodes by `annotation`, `label`, `instanceTypes`, `configMap`, `default`.",
    }
    options: ClassVar[tuple[GoalOption, ...]] = (
        GoalOption(
            "--node-price",
            "SOURCE=VALUE",
            "consolidate: what a node's hour costs: annotation=KEY, label=KEY, TYPE=AMOUNT, TYPE/spot=AMOUNT, "
            "configMap=true or default=AMOUNT.",
            fields=(NODE_PRICE,),
            is_repeated=True,
        ),
    )
    may_read: ClassVar[tuple[ObjectKind, ...]] = (PRICE_MAP,)

    def read(self, raw: Mapping[str, Any]) -> NodePrices:
        return NodePrices.parse(raw.get(NODE_PRICE))

    def write(self, own: NodePrices) -> dict[str, Any]:
        return {NODE_PRICE: own.to_mapping()} if own else {}

    def read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        prices: dict[str, Any] = {}
        for text in options["node_price"]:
            source, _, value = text.rpartition("=")
            if not source or not value:
                expected = "annotation=KEY, label=KEY, configMap=true, default=AMOUNT or as m5.xlarge=0.192"
                raise InputError("--node-price", text, expected)
            where = prices if source in _PLACES else prices.setdefault("instanceTypes", {})
            where[source] = True if (source, value) == (CONFIG_MAP, _TRUE) else value
        return {NODE_PRICE: prices or None}

    def rules(self, own: NodePrices) -> tuple[Rule, ...]:
        return (own,) if own else ()

    def reads(self, own: NodePrices) -> tuple[ObjectKind, ...]:
        return self.may_read if own.config_map else ()

    def not_known(self, own: NodePrices, snapshot: Snapshot | None) -> Iterator[ArgumentWarning]:
        """Say that the prices are in the cluster, where they are not in the snapshot."""
        if own.config_map and (snapshot is None or PRICE_MAP.name not in snapshot.beside):
            text = f"the prices are in the ConfigMap {NODE_PRICES_CONFIG_MAP} of the cluster and are not known here"
            yield ArgumentWarning(f"{NODE_PRICE}.{CONFIG_MAP}", text)

    def findings(
        self, args: GoalArguments, policy: DeschedulerPolicy, planner: PlannerSettings, *, is_repeated: bool
    ) -> Iterator[ArgumentWarning]:
        """Look for savings that no node can reach."""
        del policy, is_repeated
        prices, min_savings = planner.rule(NodePrices), args.own
        if prices is None or prices.config_map or prices.annotation or prices.label:
            return
        if min_savings > max((*prices.instance_types.values(), prices.default or 0)):
            text = f"{format_weight(min_savings)} is above every price of nodePrice: no node is worth a move"
            yield ArgumentWarning(MIN_SAVINGS, text)
