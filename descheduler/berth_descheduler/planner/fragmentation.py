"""Owns the numbers that say how fragmented a cluster is, before a plan and after it.

It does not own how they are shown.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from berth_core.resources import ResourceAmounts
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PodIndex, Presence
from berth_descheduler.planner.simulation.state import Step


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What one node has, what is requested of it, and how many pods count against its being free."""

    name: str
    allocatable: ResourceAmounts
    requested: ResourceAmounts
    pods: int
    """Pods but DaemonSet and mirror pods."""


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """How the pods lie over the nodes."""

    nodes: tuple[NodeUsage, ...]

    @property
    def empty_nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes with no pods but DaemonSet and mirror pods."""
        return tuple(node.name for node in self.nodes if node.pods == 0)

    @property
    def allocatable(self) -> ResourceAmounts:
        """Return what all nodes have."""
        return ResourceAmounts.total(node.allocatable for node in self.nodes)

    @property
    def requested(self) -> ResourceAmounts:
        """Return what is requested of all nodes."""
        return ResourceAmounts.total(node.requested for node in self.nodes)

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that the nodes have, sorted."""
        return self.allocatable.keys()

    def utilisation(self, resource: str) -> Fraction:
        """Return the share of a resource that is requested; 0 where there is none."""
        have = self.allocatable.get(resource)
        return Fraction(self.requested.get(resource), have) if have else Fraction(0)

    def largest_free(self, resource: str) -> int:
        """Return the largest free piece of a resource on one node."""
        return max((node.allocatable.get(resource) - node.requested.get(resource) for node in self.nodes), default=0)

    def fits(self, amounts: ResourceAmounts) -> int:
        """Return how many pods of these amounts have room, each on one node."""
        asked = [(name, amount) for name, amount in amounts.items() if amount > 0]
        if not asked:
            return 0
        frees = (node.allocatable.minus(node.requested) for node in self.nodes)
        return sum(min(max(0, free.get(name)) // amount for name, amount in asked) for free in frees)

    def free(self, resource: str) -> int:
        """Return how much of a resource is free on all nodes together; over-booked nodes have none."""
        pieces = (node.allocatable.get(resource) - node.requested.get(resource) for node in self.nodes)
        return sum(max(0, piece) for piece in pieces)


def measure(problem: Problem, steps: Sequence[Step]) -> Fragmentation:
    """Return the fragmentation after some steps; pods that are only expected on a node do not count."""
    cluster = problem.cluster
    totals = [list(row) for row in cluster.taken]
    pods = Counter({node: len(problem.pods_to_move(NodeIndex(node))) for node in range(len(totals))})
    for index, placed in enumerate(cluster.pods):
        if placed.presence is Presence.EXPECTED:
            _shift(totals[placed.node], cluster.requests[placed.class_index], -1)
            pods[placed.node] -= not problem.stays_when_emptied(PodIndex(index))
    for step in steps:
        row = cluster.requests[cluster.pods[step.pod].class_index]
        _shift(totals[step.source], row, -1)
        _shift(totals[step.target], row, 1)
        pods[step.source] -= 1
        pods[step.target] += 1
    real = (node for node in range(len(totals)) if node != cluster.waiting_node)
    usages = (_usage(cluster, NodeIndex(node), totals[node], pods[NodeIndex(node)]) for node in real)
    return Fragmentation(tuple(usages))


def _shift(total: list[int], row: Sequence[int], times: int) -> None:
    for column, amount in enumerate(row):
        total[column] += amount * times


def _usage(cluster: Cluster, node: NodeIndex, total: list[int], pods: int) -> NodeUsage:
    requested = ResourceAmounts(dict(zip(cluster.resources, total, strict=True)))
    allocatable = ResourceAmounts(dict(zip(cluster.resources, cluster.capacity[node], strict=True)))
    return NodeUsage(cluster.node_name(node), allocatable, requested, pods)


def requested_share(nodes: Iterable[NodeUsage], resource: str) -> Fraction:
    """Return the requested share of a resource of some nodes, 0 if they have none."""
    listed = tuple(nodes)
    have = sum(node.allocatable.get(resource) for node in listed)
    return Fraction(sum(node.requested.get(resource) for node in listed), have) if have else Fraction(0)
