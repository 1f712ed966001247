"""Owns how a plan is shown: tables and a node map for people, deterministic JSON for machines.

It does not own what is in it: that is the planner's.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core.migration_plans import PlannedMove
from berth_core.resources import ResourceAmounts
from berth_descheduler.node_map import draw_nodes
from berth_descheduler.plan_quality import (
    cost_in_words,
    describe_cost,
    describe_quality,
    describe_room,
    describe_shapes,
    judge,
    room_table,
    usual_shapes,
)
from berth_descheduler.planner import Fragmentation, Plan, PlannerSettings
from berth_descheduler.plugins.defragmentation import StrategyName
from berth_descheduler.refusals import Refused, RefusedKind

_LISTED_MOVES: Final = 40
_LISTED_REFUSALS: Final = 12
_DECIMALS: Final = 4


def plan_to_json(plan: Plan, staying: Sequence[Refused] | None = None) -> str:
    """Return a plan as JSON text, with the pods that stay if they are given; the same plan gives the same bytes."""
    described = describe_plan(plan)
    if staying is not None:
        described["staying_pods"] = [_describe_refused(refused) for refused in staying]
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan in builtins, in a fixed order."""
    return {
        "strategy": plan.settings.args.strategy.value,
        "settings": _describe_settings(plan.settings),
        "summary": summarise_plan(plan),
        **describe_quality(plan),
        "cost": describe_cost(plan),
        "waves": plan.waves,
        "moves": [_describe_move(move) for move in plan.moves],
        "freed_nodes": list(plan.freed_nodes),
        "room": [describe_room(room) for room in plan.room],
        "shapes": describe_shapes(plan),
        "before": _describe_fragmentation(plan.before),
        "after": _describe_fragmentation(plan.after),
        "refused": [_describe_refused(refused) for refused in plan.refused],
    }


def summarise_plan(plan: Plan) -> str:
    """Return what a plan does, in a sentence."""
    nodes = len(plan.before.nodes)
    if plan.settings.args.strategy is StrategyName.MAKE_ROOM:
        return _summarise_room(plan)
    if not plan.moves:
        return f"Nothing to move: none of the {nodes} nodes can be emptied by these rules."
    moves, waves = _count(len(plan.moves), "move"), _count(plan.waves, "wave")
    freed = f"{len(plan.freed_nodes)} of {_count(nodes, 'node')}"
    return f"{moves} in {waves} free {freed}; {len(plan.after.empty_nodes)} are empty then."


def _summarise_room(plan: Plan) -> str:
    """Return what a plan makes room for, in a sentence."""
    if not plan.room:
        return "Nothing waits for room."
    fitted, wanted = sum(room.fitted for room in plan.room), [room.wanted for room in plan.room]
    what = plan.room[0].name if len(plan.room) == 1 else _count(len(plan.room), "kind") + " of pods"
    of = "" if None in wanted else f" of {sum(count or 0 for count in wanted)}"
    if not plan.moves:
        return f"Nothing to move: {fitted}{of} fit as it is ({what})."
    waves = _count(plan.waves, "wave")
    return f"{_count(len(plan.moves), 'move')} in {waves} make room: {fitted}{of} fit then ({what})."


def print_plan(plan: Plan, console: Console) -> None:
    """Show a plan to people."""
    console.print(render_plan(plan))


def render_plan(plan: Plan) -> RenderableType:
    """Return a plan as tables and a picture of the nodes before and after."""
    resource = plan.settings.args.resource_type
    parts: list[RenderableType] = [
        Text(summarise_plan(plan), style="bold"),
        *_judgement(plan),
        Text(),
        _fragmentation_table(plan),
        Text(),
        Text(f"Nodes by {resource} requested (· is empty)"),
        Text("before"),
        draw_nodes(plan.before, resource),
        Text("after"),
        draw_nodes(plan.after, resource),
    ]
    if plan.room:
        parts += [Text(), room_table(plan)]
    if plan.moves:
        parts += [Text(), _moves_table(plan.moves)]
    if plan.refused:
        parts += [Text(), _refusals_table(plan.refused)]
    return Group(*parts)


def _judgement(plan: Plan) -> list[Text]:
    """Return how good a plan is, if the strategy says so, and what it costs."""
    what = "pods" if plan.settings.args.strategy is StrategyName.MAKE_ROOM else "freed nodes"
    good = [] if plan.quality is None else [Text(judge(plan.quality, what=what))]
    return [*good, *([Text(cost_in_words(plan))] if plan.moves else [])]


