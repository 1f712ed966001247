"""Owns a plan in JSON, the same bytes for the same plan, and in a sentence.

It does not own what is in it, which is the planner's, nor the tables for people (`plan_tables`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from berth_core.clock import format_duration
from berth_core.migration_plans import PlannedMove
from berth_core.resources import CPU, MEMORY, format_amount
from berth_core.selectors import format_selector
from berth_descheduler.cli.output import to_json
from berth_descheduler.framework.interfaces import PluginKind
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused, RefusedKind
from berth_descheduler.planner import Fragmentation, NodeUsage, Plan, PlannerSettings
from berth_descheduler.plugins.default_evictor import label_selectors
from berth_descheduler.plugins.defragmentation import Goal, goal_of
from berth_descheduler.report.summary import (
    describe_cost,
    describe_missing,
    describe_quality,
    describe_room,
    describe_shapes,
    usual_shapes,
)
from berth_descheduler.text import count

_DECIMALS: Final = 4
_NO_TARGETS: Final = (
    "All nodes are control-plane nodes, where no place is held unless --control-plane-nodes is set, for the planner "
    "and for the operator."
)


def plan_to_json(plan: Plan, staying: Sequence[Refused] | None = None) -> str:
    """Return a plan as JSON text, with the pods that stay if they are given; the same plan gives the same bytes."""
    return to_json(describe_plan(plan, staying))


def describe_plan(plan: Plan, staying: Sequence[Refused] | None = None) -> dict[str, Any]:
    """Return a plan in builtins, in a fixed order, with the pods that stay if they are given."""
    described = {
        "strategy": plan.objective.strategy,
        "settings": describe_settings(plan.settings),
        "summary": summarise_plan(plan),
        "missing_kinds": describe_missing(plan),
        **describe_quality(plan),
        "cost": describe_cost(plan),
        "waves": plan.waves,
        "moves": [_describe_move(move) for move in plan.moves],
        "freed_nodes": list(plan.freed_nodes),
        "room": [describe_room(room) for room in plan.room],
        "may_take_the_room": list(plan.competing_pods),
        "shapes": describe_shapes(plan),
        "before": _describe_fragmentation(plan.before),
        "after": _describe_fragmentation(plan.after),
        "refused": [_describe_refused(refused) for refused in plan.refused],
    }
    if staying is not None:
        described["staying_pods"] = [_describe_refused(refused) for refused in staying]
    return described


def summarise_plan(plan: Plan) -> str:
    """Return what a plan does, in a sentence, and in another why there is no target at all."""
    return f"{_what_it_does(plan)} {_NO_TARGETS}" if plan.control_plane_only else _what_it_does(plan)


def _what_it_does(plan: Plan) -> str:
    match goal_of(plan.objective):
        case Goal.MOVE_PODS:
            return _summarise_single(plan)
        case Goal.MAKE_ROOM:
            return _summarise_room(plan)
        case Goal.FREE_NODES:
            return _summarise_freed(plan)


def _summarise_freed(plan: Plan) -> str:
    """Return which nodes a plan frees, in a sentence."""
    nodes = len(plan.before.nodes)
    single = _moves_single_pods(plan)
    if not plan.moves:
        limit = plan.settings.max_moves
        within = "" if limit is None else f" within {count(limit, 'move')}"
        what = f"no pod of the {nodes} nodes can be moved" if single else f"none of the {nodes} nodes can be emptied"
        return f"Nothing to move: {what} by these rules{within}."
    moves, waves = count(len(plan.moves), "move"), count(plan.waves, "wave")
    freed = f"{len(plan.freed_nodes)} of {count(nodes, 'node')}"
    number = len(plan.after.empty_nodes)
    empty = f"{number} {'is' if number == 1 else 'are'} empty then"
    if single:
        sources = count(len({move.source for move in plan.moves}), "node")
        return f"{moves} in {waves} take single pods off {sources} and free {freed}; {empty}."
    alone = sum(move.stands_alone for move in plan.moves)
    named = f" {alone} of the moves {'is' if alone == 1 else 'are'} for pods that plugins name." if alone else ""
    return f"{moves} in {waves} free {freed}; {empty}.{named}"


def _moves_single_pods(plan: Plan) -> bool:
    """Return whether pods are moved off nodes that need not become empty."""
    return plan.objective.args.get("wholeNodes") is False


def _summarise_single(plan: Plan) -> str:
    """Return what becomes of the pods that plugins name, in a sentence."""
    stay = sum(one.kind is RefusedKind.POD for one in plan.refused)
    staying = f" {count(stay, 'pod')} {'stays' if stay == 1 else 'stay'} that could not be moved." if stay else ""
    if not plan.moves:
        return f"Nothing to move: {plan.objective.plugin} {'could move no pod' if stay else 'names no pod'}.{staying}"
    moves, waves = count(len(plan.moves), "move"), count(plan.waves, "wave")
    return f"{moves} in {waves} for pods that {plan.objective.plugin} names.{staying}"


def _summarise_room(plan: Plan) -> str:
    """Return what a plan makes room for, in a sentence."""
    if not plan.room:
        return "Nothing waits for room."
    fitted, wanted = sum(room.fitted for room in plan.room), [room.wanted for room in plan.room]
    what = plan.room[0].name if len(plan.room) == 1 else count(len(plan.room), "kind") + " of pods"
    of = "" if None in wanted else f" of {sum(count or 0 for count in wanted)}"
    if not plan.moves:
        return f"Nothing to move: {fitted}{of} fit as it is ({what})."
    waves = count(plan.waves, "wave")
    return f"{count(len(plan.moves), 'move')} in {waves} make room: {fitted}{of} fit then ({what})."


def describe_settings(settings: PlannerSettings) -> dict[str, Any]:
    """Return what a plan was asked for, by the names of a policy."""
    return {
        **settings.plugins.balance.plugin.objective.args,
        **_describe_plugins(settings),
        "maxMoves": settings.max_moves,
        "maxMovesPerNode": settings.max_moves_per_node,
        "maxMovesPerNamespace": settings.max_moves_per_namespace,
        "maxGracePeriod": format_duration(settings.max_grace),
        "perController": settings.waves.per_controller,
        "perWave": settings.waves.per_wave,
        "controlPlaneNodes": settings.control_plane_nodes,
        "exact": settings.exact,
        "seed": settings.seed,
    }


def _describe_plugins(settings: PlannerSettings) -> dict[str, Any]:
    """Return which nodes and which plugins a plan is made with."""
    plugins, selectors = settings.plugins, settings.node_selectors
    balance = plugins.balance.name
    return {
        "nodeSelector": ",".join(format_selector(one) for one in selectors),
        "labelSelector": ",".join(format_selector(one) for one in label_selectors(plugins)),
        "plugins": {
            PluginKind.DESCHEDULE.value: [one.name for one in plugins.deschedule],
            PluginKind.BALANCE.value: [balance] if balance else [],
            PluginKind.FILTER.value: [one.name for one in plugins.filters],
            PluginKind.PRE_EVICTION_FILTER.value: [one.name for one in plugins.pre_eviction_filters],
        },
    }


def _describe_move(move: PlannedMove) -> dict[str, Any]:
    return {
        "namespace": move.namespace,
        "pod": move.pod,
        "podUID": move.pod_uid,
        "source": move.source,
        "target": move.target,
        "wave": move.wave,
        "requests": move.requests,
        "owner": msgspec.to_builtins(move.owner),
        **({"reason": move.reason} if move.reason else {}),
    }


def _describe_fragmentation(fragmentation: Fragmentation) -> dict[str, Any]:
    return {
        "nodes": len(fragmentation.nodes),
        "empty_nodes": len(fragmentation.empty_nodes),
        "pods": sum(node.pods for node in fragmentation.nodes),
        "resources": {name: _describe_resource(fragmentation, name) for name in fragmentation.resources},
    }


def _describe_resource(fragmentation: Fragmentation, name: str) -> dict[str, Any]:
    return {
        "allocatable": format_amount(name, fragmentation.allocatable.get(name)),
        "requested": format_amount(name, fragmentation.requested.get(name)),
        "utilisation": _rounded(fragmentation.utilisation(name)),
        "free": format_amount(name, fragmentation.free(name)),
        "largest_free": format_amount(name, max(0, fragmentation.largest_free(name))),
    }


def _describe_refused(refused: Refused) -> dict[str, Any]:
    named = (
        ("constraint", refused.constraint),
        ("resource", refused.resource),
        ("blocking_pod", refused.blocking_pod),
    )
    about_pod = {"namespace": refused.namespace, "pod": refused.name} if refused.kind is RefusedKind.POD else {}
    return {
        "kind": refused.kind.value,
        "node": refused.node,
        **about_pod,
        "reason": refused.reason.value,
        **{name: str(value) for name, value in named if value},
        "message": refused.message,
        **({"also": [_describe_further(one) for one in refused.also]} if refused.also else {}),
    }


def _describe_further(refusal: Refusal) -> dict[str, str]:
    return {"reason": refusal.reason.value, "message": refusal.message}


def _rounded(share: Fraction) -> float:
    return float(round(share, _DECIMALS))


# --- plan figures ----------------------------------------------------------------------------------------------------
# The numbers of a plan that people compare, as texts: how the cluster lies in several states, what stays and why.

_LISTED_ROOMS: Final = 3


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """What stays for one reason, in the plan's order."""

    kind: RefusedKind
    reason: RefusalReason
    refused: tuple[Refused, ...]


