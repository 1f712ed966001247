"""The arguments of `Consolidate`: what nodes cost, and what a move has to save."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_core import InputError
from berth_descheduler.goals.free_nodes.prices import CONFIG_MAP, NodePrices
from berth_descheduler.planner.goal import GoalOption
from berth_descheduler.planner.weights import format_weight, parse_weight

NODE_PRICE: Final = "nodePrice"
MIN_SAVINGS: Final = "minSavingsPerMove"

PRICE_ARGUMENTS: Final[Mapping[str, str]] = {
    NODE_PRICE: "`Consolidate`: prices of nodes by `annotation`, `label`, `instanceTypes`, `configMap`, `default`.",
    MIN_SAVINGS: "`Consolidate` with `nodePrice`: what each move has to save an hour; 0 by default.",
}

PRICE_OPTIONS: Final = (
    GoalOption(
        "--node-price",
        "SOURCE=VALUE",
        "consolidate: what a node's hour costs: annotation=KEY, label=KEY, TYPE=AMOUNT, TYPE/spot=AMOUNT, "
        "configMap=true or default=AMOUNT.",
        fields=(NODE_PRICE,),
        is_repeated=True,
    ),
    GoalOption(
        "--min-savings-per-move",
        "AMOUNT",
        "consolidate: what each move has to save; default: nothing.",
        fields=(MIN_SAVINGS,),
    ),
)

_PLACES: Final = frozenset({"annotation", "label", CONFIG_MAP, "default"})
_TRUE: Final = "true"


@dataclass(frozen=True, slots=True)
class PriceArguments:
    """What nodes cost: with any price, the most money is freed."""

    node_prices: NodePrices = field(default_factory=NodePrices)

    min_savings_per_move: int = 0
    """What each move has to save an hour, in millionths."""

    def check(self) -> None:
        """Raise `InputError` for savings without prices."""
        if self.min_savings_per_move and not self.node_prices:
            expected = "nothing without nodePrice, by which a node's moves save something"
            raise InputError(MIN_SAVINGS, format_weight(self.min_savings_per_move), expected)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "PriceArguments":
        return cls(NodePrices.parse(raw.get(NODE_PRICE)), parse_weight(MIN_SAVINGS, raw.get(MIN_SAVINGS, 0)))

    def to_mapping(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        return {
            **({NODE_PRICE: self.node_prices.to_mapping()} if self.node_prices else {}),
            **({MIN_SAVINGS: format_weight(min_savings)} if (min_savings := self.min_savings_per_move) else {}),
        }


def price_arguments_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the options of the command line say."""
    return {NODE_PRICE: _node_price(options["node_price"]), MIN_SAVINGS: options["min_savings_per_move"] or 0}


def _node_price(given: tuple[str, ...]) -> dict[str, Any] | None:
    prices: dict[str, Any] = {}
    for text in given:
        source, _, value = text.rpartition("=")
        if not source or not value:
            expected = "annotation=KEY, label=KEY, configMap=true, default=AMOUNT or as m5.xlarge=0.192"
            raise InputError("--node-price", text, expected)
        where = prices if source in _PLACES else prices.setdefault("instanceTypes", {})
        where[source] = True if (source, value) == (CONFIG_MAP, _TRUE) else value
    return prices or None
