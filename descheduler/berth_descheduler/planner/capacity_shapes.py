"""The shapes whose room in a cluster is counted: those that the caller names, else a choice from the cluster."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import msgspec

from berth_core import CPU, MEMORY, PLACEHOLDER_LABEL, InputError, Pod, PodSpec, ResourceAmounts, count
from berth_descheduler.planner.pending_pods import is_pending
from berth_descheduler.planner.rooms import Shape
from berth_descheduler.planner.simulation import Cluster, PodClass, PodClasses, node_part

MOST_SHAPES: Final = 3
"""The most shapes that are chosen where none is named."""

_EXPECTED: Final = "amounts such as cpu=4,memory=8Gi"
_PARTS: Final = (2, 4, 8)
"""The parts of a node that are shapes; a whole node never fits beside DaemonSet pods."""

_WEIGHED: Final = 1_000_000
_Rank = Callable[[ResourceAmounts, int], int]
ShapeCounts = Counter[tuple[ResourceAmounts, bytes]]
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
        (pod_class, numbers[pod_class.index]) for pod_class in cluster.classes if is_replaceable(pod_class.example)
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


def is_replaceable(pod: Pod) -> bool:
    is_placeholder = PLACEHOLDER_LABEL in pod.metadata.labels
    return pod.controller is not None and pod.occupies_node and not is_placeholder


def _top_shapes(
    class_counts: Iterable[tuple[PodClass, int]], kind_of_pod: str, rank: _Rank
) -> tuple[CapacityShape, ...]:
    """Return the first shapes of some classes, in order of rank, `MOST_SHAPES` at most.

    Classes of equal amounts and ties have one shape. Of equal amounts, the ties of the most pods count.
    """
    numbers: ShapeCounts = Counter()
    examples: dict[tuple[ResourceAmounts, bytes], PodClass] = {}
    for pod_class, number in class_counts:
        if pod_class.amounts and not pod_class.odd:
            key = shape_key(pod_class)
            numbers[key] += number
            examples.setdefault(key, pod_class)
    ordered = sorted(numbers, key=lambda key: (rank(key[0], numbers[key]), write_shape(key[0]), key[1]))
    firsts = list(dict.fromkeys(amounts for amounts, _ in ordered))[:MOST_SHAPES]
    # Of shapes that differ in their ties only, people read the one that most pods have.
    chosen = tuple(max((key for key in ordered if key[0] == amounts), key=numbers.__getitem__) for amounts in firsts)
    return tuple(_shapes(((examples[key], numbers[key]) for key in chosen), kind_of_pod))


def shape_key(pod_class: PodClass) -> tuple[ResourceAmounts, bytes]:
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
