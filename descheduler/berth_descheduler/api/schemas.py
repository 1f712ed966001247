"""Documents of the HTTP interface only; commands share the others (`report.documents`)."""

from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from berth_core import Achieved, MigrationPlan, PlanPhase, RunMode
from berth_descheduler.plugins import NodeDrain
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


class RequestedDrain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A requested drain, as the plan that it fills."""

    plan: str
    nodes: tuple[str, ...]
    mode: RunMode | None
    phase: PlanPhase
    requested_by: str
    created: str | None


# --- requests --------------------------------------------------------------------------------------------------------

MOST_NODES: Final = 100
LONGEST_NAME: Final = 253
MOST_OWNER_KINDS: Final = 100
LONGEST_OWNER_KIND: Final = 317
"""A kind has at most 63 characters, a group as many as a name."""
OWNER_KIND_PATTERN: Final = r"^(\*|[A-Z][A-Za-z0-9]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+)$"
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

_DryRun: TypeAlias = Annotated[
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
    dry_run: _DryRun = False


class DrainRequest(BaseModel):
    """A request for a drain of nodes."""

    model_config = ConfigDict(strict=True, extra="forbid", title="DrainRequest")

    nodes: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_NAME, pattern=NAME_PATTERN)]],
        Field(
            min_length=1,
            max_length=MOST_NODES,
            description="The nodes, each once; cordon them first.",
            json_schema_extra={"uniqueItems": True},
        ),
    ]
    mode: Annotated[
        Literal["Plan", "Approve", "Auto"],
        Field(
            description="How far the drain goes. Plan: the plan is published and nothing is touched. Approve: it waits "
            "for approval. Auto: it is carried out, which needs the right to approve."
        ),
    ] = "Auto"
    dry_run: _DryRun = False
    skip_refused: Annotated[
        bool, Field(alias="skipRefused", description="Move the others where some pods cannot go; those stay.")
    ] = False
    delete_emptydir_data: Annotated[
        bool,
        Field(
            alias="deleteEmptyDirData",
            description="Move pods with emptyDir or hostPath volumes, too; what they have there is lost.",
        ),
    ] = False

    harmless_owners: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_OWNER_KIND, pattern=OWNER_KIND_PATTERN)]],
        Field(
            alias="harmlessOwners",
            max_length=MOST_OWNER_KINDS,
            description="Kinds with their API group, as Etcd.example.com, that may own the controllers of pods that "
            "move; * for every kind.",
        ),
    ] = []

    @property
    def run_mode(self) -> RunMode:
        """Return how far the drain goes in the end."""
        return RunMode.PLAN if self.dry_run else RunMode(self.mode)

    @property
    def drain(self) -> NodeDrain:
        """Return what the planner is asked for."""
        nodes = frozenset(self.nodes)
        return NodeDrain(
            nodes=nodes,
            delete_empty_dirs=self.delete_emptydir_data,
            skip_refused=self.skip_refused,
            harmless_owners=frozenset(self.harmless_owners),
        )


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


# --- answers ---------------------------------------------------------------------------------------------------------

DOCUMENTS: Final = (
    PlanList,
    PlanDocument,
    PlanChange,
    PlanMove,
    StreamedEvent,
    RequestedRun,
    RequestedDrain,
    PolicyList,
    Capacity,
    CapacityPoints,
    NodeList,
    QueueList,
    HeldCapacityList,
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


def describe_drain(plan: MigrationPlan) -> RequestedDrain:
    return RequestedDrain(
        plan=plan.metadata.name,
        nodes=tuple(plan.spec.objective.args["nodes"]),
        mode=plan.spec.mode,
        phase=plan.phase,
        requested_by=plan.spec.requested_by,
        created=plan.metadata.creation_timestamp,
    )
