"""Owns the shapes for which a cluster's room is counted: those that somebody names, and which ones where nobody does.

It does not own the counting (`stranded_capacity`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import msgspec

from berth_core.errors import InputError
from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.objects import Pod, PodSpec
from berth_core.resources import CPU, MEMORY, ResourceAmounts
from berth_descheduler.planner.classes import ClassBook, PodClass
from berth_descheduler.planner.cluster import Cluster
from berth_descheduler.planner.placements import node_part
from berth_descheduler.planner.room_seekers import is_pending
from berth_descheduler.plugins.room_requests import Shape
from berth_descheduler.wording import count

MOST_SHAPES: Final = 3
"""So many are chosen where none is named."""

_EXPECTED: Final = "amounts such as cpu=4,memory=8Gi"
_PARTS: Final = (2, 4, 8)
"""What parts of a node are shapes; a whole one would never fit beside the pods of DaemonSets."""

_WEIGHED: Final = 1_000_000
_Rank = Callable[[ResourceAmounts, int], int]


@dataclass(frozen=True, slots=True)
class AskedShape:
    """What a pod asks for that is to find room."""

    name: str
    """As people write it: `cpu=4,memory=8Gi`."""

    amounts: ResourceAmounts
    ties: PodSpec = field(default_factory=PodSpec)
    """Only the fields of a spec that are about nodes."""

    asked_by: str = ""
    """Whose requests these are, "" where somebody named them."""


def read_shape(text: object) -> AskedShape:
    """Return the shape that a text such as `cpu=4,memory=8Gi` means; raises `InputError`."""
    try:
        found = Shape.parse(text)
    except InputError as error:
        raise InputError("shape", text, _EXPECTED) from error
    if found.count is not None:
        raise InputError("shape", text, f"{_EXPECTED} without a count: how many fit is the answer")
    return AskedShape(found.text, found.amounts)


def usual_shapes(cluster: Cluster) -> tuple[AskedShape, ...]:
    """Return what most pending pods ask for, else the largest pods that controllers make, else parts of a node."""
    return _pending_shapes(cluster) or _largest_shapes(cluster) or node_shapes(cluster)


def node_shapes(cluster: Cluster) -> tuple[AskedShape, ...]:
    """Return the half, the quarter and the eighth of the most frequent size of node, by cores and memory."""
    sizes = Counter((row[cluster.column[CPU]], row[cluster.column[MEMORY]]) for row in cluster.capacity)
    usual = min(sizes, key=lambda size: (-sizes[size], size), default=(0, 0))
    if not all(usual):
        return ()
    parts = (ResourceAmounts({CPU: usual[0] // part, MEMORY: usual[1] // part}) for part in _PARTS)
    whats = ("half", "a quarter", "an eighth")
    return tuple(
        AskedShape(write_shape(amounts), amounts, asked_by=f"{what} of a node")
        for what, amounts in zip(whats, parts, strict=True)
    )


def _pending_shapes(cluster: Cluster) -> tuple[AskedShape, ...]:
    """Return what most of the pods that wait for room ask for."""
    book = ClassBook()
    numbers = Counter(book.class_of(pod) for pod in cluster.elsewhere if is_pending(pod))
    counted = [(one, numbers[one.index]) for one in book.classes]
    return _most(counted, "pending pod", lambda _, number: -number)


def _largest_shapes(cluster: Cluster) -> tuple[AskedShape, ...]:
    """Return what the largest pods ask for that a controller makes again and that may go to any node."""
    numbers = Counter(placed.class_index for placed in cluster.pods)
    counted = [(one, numbers[one.index]) for one in cluster.classes if _is_replaceable(one.example)]
    whole = {name: sum(row[column] for row in cluster.capacity) for name, column in cluster.column.items()}

    def by_size(amounts: ResourceAmounts, _: int) -> int:
        shares = (Fraction(amount * _WEIGHED, whole[name]) for name, amount in amounts.items() if whole.get(name))
        return -int(max(shares, default=Fraction(0)))

    return _most(counted, "running pod", by_size)


def _is_replaceable(pod: Pod) -> bool:
    ours = PLACEHOLDER_LABEL in pod.metadata.labels
    return pod.controller is not None and not (pod.belongs_to_node or ours)


def _most(counted: Iterable[tuple[PodClass, int]], what: str, rank: _Rank) -> tuple[AskedShape, ...]:
    """Return the shapes of some classes, those of equal amounts and ties as one, in their order, up to the most."""
    numbers: Counter[tuple[ResourceAmounts, bytes]] = Counter()
    examples: dict[tuple[ResourceAmounts, bytes], PodClass] = {}
    for one, number in counted:
        if one.amounts and not one.odd:
            key = one.amounts, msgspec.json.encode(node_part(one.example.spec), order="sorted")
            numbers[key] += number
            examples.setdefault(key, one)
    ordered = sorted(numbers, key=lambda key: (rank(key[0], numbers[key]), write_shape(key[0]), key[1]))
    return tuple(_shapes(((examples[key], numbers[key]) for key in ordered[:MOST_SHAPES]), what))


def _shapes(found: Iterable[tuple[PodClass, int]], what: str) -> Iterator[AskedShape]:
    for one, number in found:
        ties = node_part(one.example.spec)
        yield AskedShape(
            write_shape(one.amounts), one.amounts, ties, f"{count(number, what)} such as {one.example.key}"
        )


def write_shape(amounts: ResourceAmounts) -> str:
    """Return a shape as people write it."""
    return ",".join(f"{name}={amount}" for name, amount in amounts.to_quantities().items())
