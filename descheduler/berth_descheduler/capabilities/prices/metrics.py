"""Metrics of what the nodes cost that plans free."""

import math
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from berth_descheduler.capability import PlanMetrics
from berth_descheduler.planner import Plan
from berth_descheduler.planner.weights import MICRO, NodeWeights

FREED_PRICE: Final = "berth_plan_freed_price_per_hour"
FREED_PRICES: Final = "berth_freed_price_per_hour_total"


class PriceMetrics(PlanMetrics):
    """Shows what the nodes cost that plans with `nodePrice` free."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._freed_price = Gauge(
            FREED_PRICE, "What an hour of the nodes costs that the last plan with nodePrice frees.", registry=registry
        )
        self._freed_price.set(math.nan)  # nothing is known yet
        self._freed_prices = Counter(
            FREED_PRICES, "What an hour of the nodes costs that were freed, by nodePrice.", registry=registry
        )
        self._price: NodeWeights | None = None
        """What the nodes of the last plan cost."""

        self._saved_share = 1.0
        """Which part of its freed nodes' price is left after that of the empty nodes that it fills."""

    def planned(self, plan: Plan) -> None:
        self._price = plan.weights
        if plan.weights is not None:
            self._freed_price.set(plan.freed_weight / MICRO)
            whole = plan.weights.total(plan.freed_nodes)
            self._saved_share = plan.freed_weight / whole if whole else 1.0

    def nodes_freed(self, nodes: Sequence[str]) -> None:
        if self._price is not None:
            self._freed_prices.inc(self._saved_share * self._price.total(nodes) / MICRO)
