"""Owns how a plan is shown to people: sentences, tables and a picture of the nodes, at any width and without colour.

It does not own the numbers, nor what machines get (`report`).
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from io import TextIOWrapper
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core.migration_plans import PlannedMove
from berth_core.resources import CPU, MEMORY, ResourceAmounts
from berth_descheduler.node_map import draw_nodes, nodes_per_sign
from berth_descheduler.plan_quality import cost_in_words, counted_by, judge, room_table, usual_shapes
from berth_descheduler.planner import Fragmentation, Plan
from berth_descheduler.refusals import Refused, RefusedKind
from berth_descheduler.report import summarise_plan

_WIDTH_OF_PIPES: Final = 160
_LISTED_MOVES: Final = 40
_LISTED_FREED: Final = 12
_LISTED_REFUSALS: Final = 12
_LISTED_ROOMS: Final = 3
_IN_JSON: Final = "all of them with --output json"


def output_console() -> Console:
    """Return the console for standard output: as wide as the terminal; wide and plain where there is none."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # some encodings have no box or bar characters
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if has_width else _WIDTH_OF_PIPES)


def print_plan(plan: Plan, console: Console) -> None:
    """Show a plan to people."""
    console.print(render_plan(plan))


def render_plan(plan: Plan) -> RenderableType:
    """Return what a plan does, how good it is, what it costs and brings, its moves, and why not more."""
    parts: list[RenderableType] = [
        Text(summarise_plan(plan), style="bold"),
        *_judgement(plan),
        Text(),
        _fragmentation_table(plan),
        Text(),
        *_node_maps(plan),
    ]
    if plan.room:
        parts += [Text(), room_table(plan)]
    if plan.moves:
        parts += [Text(), _moves_table(plan.moves)]
    if plan.refused:
        parts += [Text(), _refusals_table(plan.refused)]
    return Group(*parts)


def _judgement(plan: Plan) -> list[Text]:
    """Return how good a plan is, if the strategy says so, what it costs, and which nodes it frees."""
    said = [] if plan.quality is None else [judge(plan.quality, what=counted_by(plan))]
    if plan.moves:
        said.append(cost_in_words(plan))
    if plan.freed_nodes:
        said.append(f"Freed: {_some(plan.freed_nodes, _LISTED_FREED)}.")
    return [Text(one) for one in said]


def _node_maps(plan: Plan) -> list[Text]:
    resource = plan.settings.args.resource_type
    each = nodes_per_sign(len(plan.before.nodes))
    scale = "" if each == 1 else f", {each} nodes to a sign"
    return [
        Text(f"Nodes by {resource} requested (· is empty{scale})"),
        Text("before"),
        draw_nodes(plan.before, resource),
        Text("after"),
        draw_nodes(plan.after, resource),
    ]


def _fragmentation_table(plan: Plan) -> Table:
    table = Table(title="Fragmentation", title_justify="left", title_style="bold")
    table.add_column("", overflow="fold")
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
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
    for room in plan.room[:_LISTED_ROOMS]:
        unused_after = dict(room.unused_after)
        for name, unused in room.unused_before:
            percents = _percent(unused), _percent(unused_after.get(name, unused))
            table.add_row(f"free {name} of no use to {room.name}", *percents)
    return table


def _shown_resources(plan: Plan) -> tuple[str, ...]:
    shown = dict.fromkeys((plan.settings.args.resource_type, CPU, MEMORY))
    return tuple(name for name in shown if name in plan.before.resources)


def _moves_table(moves: Sequence[PlannedMove]) -> Table:
    """Return the moves in the order of their waves."""
    table = Table(title=_count(len(moves), "move"), title_justify="left", title_style="bold")
    table.add_column("wave", justify="right", no_wrap=True)
    for heading in ("pod", "requests", "from", "to"):
        table.add_column(heading, overflow="fold")
    for move in sorted(moves, key=lambda one: one.wave)[:_LISTED_MOVES]:
        requests = " ".join(f"{name}={amount}" for name, amount in move.requests.items())
        table.add_row(str(move.wave), f"{move.namespace}/{move.pod}", requests, move.source, move.target)
    if len(moves) > _LISTED_MOVES:
        table.caption = f"and {len(moves) - _LISTED_MOVES} more; {_IN_JSON}"
    return table


def _refusals_table(refused: Sequence[Refused]) -> Table:
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
    if len(ranked) > _LISTED_REFUSALS:
        table.caption = f"and {len(ranked) - _LISTED_REFUSALS} more reasons; {_IN_JSON}"
    return table


def _used_nodes(fragmentation: Fragmentation) -> int:
    return len(fragmentation.nodes) - len(fragmentation.empty_nodes)


def _used_share(fragmentation: Fragmentation, name: str) -> str:
    """Return the share of a resource that is requested on the nodes that have pods, in percent."""
    used = [node for node in fragmentation.nodes if node.pods]
    have = _total((node.allocatable for node in used), name)
    return _percent(Fraction(_total((node.requested for node in used), name), have) if have else Fraction(0))


def _total(amounts: Iterable[ResourceAmounts], name: str) -> int:
    return sum(one.get(name) for one in amounts)


def _quantity(name: str, amount: int) -> str:
    return ResourceAmounts({name: amount}).to_quantities().get(name, "0")


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"


def _some(names: Sequence[str], most: int) -> str:
    """Return names up to a number, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
