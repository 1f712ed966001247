"""What the descheduler asks of prices of nodes: an argument, and the rule that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from berth_descheduler.capabilities.prices.arguments import PriceArguments
from berth_descheduler.capability import Capability, PlanMetrics
from berth_descheduler.goals.free_nodes.goal import ConsolidateGoal
from berth_descheduler.planner.goal import ArgumentGroup

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PricesCapability(Capability):
    """What nodes cost an hour, by which `Consolidate` frees the most money."""

    goal_arguments: ClassVar[Mapping[str, ArgumentGroup[Any]]] = {ConsolidateGoal.name: PriceArguments()}

    def plan_metrics(self, registry: CollectorRegistry) -> PlanMetrics:
        from berth_descheduler.capabilities.prices.metrics import PriceMetrics  # noqa: PLC0415 - for the service only

        return PriceMetrics(registry)
