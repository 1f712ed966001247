"""The JSON documents of plans, runs, policies and capacity.

Commands and REST share them. Every field of a document is always there, so that a reader needs no defaults: "" stands
for a text, [] for a list and {} for a map that has nothing in it, null for any other value that is not known. Owners,
conditions, triggers and arguments are as the API object has them. Amounts are quantities, ratios numbers from 0 to 1.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from berth_core import (
    Achieved,
    Condition,
    MoveMethod,
    MoveState,
    MoveStatus,
    Objective,
    ObjectReference,
    PlannedMove,
    PlanPhase,
    Predicted,
    RoomSlot,
    RoomState,
    RoomStatus,
    RunMode,
    format_amount,
    format_duration,
    format_selector,
)
from berth_core.text import rounded
from berth_descheduler.framework.interfaces import PluginKind
from berth_descheduler.framework.refusals import Refused, RefusedKind
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import (
    DISRUPTION_WEIGHTS,
    Fragmentation,
    FragmentationChange,
    MoveWay,
    Plan,
    PlannerSettings,
    Prover,
    RoomMade,
)
from berth_descheduler.planner.weights import format_weight
from berth_descheduler.plugins import label_selectors
from berth_descheduler.report.summary import summarise_plan

ALL_IN_JSON: Final = "all of them with --output json"
"""What is said below a table that is cut."""


# --- the documents: plans that are only made --------------------------------------------------------------------------


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


# --- the documents: plans in the cluster ------------------------------------------------------------------------------


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


# --- the documents: runs, policies, capacity --------------------------------------------------------------------------


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


# --- plans that are only made -----------------------------------------------------------------------------------------


def describe_plan(plan: Plan, kept_pods: Sequence[Refused] | None = None) -> PlanProposal:
    """Return a plan that was only made, always the same."""
    quality = plan.quality
    known_quality = None if quality is None or quality.is_snapshot_incomplete else quality
    move_ways = plan.ways or [MoveWay()] * len(plan.moves)
    return PlanProposal(
        summary=summarise_plan(plan),
        objective=describe_objective(plan.objective),
        settings=describe_settings(plan.settings),
        missing_kinds=tuple(MissingKind(kind=kind.value, assumed=kind.assumed) for kind in plan.missing_kinds),
        reached=quality.reached if quality else None,
        upper_bound=known_quality.upper_bound if known_quality else None,
        gap=known_quality.gap if known_quality else None,
        proven_optimal=quality.proven_optimal if quality else None,
        upper_bound_price_per_hour=format_weight(known_quality.weight.upper_bound)
        if known_quality and known_quality.weight
        else "",
        fewest_moves=known_quality.fewest_moves if known_quality else None,
        proven_fewest_moves=quality.proven_fewest_moves if quality else None,
        proven_by=known_quality.prover if known_quality else None,
        out_of_time=quality.out_of_time if quality else None,
        cost=Cost(
            pods=plan.cost.pods,
            controllers=plan.cost.controllers,
            priorities=tuple(PriorityCost(priority=priority, pods=pods) for priority, pods in plan.cost.priorities),
            disruption=plan.cost.disruption,
            weights=dict(DISRUPTION_WEIGHTS),
        ),
        predicted=plan.predicted,
        longest_chain=plan.longest_chain,
        moves=tuple(map(_describe_proposed_move, range(len(plan.moves)), plan.moves, move_ways)),
        rooms=tuple(map(_describe_room_made, plan.room)),
        fragmentation=None if plan.fragmentation is None else _describe_lowered(plan, plan.fragmentation),
        unpriced_nodes=plan.weights.unknown if plan.weights else (),
        competing_pods=plan.competing_pods,
        shapes=tuple(
            ShapeGain(
                requests=shape.to_quantities(), fits_before=plan.before.fits(shape), fits_after=plan.after.fits(shape)
            )
            for shape in plan.before.usual_shapes
        ),
        before=_describe_fragmentation(plan.before),
        after=_describe_fragmentation(plan.after),
        refused=tuple(map(_describe_refused, plan.refused)),
        kept_pods=None if kept_pods is None else tuple(map(_describe_refused, kept_pods)),
    )


def describe_settings(settings: PlannerSettings) -> dict[str, Any]:
    """Return what a plan was asked for, by names in policies."""
    return {
        **settings.plugins.balance.plugin.objective.args,
        **_describe_plugins(settings),
        "maxMoves": settings.limits.max_moves,
        "maxMovesPerNode": settings.limits.max_moves_per_node,
        "maxMovesPerNamespace": settings.limits.max_moves_per_namespace,
        "maxGracePeriod": format_duration(settings.limits.max_grace),
        "perController": settings.limits.waves.per_controller,
        "perWave": settings.limits.waves.per_wave,
        "controlPlaneNodes": settings.scope.control_plane_nodes,
        "exact": settings.search.exact,
        "seed": settings.search.seed,
    }


def _describe_plugins(settings: PlannerSettings) -> dict[str, Any]:
    plugins, selectors = settings.plugins, settings.node_selectors
    balance = plugins.balance.name
    return {
        "nodeSelector": ",".join(format_selector(selector) for selector in selectors),
        "labelSelector": ",".join(format_selector(selector) for selector in label_selectors(plugins)),
        "plugins": {
            PluginKind.DESCHEDULE.value: [plugin.name for plugin in plugins.deschedule],
            PluginKind.BALANCE.value: [balance] if balance else [],
            PluginKind.FILTER.value: [plugin.name for plugin in plugins.filters],
            PluginKind.PRE_EVICTION_FILTER.value: [plugin.name for plugin in plugins.pre_eviction_filters],
        },
    }


def describe_objective(objective: Objective) -> PlanObjective:
    return PlanObjective(plugin=objective.plugin, strategy=objective.strategy, args=objective.args)


def move_fields(index: int, move: PlannedMove) -> dict[str, Any]:
    names = ("namespace", "pod", "pod_uid", "owner", "source", "target", "requests", "wave", "after")
    return {"index": index, **{field: getattr(move, field) for field in names}, "why": move.reason}


def _describe_proposed_move(index: int, move: PlannedMove, way: MoveWay) -> ProposedMove:
    return ProposedMove(**move_fields(index, move), method=way.method, method_reason=way.reason)


def _describe_lowered(plan: Plan, change: FragmentationChange) -> FragmentationLowered:
    least_fragmented, resource = plan.least_fragmented, change.resource
    return FragmentationLowered(
        resource=resource,
        fragmented_before=format_amount(resource, round(change.fragmented_before)),
        fragmented_after=format_amount(resource, round(change.fragmented_after)),
        fragmented_ratio_before=rounded(change.share_before),
        fragmented_ratio_after=rounded(change.share_after),
        least_ratio=None if least_fragmented is None else rounded(least_fragmented),
    )


def _describe_room_made(room: RoomMade) -> ProposedRoom:
    return ProposedRoom(
        name=room.name,
        wanted=room.wanted,
        fitted=room.fitted,
        slots_per_node=dict(sorted(Counter(room.nodes).items())),
        fits_before=room.fits_before,
        fits_after=room.fits_after,
        stranded_ratio_before={resource: rounded(share) for resource, share in room.unused_before},
        stranded_ratio_after={resource: rounded(share) for resource, share in room.unused_after},
    )


def _describe_fragmentation(fragmentation: Fragmentation) -> ClusterCapacity:
    return ClusterCapacity(
        nodes=len(fragmentation.nodes),
        empty_nodes=len(fragmentation.empty_nodes),
        pods=sum(node.pods for node in fragmentation.nodes),
        resources=tuple(_describe_resource(fragmentation, resource) for resource in fragmentation.resources),
    )


def _describe_resource(fragmentation: Fragmentation, name: str) -> ResourceCapacity:
    return ResourceCapacity(
        resource=name,
        allocatable=format_amount(name, fragmentation.allocatable.get(name)),
        requested=format_amount(name, fragmentation.requested.get(name)),
        requested_ratio=rounded(fragmentation.utilisation(name)),
        free=format_amount(name, fragmentation.free(name)),
        largest_free=format_amount(name, max(0, fragmentation.largest_free(name))),
    )


def _describe_refused(refused: Refused) -> RefusedDocument:
    return RefusedDocument(
        kind=refused.kind,
        node=refused.node,
        namespace=refused.namespace,
        pod=refused.name if refused.kind is RefusedKind.POD else "",
        reason=refused.reason.value,
        message=refused.message,
        constraint=str(refused.constraint),
        resource=refused.resource,
        blocking_pod=refused.blocking_pod,
        also=tuple(FurtherReason(reason=refusal.reason.value, message=refusal.message) for refusal in refused.also),
    )


# --- runs -------------------------------------------------------------------------------------------------------------


def describe_run(outcome: Outcome) -> RunDocument:
    """Return what a run did."""
    outcome_of_plan, forecast = outcome.plan, outcome.forecast
    missed_moves = (
        [status for status in outcome_of_plan.statuses if not status.state.succeeded] if outcome_of_plan else []
    )
    return RunDocument(
        plan=outcome_of_plan.plan if outcome_of_plan else outcome.published,
        phase=outcome_of_plan.phase if outcome_of_plan else None,
        verdict=outcome.verdict,
        message=outcome.sentence,
        predicted=forecast.predicted,
        refused_count=forecast.refused,
        upper_bound=forecast.upper_bound,
        proven_optimal=forecast.proven_optimal,
        planned_rooms=tuple(
            WantedRoom(name=room.name, wanted=room.wanted, fitted=room.fitted) for room in forecast.room
        ),
        achieved=outcome_of_plan.achieved if outcome_of_plan else None,
        not_landed=tuple(
            MoveResult(namespace=status.namespace, pod=status.pod, **result_fields(status)) for status in missed_moves
        ),
        rooms=tuple(RoomResult(**room_result_fields(status)) for status in outcome_of_plan.rooms)
        if outcome_of_plan
        else (),
        ping_pong_moves=outcome_of_plan.ping_pong if outcome_of_plan else 0,
        seconds=round(outcome.seconds, 3),
        seconds_by_step={step: round(seconds, 3) for step, seconds in outcome.phases.items()},
        resumed=tuple(
            ResumedPlan(plan=plan_outcome.plan, phase=plan_outcome.phase, message=plan_outcome.sentence)
            for plan_outcome in outcome.adopted
        ),
        replanned=tuple(
            ResumedPlan(plan=plan_outcome.plan, phase=plan_outcome.phase, message=plan_outcome.sentence)
            for plan_outcome in outcome.replanned
        ),
    )


def result_fields(status: MoveStatus) -> dict[str, Any]:
    return {
        field: getattr(status, field) for field in ("state", "reason", "message", "reservation", "replacement", "node")
    }


def room_result_fields(status: RoomStatus) -> dict[str, Any]:
    names = ("name", "state", "reason", "message", "reservation")
    return {**{field: getattr(status, field) for field in names}, "taken": tuple(map(describe_slot, status.taken))}


def describe_slot(slot: RoomSlot) -> PlanSlot:
    return PlanSlot(node=slot.node, pod=slot.pod, pod_uid=slot.pod_uid)
