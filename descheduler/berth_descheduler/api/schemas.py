"""Documents of the HTTP interface only; commands share the others (`report.documents`)."""

from enum import StrEnum
from typing import Final

import msgspec

from berth_core import Achieved, MigrationPlan, PlanPhase, RunMode
from berth_descheduler.report import (
    Capacity,
    PlanDocument,
    PlanList,
    PlanMove,
    PlanRoom,
    PolicyList,
    QueueList,
    describe_rooms,
)


class PlanChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The data of a `phase` event: the plan as a whole, with its rooms."""

    phase: PlanPhase
    message: str
    approved: bool
    aborted: bool
    achieved: Achieved | None
    rooms: tuple[PlanRoom, ...]


class EventKind(StrEnum):
    """What an event of a stream reports."""

    PLAN = "plan"
    """The whole plan: at first, when its moves are filled in, and when missed events are no longer known."""
    PHASE = "phase"
    """The state of the plan as a whole, or of a room, has changed."""
    MOVE = "move"
    """A move has changed."""
    DELETED = "deleted"
    """The plan was deleted, which aborts it; the last event."""
    PROBLEM = "problem"
    """The stream ends for another reason; data is a problem document."""


class StreamedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream; data is JSON: a PlanDocument, PlanChange, PlanMove or Problem, by the kind of event."""

    event: EventKind
    data: str
    id: str = ""


class RequestedRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A requested run, as the plan that it fills."""

    plan: str
    policy: str
    mode: RunMode | None
    phase: PlanPhase
    requested_by: str
    created: str | None


DOCUMENTS: Final = (
    PlanList,
    PlanDocument,
    PlanChange,
    PlanMove,
    StreamedEvent,
    RequestedRun,
    PolicyList,
    Capacity,
    QueueList,
)


def describe_change(plan: MigrationPlan) -> PlanChange:
    """Return the plan as a whole; `achieved` once it is over."""
    return PlanChange(
        phase=plan.phase,
        message=plan.status.message,
        approved=plan.spec.approved,
        aborted=plan.spec.aborted,
        achieved=plan.status.achieved if plan.phase.terminal else None,
        rooms=describe_rooms(plan),
    )


def describe_request(plan: MigrationPlan) -> RequestedRun:
    return RequestedRun(
        plan=plan.metadata.name,
        policy=plan.spec.policy,
        mode=plan.spec.mode,
        phase=plan.phase,
        requested_by=plan.spec.requested_by,
        created=plan.metadata.creation_timestamp,
    )
