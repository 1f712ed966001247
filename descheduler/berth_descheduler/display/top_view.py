"""Owns what `berth top` shows, as values: each node with how full it is and what goes on there, and the plan under way.

It does not own how it looks (`top_frame`) nor where it comes from (`watched_cluster`, `snapshots`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

from berth_core.labels import DRAINING_TAINT, HANDOVER_TAINT, PLACEHOLDER_LABEL, ROOM_TAINT
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.objects import Node, Pod
from berth_core.resources import CPU, MEMORY
from berth_core.snapshot import Snapshot
from berth_descheduler.display.plan_figures import requested_share
from berth_descheduler.display.stored_plans import describe_in_short, newest_first
from berth_descheduler.execution.freed_nodes import is_marked
from berth_descheduler.planner import Fragmentation, NodeUsage
from berth_descheduler.planner.room_seekers import is_pending
from berth_descheduler.planner.stranded_capacity import measure_nodes

SHOWN_RESOURCES: Final = (CPU, MEMORY)
_DECIMALS: Final = 4
_UNDER_WAY: Final = (PlanPhase.RUNNING, PlanPhase.APPROVED, PlanPhase.PROPOSED, PlanPhase.REQUESTED)
"""The phases of plans that are not over, those that matter most first."""


class NodeMark(StrEnum):
    """What is to be known of a node first; the first that is true of it counts."""

    NOT_READY = "not ready"
    DRAINING = "draining"
    ROOM = "room is made"
    HANDOVER = "hand-over"
    CORDONED = "cordoned"
    FREED = "freed"
    NONE = ""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node."""

    usage: NodeUsage
    mark: NodeMark
    held: int
    """Places that placeholders hold there."""

    def share(self, resource: str) -> Fraction:
        """Return the share of a resource that is requested."""
        return requested_share((self.usage,), resource)


@dataclass(frozen=True, slots=True)
class TopView:
    """The cluster at one moment."""

    nodes: tuple[NodeLine, ...]
    pods: int
    """Those on nodes, placeholders included."""

    waiting: int
    """Pods that wait for a node by themselves."""

    held: int
    plan: MigrationPlan | None
    """The plan under way; None where there is none."""

    @property
    def fragmentation(self) -> Fragmentation:
        """Return how the pods lie."""
        return Fragmentation(tuple(line.usage for line in self.nodes))

    def marked(self, mark: NodeMark) -> int:
        """Return how many nodes have a mark."""
        return sum(line.mark is mark for line in self.nodes)


def view_cluster(snapshot: Snapshot, plans: Sequence[MigrationPlan]) -> TopView:
    """Return what is shown of a cluster; of the snapshot nodes, pods and reservations are looked at."""
    placeholders = [pod for pod in snapshot.pods if _holds_a_place(pod)]
    held = Counter(pod.spec.node_name for pod in placeholders)
    marks = {node.metadata.name: mark_of(node) for node in snapshot.nodes}
    usages = measure_nodes(snapshot).nodes
    return TopView(
        nodes=tuple(NodeLine(usage, marks[usage.name], held[usage.name]) for usage in usages),
        pods=sum(bool(pod.spec.node_name) and not pod.is_terminal for pod in snapshot.pods),
        waiting=sum(map(is_pending, snapshot.pods)),
        held=len(placeholders),
        plan=next(_under_way(plans), None),
    )


def mark_of(node: Node) -> NodeMark:
    """Return what is to be known of a node first."""
    keys = {taint.key for taint in node.taints}
    truths = (
        (NodeMark.NOT_READY, not node.ready),
        (NodeMark.DRAINING, DRAINING_TAINT in keys),
        (NodeMark.ROOM, ROOM_TAINT in keys),
        (NodeMark.HANDOVER, HANDOVER_TAINT in keys),
        (NodeMark.CORDONED, node.spec.unschedulable),
        (NodeMark.FREED, is_marked(node)),
    )
    return next((mark for mark, is_true in truths if is_true), NodeMark.NONE)


def describe_view(view: TopView) -> dict[str, Any]:
    """Return a view in builtins, in a fixed order."""
    return {
        "nodes": len(view.nodes),
        "empty_nodes": len(view.fragmentation.empty_nodes),
        "pods": view.pods,
        "waiting_pods": view.waiting,
        "held_places": view.held,
        "plan": describe_in_short(view.plan) if view.plan else None,
        "node_list": [
            {
                "node": line.usage.name,
                "state": line.mark.value,
                "pods": line.usage.pods,
                "held_places": line.held,
                "requested_ratio": {name: float(round(line.share(name), _DECIMALS)) for name in SHOWN_RESOURCES},
            }
            for line in view.nodes
        ],
    }


def _holds_a_place(pod: Pod) -> bool:
    bound = bool(pod.spec.node_name) and not pod.is_terminal
    return bound and PLACEHOLDER_LABEL in pod.metadata.labels


def _under_way(plans: Sequence[MigrationPlan]) -> Iterator[MigrationPlan]:
    """Yield the plans that are not over, the one that matters most first."""
    listed = newest_first(plans)
    for phase in _UNDER_WAY:
        yield from (plan for plan in listed if plan.phase is phase)
