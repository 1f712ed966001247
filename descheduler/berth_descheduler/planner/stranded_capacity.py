"""Counts the pods of a shape that still fit, and the free capacity that is stranded, with the reasons.

A shape is amounts, and the fields of a pod's spec that are about nodes: what pods demand of one another (affinity,
spread, ports) is left out. For the workload as a whole, what is counted is the capacity that one of its pods, drawn at
random, could not use.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

import msgspec

from berth_core import CPU, MEMORY, PLACEHOLDER_LABEL, PODS, InputError, Pod, PodSpec, ResourceAmounts, Snapshot, count
from berth_core.decoding import decode_json
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.fragmentation import Fragmentation, NodeUsage
from berth_descheduler.planner.pending_pods import is_pending
from berth_descheduler.planner.rooms import Shape
from berth_descheduler.planner.simulation import (
    Cluster,
    NodeIndex,
    NodeTies,
    PodClass,
    PodClasses,
    PodPresence,
    node_part,
    node_refusal,
)

# --- asked shapes ----------------------------------------------------------------------------------------------------
# The shapes whose room in a cluster is counted: those that the caller names, else a choice from the cluster.

MOST_SHAPES: Final = 3
"""The most shapes that are chosen where none is named."""

_EXPECTED: Final = "amounts such as cpu=4,memory=8Gi"
_PARTS: Final = (2, 4, 8)
"""The parts of a node that are shapes; a whole node never fits beside DaemonSet pods."""

_WEIGHED: Final = 1_000_000
_Rank = Callable[[ResourceAmounts, int], int]
_ShapeCounts = Counter[tuple[ResourceAmounts, bytes]]
"""Pods by amounts and encoded ties to nodes."""


@dataclass(frozen=True, slots=True)
class CapacityShape:
    """The requests and node constraints of a pod that needs room."""

    name: str
    """As people write it: `cpu=4,memory=8Gi`."""

    amounts: ResourceAmounts
    ties: PodSpec = field(default_factory=PodSpec)
    """Only the fields of a spec that are about nodes."""

    asked_by: str = ""
    """Whose requests these are, "" for a named shape."""


def read_shape(text: object) -> CapacityShape:
    """Return the shape that a text such as `cpu=4,memory=8Gi` means; raises `InputError`."""
    shape = Shape.parse(text, _EXPECTED)
    if shape.count is not None:
        raise InputError("shape", text, f"{_EXPECTED} without a count: how many fit is the answer")
    return CapacityShape(shape.text, shape.amounts)


def usual_shapes(cluster: Cluster) -> tuple[CapacityShape, ...]:
    """Return what most pending pods ask for, else the largest pods of controllers, else parts of a node."""
    return _pending_shapes(cluster) or _largest_shapes(cluster) or node_shapes(cluster)


def node_shapes(cluster: Cluster) -> tuple[CapacityShape, ...]:
    """Return half, a quarter and an eighth of the most frequent node size, by cores and memory."""
    sizes = Counter((row[cluster.column[CPU]], row[cluster.column[MEMORY]]) for row in cluster.capacity)
    usual = min(sizes, key=lambda size: (-sizes[size], size), default=(0, 0))
    if not all(usual):
        return ()
    parts = (ResourceAmounts({CPU: usual[0] // part, MEMORY: usual[1] // part}) for part in _PARTS)
    part_names = ("half", "a quarter", "an eighth")
    return tuple(
        CapacityShape(write_shape(amounts), amounts, asked_by=f"{part_name} of a node")
        for part_name, amounts in zip(part_names, parts, strict=True)
    )


def _pending_shapes(cluster: Cluster) -> tuple[CapacityShape, ...]:
    """Return what most of the pods that wait for room ask for."""
    pod_classes = PodClasses()
    numbers = Counter(pod_classes.class_of(pod) for pod in cluster.elsewhere if is_pending(pod))
    class_counts = [(pod_class, numbers[pod_class.index]) for pod_class in pod_classes.classes]
    return _top_shapes(class_counts, "pending pod", lambda _, number: -number)


def _largest_shapes(cluster: Cluster) -> tuple[CapacityShape, ...]:
    """Return what the largest pods ask for that a controller makes again and that may go to any node."""
    numbers = Counter(placed_pod.class_index for placed_pod in cluster.pods)
    class_counts = [
        (pod_class, numbers[pod_class.index]) for pod_class in cluster.classes if _is_replaceable(pod_class.example)
    ]
    total_amounts = {name: sum(row[column] for row in cluster.capacity) for name, column in cluster.column.items()}

    def by_size(amounts: ResourceAmounts, _: int) -> int:
        shares = (
            Fraction(amount * _WEIGHED, total_amounts[name])
            for name, amount in amounts.items()
            if total_amounts.get(name)
        )
        return -int(max(shares, default=Fraction(0)))

    return _top_shapes(class_counts, "running pod", by_size)


def _is_replaceable(pod: Pod) -> bool:
    is_placeholder = PLACEHOLDER_LABEL in pod.metadata.labels
    return pod.controller is not None and pod.occupies_node and not is_placeholder


def _top_shapes(
    class_counts: Iterable[tuple[PodClass, int]], kind_of_pod: str, rank: _Rank
) -> tuple[CapacityShape, ...]:
    """Return the first shapes of some classes, in order of rank, `MOST_SHAPES` at most.

    Classes of equal amounts and ties have one shape. Of equal amounts, the ties of the most pods count.
    """
    numbers: _ShapeCounts = Counter()
    examples: dict[tuple[ResourceAmounts, bytes], PodClass] = {}
    for pod_class, number in class_counts:
        if pod_class.amounts and not pod_class.odd:
            key = _shape_key(pod_class)
            numbers[key] += number
            examples.setdefault(key, pod_class)
    ordered = sorted(numbers, key=lambda key: (rank(key[0], numbers[key]), write_shape(key[0]), key[1]))
    firsts = list(dict.fromkeys(amounts for amounts, _ in ordered))[:MOST_SHAPES]
    chosen = tuple(max((key for key in ordered if key[0] == amounts), key=numbers.__getitem__) for amounts in firsts)
    return tuple(_shapes(((examples[key], numbers[key]) for key in chosen), kind_of_pod))


def _shape_key(pod_class: PodClass) -> tuple[ResourceAmounts, bytes]:
    return pod_class.amounts, msgspec.json.encode(node_part(pod_class.example.spec), order="sorted")


def _shapes(class_counts: Iterable[tuple[PodClass, int]], kind_of_pod: str) -> Iterator[CapacityShape]:
    for pod_class, number in class_counts:
        ties = node_part(pod_class.example.spec)
        yield CapacityShape(
            write_shape(pod_class.amounts),
            pod_class.amounts,
            ties,
            f"{count(number, kind_of_pod)} such as {pod_class.example.key}",
        )


def write_shape(amounts: ResourceAmounts) -> str:
    """Return a shape as people write it."""
    return ",".join(f"{name}={amount}" for name, amount in amounts.to_quantities().items())


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
        workload=_measure_workload(cluster, free, refusals),
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


# --- one shape --------------------------------------------------------------------------------------------------------


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


# --- the workload -----------------------------------------------------------------------------------------------------

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


def _measure_workload(
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


def _most_frequent(shapes: _ShapeCounts) -> _ShapeCounts:
    """Return the most frequent shapes that together have the counted share of the pods."""
    frequent_shapes: _ShapeCounts = Counter()
    for key in sorted(shapes, key=lambda key: (-shapes[key], write_shape(key[0]), key[1]))[:_MOST_WORKLOAD_SHAPES]:
        if frequent_shapes.total() >= _COUNTED_SHARE * shapes.total():
            break
        frequent_shapes[key] = shapes[key]
    return frequent_shapes


def _workload_shapes(cluster: Cluster) -> _ShapeCounts:
    """Return the running and pending pods that controllers make again, by what they ask for."""
    pod_classes = PodClasses()
    pending = (pod_classes.class_of(pod) for pod in cluster.elsewhere if is_pending(pod) and _is_replaceable(pod))
    replaceable_pods = (
        placed_pod
        for placed_pod in cluster.pods
        if placed_pod.presence is not PodPresence.EXPECTED and _is_replaceable(placed_pod.pod)
    )
    pending_counts, placed_counts = Counter(pending), Counter(placed_pod.class_index for placed_pod in replaceable_pods)
    shape_counts: _ShapeCounts = Counter()
    for classes, counts in ((cluster.classes, placed_counts), (pod_classes.classes, pending_counts)):
        for pod_class in classes:
            if counts[pod_class.index] and pod_class.amounts and not pod_class.odd:
                shape_counts[_shape_key(pod_class)] += counts[pod_class.index]
    return shape_counts
