"""The contents of a report page, and the parts that pages of plans, runs and stored plans share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby, zip_longest
from typing import Any, Final

from berth_core import MoveState, MoveStatus, PlannedMove, count
from berth_descheduler.planner.sentences import Figure
from berth_descheduler.report.node_map import NodeMaps
from berth_descheduler.report.stored_plans import count_states

LISTED_MOVES: Final = 5_000
LISTED_NODES: Final = 1_000
LISTED_PER_REASON: Final = 200
"""Longer lists make a file that no phone opens; `--output json` has everything."""


class Tone(StrEnum):
    """The overall result of a page, which sets its colour."""

    PLANNED = "planned"
    WELL = "well"
    BADLY = "badly"


@dataclass(frozen=True, slots=True)
class Occasion:
    """Which cluster a report is about, and when it was made."""

    made_at: datetime
    cluster: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column holds row headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Promise:
    """What was planned and what was achieved."""

    label: str
    planned: str
    achieved: str
    kept: bool


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One move; `state` is None if it was only planned."""

    pod: str
    requests: str
    source: str
    target: str
    state: MoveState | None
    reason: str
    message: str
    node: str
    """Where its replacement runs, if not on the target."""

    asked_for: str = ""
    """Why this single pod should run elsewhere."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Moves that go together."""

    title: str
    moves: tuple[MoveRow, ...]
    unfolded: bool


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """What stays, and why."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class RefusalSection:
    """What stays for one reason; `more` counts those not listed."""

    title: str
    reason: str
    rows: tuple[RefusalRow, ...]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """All contents of a report; empty parts are not shown."""

    tone: Tone
    kind: str
    headline: str
    notes: tuple[str, ...]
    cluster: str
    made_at: str
    figures: tuple[Figure, ...] = ()
    promises: tuple[Promise, ...] = ()
    not_freed: tuple[str, ...] = ()
    troubles: tuple[MoveRow, ...] = ()
    """Moves that did not land on their target."""

    maps: NodeMaps | None = None
    changed_nodes: Table | None = None
    more_changed_nodes: int = 0
    freed_nodes: tuple[str, ...] = ()
    fragmentation: Table | None = None
    room: Table | None = None
    waves: tuple[Wave, ...] = ()
    more_moves: int = 0
    refusals: tuple[RefusalSection, ...] = ()
    priorities: Table | None = None
    settings: Table | None = None
    seconds: Table | None = None


def list_troubles(moves: Sequence[PlannedMove], statuses: Sequence[MoveStatus]) -> tuple[MoveRow, ...]:
    """Return the moves that did not end as planned, up to the limit of a page."""
    rows = (_row(move, status) for move, status in zip(moves, statuses, strict=False))
    return tuple(row for row in rows if row.state is None or not row.state.succeeded)[:LISTED_MOVES]


def list_waves(moves: Sequence[PlannedMove], statuses: Sequence[MoveStatus]) -> Iterator[Wave]:
    """Yield the moves by waves, up to the limit of a page."""
    pairs = [(move, status) for move, status in zip_longest(moves, statuses[: len(moves)]) if move is not None]
    pairs.sort(key=lambda pair: pair[0].wave)
    for wave_index, (wave, group) in enumerate(groupby(pairs[:LISTED_MOVES], key=lambda pair: pair[0].wave)):
        rows = tuple(_row(move, status) for move, status in group)
        yield Wave(f"Wave {wave}: {_counted(rows)}", rows, unfolded=wave_index == 0)


def _counted(rows: Sequence[MoveRow]) -> str:
    counts_text = count_states(row.state for row in rows if row.state is not None)
    return f"{count(len(rows), 'move')}{f', {counts_text}' if counts_text else ''}"


def _row(move: PlannedMove, status: MoveStatus | None) -> MoveRow:
    node = status.node if status is not None and move.target and status.node != move.target else ""
    return MoveRow(
        pod=f"{move.namespace}/{move.pod}",
        requests=", ".join(f"{resource} {amount}" for resource, amount in move.requests.items()),
        source=move.source,
        target=move.destination,
        state=status.state if status is not None else None,
        reason=status.reason if status is not None else "",
        message=status.message if status is not None else "",
        node=node,
        asked_for=move.reason,
    )


def settings_table(settings: Mapping[str, Any]) -> Table | None:
    """Return settings by dotted names, None if there are none."""
    rows = tuple(_flat("", settings))
    return Table(("setting", "value"), rows) if rows else None


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield settings by dotted names, with words for empty values."""
    if isinstance(value, Mapping) and value:
        for key, inner_value in value.items():
            yield from _flat(f"{name}.{key}".lstrip("."), inner_value)
    elif name:
        yield name, _in_words(value)


def _in_words(value: object) -> str:
    match value:
        case None:
            return "no limit"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value)) or "none"
        case {}:
            return "all"
        case _:
            return str(value)
