"""What of the free capacity the pods of a cluster, taken together, could use."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from berth_core import PODS, PodSpec, ResourceAmounts
from berth_core.decoding import decode_json
from berth_descheduler.framework import Refusal
from berth_descheduler.planner.capacity_shapes import ShapeCounts, is_replaceable, shape_key, write_shape
from berth_descheduler.planner.pending_pods import is_pending
from berth_descheduler.planner.simulation import Cluster, NodeIndex, NodeTies, PodClasses, PodPresence, node_refusal

MOST_FRAGMENTED_NODES: Final = 10
"""As many nodes are named for each resource, those with the most that is fragmented."""


@dataclass(frozen=True, slots=True)
class StrandedOnNode:
    """A node where some of a resource is free and fragmented."""

    name: str
    free: int
    fragmented: Fraction
    """On average over the counted pods."""


@dataclass(frozen=True, slots=True)
class WorkloadFit:
    """What of the free capacity the pods of the cluster could use, each counted alike.

    A node's free amount of a resource is fragmented for a pod that asks for none of it or does not fit there. The
    average over pods is the measure of "Beware of Fragmentation" (Weng et al., USENIX ATC '23), there for GPUs.
    """

    pods: int
    """Those of the counted shapes, running or pending."""

    all_pods: int
    """Those that controllers make again, without pods of DaemonSets."""

    shapes: int
    free: ResourceAmounts
    """Of what these pods ask for; over-booked nodes have none."""

    fragmented: dict[str, Fraction]
    """By resource, on average over the counted pods."""

    nodes: dict[str, tuple[StrandedOnNode, ...]]
    """By resource, the nodes with the most that is fragmented."""

    def share(self, resource: str) -> Fraction | None:
        """Return the share of a free resource that is fragmented, 0 where nothing is free.

        It is None if no counted pod asks for the resource.
        """
        if resource not in self.fragmented:
            return None
        free = self.free.get(resource)
        return self.fragmented[resource] / free if free else Fraction(0)


_COUNTED_SHARE: Final = Fraction(95, 100)
"""The share of the pods whose shapes are counted, the most frequent first, as the authors of the measure do."""

_MOST_WORKLOAD_SHAPES: Final = 200
"""Bounds the cost: each shape is compared with each node."""


@dataclass(frozen=True, slots=True)
class MixShape:
    """A shape of the workload, with its popularity."""

    amounts: ResourceAmounts
    pods: int
    nodes: tuple[NodeIndex, ...]
    """Those that take such a pod as far as rules go, whatever is free there."""


@dataclass(frozen=True, slots=True)
class WorkloadMix:
    """What the pods of a cluster ask for, the most frequent shapes; no move changes it."""

    shapes: tuple[MixShape, ...]
    all_pods: int

    @property
    def pods(self) -> int:
        """Return how many pods have one of the shapes."""
        return sum(mix_shape.pods for mix_shape in self.shapes)


def read_mix(cluster: Cluster) -> WorkloadMix:
    """Return the mix of workloads of a cluster; nodes that a plan leaves out or lets rest take pods all the same."""
    open_cluster = replace(cluster, left_out=frozenset(), held_back={})
    numbers = map(NodeIndex, range(len(cluster.nodes)))
    return _read_mix(cluster, [node for node in numbers if node_refusal(open_cluster, node) is None])


def _read_mix(cluster: Cluster, open_nodes: Sequence[NodeIndex]) -> WorkloadMix:
    shape_counts = _workload_shapes(cluster)
    taking: dict[bytes, tuple[NodeIndex, ...]] = {}
    shapes = []
    for (amounts, ties), pods in _most_frequent(shape_counts).items():
        if ties not in taking:
            profile = NodeTies(decode_json(ties, PodSpec), ())
            taking[ties] = tuple(node for node in open_nodes if profile.refusal(cluster.nodes[node]) is None)
        shapes.append(MixShape(amounts, pods, taking[ties]))
    return WorkloadMix(tuple(shapes), shape_counts.total())


def measure_workload(
    cluster: Cluster, free: Sequence[Sequence[int]], refusals: Sequence[Refusal | None]
) -> WorkloadFit:
    """Return how much of the free capacity the pods of a cluster could not use."""
    mix = _read_mix(cluster, [NodeIndex(node) for node, refusal in enumerate(refusals) if refusal is None])
    slots = cluster.column[PODS]
    usable: dict[str, Counter[NodeIndex]] = {}
    for shape in mix.shapes:
        needs = [(name, amount) for name, amount in shape.amounts.items() if amount > 0]
        fitting = [node for node in shape.nodes if free[node][slots] > 0 and _fits(cluster, free[node], needs)]
        for name, _ in needs:
            sums = usable.setdefault(name, Counter())
            for node in fitting:
                sums[node] += free[node][cluster.column[name]] * shape.pods
    known_names = sorted(name for name in usable if name in cluster.column)
    nodes = {name: _fragmented_nodes(cluster, free, name, usable[name], mix.pods) for name in known_names}
    totals = {name: sum(max(0, row[cluster.column[name]]) for row in free) for name in known_names}
    return WorkloadFit(
        pods=mix.pods,
        all_pods=mix.all_pods,
        shapes=len(mix.shapes),
        free=ResourceAmounts(totals),
        fragmented={name: totals[name] - Fraction(usable[name].total(), mix.pods) for name in known_names},
        nodes=nodes,
    )


def _fits(cluster: Cluster, row: Sequence[int], needs: Sequence[tuple[str, int]]) -> bool:
    return all(name in cluster.column and row[cluster.column[name]] >= amount for name, amount in needs)


def _fragmented_nodes(
    cluster: Cluster, free: Sequence[Sequence[int]], name: str, usable: Counter[NodeIndex], pods: int
) -> tuple[StrandedOnNode, ...]:
    """Return the nodes where a resource is fragmented, those with the most of it first."""
    amounts = ((NodeIndex(node), max(0, row[cluster.column[name]])) for node, row in enumerate(free))
    wasted = [(amount * pods - usable[node], node, amount) for node, amount in amounts]
    worst = sorted(
        (node_and_waste for node_and_waste in wasted if node_and_waste[0] > 0),
        key=lambda node_and_waste: (-node_and_waste[0], node_and_waste[1]),
    )[:MOST_FRAGMENTED_NODES]
    return tuple(StrandedOnNode(cluster.node_name(node), amount, Fraction(part, pods)) for part, node, amount in worst)


def _most_frequent(shapes: ShapeCounts) -> ShapeCounts:
    """Return the most frequent shapes that together have the counted share of the pods."""
    frequent_shapes: ShapeCounts = Counter()
    for key in sorted(shapes, key=lambda key: (-shapes[key], write_shape(key[0]), key[1]))[:_MOST_WORKLOAD_SHAPES]:
        if frequent_shapes.total() >= _COUNTED_SHARE * shapes.total():
            break
        frequent_shapes[key] = shapes[key]
    return frequent_shapes


def _workload_shapes(cluster: Cluster) -> ShapeCounts:
    """Return the running and pending pods that controllers make again, by what they ask for."""
    pod_classes = PodClasses()
    pending = (pod_classes.class_of(pod) for pod in cluster.elsewhere if is_pending(pod) and is_replaceable(pod))
    replaceable_pods = (
        placed_pod
        for placed_pod in cluster.pods
        if placed_pod.presence is not PodPresence.EXPECTED and is_replaceable(placed_pod.pod)
    )
    pending_counts, placed_counts = Counter(pending), Counter(placed_pod.class_index for placed_pod in replaceable_pods)
    shape_counts: ShapeCounts = Counter()
    for classes, counts in ((cluster.classes, placed_counts), (pod_classes.classes, pending_counts)):
        for pod_class in classes:
            if counts[pod_class.index] and pod_class.amounts and not pod_class.odd:
                shape_counts[shape_key(pod_class)] += counts[pod_class.index]
    return shape_counts
