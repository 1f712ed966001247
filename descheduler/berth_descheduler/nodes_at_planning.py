"""Owns how the nodes, as they lay when a plan was made, get onto the plan, and from there into a picture.

It does not own the contract (`berth_core.nodes_before`) nor the picture (`report_map`).
"""

from typing import Final

from berth_core.errors import InputError
from berth_core.migration_plans import Objective
from berth_core.nodes_before import NodeBefore, NodesBefore
from berth_core.resources import CPU, ResourceAmounts, format_amount
from berth_descheduler.display.plan_figures import requested_share
from berth_descheduler.planner import Fragmentation, NodeUsage, Plan

MOST_NODES: Final = 400
"""As many as a page has cells. A plan with more would bring its object nearer to the 1.5 MiB that etcd takes."""


def resource_of(objective: Objective) -> str:
    """Return the resource that a plan goes by: that of its objective, of whatever plugin."""
    found = objective.args.get("resourceType")
    return found if isinstance(found, str) and found else CPU


def note_nodes(found: Plan) -> NodesBefore | None:
    """Return what a plan notes of the nodes; of too many those to be freed, those of its moves, then the fullest."""
    if not found.before.nodes:
        return None
    resource = resource_of(found.objective)
    freed = set(found.freed_nodes)
    touched = {name for move in found.moves for name in (move.source, move.target)}
    ordered = sorted(
        found.before.nodes,
        key=lambda one: (one.name not in freed, one.name not in touched, -requested_share([one], resource), one.name),
    )
    noted = sorted(ordered[:MOST_NODES], key=lambda one: one.name)
    return NodesBefore(
        resource=resource,
        nodes=tuple(_note(one, resource) for one in noted),
        left_out=len(ordered) - len(noted),
    )


def lay_out(before: NodesBefore) -> Fragmentation | None:
    """Return how the noted nodes lay, as far as the resource goes that is noted; None where somebody noted nonsense."""
    try:
        return Fragmentation(tuple(_measured(one, before.resource) for one in before.nodes))
    except InputError:
        return None


def still_lie_so(before: NodesBefore, now: Fragmentation) -> bool:
    """Tell whether the nodes are as they were noted, and where all were noted, no others."""
    nodes = {one.name: one for one in now.nodes}
    if not before.left_out and len(nodes) != len(before.nodes):
        return False
    return all(one.name in nodes and _note(nodes[one.name], before.resource) == one for one in before.nodes)


def _measured(one: NodeBefore, resource: str) -> NodeUsage:
    allocatable = ResourceAmounts.from_quantities({resource: one.allocatable})
    return NodeUsage(one.name, allocatable, ResourceAmounts.from_quantities({resource: one.requested}), one.pods)


def _note(one: NodeUsage, resource: str) -> NodeBefore:
    return NodeBefore(
        name=one.name,
        allocatable=format_amount(resource, one.allocatable.get(resource)),
        requested=format_amount(resource, one.requested.get(resource)),
        pods=one.pods,
    )
