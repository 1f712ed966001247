"""Describes plans that are only made, and runs, as JSON documents for programs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from berth_core import (
    MoveStatus,
    Objective,
    PlannedMove,
    RoomSlot,
    RoomStatus,
    format_amount,
    format_duration,
    format_selector,
)
from berth_core.text import rounded
from berth_descheduler.framework.interfaces import PluginKind
from berth_descheduler.framework.refusals import Refused, RefusedKind
from berth_descheduler.outcome import Outcome
from berth_descheduler.planner import (
    DISRUPTION_WEIGHTS,
    Fragmentation,
    FragmentationChange,
    MoveWay,
    Plan,
    PlannerSettings,
    RoomMade,
)
from berth_descheduler.planner.weights import format_weight
from berth_descheduler.plugins import label_selectors
from berth_descheduler.report.schemas import (
    ClusterCapacity,
    Cost,
    FragmentationLowered,
    FurtherReason,
    MissingKind,
    MoveResult,
    PlanObjective,
    PlanProposal,
    PlanSlot,
    PriorityCost,
    ProposedMove,
    ProposedRoom,
    RefusedDocument,
    ResourceCapacity,
    ResumedPlan,
    RoomResult,
    RunDocument,
    ShapeGain,
    WantedRoom,
)
from berth_descheduler.report.summary import summarise_plan

ALL_IN_JSON: Final = "all of them with --output json"
"""What is said below a table that is cut."""


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


def describe_run(outcome: Outcome) -> RunDocument:
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