def compare_states(plan: Plan, states: Sequence[Fragmentation]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return what people compare, and a text of it for each state of the plan's cluster."""
    rows = [
        ("nodes with pods", [str(_used_nodes(state)) for state in states]),
        ("empty nodes", [str(len(state.empty_nodes)) for state in states]),
    ]
    for name in shown_resources(plan):
        rows.append((f"{name} requested of nodes in use", [_used_share(state, name) for state in states]))
        rows.append((f"largest free {name}", [format_amount(name, max(0, one.largest_free(name))) for one in states]))
    for shape in usual_shapes(plan):
        asked = ", ".join(f"{name} {amount}" for name, amount in shape.to_quantities().items())
        rows.append((f"room for pods of {asked}", [str(state.fits(shape)) for state in states]))
    return tuple((label, tuple(texts)) for label, texts in rows)


def compare_unused(plan: Plan) -> tuple[tuple[str, tuple[str, str]], ...]:
    """Return of the first things that room is made for how much of what is free they cannot use, before and after."""
    rows = []
    for room in plan.room[:_LISTED_ROOMS]:
        unused_after = dict(room.unused_after)
        for name, unused in room.unused_before:
            texts = percent(unused), percent(unused_after.get(name, unused))
            rows.append((f"free {name} of no use to {room.name}", texts))
    return tuple(rows)


def shown_resources(plan: Plan) -> tuple[str, ...]:
    """Return the resources that people look at first: the one that the plan goes by, cores, memory."""
    shown = dict.fromkeys((plan.settings.resource_type, CPU, MEMORY))
    return tuple(name for name in shown if name in plan.before.resources)


def group_refusals(refused: Iterable[Refused]) -> tuple[RefusalGroup, ...]:
    """Return what stays by kind and reason, the most frequent first."""
    groups: dict[tuple[RefusedKind, RefusalReason], list[Refused]] = {}
    for one in refused:
        groups.setdefault((one.kind, one.reason), []).append(one)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(RefusalGroup(kind, reason, tuple(found)) for (kind, reason), found in ranked)


def name_refused(refused: Refused) -> str:
    """Return what a refusal is about: a node by its name, a pod with its namespace if it has one."""
    if refused.kind is RefusedKind.NODE:
        return refused.node
    return f"{refused.namespace}/{refused.name}".lstrip("/")


def requested_share(nodes: Iterable[NodeUsage], resource: str) -> Fraction:
    """Return the share of what some nodes have of a resource that is requested; 0 where they have none."""
    listed = tuple(nodes)
    have = sum(node.allocatable.get(resource) for node in listed)
    return Fraction(sum(node.requested.get(resource) for node in listed), have) if have else Fraction(0)


def percent(share: Fraction) -> str:
    """Return a share in percent."""
    return f"{float(100 * share):.1f} %"


def _used_nodes(fragmentation: Fragmentation) -> int:
    return len(fragmentation.nodes) - len(fragmentation.empty_nodes)


def _used_share(fragmentation: Fragmentation, name: str) -> str:
    """Return the share of a resource that is requested on the nodes that have pods, in percent."""
    return percent(requested_share((node for node in fragmentation.nodes if node.pods), name))
