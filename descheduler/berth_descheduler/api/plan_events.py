"""Owns what is told of a plan that is followed: the events that lie between two states of it, and their ids.

It does not own how a plan is watched (`plan_feeds`) nor how events travel (`event_streams`).

An id is the plan's resourceVersion, which every replica of the service knows alike. Of several events that come with
one change of the plan, the last has the plain version and the others a number behind it, so that the plain version
means: all is known up to here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from berth_core.migration_plans import MigrationPlan
from berth_descheduler.api.documents import EventKind, describe_change, describe_moves, describe_plan


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One event."""

    kind: EventKind
    id: str
    """"" for an event that does not say how far the reader is."""
    data: bytes

    def encode(self) -> bytes:
        """Return the event as a stream of server-sent events has it; JSON has no line ends."""
        named = f"id: {self.id}\n" if self.id else ""
        return f"{named}event: {self.kind}\ndata: ".encode() + self.data + b"\n\n"


def whole_plan(plan: MigrationPlan) -> PlanEvent:
    """Return the event that tells a whole plan."""
    return PlanEvent(EventKind.PLAN, plan.metadata.resource_version, msgspec.json.encode(describe_plan(plan)))


def deletion(plan: MigrationPlan) -> PlanEvent:
    """Return the event of a plan that is gone."""
    data = msgspec.json.encode({"name": plan.metadata.name})
    return PlanEvent(EventKind.DELETED, f"{plan.metadata.resource_version}-deleted", data)


def events_between(before: MigrationPlan, after: MigrationPlan) -> tuple[PlanEvent, ...]:
    """Return what has changed, the moves first, then the plan as a whole; nothing where nobody would see it."""
    if before.spec.moves != after.spec.moves:
        return (whole_plan(after),)
    return tuple(_numbered(list(_changes(before, after)), after.metadata.resource_version))


def _changes(before: MigrationPlan, after: MigrationPlan) -> Iterator[tuple[EventKind, bytes]]:
    if before.status.moves != after.status.moves:
        for old, new in zip(describe_moves(before), describe_moves(after), strict=True):
            if old != new:
                yield EventKind.MOVE, msgspec.json.encode(new)
    change = describe_change(after)
    if describe_change(before) != change:
        yield EventKind.PHASE, msgspec.json.encode(change)


def _numbered(changes: Sequence[tuple[EventKind, bytes]], version: str) -> Iterator[PlanEvent]:
    for number, (kind, data) in enumerate(changes, start=1):
        yield PlanEvent(kind, version if number == len(changes) else f"{version}.{number}", data)