def _describe_settings(settings: PlannerSettings) -> dict[str, Any]:
    return {
        **settings.args.to_mapping(),
        "maxMoves": settings.max_moves,
        "perController": settings.waves.per_controller,
        "perWave": settings.waves.per_wave,
        "exact": settings.exact,
        "seed": settings.seed,
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
        "allocatable": _quantity(name, fragmentation.allocatable.get(name)),
        "requested": _quantity(name, fragmentation.requested.get(name)),
        "utilisation": _rounded(fragmentation.utilisation(name)),
        "free": _quantity(name, fragmentation.free(name)),
        "largest_free": _quantity(name, max(0, fragmentation.largest_free(name))),
    }


def _describe_refused(refused: Refused) -> dict[str, Any]:
    about_pod = {"namespace": refused.namespace, "pod": refused.name} if refused.kind is RefusedKind.POD else {}
    return {
        "kind": refused.kind.value,
        "node": refused.node,
        **about_pod,
        "reason": refused.reason.value,
        "message": refused.message,
    }


def _fragmentation_table(plan: Plan) -> Table:
    table = Table(title="Fragmentation", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    before, after = plan.before, plan.after
    table.add_row("nodes with pods", str(_used_nodes(before)), str(_used_nodes(after)))
    table.add_row("empty nodes", str(len(before.empty_nodes)), str(len(after.empty_nodes)))
    for name in _shown_resources(plan):
        table.add_row(f"{name} requested of nodes in use", _used_share(before, name), _used_share(after, name))
        largest = (_quantity(name, max(0, one.largest_free(name))) for one in (before, after))
        table.add_row(f"largest free {name}", *largest)
    for shape in usual_shapes(plan):
        asked = ", ".join(f"{name} {amount}" for name, amount in shape.to_quantities().items())
        table.add_row(f"room for pods of {asked}", str(before.fits(shape)), str(after.fits(shape)))
    return table


def _shown_resources(plan: Plan) -> tuple[str, ...]:
    shown = dict.fromkeys((plan.settings.args.resource_type, "cpu", "memory"))
    return tuple(name for name in shown if name in plan.before.resources)


def _moves_table(moves: tuple[PlannedMove, ...]) -> Table:
    table = Table(title=_count(len(moves), "move"), title_justify="left", title_style="bold")
    for heading in ("wave", "pod", "requests", "from", "to"):
        table.add_column(heading, overflow="fold")
    for move in moves[:_LISTED_MOVES]:
        requests = " ".join(f"{name}={amount}" for name, amount in move.requests.items())
        table.add_row(str(move.wave), f"{move.namespace}/{move.pod}", requests, move.source, move.target)
    if len(moves) > _LISTED_MOVES:
        table.caption = f"and {len(moves) - _LISTED_MOVES} more; all of them with --output json"
    return table


def _refusals_table(refused: tuple[Refused, ...]) -> Table:
    """Return why not more, by reason; one example each, for there may be as many as nodes."""
    counts = Counter((one.kind, one.reason) for one in refused)
    examples = {(one.kind, one.reason): one for one in reversed(refused)}
    table = Table(title="Why not more", title_justify="left", title_style="bold")
    for heading in ("", "reason", "for example"):
        table.add_column(heading, overflow="fold")
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    for (kind, reason), count in ranked[:_LISTED_REFUSALS]:
        example = examples[kind, reason]
        name = example.node if kind is RefusedKind.NODE else f"{example.namespace}/{example.name}".lstrip("/")
        table.add_row(_count(count, kind.value.lower()), reason.value, f"{name}: {example.message}")
    return table


def _used_nodes(fragmentation: Fragmentation) -> int:
    return len(fragmentation.nodes) - len(fragmentation.empty_nodes)


def _used_share(fragmentation: Fragmentation, name: str) -> str:
    """Return the share of a resource that is requested on the nodes that have pods, in percent."""
    used = [node for node in fragmentation.nodes if node.pods]
    have = _total((node.allocatable for node in used), name)
    share = Fraction(_total((node.requested for node in used), name), have) if have else Fraction(0)
    return f"{float(100 * share):.1f} %"


def _total(amounts: Iterable[ResourceAmounts], name: str) -> int:
    return sum(one.get(name) for one in amounts)


def _quantity(name: str, amount: int) -> str:
    return ResourceAmounts({name: amount}).to_quantities().get(name, "0")


def _rounded(share: Fraction) -> float:
    return float(round(share, _DECIMALS))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
