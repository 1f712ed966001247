"""Events between two states of a plan, and their ids.

An id is the plan's resourceVersion, which is the same on every replica of the service. Of several events of one
change, the last has the plain version and the others a number after it: the plain version means that nothing is
missing up to here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from berth_core import MigrationPlan
from berth_descheduler.api.schemas import EventKind, describe_change
from berth_descheduler.report import describe_moves, describe_stored_plan


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """A change of a plan, as readers of its stream get it."""

    kind: EventKind
    id: str
    """"" for an event that does not mark a position."""
    data: bytes

    def encode(self) -> bytes:
        """Return the event in the server-sent format; our JSON has no line ends."""
        id_line = f"id: {self.id}\n" if self.id else ""
        return f"{id_line}event: {self.kind}\ndata: ".encode() + self.data + b"\n\n"


def whole_plan(plan: MigrationPlan) -> PlanEvent:
    return PlanEvent(EventKind.PLAN, plan.metadata.resource_version, msgspec.json.encode(describe_stored_plan(plan)))


def deletion(plan: MigrationPlan) -> PlanEvent:
    data = msgspec.json.encode({"name": plan.metadata.name})
    return PlanEvent(EventKind.DELETED, f"{plan.metadata.resource_version}-deleted", data)


def events_between(before: MigrationPlan, after: MigrationPlan) -> tuple[PlanEvent, ...]:
    """Return the events of what changed between two states: moves first, then the plan."""
    if before.spec.moves != after.spec.moves:
        return (whole_plan(after),)
    return tuple(_numbered(list(_changes(before, after)), after.metadata.resource_version))


def _changes(before: MigrationPlan, after: MigrationPlan) -> Iterator[tuple[EventKind, bytes]]:
    if before.status.moves != after.status.moves:
        for move_before, move_after in zip(describe_moves(before), describe_moves(after), strict=True):
            if move_before != move_after:
                yield EventKind.MOVE, msgspec.json.encode(move_after)
    change = describe_change(after)
    if describe_change(before) != change:
        yield EventKind.PHASE, msgspec.json.encode(change)


def _numbered(changes: Sequence[tuple[EventKind, bytes]], version: str) -> Iterator[PlanEvent]:
    for number, (kind, data) in enumerate(changes, start=1):
        yield PlanEvent(kind, version if number == len(changes) else f"{version}.{number}", data)
