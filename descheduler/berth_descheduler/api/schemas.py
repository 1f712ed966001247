"""Owns what is answered when all is well: the documents, from which the description's schemas are made, too.

It does not own the objects behind them, nor problems (`problems`).
"""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from berth_core.clock import format_timestamp
from berth_core.migration_plans import (
    Achieved,
    MigrationPlan,
    MigrationPlanSpec,
    MoveState,
    MoveStatus,
    PlannedMove,
    PlanPhase,
    Predicted,
    RunMode,
    fails_unread,
)
from berth_core.objects import ObjectMeta
from berth_core.policies import VALID, DeschedulerPolicy, FragmentationStatus, Trigger
from berth_core.reservations import Condition, ObjectReference
from berth_descheduler.planner.stranded_capacity import CapacityReport
from berth_descheduler.report.capacity import describe_capacity

_UNDERSCORE: Final = re.compile("_([a-z])")
_FREE_MAPS: Final = frozenset({"amounts"})
"""Keys below which keys are names of resources."""


class ListedPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan in a list, without its moves."""

    name: str
    created: str | None
    policy: str
    trigger: str
    mode: RunMode | None
    """null: of `berth run`, which carries it out itself."""
    requested_by: str
    approved: bool
    approved_by: str
    """Who approved it over HTTP; empty where it was done otherwise."""
    approve_before: str | None
    aborted: bool
    aborted_by: str
    """Who had it aborted over HTTP; empty where it was done otherwise."""
    phase: PlanPhase
    message: str
    start_time: str | None
    completion_time: str | None
    planned_moves: int
    landed_on_target: int
    freed_nodes: int


class PlanList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Plans, the newest first."""

    items: tuple[ListedPlan, ...]
    remaining: int
    """How many more there are that were asked for, beyond the limit."""


