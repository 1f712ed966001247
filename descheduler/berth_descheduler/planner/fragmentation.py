"""Fragmentation of a cluster, and the nodes that a plan records.

Fragmentation is measured before and after a plan.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from berth_core import CPU, MEMORY, ResourceAmounts
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import Cluster, NodeIndex, PodPresence, Step

_PARTS: Final = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """Allocatable and requested resources of a node, and the number of pods that keep it from being free."""

    name: str
    allocatable: ResourceAmounts
    requested: ResourceAmounts
    pods: int
    """Pods except DaemonSet and mirror pods."""


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """How pods are spread over the nodes."""

    nodes: tuple[NodeUsage, ...]

    @property
    def empty_nodes(self) -> tuple[str, ...]:
        """Return the names of nodes with at most DaemonSet and mirror pods."""
        return tuple(node.name for node in self.nodes if node.pods == 0)

    @property
    def allocatable(self) -> ResourceAmounts:
        return ResourceAmounts.total(node.allocatable for node in self.nodes)

    @property
    def requested(self) -> ResourceAmounts:
        return ResourceAmounts.total(node.requested for node in self.nodes)

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that the nodes have, sorted."""
        return self.allocatable.keys()

    def utilisation(self, resource: str) -> Fraction:
        """Return the requested share of a resource, 0 where there is none of it."""
        allocatable = self.allocatable.get(resource)
        return Fraction(self.requested.get(resource), allocatable) if allocatable else Fraction(0)

    def largest_free(self, resource: str) -> int:
        """Return the largest free piece of a resource on one node."""
        return max((node.allocatable.get(resource) - node.requested.get(resource) for node in self.nodes), default=0)

    def fits(self, amounts: ResourceAmounts) -> int:
        """Return how many pods of these requests fit, each on one node."""
        requested = [(name, amount) for name, amount in amounts.items() if amount > 0]
        if not requested:
            return 0
        frees = (node.allocatable.minus(node.requested) for node in self.nodes)
        return sum(min(max(0, free.get(name)) // amount for name, amount in requested) for free in frees)

    @property
    def usual_shapes(self) -> tuple[ResourceAmounts, ...]:
        """Return the most frequent node size by cores and memory, its half and its quarter."""
        sizes = Counter((node.allocatable.get(CPU), node.allocatable.get(MEMORY)) for node in self.nodes)
        if not sizes:
            return ()
        cpu, memory = min(sizes, key=lambda size: (-sizes[size], size))
        return tuple(ResourceAmounts({CPU: cpu // part, MEMORY: memory // part}) for part in _PARTS)

    def free(self, resource: str) -> int:
        """Return the free amount of a resource on all nodes; overcommitted nodes have none."""
        pieces = (node.allocatable.get(resource) - node.requested.get(resource) for node in self.nodes)
        return sum(max(0, piece) for piece in pieces)


def measure(problem: Problem, steps: Sequence[Step]) -> Fragmentation:
    """Return the fragmentation after some steps, without pods that are only expected."""
    cluster = problem.cluster
    totals = [list(row) for row in cluster.taken]
    pods = Counter({node: len(problem.pods_to_move(NodeIndex(node))) for node in range(len(totals))})
    for placed_pod in cluster.pods:
        if placed_pod.presence is PodPresence.EXPECTED:
            _shift(totals[placed_pod.node], cluster.requests[placed_pod.class_index], -1)
            pods[placed_pod.node] -= placed_pod.pod.occupies_node
    for step in steps:
        row = cluster.requests[cluster.pods[step.pod].class_index]
        _shift(totals[step.source], row, -1)
        pods[step.source] -= 1
        if step.target != step.source:  # else the pod is evicted and goes nowhere
            _shift(totals[step.target], row, 1)
            pods[step.target] += 1
    real_nodes = (node for node in range(len(totals)) if node != cluster.waiting_node)
    usages = (_usage(cluster, NodeIndex(node), totals[node], pods[NodeIndex(node)]) for node in real_nodes)
    return Fragmentation(tuple(usages))


def _shift(total: list[int], row: Sequence[int], times: int) -> None:
    for column, amount in enumerate(row):
        total[column] += amount * times


def _usage(cluster: Cluster, node: NodeIndex, total: list[int], pods: int) -> NodeUsage:
    requested, allocatable = cluster.resource_amounts(total), cluster.resource_amounts(cluster.capacity[node])
    return NodeUsage(cluster.node_name(node), allocatable, requested, pods)


def requested_share(nodes: Iterable[NodeUsage], resource: str) -> Fraction:
    """Return the requested share of a resource of some nodes, 0 if they have none of it."""
    listed_nodes = tuple(nodes)
    allocatable = sum(node.allocatable.get(resource) for node in listed_nodes)
    return (
        Fraction(sum(node.requested.get(resource) for node in listed_nodes), allocatable)
        if allocatable
        else Fraction(0)
    )
