"""What is asked and answered about drains."""

from typing import Annotated, Final, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from berth_core import MigrationPlan, PlanPhase, RunMode
from berth_descheduler.api.schemas import LONGEST_NAME, NAME_PATTERN, DryRun
from berth_descheduler.capabilities.drain.plugin import NodeDrain

MOST_NODES: Final = 100
MOST_OWNER_KINDS: Final = 100
LONGEST_OWNER_KIND: Final = 317
"""A kind has at most 63 characters, a group as many as a name."""
OWNER_KIND_PATTERN: Final = r"^(\*|[A-Z][A-Za-z0-9]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+)$"


class RequestedDrain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A requested drain, as the plan that it fills."""

    plan: str
    nodes: tuple[str, ...]
    mode: RunMode | None
    phase: PlanPhase
    requested_by: str
    created: str | None


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
    dry_run: DryRun = False
    skip_refused: Annotated[
        bool, Field(alias="skipRefused", description="Move the other pods if some cannot go; those stay.")
    ] = False
    delete_emptydir_data: Annotated[
        bool,
        Field(
            alias="deleteEmptyDirData",
            description="Move pods with emptyDir or hostPath volumes, too; their data there is lost.",
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


def describe_drain(plan: MigrationPlan) -> RequestedDrain:
    return RequestedDrain(
        plan=plan.metadata.name,
        nodes=tuple(plan.spec.objective.args["nodes"]),
        mode=plan.spec.mode,
        phase=plan.phase,
        requested_by=plan.spec.requested_by,
        created=plan.metadata.creation_timestamp,
    )
