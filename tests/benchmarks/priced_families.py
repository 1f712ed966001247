"""Families of small clusters whose nodes have prices, with three empty nodes among them.

A node's price an hour is between 3.2 and 6.8 thousandths for each core, by chance, so that no two cost the same.
"""

from dataclasses import replace
from random import Random
from typing import Final

from benchmarks.families import POOL, ZONE, family
from benchmarks.node_prices import labelled
from berth_core.quantities import parse_quantity
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.weights import format_weight
from builders import node

_NODES: Final = 10
_EMPTY: Final = 3
_CHEAPEST: Final = 3.2
_DEAREST: Final = 6.8
"""Thousandths for each core."""


def priced_family(name: str, seed: int) -> tuple[Snapshot, dict[str, str]]:
    """Return a cluster of a family, and what each of its instance types costs; each node is of a type of its own."""
    chance = Random(f"money {name} {seed}")  # noqa: S311 - an instance is no secret
    snapshot = family(name, _NODES, seed)
    pools = ("web", "data", "batch")
    empty = tuple(
        node(
            f"n9000{index}",
            cpu="8",
            memory="32Gi",
            labels={ZONE: f"zone-{index % len(pools)}", POOL: pools[index % len(pools)]},
        )
        for index in range(_EMPTY)
    )
    nodes, prices = [], {}
    for unpriced in (*snapshot.nodes, *empty):
        kind = f"type-{unpriced.metadata.name}"
        cores = parse_quantity(str(unpriced.status.allocatable["cpu"])).milli() / 1_000
        prices[kind] = format_weight(1_000 * round(cores * chance.uniform(_CHEAPEST, _DEAREST)))
        nodes.append(labelled(unpriced, kind))
    return replace(snapshot, nodes=tuple(nodes)), prices
