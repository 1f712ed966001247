"""Guarantees of queues as documents, which `berth fragmentation` and the HTTP interface share."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import msgspec

from berth_core import Snapshot, SnapshotKind, format_amount
from berth_core.text import rounded
from berth_descheduler.capabilities.queues.guarantees import QueueCapacity, measure_queues

_KINDS: Final = frozenset({SnapshotKind.VOLCANO_QUEUES, SnapshotKind.QUEUES})


class QueueResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of a resource a queue is guaranteed, and what it could have of that now."""

    resource: str
    guaranteed: str
    allocated: str
    """Requests of the queue's pods on nodes, and of placeholders but for those that are held."""
    held: str
    """Requests of the slots that the queue holds for its pods."""
    left: str
    """Of what is guaranteed, neither allocated nor held."""
    usable: str
    """What whole pods of the queue's shapes would use of what is left, had every node room."""
    placeable: str
    """What of that the nodes have room for."""
    placeable_ratio: float | None
    """Of what is usable; 1 where nothing is left, null where no pod says what could use it."""


class QueueShapeCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many more pods of a queue's shape its guarantee and the nodes hold."""

    shape: str
    asked_by: str
    wanted: int
    placeable: int
    nodes_with_room: int


class QueueDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue with a guarantee, and how much of it is worth something now."""

    name: str
    source: str
    state: str
    unreadable: str
    """Why its amounts are not known; empty if they are."""
    refused: str
    """Why its guarantee does not count; empty if it does."""
    resources: tuple[QueueResource, ...]
    shapes: tuple[QueueShapeCapacity, ...]


class QueueList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues that have a guarantee, and those whose is not known or does not count."""

    measured_at: str | None
    items: tuple[QueueDocument, ...] | None
    """null: this account may list no kind of queues."""
    unread: tuple[str, ...]
    """Kinds that were not read, by their names for kubectl."""


@dataclass(frozen=True, slots=True)
class MeasuredQueues:
    """The queues that have a guarantee, and those whose is not known or does not count, in one snapshot."""

    queues: tuple[QueueCapacity, ...]
    unread: frozenset[SnapshotKind]
    """The kinds that the snapshot lacks, of all that queues depend on."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "MeasuredQueues":
        return cls(measure_queues(snapshot), frozenset(snapshot.unread))

    @property
    def are_unknown(self) -> bool:
        """Return whether queues of no kind were read."""
        return self.unread >= _KINDS

    def without(self, hidden: AbstractSet[SnapshotKind]) -> "MeasuredQueues":
        """Return what is known without queues of hidden kinds."""
        shown = (capacity for capacity in self.queues if capacity.queue.source.resource not in hidden)
        return MeasuredQueues(tuple(shown), self.unread | hidden)

    def describe(self) -> tuple[QueueDocument, ...] | None:
        """Return the documents of the queues, None where they were not read."""
        return None if self.are_unknown else tuple(map(_describe_queue, self.queues))


def _describe_queue(capacity: QueueCapacity) -> QueueDocument:
    return QueueDocument(
        name=capacity.queue.name,
        source=capacity.queue.source.value,
        state=capacity.queue.state.value,
        unreadable=capacity.queue.unreadable,
        refused=capacity.queue.refused,
        resources=tuple(_describe_guarantee(capacity, resource) for resource in capacity.queue.guarantee),
        shapes=tuple(
            QueueShapeCapacity(
                shape=shape.shape.name,
                asked_by=shape.shape.asked_by,
                wanted=shape.wanted,
                placeable=shape.placeable,
                nodes_with_room=shape.nodes,
            )
            for shape in capacity.shapes
        ),
    )


def _describe_guarantee(capacity: QueueCapacity, name: str) -> QueueResource:
    share = capacity.share(name)
    return QueueResource(
        resource=name,
        guaranteed=format_amount(name, capacity.queue.guarantee.get(name)),
        allocated=format_amount(name, capacity.allocated.get(name)),
        held=format_amount(name, capacity.held.get(name)),
        left=format_amount(name, capacity.left.get(name)),
        usable=format_amount(name, capacity.usable.get(name)),
        placeable=format_amount(name, capacity.placeable.get(name)),
        placeable_ratio=None if share is None else rounded(share),
    )
