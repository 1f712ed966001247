"""Documents of the HTTP interface only; commands share the others (`report.schemas`)."""

from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from berth_core import Achieved, MigrationPlan, PlanPhase, RunMode
from berth_descheduler.doctor import FindingList
from berth_descheduler.report import (
    Capacity,
    CapacityPoints,
    HeldCapacityList,
    NodeList,
    PlanDocument,
    PlanList,
    PlanMove,
    PlanRoom,
    PolicyList,
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


LONGEST_NAME: Final = 253
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

DryRun: TypeAlias = Annotated[
    bool, Field(alias="dryRun", description="Publish the plan and never carry it out, whatever the mode.")
]


class RunRequest(BaseModel):
    """A request for a run."""

    model_config = ConfigDict(strict=True, extra="forbid", title="RunRequest")

    policy: Annotated[str, Field(max_length=LONGEST_NAME, pattern=NAME_PATTERN, description="The policy to run.")]
    mode: Annotated[
        Literal["Plan", "Approve", "Auto"] | None,
        Field(
            description="How far the run goes. Plan: the plan is published and nothing is touched. Approve: it waits "
            "for approval. Auto: it is carried out, which needs the right to approve. Default: the policy's."
        ),
    ] = None
    dry_run: DryRun = False


class ApprovalRequest(BaseModel):
    """Which plan is approved: the one that was looked at."""

    model_config = ConfigDict(strict=True, extra="forbid", title="ApprovalRequest")

    version: Annotated[
        str,
        Field(max_length=100, description="The `version` of the plan that was looked at; it is approved unchanged."),
    ] = ""
    uid: Annotated[
        str,
        Field(
            max_length=100,
            description="The `uid` of the plan that was looked at, whose moves never change; its status may have.",
        ),
    ] = ""


DOCUMENTS: Final = (
    PlanList,
    PlanDocument,
    PlanChange,
    PlanMove,
    StreamedEvent,
    RequestedRun,
    PolicyList,
    Capacity,
    CapacityPoints,
    NodeList,
    HeldCapacityList,
    FindingList,
)


def describe_change(plan: MigrationPlan) -> PlanChange:
    """Return the plan as a whole; `achieved` once it is over."""
    return PlanChange(
        phase=plan.phase,
        message=plan.status.message,
        approved=plan.spec.approved,
        aborted=plan.is_aborted,
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
