"""`berth top`: each node with its use and state, and the plan."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import Final

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from berth_core import (
    CPU,
    DRAINING_TAINT,
    HANDOVER_TAINT,
    MEMORY,
    PLACEHOLDER_LABEL,
    ROOM_TAINT,
    MigrationPlan,
    MoveState,
    Node,
    PlanPhase,
    Pod,
    Snapshot,
    count,
    is_marked_as_freed,
    matches_labels,
    parse_selector,
    percent,
)
from berth_core.text import rounded
from berth_descheduler.planner import Fragmentation, NodeUsage, is_pending, measure_nodes, requested_share
from berth_descheduler.report.node_map import MOST_SIGNS, PER_LINE, draw_nodes, nodes_per_sign
from berth_descheduler.report.schemas import ListedPlan
from berth_descheduler.report.stored_plan_documents import list_plan
from berth_descheduler.report.stored_plans import newest_first, phase_in_words, what_to_do

SHOWN_RESOURCES: Final = (CPU, MEMORY)
_UNDER_WAY: Final = (PlanPhase.RUNNING, PlanPhase.APPROVED, PlanPhase.PROPOSED, PlanPhase.REQUESTED)
"""Phases of plans that are not over, the most important first."""


class NodeMark(StrEnum):
    """The most important fact about a node; the first that holds counts."""

    NOT_READY = "not ready"
    DRAINING = "draining"
    ROOM = "room is made"
    HANDOVER = "hand-over"
    CORDONED = "cordoned"
    FREED = "freed"
    NONE = ""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node with its use and state."""

    usage: NodeUsage
    mark: NodeMark
    held: int
    """Slots that placeholders hold there."""

    def share(self, resource: str) -> Fraction:
        return requested_share((self.usage,), resource)


@dataclass(frozen=True, slots=True)
class TopView:
    """The cluster at one moment."""

    nodes: tuple[NodeLine, ...]
    pods: int
    """Pods on nodes, placeholders included."""

    waiting: int
    """Pods that wait for a node."""

    held: int
    plan: MigrationPlan | None
    """The plan under way, if any."""

    @property
    def fragmentation(self) -> Fragmentation:
        return Fragmentation(tuple(line.usage for line in self.nodes))

    def marked(self, mark: NodeMark) -> int:
        return sum(line.mark is mark for line in self.nodes)


def view_cluster(snapshot: Snapshot, plans: Sequence[MigrationPlan], selector: str = "") -> TopView:
    """Return what to show of the nodes that a selector matches, of pods and Reservations."""
    snapshot = _select(snapshot, selector) if selector else snapshot
    placeholders = [pod for pod in snapshot.pods if _holds_a_place(pod)]
    placeholders_per_node = Counter(pod.spec.node_name for pod in placeholders)
    marks = {node.metadata.name: mark_of(node) for node in snapshot.nodes}
    usages = measure_nodes(snapshot).nodes
    return TopView(
        nodes=tuple(NodeLine(usage, marks[usage.name], placeholders_per_node[usage.name]) for usage in usages),
        pods=sum(bool(pod.spec.node_name) and not pod.is_terminal for pod in snapshot.pods),
        waiting=sum(map(is_pending, snapshot.pods)),
        held=len(placeholders),
        plan=next(_under_way(plans), None),
    )


def _select(snapshot: Snapshot, selector: str) -> Snapshot:
    """Return the nodes that a selector matches with their pods, and the pods that wait."""
    wanted_labels = parse_selector(selector)
    nodes = tuple(node for node in snapshot.nodes if matches_labels(wanted_labels, node.metadata.labels))
    names = {"", *(node.metadata.name for node in nodes)}
    return replace(snapshot, nodes=nodes, pods=tuple(pod for pod in snapshot.pods if pod.spec.node_name in names))


def mark_of(node: Node) -> NodeMark:
    keys = {taint.key for taint in node.taints}
    mark_conditions = (
        (NodeMark.NOT_READY, not node.ready),
        (NodeMark.DRAINING, DRAINING_TAINT in keys),
        (NodeMark.ROOM, ROOM_TAINT in keys),
        (NodeMark.HANDOVER, HANDOVER_TAINT in keys),
        (NodeMark.CORDONED, node.spec.unschedulable),
        (NodeMark.FREED, is_marked_as_freed(node)),
    )
    return next((mark for mark, is_true in mark_conditions if is_true), NodeMark.NONE)


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node, for programs."""

    name: str
    state: NodeMark
    pods: int
    held_places: int
    requested_ratio: dict[str, float]


class TopDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster at one moment, for programs."""

    nodes: int
    empty_nodes: int
    pods: int
    pending_pods: int
    held_places: int
    plan: ListedPlan | None
    node_list: tuple[NodeDocument, ...]


def describe_view(view: TopView) -> TopDocument:
    return TopDocument(
        nodes=len(view.nodes),
        empty_nodes=len(view.fragmentation.empty_nodes),
        pods=view.pods,
        pending_pods=view.waiting,
        held_places=view.held,
        plan=list_plan(view.plan) if view.plan else None,
        node_list=tuple(
            NodeDocument(
                name=line.usage.name,
                state=line.mark,
                pods=line.usage.pods,
                held_places=line.held,
                requested_ratio={resource: rounded(line.share(resource)) for resource in SHOWN_RESOURCES},
            )
            for line in view.nodes
        ),
    )


def _holds_a_place(pod: Pod) -> bool:
    is_bound = bool(pod.spec.node_name) and not pod.is_terminal
    return is_bound and PLACEHOLDER_LABEL in pod.metadata.labels


def _under_way(plans: Sequence[MigrationPlan]) -> Iterator[MigrationPlan]:
    """Yield the plans that are not over, the most important first."""
    plans_by_age = newest_first(plans)
    for phase in _UNDER_WAY:
        yield from (plan for plan in plans_by_age if plan.phase is phase)


# --- the frame --------------------------------------------------------------------------------------------------------

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
    """Return the meaning of the signs in use."""
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
    states = Counter(status.state for status in statuses)
    moves_over = sum(status.state.terminal for status in statuses)
    of_policy = f" of policy {plan.spec.policy}" if plan.spec.policy else ""
    counts_text = ", ".join(f"{states[state]} {state.value.lower()}" for state in MoveState if states[state])
    headline = Text.assemble((plan.metadata.name, "bold"), f"{of_policy}: ", phase_in_words(plan))
    if not statuses:
        return [headline]
    progress = Table.grid(padding=(0, 2, 0, 0))
    progress.add_row(
        ProgressBar(total=len(statuses), completed=moves_over, width=40), f"{moves_over} of {len(statuses)} over"
    )
    parts: list[RenderableType] = [headline, progress, Text(counts_text)]
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
