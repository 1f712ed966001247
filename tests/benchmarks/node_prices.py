"""The measurement of how much money plans free by `nodePrice`, beside the bound and plans that know no prices.

Run it as `python tests/benchmarks/node_prices.py`. The clusters are those of the planner's benchmark; nodes have one of
so many prices by chance, which a node's size does not show. No plan asks the exact solver.
"""
# ruff: noqa: T201 - it prints

import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from benchmarks.instances import Recipe, generate
from berth_core import Node
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.prices.node_prices import NodePrices
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.planner.weights import format_weight
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from planner_settings import planner_settings

TYPE = "node.kubernetes.io/instance-type"


def table_of(number: int) -> dict[str, str]:
    """Return distinct prices by instance type, the dearest far above the cheapest."""
    return {f"type-{size}": format_weight(100_000 + 70_000 * size * size + 13_000 * size) for size in range(number)}


def priced(snapshot: Snapshot, types: list[str]) -> Snapshot:
    """Return the snapshot with an instance type by chance for each node."""
    chance = Random(3)  # noqa: S311 - an instance is no secret
    return replace(snapshot, nodes=tuple(labelled(one, chance.choice(types)) for one in snapshot.nodes))


def labelled(one: Node, kind: str) -> Node:
    """Return a node of an instance type."""
    labels = {**one.metadata.labels, TYPE: kind}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))


def consolidating(prices: NodePrices, budget: int | None) -> PlannerSettings:
    """Return the settings of a plan."""
    args = DefragmentationArgs.parse({"strategy": "Consolidate", "nodePrice": prices.to_mapping() or None})
    return planner_settings(args=args, max_moves=budget, exact=False)


def measure(snapshot: Snapshot, table: dict[str, str], budget: int | None) -> None:
    """Print what a plan with prices frees, and one without."""
    prices = NodePrices.parse({"instanceTypes": table})
    blind = set(plan(snapshot, consolidating(NodePrices(), budget)).freed_nodes)
    without = sum(prices.node_weight(one) or 0 for one in snapshot.nodes if one.metadata.name in blind)
    began = time.process_time()
    quality = plan(snapshot, consolidating(prices, budget)).quality
    seconds = time.process_time() - began
    if quality is None or quality.weight is None:
        raise AssertionError
    share = quality.weight.reached / quality.weight.upper_bound
    print(
        f"{len(table):6} {budget or 'any':>6} {format_weight(quality.weight.reached):>10} {share:7.1%}"
        f" {format_weight(without):>10} {seconds:5.1f}"
    )


def main() -> None:
    """Print a row for each cluster, number of prices and budget."""
    for nodes, requested in product((100, 400), (0.6, 0.89)):
        print(f"\n{nodes} nodes, {requested:.0%} requested\nprices moves      freed of bound   unpriced     s")
        snapshot = generate(Recipe(nodes=nodes, requested=requested, seed=1))
        for number, budget in product((2, 5, 40), (None, len(snapshot.pods) // 20)):
            table = table_of(number)
            measure(priced(snapshot, [*table]), table, budget)


if __name__ == "__main__":
    main()
