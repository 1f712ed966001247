"""What `berth top` shows: each node with its use and state, and the plan under way, also as a document."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final

import msgspec

from berth_core import (
    CPU,
    DRAINING_TAINT,
    HANDOVER_TAINT,
    MEMORY,
    PLACEHOLDER_LABEL,
    ROOM_TAINT,
    MigrationPlan,
    Node,
    PlanPhase,
    Pod,
    Snapshot,
    matches_labels,
    parse_selector,
)
from berth_core.text import rounded
from berth_descheduler.planner import Fragmentation, NodeUsage, is_pending, measure_nodes, requested_share
from berth_descheduler.report.schemas import ListedPlan
from berth_descheduler.report.stored_plan_documents import list_plan
from berth_descheduler.report.stored_plans import newest_first

SHOWN_RESOURCES: Final = (CPU, MEMORY)
_UNDER_WAY: Final = (PlanPhase.RUNNING, PlanPhase.APPROVED, PlanPhase.PROPOSED, PlanPhase.REQUESTED)
"""Phases of plans that are not over, the most important first."""


class NodeMark(StrEnum):
    """The most important fact about a node; the first that holds counts."""

    NOT_READY = "not ready"
    DRAINING = "draining"
    ROOM = "room is made"
    HANDOVER = "hand-over"
    CORDONED = "cordoned"
    FREED = "freed"
    NONE = ""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node with its use and state."""

    usage: NodeUsage
    mark: NodeMark
    held: int
    """Slots that placeholders hold there."""

    def share(self, resource: str) -> Fraction:
        return requested_share((self.usage,), resource)


@dataclass(frozen=True, slots=True)
class TopView:
    """The cluster at one moment."""

    nodes: tuple[NodeLine, ...]
    pods: int
    """Pods on nodes, placeholders included."""

    waiting: int
    """Pods that wait for a node."""

    held: int
    plan: MigrationPlan | None
    """The plan under way, if any."""

    @property
    def fragmentation(self) -> Fragmentation:
        return Fragmentation(tuple(line.usage for line in self.nodes))

    def marked(self, mark: NodeMark) -> int:
        return sum(line.mark is mark for line in self.nodes)


def view_cluster(snapshot: Snapshot, plans: Sequence[MigrationPlan], selector: str = "") -> TopView:
    """Return what to show of the nodes that a selector matches, of pods and Reservations."""
    snapshot = _select(snapshot, selector) if selector else snapshot
    placeholders = [pod for pod in snapshot.pods if _holds_a_place(pod)]
    placeholders_per_node = Counter(pod.spec.node_name for pod in placeholders)
    marks = {node.metadata.name: mark_of(node) for node in snapshot.nodes}
    usages = measure_nodes(snapshot).nodes
    return TopView(
        nodes=tuple(NodeLine(usage, marks[usage.name], placeholders_per_node[usage.name]) for usage in usages),
        pods=sum(bool(pod.spec.node_name) and not pod.is_terminal for pod in snapshot.pods),
        waiting=sum(map(is_pending, snapshot.pods)),
        held=len(placeholders),
        plan=next(_under_way(plans), None),
    )


def _select(snapshot: Snapshot, selector: str) -> Snapshot:
    """Return the nodes that a selector matches with their pods, and the pods that wait."""
    wanted_labels = parse_selector(selector)
    nodes = tuple(node for node in snapshot.nodes if matches_labels(wanted_labels, node.metadata.labels))
    names = {"", *(node.metadata.name for node in nodes)}
    return replace(snapshot, nodes=nodes, pods=tuple(pod for pod in snapshot.pods if pod.spec.node_name in names))


def mark_of(node: Node) -> NodeMark:
    keys = {taint.key for taint in node.taints}
    mark_conditions = (
        (NodeMark.NOT_READY, not node.ready),
        (NodeMark.DRAINING, DRAINING_TAINT in keys),
        (NodeMark.ROOM, ROOM_TAINT in keys),
        (NodeMark.HANDOVER, HANDOVER_TAINT in keys),
        (NodeMark.CORDONED, node.spec.unschedulable),
        (NodeMark.FREED, node.is_marked_as_freed),
    )
    return next((mark for mark, is_true in mark_conditions if is_true), NodeMark.NONE)


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node, for programs."""

    name: str
    state: NodeMark
    pods: int
    held_places: int
    requested_ratio: dict[str, float]


class TopDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster at one moment, for programs."""

    nodes: int
    empty_nodes: int
    pods: int
    pending_pods: int
    held_places: int
    plan: ListedPlan | None
    node_list: tuple[NodeDocument, ...]


def describe_view(view: TopView) -> TopDocument:
    return TopDocument(
        nodes=len(view.nodes),
        empty_nodes=len(view.fragmentation.empty_nodes),
        pods=view.pods,
        pending_pods=view.waiting,
        held_places=view.held,
        plan=list_plan(view.plan) if view.plan else None,
        node_list=tuple(
            NodeDocument(
                name=line.usage.name,
                state=line.mark,
                pods=line.usage.pods,
                held_places=line.held,
                requested_ratio={resource: rounded(line.share(resource)) for resource in SHOWN_RESOURCES},
            )
            for line in view.nodes
        ),
    )


def _holds_a_place(pod: Pod) -> bool:
    is_bound = bool(pod.spec.node_name) and not pod.is_terminal
    return is_bound and PLACEHOLDER_LABEL in pod.metadata.labels


def _under_way(plans: Sequence[MigrationPlan]) -> Iterator[MigrationPlan]:
    """Yield the plans that are not over, the most important first."""
    plans_by_age = newest_first(plans)
    for phase in _UNDER_WAY:
        yield from (plan for plan in plans_by_age if plan.phase is phase)
