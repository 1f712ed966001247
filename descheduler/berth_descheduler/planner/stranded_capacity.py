"""Counts the pods of a shape that still fit, and the free capacity that is stranded, with the reasons.

A shape is amounts, and the fields of a pod's spec that are about nodes: what pods demand of one another (affinity,
spread, ports) is left out. For the workload as a whole, what is counted is the capacity that one of its pods, drawn at
random, could not use.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from berth_core import PODS, ResourceAmounts, Snapshot
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.capacity_shapes import CapacityShape, node_shapes, usual_shapes
from berth_descheduler.planner.fragmentation import Fragmentation, NodeUsage
from berth_descheduler.planner.simulation import Cluster, NodeIndex, NodeTies, PodPresence, node_refusal
from berth_descheduler.planner.workload_mix import WorkloadFit, measure_workload

_FINENESS: Final = 10**9


@dataclass(frozen=True, slots=True)
class StrandedPart:
    """Capacity on some nodes, stranded for a shape for one reason."""

    reason: RefusalReason
    resource: str
    """Of which there is too little on these nodes, "" where the reason is another; `pods` are pod slots."""

    nodes: int
    amounts: ResourceAmounts
    example: str
    """One of the nodes."""

    message: str
    """What is said of that one, for people."""


@dataclass(frozen=True, slots=True)
class ShapeFit:
    """How many pods of a shape fit, and where capacity is stranded."""

    shape: CapacityShape
    fits: int
    nodes: int
    """Nodes that have room for at least one."""

    free: ResourceAmounts
    """Of what the shape asks for; over-booked nodes have none."""

    stranded: ResourceAmounts
    parts: tuple[StrandedPart, ...]
    """They add up to what is stranded; the largest first."""

    absent: tuple[str, ...] = ()
    """What it asks for and no node has."""

    def share(self, resource: str) -> Fraction:
        """Return the share of a free resource that the shape cannot use, 0 where nothing is free."""
        free = self.free.get(resource)
        return Fraction(self.stranded.get(resource), free) if free else Fraction(0)


@dataclass(frozen=True, slots=True)
class ResourceState:
    """How much there is of a resource on all nodes together."""

    name: str
    allocatable: int
    requested: int
    free: int
    """Over-booked nodes have none."""

    largest_free: int
    """The largest free piece on one node, whatever may go there."""

    @property
    def utilisation(self) -> Fraction:
        """Return the share that is requested; it is 0 where there is none."""
        return Fraction(self.requested, self.allocatable) if self.allocatable else Fraction(0)


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """How fragmented a cluster is: its resources, and what some shapes find."""

    nodes: int
    empty_nodes: int
    """Nodes without pods but DaemonSet and mirror pods."""

    pods: int
    resources: tuple[ResourceState, ...]
    shapes: tuple[ShapeFit, ...]
    workload: WorkloadFit


def report_capacity(
    snapshot: Snapshot, shapes: Sequence[CapacityShape] = (), *, sizes_of_nodes: bool = False
) -> CapacityReport:
    """Return how fragmented a cluster is.

    Of the snapshot only nodes, pods and reservations are looked at. Without shapes, it chooses them: what pods ask
    for, or `sizes_of_nodes`, which change less. Places that are reserved or promised are not free.
    """
    cluster = Cluster.from_snapshot(snapshot)
    free = [
        tuple(map(int.__sub__, capacity, used)) for capacity, used in zip(cluster.capacity, cluster.taken, strict=True)
    ]
    refusals = [node_refusal(cluster, NodeIndex(node)) for node in range(len(cluster.nodes))]
    asked_shapes = tuple({shape.amounts: shape for shape in shapes}.values()) or (
        node_shapes(cluster) if sizes_of_nodes else usual_shapes(cluster)
    )
    counting = [placed_pod.occupies_node for placed_pod in cluster.pods]
    return CapacityReport(
        nodes=len(cluster.nodes),
        empty_nodes=sum(not any(counting[pod] for pod in pods) for pods in cluster.pods_on),
        pods=sum(placed_pod.presence is not PodPresence.EXPECTED for placed_pod in cluster.pods),
        resources=tuple(_resource_states(cluster, free)),
        shapes=tuple(_measure(cluster, free, refusals, shape) for shape in asked_shapes),
        workload=measure_workload(cluster, free, refusals),
    )


def measure_nodes(snapshot: Snapshot) -> Fragmentation:
    """Return the usage of each node, without pods that are only expected."""
    cluster = Cluster.from_snapshot(snapshot)
    return Fragmentation(tuple(_usage(cluster, NodeIndex(node)) for node in range(len(cluster.nodes))))


def _usage(cluster: Cluster, node: NodeIndex) -> NodeUsage:
    placed_pods = [
        cluster.pods[pod] for pod in cluster.pods_on[node] if cluster.pods[pod].presence is not PodPresence.EXPECTED
    ]
    rows = [cluster.requests[placed_pod.class_index] for placed_pod in placed_pods]
    sums = tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * cluster.columns
    return NodeUsage(
        cluster.node_name(node),
        cluster.resource_amounts(cluster.capacity[node]),
        cluster.resource_amounts(sums),
        sum(placed_pod.occupies_node for placed_pod in placed_pods),
    )


def _resource_states(cluster: Cluster, free: Sequence[Sequence[int]]) -> Iterator[ResourceState]:
    for name, column in cluster.column.items():
        allocatable = sum(row[column] for row in cluster.capacity)
        if not allocatable:
            continue
        pieces = [max(0, row[column]) for row in free]
        requested = sum(row[column] for row in cluster.taken)
        yield ResourceState(name, allocatable, requested, sum(pieces), max(pieces, default=0))


class _StrandedSum:
    """Sums up stranded capacity by reason."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._amounts: dict[tuple[RefusalReason, str], list[int]] = {}
        self._nodes: Counter[tuple[RefusalReason, str]] = Counter()
        self._first: dict[tuple[RefusalReason, str], tuple[str, str]] = {}

    def add(self, node: str, why: Refusal, rest: Sequence[int]) -> None:
        """Count a node whose rest is of no use to the shape; a node without a rest strands nothing."""
        if not any(rest):
            return
        key = (why.reason, why.resource)
        sums = self._amounts.setdefault(key, [0] * len(rest))
        for index, amount in enumerate(rest):
            sums[index] += amount
        self._nodes[key] += 1
        self._first.setdefault(key, (node, why.message))

    def parts(self, free: ResourceAmounts) -> tuple[StrandedPart, ...]:
        """Return the sums, the largest share of free capacity first."""
        stranded_parts = [
            StrandedPart(*key, self._nodes[key], self._named(sums), *self._first[key])
            for key, sums in self._amounts.items()
        ]
        stranded_parts.sort(key=lambda part: (-_largest_share(part.amounts, free), part.reason, part.resource))
        return tuple(stranded_parts)

    def total(self) -> ResourceAmounts:
        """Return what is stranded in all."""
        return ResourceAmounts.total(map(self._named, self._amounts.values()))

    def _named(self, sums: Sequence[int]) -> ResourceAmounts:
        return ResourceAmounts(dict(zip(self._names, sums, strict=True)))