class PlanMove(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One move with what became of it."""

    index: int
    """Its place in the plan, from 0."""
    namespace: str
    pod: str
    pod_uid: str = msgspec.field(name="podUID")
    owner: ObjectReference | None
    source: str
    target: str
    requests: dict[str, str]
    wave: int
    state: MoveState
    reason: str
    message: str
    reservation: str
    replacement: str
    node: str


class PlanObjective(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the planner was asked for."""

    plugin: str
    strategy: str
    args: dict[str, Any]


class PlanDocument(ListedPlan, frozen=True, kw_only=True, rename="camel"):
    """A plan with all its moves."""

    version: str
    """Changes with the plan; the id of the last event up to here."""
    objective: PlanObjective
    predicted: Predicted | None
    achieved: Achieved | None
    conditions: tuple[Condition, ...]
    moves: tuple[PlanMove, ...]


class PlanChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a plan is as a whole: the data of a `phase` event."""

    phase: PlanPhase
    message: str
    approved: bool
    aborted: bool
    achieved: Achieved | None


class EventKind(StrEnum):
    """What an event of a stream tells."""

    PLAN = "plan"
    """The whole plan: first of all, when its moves are filled in, and where what was missed is not known any more."""
    PHASE = "phase"
    """How far the plan is as a whole has changed."""
    MOVE = "move"
    """A move has changed."""
    DELETED = "deleted"
    """The plan was deleted, which aborts it; the last event."""
    PROBLEM = "problem"
    """The stream ends because of something else; data is a problem document."""


class StreamedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream; data is JSON: a PlanDocument, PlanChange, PlanMove or Problem, by the kind of event."""

    event: EventKind
    data: str
    id: str = ""


class RequestedRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run that was asked for, as the plan that it fills."""

    plan: str
    policy: str
    mode: RunMode | None
    phase: PlanPhase
    requested_by: str
    created: str | None


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy: when it runs, how far it goes by itself, and what became of its last run."""

    name: str
    mode: RunMode
    suspend: bool
    trigger: Trigger
    node_selector: str
    valid: bool | None
    """null while the service has not looked at it."""
    invalid_because: str
    warnings: tuple[str, ...]
    last_run_time: str | None
    last_verdict: str
    last_outcome: str
    last_plan: str
    next_run_time: str | None
    fragmentation: FragmentationStatus | None
    conditions: tuple[Condition, ...]


class PolicyList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All policies by name."""

    items: tuple[PolicyDocument, ...]


class ResourceCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much there is of a resource on all nodes, as quantities."""

    resource: str
    allocatable: str
    requested: str
    requested_ratio: float
    free: str
    largest_free: str
    """The largest free piece on one node."""


class ShapeResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of a resource is free, and how much of that a shape cannot use."""

    resource: str
    free: str
    stranded: str
    stranded_ratio: float


class Stranded(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is free on some nodes and of no use to a shape, all for one reason."""

    reason: str
    resource: str | None
    nodes: int
    amounts: dict[str, str]
    example: str
    message: str


class ShapeCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many pods of a shape still fit, each on one node."""

    shape: str
    asked_by: str
    fits: int
    nodes_with_room: int
    absent_resources: tuple[str, ...] = ()
    resources: tuple[ShapeResource, ...]
    stranded_by: tuple[Stranded, ...]


class Capacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fragmented the cluster is."""

    measured_at: str
    nodes: int
    empty_nodes: int
    pods: int
    resources: tuple[ResourceCapacity, ...]
    shapes: tuple[ShapeCapacity, ...]


DOCUMENTS: Final = (PlanList, PlanDocument, PlanChange, PlanMove, StreamedEvent, RequestedRun, PolicyList, Capacity)


# --- plans ------------------------------------------------------------------------------------------------------------


class _PlanHeadStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    phase: PlanPhase | None = None
    message: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    achieved: Achieved | None = None


class _PlanHeadSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    policy: str = ""
    trigger: str = "Manual"
    mode: RunMode | None = None
    requested_by: str = ""
    approved: bool = False
    approved_by: str = ""
    approve_before: str | None = None
    aborted: bool = False
    aborted_by: str = ""
    predicted: Predicted | None = None


class PlanHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What of a plan is read for a list: its moves are by far the most of it."""

    metadata: ObjectMeta
    spec: _PlanHeadSpec = _PlanHeadSpec()
    status: _PlanHeadStatus = _PlanHeadStatus()

    @property
    def phase(self) -> PlanPhase:
        """Return the phase, as `MigrationPlan.phase` does; moves never come without a prediction."""
        if fails_unread(self.metadata, self.status.phase):
            return PlanPhase.FAILED
        if self.status.phase is not None:
            return self.status.phase
        asked_for = self.spec.mode is not None and self.spec.predicted is None
        return PlanPhase.REQUESTED if asked_for else PlanPhase.PROPOSED


def list_plan(plan: PlanHead | MigrationPlan) -> ListedPlan:
    """Return a plan as it stands in a list."""
    return ListedPlan(**_head(plan))


def describe_plan(plan: MigrationPlan) -> PlanDocument:
    """Return a plan with all its moves."""
    objective = plan.spec.objective
    return PlanDocument(
        **_head(plan),
        version=plan.metadata.resource_version,
        objective=PlanObjective(plugin=objective.plugin, strategy=objective.strategy, args=objective.args),
        predicted=plan.spec.predicted,
        achieved=plan.status.achieved,
        conditions=plan.status.conditions,
        moves=describe_moves(plan),
    )


def describe_moves(plan: MigrationPlan) -> tuple[PlanMove, ...]:
    """Return the moves with their states; one that has none yet is Pending."""
    states = plan.status.moves
    return tuple(
        _describe_move(index, move, states[index] if index < len(states) else None)
        for index, move in enumerate(plan.spec.moves)
    )


def describe_change(plan: MigrationPlan) -> PlanChange:
    """Return how far a plan is as a whole; what it brought once it is over."""
    return PlanChange(
        phase=plan.phase,
        message=plan.status.message,
        approved=plan.spec.approved,
        aborted=plan.spec.aborted,
        achieved=plan.status.achieved if plan.phase.terminal else None,
    )


def describe_run(plan: MigrationPlan) -> RequestedRun:
    """Return a run that was asked for."""
    return RequestedRun(
        plan=plan.metadata.name,
        policy=plan.spec.policy,
        mode=plan.spec.mode,
        phase=plan.phase,
        requested_by=plan.spec.requested_by,
        created=plan.metadata.creation_timestamp,
    )


def _head(plan: PlanHead | MigrationPlan) -> dict[str, Any]:
    spec: _PlanHeadSpec | MigrationPlanSpec = plan.spec
    achieved = plan.status.achieved
    return {
        "name": plan.metadata.name,
        "created": plan.metadata.creation_timestamp,
        "policy": spec.policy,
        "trigger": spec.trigger,
        "mode": spec.mode,
        "requested_by": spec.requested_by,
        "approved": spec.approved,
        "approved_by": spec.approved_by,
        "approve_before": spec.approve_before,
        "aborted": spec.aborted,
        "aborted_by": spec.aborted_by,
        "phase": plan.phase,
        "message": plan.status.message,
        "start_time": plan.status.start_time,
        "completion_time": plan.status.completion_time,
        "planned_moves": spec.predicted.moves if spec.predicted else 0,
        "landed_on_target": achieved.landed_on_target if achieved else 0,
        "freed_nodes": len(achieved.freed_nodes) if achieved else 0,
    }


def _describe_move(index: int, move: PlannedMove, status: MoveStatus | None) -> PlanMove:
    status = status or MoveStatus(namespace=move.namespace, pod=move.pod)
    return PlanMove(
        index=index,
        namespace=move.namespace,
        pod=move.pod,
        pod_uid=move.pod_uid,
        owner=move.owner,
        source=move.source,
        target=move.target,
        requests=move.requests,
        wave=move.wave,
        state=status.state,
        reason=status.reason,
        message=status.message,
        reservation=status.reservation,
        replacement=status.replacement,
        node=status.node,
    )


# --- policies and capacity --------------------------------------------------------------------------------------------


def describe_policy(policy: DeschedulerPolicy) -> PolicyDocument:
    """Return a policy with its status."""
    spec, status = policy.spec, policy.status
    valid = policy.condition(VALID)
    return PolicyDocument(
        name=policy.metadata.name,
        mode=spec.mode,
        suspend=spec.suspend,
        trigger=spec.trigger,
        node_selector=spec.node_selector,
        valid=None if valid is None else valid.status == "True",
        invalid_because=valid.message if valid is not None and valid.status == "False" else "",
        warnings=status.warnings,
        last_run_time=status.last_run_time,
        last_verdict=status.last_verdict,
        last_outcome=status.last_outcome,
        last_plan=status.last_plan,
        next_run_time=status.next_run_time,
        fragmentation=status.fragmentation,
        conditions=status.conditions,
    )


def describe_measured(report: CapacityReport, at: datetime) -> Capacity:
    """Return how fragmented a cluster was at a time, in the words of `berth fragmentation`."""
    described = {**describe_capacity(report), "measured_at": format_timestamp(at)}
    return msgspec.convert(_in_camel(described), Capacity)


def _in_camel(value: object) -> Any:  # noqa: ANN401 - any builtins
    match value:
        case Mapping():
            return {
                _UNDERSCORE.sub(lambda found: found[1].upper(), key): one if key in _FREE_MAPS else _in_camel(one)
                for key, one in value.items()
            }
        case list() | tuple():
            return [_in_camel(one) for one in value]
        case _:
            return value
