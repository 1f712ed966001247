"""Metrics of what the nodes cost that plans free."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from berth_descheduler.capability import PlanMetrics
from berth_descheduler.planner import Plan
from berth_descheduler.planner.weights import MICRO

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
        self._savings: dict[str, float] = {}
        """What each node saves an hour that plans with prices are to free, in millionths, until it is freed.

        That is its price, less its part of what the empty nodes cost that its plan fills.
        """

    def planned(self, plan: Plan) -> None:
        if plan.weights is None:
            self._forget(plan.freed_nodes)
            return
        self._freed_price.set(plan.freed_weight / MICRO)
        prices = plan.weights.of_node
        self._forget([node for node in self._savings if node not in prices])
        total = plan.weights.total(plan.freed_nodes)
        share_saved = plan.freed_weight / total if total else 1.0
        self._savings.update({node: share_saved * prices.get(node, 0) for node in plan.freed_nodes})

    def nodes_freed(self, nodes: Sequence[str]) -> None:
        self._freed_prices.inc(sum(self._savings.get(node, 0) for node in nodes) / MICRO)
        self._forget(nodes)

    def _forget(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._savings.pop(node, None)
