"""What the descheduler asks of prices of nodes: an argument, and the rule that it makes."""

from collections.abc import Mapping
from typing import Any, ClassVar

from berth_descheduler.capabilities.prices.arguments import PriceArguments
from berth_descheduler.capability import Capability
from berth_descheduler.goals.free_nodes.goal import ConsolidateGoal
from berth_descheduler.planner.goal import ArgumentGroup


class PricesCapability(Capability):
    """What nodes cost an hour, by which `Consolidate` frees the most money."""

    name: ClassVar[str] = "Prices"
    goal_arguments: ClassVar[Mapping[str, ArgumentGroup[Any]]] = {ConsolidateGoal.name: PriceArguments()}
