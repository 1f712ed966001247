"""The part of `berth fragmentation` that is about guarantees."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import Snapshot, SnapshotKind, count, percent
from berth_descheduler.capabilities.queues.documents import MeasuredQueues
from berth_descheduler.capabilities.queues.guarantees import QueueCapacity
from berth_descheduler.report.capacity_tables import readable

_NAMED_BY_QUEUES: Final = frozenset({SnapshotKind.NAMESPACES})
"""Each queue that needs these says itself that they were not read."""


class QueueSection:
    """What the queues of a snapshot are guaranteed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._measured = MeasuredQueues.of(snapshot)

    def render(self) -> RenderableType:
        return render_queues(self._measured)

    def fields(self) -> Mapping[str, Any]:
        """Return `queues`, None where they were not read, and the kinds that they depend on and that were not."""
        return {"queues": self._measured.describe(), "queuesUnread": sorted(self._measured.unread)}


def render_queues(measured: MeasuredQueues) -> RenderableType:
    """Return a table of guarantees, and a line per shape and per unread kind; nothing without any."""
    if measured.are_unknown:
        return Text("\nQueues were not read, so nothing is known of what they are guaranteed.")
    missing = Group(
        *(
            Text(f"\nNot read: {kind}. This assumes {kind.assumed}.")
            for kind in sorted(measured.unread - _NAMED_BY_QUEUES)
        )
    )
    return Group(_queue_table(measured.queues), missing) if measured.queues else missing


def _queue_table(queues: Sequence[QueueCapacity]) -> RenderableType:
    table = Table("queue", "resource", box=None, padding=(0, 2, 0, 0))
    for heading in ("guaranteed", "allocated", "held", "left", "usable", "placeable", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for capacity in queues:
        for resource in capacity.queue.guarantee:
            amounts_of_queue = (
                capacity.queue.guarantee,
                capacity.allocated,
                capacity.held,
                capacity.left,
                capacity.usable,
                capacity.placeable,
            )
            share = capacity.share(resource)
            amounts = (readable(resource, part.get(resource)) for part in amounts_of_queue)
            table.add_row(capacity.label, resource, *amounts, "not known" if share is None else percent(share))
    return Group(Text("\nWhat queues are guaranteed:", style="bold"), table, *map(Text, _queue_lines(queues)))


def _queue_lines(queues: Sequence[QueueCapacity]) -> Iterator[str]:
    for capacity in queues:
        if capacity.queue.unreadable:
            yield f"{capacity.label}: cannot be read ({capacity.queue.unreadable})."
        elif capacity.queue.refused:
            yield f"{capacity.label}: its guarantee does not count ({capacity.queue.refused})."
        elif capacity.left and not capacity.shapes:
            yield f"{capacity.label}: no pod says in which pieces it needs what is left."
        for shape in capacity.shapes:
            if shape.wanted:
                pods = f"{shape.placeable} of {count(shape.wanted, 'more pod')} can be placed"
                yield f"{capacity.label}: {shape.shape.name} ({shape.shape.asked_by}): {pods}."
            elif capacity.left:
                yield f"{capacity.label}: {shape.shape.name} ({shape.shape.asked_by}): too large for what is left."
