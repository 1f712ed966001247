"""A plan in a terminal: sentences, tables and a picture, readable without colour."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import PlannedMove, count, first_few
from berth_descheduler.framework.refusals import Refused
from berth_descheduler.planner import MoveWay, Plan
from berth_descheduler.plugins import goal_of
from berth_descheduler.report.documents import ALL_IN_JSON
from berth_descheduler.report.node_signs import draw_nodes, nodes_per_sign
from berth_descheduler.report.prices import NO_PRICES, Prices, unpriced_in_words
from berth_descheduler.report.stakes import stakes_in_words
from berth_descheduler.report.summary import (
    compare_states,
    competing_pods_in_words,
    cost_in_words,
    group_refusals,
    judge_plan,
    missing_in_words,
    name_refused,
    summarise_plan,
)

_LISTED_MOVES: Final = 40
_LISTED_FREED: Final = 12
_LISTED_REFUSALS: Final = 12
_LISTED_ROOMS: Final = 12
_LISTED_PLACES: Final = 6


def print_plan(plan: Plan, console: Console, prices: Prices = NO_PRICES, *, wide: bool = False) -> None:
    """Print a plan, `wide` with all its moves, and what its snapshot lacks in lines to copy."""
    console.print(render_plan(plan, prices, wide=wide))
    for line in missing_in_words(plan):
        console.print(Text(line, style="yellow"), soft_wrap=True)


def render_plan(plan: Plan, prices: Prices = NO_PRICES, *, wide: bool = False) -> RenderableType:
    """Return all that people see of a plan, `wide` with all its moves."""
    parts: list[RenderableType] = [
        Text(summarise_plan(plan), style="bold"),
        *(Text(stake) for stake in stakes_in_words(plan.predicted, prices)),
        *_judgement(plan),
        Text(),
        _fragmentation_table(plan),
        Text(),
        *_node_maps(plan),
    ]
    if plan.room:
        parts += [Text(), _room_table(plan)]
    if plan.competing_pods:
        parts += [Text(competing_pods_in_words(plan), style="yellow")]
    if plan.moves:
        parts += [Text(), moves_table(plan, len(plan.moves) if wide else _LISTED_MOVES)]
    if plan.refused:
        parts += [Text(), _refusals_table(plan.refused)]
    return Group(*parts)


def _judgement(plan: Plan) -> list[Text]:
    """Return quality, cost and freed nodes in sentences, without quality where the strategy proves none."""
    sentences = [*plan.notes, *unpriced_in_words(plan), *([judgement] if (judgement := judge_plan(plan)) else [])]
    if plan.moves:
        sentences.append(cost_in_words(plan))
    if plan.freed_nodes:
        sentences.append(f"Freed: {first_few(plan.freed_nodes, _LISTED_FREED)}.")
    return [Text(sentence) for sentence in sentences]


def _node_maps(plan: Plan) -> list[Text]:
    resource = plan.settings.resource_type
    nodes_per_sign_drawn = nodes_per_sign(len(plan.before.nodes))
    scale = "" if nodes_per_sign_drawn == 1 else f", {nodes_per_sign_drawn} nodes to a sign"
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
    for label, texts in (*compare_states(plan, (plan.before, plan.after)), *goal_of(plan.objective).unused_rows(plan)):
        table.add_row(label, *texts)
    return table


def moves_table(plan: Plan, max_moves: int = _LISTED_MOVES) -> Table:
    """Return at most `max_moves` moves by their waves, which are named where moves wait for others."""
    moves, ways = plan.moves, plan.ways or [MoveWay()] * len(plan.moves)
    table = Table(title=PlannedMove.count_all(moves), title_justify="left", title_style="bold")
    if plan.has_order:
        table.add_column("wave", justify="right", no_wrap=True)
    why_heading = ("why",) if any(move.reason for move in moves) else ()
    by_heading = ("by",) if any(way.method for way in ways) else ()
    for heading in ("pod", "requests", "from", "to", *by_heading, *why_heading):
        table.add_column(heading, overflow="fold")
    for move, way in sorted(zip(moves, ways, strict=True), key=lambda move_and_way: move_and_way[0].wave)[:max_moves]:
        requests = " ".join(f"{resource}={amount}" for resource, amount in move.requests.items())
        method_cell = (": ".join(filter(None, (way.method, way.reason))),) if by_heading else ()
        method_and_reason = (*method_cell, move.reason) if why_heading else method_cell
        wave = (str(move.wave),) if plan.has_order else ()
        table.add_row(
            *wave, f"{move.namespace}/{move.pod}", requests, move.source, move.destination, *method_and_reason
        )
    if len(moves) > max_moves:
        table.caption = f"and {len(moves) - max_moves} more; {ALL_IN_JSON}"
    return table


def _room_table(plan: Plan) -> Table:
    table = Table(title="Room", title_justify="left", title_style="bold")
    table.add_column("for", overflow="fold")
    for heading in ("wanted", "fit", "alone before", "alone after"):
        table.add_column(heading, justify="right")
    table.add_column("on", overflow="fold")
    for room in plan.room[:_LISTED_ROOMS]:
        wanted_times = "most" if room.wanted is None else str(room.wanted)
        places = [f"{node} x {times}" if times > 1 else node for node, times in sorted(Counter(room.nodes).items())]
        nodes_text = first_few(places, _LISTED_PLACES)
        table.add_row(
            room.name, wanted_times, str(room.fitted), str(room.fits_before), str(room.fits_after), nodes_text
        )
    if len(plan.room) > _LISTED_ROOMS:
        table.caption = f"and {len(plan.room) - _LISTED_ROOMS} more; {ALL_IN_JSON}"
    return table


def _refusals_table(refused: Sequence[Refused]) -> Table:
    """Return the reasons for not doing more, with one example each."""
    groups = group_refusals(refused)
    table = Table(title="Why not more", title_justify="left", title_style="bold")
    for heading in ("", "reason", "for example"):
        table.add_column(heading, overflow="fold")
    for group in groups[:_LISTED_REFUSALS]:
        refused_example = group.refused[0]
        example_text = f"{name_refused(refused_example)}: {refused_example.sentences}"
        table.add_row(count(len(group.refused), group.kind.value.lower()), group.reason.value, example_text)
    if len(groups) > _LISTED_REFUSALS:
        table.caption = f"and {len(groups) - _LISTED_REFUSALS} more reasons; {ALL_IN_JSON}"
    return table
