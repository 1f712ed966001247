"""The JSON documents of plans, runs, policies and capacity.

Commands and REST share them. Every field of a document is always there, so that a reader needs no defaults: "" stands
for a text, [] for a list and {} for a map that has nothing in it, null for any other value that is not known. Owners,
conditions, triggers and arguments are as the API object has them. Amounts are quantities, ratios numbers from 0 to 1.
"""

from typing import Any

import msgspec

from berth_core import (
    Achieved,
    Condition,
    MoveMethod,
    MoveState,
    ObjectReference,
    PlanPhase,
    Predicted,
    RoomState,
    RunMode,
)
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.outcome import Verdict
from berth_descheduler.planner import Prover


class PlanObjective(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the planner was asked for."""

    plugin: str
    strategy: str
    args: dict[str, Any]


class ProposedMove(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that goes from its node to another one."""

    index: int
    """Its place in the plan, from 0."""
    namespace: str
    pod: str
    pod_uid: str = msgspec.field(name="podUID")
    owner: ObjectReference | None
    source: str
    target: str
    """"" if no node takes the pod, which is evicted without a place."""
    requests: dict[str, str]
    wave: int
    """From 1."""
    after: tuple[int, ...] | None
    """The moves, by `index`, that must be over before it begins; null: all of the waves before."""
    why: str
    """Why this single pod should run elsewhere: `spec.moves[].reason`."""
    method: MoveMethod | None
    """null: not known, or not asked for."""
    method_reason: str


class WantedRoom(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What room is made for."""

    name: str
    """A shape as it was written, or namespace and name of a pod or gang."""
    wanted: int | None
    """null: as many as the moves allow."""
    fitted: int


class ProposedRoom(WantedRoom, frozen=True, kw_only=True, rename="camel"):
    """What room is made for, and where."""

    slots_per_node: dict[str, int]
    fits_before: int
    """How many of it alone would fit."""
    fits_after: int
    stranded_ratio_before: dict[str, float]
    """Per resource, the share of what is free that it cannot use."""
    stranded_ratio_after: dict[str, float]


class FragmentationLowered(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What of a free resource a pod of the workload cannot use, on average, and the least that any plan leaves."""

    resource: str
    fragmented_before: str
    fragmented_after: str
    fragmented_ratio_before: float
    fragmented_ratio_after: float
    least_ratio: float | None


class MissingKind(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of objects that the snapshot lacks."""

    kind: str
    assumed: str


class PriorityCost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many of the moved pods have a priority."""

    priority: int
    pods: int


class Cost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a plan disturbs."""

    pods: int
    controllers: int
    priorities: tuple[PriorityCost, ...]
    disruption: int
    """The sum of the moved pods' weights: of equally good plans the search looks for the least."""
    weights: dict[str, int]
    """What each trait of a pod weighs."""


class ShapeGain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many pods of a shape fit before and after a plan."""

    requests: dict[str, str]
    fits_before: int
    fits_after: int


class FurtherReason(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Another reason for the same."""

    reason: str
    message: str


class RefusedDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node not emptied or a pod not moved, and why."""

    kind: RefusedKind
    node: str
    namespace: str
    pod: str
    reason: str
    message: str
    constraint: str
    resource: str
    blocking_pod: str
    """`namespace/name`."""
    also: tuple[FurtherReason, ...]


class ResourceCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much there is of a resource on all nodes, as quantities."""

    resource: str
    allocatable: str
    requested: str
    requested_ratio: float
    free: str
    largest_free: str
    """The largest free piece on one node."""


class ClusterCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How full the nodes are."""

    nodes: int
    empty_nodes: int
    pods: int
    resources: tuple[ResourceCapacity, ...]


class PlanProposal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan that was only made, with all known of it."""

    summary: str
    objective: PlanObjective
    settings: dict[str, Any]
    missing_kinds: tuple[MissingKind, ...]
    reached: int | None
    upper_bound: int | None
    gap: int | None
    proven_optimal: bool | None
    upper_bound_price_per_hour: str
    """With `nodePrice` no plan saves more money an hour: if `provenOptimal` is false, perhaps one that fills an empty
    node; "" without."""
    fewest_moves: int | None
    proven_fewest_moves: bool | None
    proven_by: Prover | None
    out_of_time: bool | None
    cost: Cost
    predicted: Predicted
    longest_chain: int
    """The most moves of which each has to wait for the one before."""
    moves: tuple[ProposedMove, ...]
    rooms: tuple[ProposedRoom, ...]
    fragmentation: FragmentationLowered | None
    """null: the strategy is not MinimizeFragmentation."""
    unpriced_nodes: tuple[str, ...]
    """Nodes of which `nodePrice` says no price that can be read; they count 0."""
    competing_pods: tuple[str, ...]
    """Pending pods that tolerate every taint, and may take the room."""
    shapes: tuple[ShapeGain, ...]
    before: ClusterCapacity
    after: ClusterCapacity
    refused: tuple[RefusedDocument, ...]
    kept_pods: tuple[RefusedDocument, ...] | None
    """Every pod that is not moved; null where that was not asked for."""


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
    planned_evictions: int
    """Pods that leave their node without a place elsewhere; they are not among the moves."""
    states: dict[MoveState, int]
    """How many moves are in each state; states that none is in are left out."""
    landed_on_target: int
    evictions: int
    """Pods that left their node without a place elsewhere, as planned."""
    freed_node_count: int


class PlanList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Plans, the newest first."""

    items: tuple[ListedPlan, ...]
    remaining: int
    """How many more there are that were asked for, beyond the limit."""
    go_on: str = msgspec.field(name="continue")
    """What the request for the next ones sends as `continue`; empty where there are no more."""


class PlanMove(ProposedMove, frozen=True, kw_only=True, rename="camel"):
    """One move with what became of it."""

    state: MoveState
    reason: str
    message: str
    reservation: str
    replacement: str
    node: str
    method: MoveMethod


class PlanSlot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A place on a node, with the pod that it is for."""

    node: str
    pod: str
    pod_uid: str = msgspec.field(name="podUID")


class RoomResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of a room."""

    name: str
    """Namespace and name of the pod or gang, or the shape as it was written."""
    state: RoomState
    reason: str
    message: str
    reservation: str
    taken: tuple[PlanSlot, ...]


class PlanRoom(RoomResult, frozen=True, kw_only=True, rename="camel"):
    """Room that a plan makes, with what became of it."""

    namespace: str
    gang: str
    requests: dict[str, str]
    selector: str
    capacity: str
    """WhenFree: no move makes the room; its Reservation waits until pods on the nodes have ended."""
    slots: tuple[PlanSlot, ...]


class PlanDocument(ListedPlan, frozen=True, kw_only=True, rename="camel"):
    """A plan with all its moves."""

    uid: str
    """Another one for a plan that is made anew under the same name."""
    version: str
    """Changes with the plan; the id of the last event up to here, and what an approval names."""
    objective: PlanObjective
    predicted: Predicted | None
    achieved: Achieved | None
    conditions: tuple[Condition, ...]
    moves: tuple[PlanMove, ...]
    rooms: tuple[PlanRoom, ...]


class MoveResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of a move."""

    namespace: str
    pod: str
    state: MoveState
    reason: str
    message: str
    reservation: str
    replacement: str
    node: str


class ResumedPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan of an interrupted run, or an earlier one of this run, that this run ended."""

    plan: str
    phase: PlanPhase
    message: str


class RunDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a run did."""

    plan: str
    phase: PlanPhase | None
    verdict: Verdict
    message: str
    predicted: Predicted | None
    """null: nothing was planned."""
    refused_count: int
    upper_bound: int | None
    proven_optimal: bool | None
    planned_rooms: tuple[WantedRoom, ...]
    achieved: Achieved | None
    """null: nothing was carried out."""
    not_landed: tuple[MoveResult, ...]
    rooms: tuple[RoomResult, ...]
    ping_pong_moves: int
    seconds: float
    seconds_by_step: dict[str, float]
    resumed: tuple[ResumedPlan, ...]
    replanned: tuple[ResumedPlan, ...]