def _measure(
    cluster: Cluster, free: Sequence[Sequence[int]], refusals: Sequence[Refusal | None], shape: CapacityShape
) -> ShapeFit:
    """Return how many pods of a shape fit, by a few comparisons per node."""
    names = [name for name, amount in shape.amounts.items() if amount > 0]
    columns = [cluster.column.get(name) for name in names]
    needs = [shape.amounts.get(name) for name in names]
    slots = cluster.column[PODS]
    profile = NodeTies(shape.ties, ())
    stranded_sum = _StrandedSum(names)
    fits = nodes = 0
    totals = [0] * len(names)
    for node, row, closed in zip(cluster.nodes, free, refusals, strict=True):
        pieces = [0 if column is None else max(0, row[column]) for column in columns]
        totals = [total + piece for total, piece in zip(totals, pieces, strict=True)]
        refusal = closed or profile.refusal(node)
        # Pods of one shape need no packing: how many fit on a node is the least quotient of its resources.
        count = (
            0
            if refusal
            else min(
                max(0, row[slots]), *(free_amount // need for free_amount, need in zip(pieces, needs, strict=True))
            )
        )
        rests = [free_amount - count * need for free_amount, need in zip(pieces, needs, strict=True)]
        stranded_sum.add(
            node.metadata.name, refusal or _shortage(names, needs, rests, max(0, row[slots]) - count), rests
        )
        fits, nodes = fits + count, nodes + (count > 0)
    all_free = ResourceAmounts(dict(zip(names, totals, strict=True)))
    absent = tuple(name for name, column in zip(names, columns, strict=True) if not _is_there(cluster, column))
    return ShapeFit(shape, fits, nodes, all_free, stranded_sum.total(), stranded_sum.parts(all_free), absent)


def _is_there(cluster: Cluster, column: int | None) -> bool:
    """Return whether a node has something of a resource."""
    return column is not None and any(row[column] > 0 for row in cluster.capacity)


def _shortage(names: Sequence[str], needs: Sequence[int], rest: Sequence[int], slots: int) -> Refusal:
    """Return what keeps one more pod off a node: the resource that is missing most, in proportion."""
    lacking_shares = [
        (free_amount * _FINENESS // need, name)
        for name, need, free_amount in zip(names, needs, rest, strict=True)
        if free_amount < need
    ]
    if slots == 0:
        lacking_shares.append((0, PODS))
    _, worst = min(lacking_shares)
    lacking_name = "pod slots" if worst == PODS else worst
    return Refusal(RefusalReason.INSUFFICIENT_RESOURCES, f"not enough {lacking_name}", resource=worst)


def _largest_share(amounts: ResourceAmounts, whole: ResourceAmounts) -> Fraction:
    return max((Fraction(amount, whole.get(name)) for name, amount in amounts.items()), default=Fraction(0))
