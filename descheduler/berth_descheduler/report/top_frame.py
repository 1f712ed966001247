"""`berth top` in a terminal: frames with the plan, a picture of the nodes and as many nodes as fit below."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from berth_core import MigrationPlan, MoveState, count, percent
from berth_descheduler.report.node_signs import MOST_SIGNS, PER_LINE, draw_nodes, nodes_per_sign
from berth_descheduler.report.stored_plans import count_states, phase_in_words, what_to_do
from berth_descheduler.report.top import SHOWN_RESOURCES, NodeLine, NodeMark, TopView

_PLAIN_ROWS: Final = 40
"""Rows of the table without a terminal."""

_BAR_WIDTH: Final = 10
_NARROW: Final = 100
_NARROW_BAR: Final = 6
"""The width of a bar where the terminal has fewer columns than `_NARROW`."""

_LISTED_MOVES: Final = 5
_LOW: Final = 40
_LISTED_IF_LOW: Final = 2
"""How many moves are listed where the terminal has fewer lines than `_LOW`."""

_LEAST_MAP: Final = 4
_KEYS: Final = {
    **dict.fromkeys(("\x1b[A", "\x1bOA", "k"), "up"),
    **dict.fromkeys(("\x1b[B", "\x1bOB", "j"), "down"),
    **dict.fromkeys(("\x1b[5~", "b"), "page up"),
    **dict.fromkeys(("\x1b[6~", " "), "page down"),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "g"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "G"), "end"),
}
_MARKS: Final = {
    NodeMark.NOT_READY: ("!", "bold red"),
    NodeMark.DRAINING: ("v", "bold cyan"),
    NodeMark.ROOM: ("m", "bold cyan"),
    NodeMark.HANDOVER: ("h", "bold magenta"),
    NodeMark.CORDONED: ("x", "yellow"),
    NodeMark.FREED: ("o", "bold bright_blue"),
}
_OPEN_STATES: Final = (MoveState.EVICTED, MoveState.RESERVED, MoveState.RESERVING)


@dataclass(slots=True)
class Scroll:
    """Which nodes a frame shows, moved by keys; each frame notes how many it has room for."""

    first: int = 0
    rows: int = 1
    nodes: int = 0

    def press(self, key: str) -> None:
        """Scroll by the escape sequence of a key; other keys do nothing."""
        page_rows, last_row = max(1, self.rows - 1), max(0, self.nodes - self.rows)
        first_by_key = {"up": self.first - 1, "down": self.first + 1, "home": 0, "end": last_row}
        first_by_key |= {"page up": self.first - page_rows, "page down": self.first + page_rows}
        self.first = max(0, min(last_row, first_by_key.get(_KEYS.get(key, ""), self.first)))

    def fit(self, nodes: int, rows: int) -> None:
        """Note how many nodes there are, and how many rows can be shown."""
        self.nodes, self.rows = nodes, rows
        self.first = max(0, min(self.first, nodes - rows))


def render_frame(
    view: TopView, at: datetime, height: int | None = None, *, wide: bool = False, scroll: Scroll | None = None
) -> RenderableType:
    """Return a frame of at most `height` lines, None for no limit, `wide` with all nodes."""
    is_low = height is not None and height < _LOW
    max_signs = MOST_SIGNS if height is None else min(MOST_SIGNS, max(_LEAST_MAP, height // 4) * PER_LINE)
    parts: list[RenderableType] = [_headline(view, at), Text()]
    if view.plan is not None:
        parts += [*_render_plan(view.plan, _LISTED_IF_LOW if is_low else _LISTED_MOVES), Text()]
    parts += [_legend(view, max_signs), _draw_map(view, max_signs), Text()]
    return _Frame(Group(*parts), view, height, len(view.nodes) if wide else _PLAIN_ROWS, scroll)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A head, and as many nodes below it as there is room for."""

    head: RenderableType
    view: TopView
    height: int | None
    max_rows: int
    """Rows where there is no height."""

    scroll: Scroll | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the head and the rows that fit below it."""
        yield self.head
        rows = self.max_rows
        if self.height is not None:
            used = len(console.render_lines(self.head, options.update(height=None), pad=False))
            rows = max(1, self.height - used - 2)
        if self.scroll is not None:
            self.scroll.fit(len(self.view.nodes), rows)
        yield _nodes_table(self.view, rows, self.scroll, narrow=options.max_width < _NARROW)


def _headline(view: TopView, at: datetime) -> Text:
    cluster = view.fragmentation
    shares = ", ".join(f"{resource} {percent(cluster.utilisation(resource))}" for resource in SHOWN_RESOURCES)
    empty = len(cluster.empty_nodes)
    return Text.assemble(
        (f"{at:%H:%M:%S}Z  ", "dim"),
        (f"{count(len(view.nodes), 'node')}, {empty} empty", "bold"),
        f"; {count(view.pods, 'pod')}, {view.waiting} waiting; {count(view.held, 'place')} held; requested: {shares}",
    )


def _legend(view: TopView, max_signs: int) -> Text:
    nodes_per_sign_drawn = nodes_per_sign(len(view.nodes), max_signs)
    scale = "" if nodes_per_sign_drawn == 1 else f", {nodes_per_sign_drawn} nodes to a sign"
    legend = Text(f"Nodes by {SHOWN_RESOURCES[0]} requested (· is empty{scale}")
    for mark, (sign, style) in _MARKS.items():
        if node_count := view.marked(mark):
            legend.append(", ")
            legend.append(sign, style=style)
            legend.append(f" {mark.value}: {node_count}")
    legend.append(")")
    return legend


def _draw_map(view: TopView, max_signs: int) -> Text:
    """Return the picture of the nodes, with letters for marks."""
    picture = draw_nodes(view.fragmentation, SHOWN_RESOURCES[0], max_signs)
    if nodes_per_sign(len(view.nodes), max_signs) > 1:
        return picture
    node_map = Text()
    signs = [sign for sign in picture.divide(range(1, len(picture.plain) + 1)) if sign.plain != "\n"]
    for index, (line, sign) in enumerate(zip(view.nodes, signs, strict=False)):
        if index and index % PER_LINE == 0:
            node_map.append("\n")
        sign_and_style = _MARKS.get(line.mark)
        node_map.append(sign if sign_and_style is None else Text(sign_and_style[0], style=sign_and_style[1]))
    return node_map


def _nodes_table(view: TopView, rows: int, scroll: Scroll | None, *, narrow: bool) -> Table:
    """Return at most `rows` nodes, the most important ones or those that are scrolled to."""
    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left")
    table.add_column("node", no_wrap=True, overflow="ellipsis")
    width, first_row = _NARROW_BAR if narrow else _BAR_WIDTH, 0 if scroll is None else scroll.first
    for resource in SHOWN_RESOURCES:
        table.add_column(resource, no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    for heading in ("pods", "held"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    ordered = sorted(view.nodes, key=_weight)
    for line in ordered[first_row : first_row + rows]:
        bars: list[RenderableType] = []
        for resource in SHOWN_RESOURCES:
            share = line.share(resource)
            bars += [_bar(line, resource, width), percent(share)]
        style = _MARKS[line.mark][1] if line.mark in _MARKS else ""
        held_text = str(line.held) if line.held else ""
        table.add_row(line.usage.name, *bars, str(line.usage.pods), held_text, Text(line.mark.value, style=style))
    if len(ordered) > rows:
        rows_in_words = (
            f"nodes {first_row + 1} to {first_row + rows} of {len(ordered)}; arrows, PgUp and PgDn scroll, q ends"
        )
        table.caption = f"and {len(ordered) - rows} more" if scroll is None else rows_in_words
    return table


def _weight(line: NodeLine) -> tuple[bool, bool, bool, str]:
    """Return the sort key: marked, with held slots, with pods, by name."""
    return line.mark is NodeMark.NONE, not line.held, line.usage.pods == 0, line.usage.name


def _bar(line: NodeLine, resource: str, width: int) -> Text:
    """Return a bar that is readable without colour."""
    share = line.share(resource)
    filled = max(int(share > 0), min(width, round(share * width)))
    style = "magenta" if share > 1 else "green"
    return Text.assemble(("━" * filled, style), ("·" * (width - filled), "dim"))


def _render_plan(plan: MigrationPlan, max_moves: int) -> Sequence[RenderableType]:
    """Return the plan, its progress and at most `max_moves` of the moves in progress."""
    statuses = plan.move_statuses
    moves_over = sum(status.state.terminal for status in statuses)
    of_policy = f" of policy {plan.spec.policy}" if plan.spec.policy else ""
    headline = Text.assemble((plan.metadata.name, "bold"), f"{of_policy}: ", phase_in_words(plan))
    if not statuses:
        return [headline]
    progress = Table.grid(padding=(0, 2, 0, 0))
    progress.add_row(
        ProgressBar(total=len(statuses), completed=moves_over, width=40), f"{moves_over} of {len(statuses)} over"
    )
    parts: list[RenderableType] = [headline, progress, Text(count_states(status.state for status in statuses))]
    if advice := what_to_do(plan):
        parts.append(Text(advice))
    pairs = zip(plan.spec.moves, statuses, strict=True)
    in_progress = [pair for pair in pairs if pair[1].state in _OPEN_STATES]
    in_progress.sort(key=lambda pair: _OPEN_STATES.index(pair[1].state))
    for move, move_status in in_progress[:max_moves]:
        destination = move.destination
        line = f"  {move_status.state.value:9} {move.namespace}/{move.pod}  {move.source} -> {destination}"
        parts.append(Text(line, no_wrap=True, overflow="ellipsis"))
    return parts
