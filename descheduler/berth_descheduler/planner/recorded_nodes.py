"""The nodes that a plan records, to be compared with those of the cluster later."""

from collections.abc import Iterable
from typing import Final

from berth_core import CPU, InputError, NodeBefore, NodesBefore, Objective, PlannedMove, ResourceAmounts, format_amount
from berth_descheduler.planner.fragmentation import Fragmentation, NodeUsage, requested_share

MOST_NODES: Final = 400
"""As many as a page has cells; more would bring the object closer to etcd's limit of 1.5 MiB."""


def resource_type_of(objective: Objective) -> str:
    """Return the resource type of an objective, of any plugin."""
    resource_type = objective.args.get("resourceType")
    return resource_type if isinstance(resource_type, str) and resource_type else CPU


def record_nodes(
    before: Fragmentation, resource: str, *, freed: Iterable[str], moves: Iterable[PlannedMove]
) -> NodesBefore | None:
    """Return the nodes that a plan records, None without nodes.

    Of more than `MOST_NODES`, freed ones are recorded first, then those that moves touch, then the fullest.
    """
    if not before.nodes:
        return None
    freed_names = set(freed)
    moved_nodes = {name for move in moves for name in (move.source, move.target) if name}
    ordered = sorted(
        before.nodes,
        key=lambda node_usage: (
            node_usage.name not in freed_names,
            node_usage.name not in moved_nodes,
            -requested_share([node_usage], resource),
            node_usage.name,
        ),
    )
    # By name again: the page draws them in this order, and equal plans give equal objects.
    recorded = sorted(ordered[:MOST_NODES], key=lambda node_usage: node_usage.name)
    return NodesBefore(
        resource=resource,
        nodes=tuple(_record(node_usage, resource) for node_usage in recorded),
        left_out=len(ordered) - len(recorded),
    )


def read_record(record: NodesBefore) -> Fragmentation | None:
    """Return the recorded nodes, with the recorded resource only; None if the record is invalid."""
    try:
        return Fragmentation(tuple(_read(node_record, record.resource) for node_record in record.nodes))
    except InputError:
        return None


def matches_record(record: NodesBefore, now: Fragmentation) -> bool:
    """Return whether the nodes are those of a record; of a complete record there may be no others."""
    nodes = {node_usage.name: node_usage for node_usage in now.nodes}
    if not record.left_out and len(nodes) != len(record.nodes):
        return False
    return all(
        node_record.name in nodes and _record(nodes[node_record.name], record.resource) == node_record
        for node_record in record.nodes
    )


def _read(node_record: NodeBefore, resource: str) -> NodeUsage:
    allocatable = ResourceAmounts.from_quantities({resource: node_record.allocatable})
    return NodeUsage(
        node_record.name,
        allocatable,
        ResourceAmounts.from_quantities({resource: node_record.requested}),
        node_record.pods,
    )


def _record(usage: NodeUsage, resource: str) -> NodeBefore:
    return NodeBefore(
        name=usage.name,
        allocatable=format_amount(resource, usage.allocatable.get(resource)),
        requested=format_amount(resource, usage.requested.get(resource)),
        pods=usage.pods,
    )
