"""Pictures of the nodes on a page: cells filled by what is requested, with their legend."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from berth_core import count
from berth_descheduler.planner import Fragmentation, NodeUsage, requested_share

_MOST_CELLS: Final = 400
"""More cells do not fit on a phone, nor in a small file."""

_LEVELS: Final = 10


class Band(StrEnum):
    """How full a node is, in the steps that have a colour."""

    EMPTY = "no pods"
    LOWEST = "up to 20 %"
    LOW = "to 40 %"
    HALF = "to 60 %"
    HIGH = "to 80 %"
    FULL = "to 100 %"
    OVER = "above 100 %"
    GONE = "not there"


_RARE: Final = frozenset({Band.OVER, Band.GONE})
_LEGEND_LEVELS: Final = {
    Band.EMPTY: 0,
    Band.LOWEST: 2,
    Band.LOW: 4,
    Band.HALF: 6,
    Band.HIGH: 8,
    Band.FULL: 10,
    Band.OVER: 10,
    Band.GONE: 0,
}

_LIMITS: Final = (
    (Fraction(1, 5), Band.LOWEST),
    (Fraction(2, 5), Band.LOW),
    (Fraction(3, 5), Band.HALF),
    (Fraction(4, 5), Band.HIGH),
    (Fraction(1), Band.FULL),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One node, or several that are alike in the first picture."""

    band: Band
    level: int
    """Tenths to which the cell is filled, from 0 to 10."""

    freed: bool
    """At least half of its nodes had pods in the first picture and have none here."""

    title: str


@dataclass(frozen=True, slots=True)
class NodeMap:
    """The nodes in one state of the cluster."""

    title: str
    summary: str
    """What the picture shows, for screen readers."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """How a cell of the pictures may look, and what that means."""

    band: Band
    level: int
    freed: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class BandCount:
    """How many nodes a band has in each state, with bar widths."""

    band: Band
    nodes: tuple[int, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeMaps:
    """Pictures of several states, in each of which a position stands for the same nodes."""

    resource: str
    nodes_per_cell: int
    maps: tuple[NodeMap, ...]
    bands: tuple[BandCount, ...]
    legend: tuple[LegendEntry, ...]
    left_out: int = 0
    """How many more nodes are not drawn."""


def draw_maps(states: Mapping[str, Fragmentation], resource: str, *, left_out: int = 0) -> NodeMaps:
    """Return pictures of states by title; the fullest nodes of the first state come first."""
    titles, fragmentations = list(states), list(states.values())
    names = _ordered_names(fragmentations, resource)
    nodes_per_cell = max(1, -(-len(names) // _MOST_CELLS))
    groups = [names[first_index : first_index + nodes_per_cell] for first_index in range(0, len(names), nodes_per_cell)]
    had_pods = {node.name for node in fragmentations[0].nodes if node.pods}
    maps = [
        _draw(title, state, groups, had_pods, resource) for title, state in zip(titles, fragmentations, strict=True)
    ]
    bands = _count_bands(fragmentations, resource)
    return NodeMaps(resource, nodes_per_cell, tuple(maps), bands, _explain(maps, nodes_per_cell), left_out)


def _ordered_names(states: Sequence[Fragmentation], resource: str) -> list[str]:
    """Return all nodes, the fullest of the first state first."""
    fullest_first = sorted(
        states[0].nodes, key=lambda node: (node.pods == 0, -requested_share([node], resource), node.name)
    )
    return list(
        dict.fromkeys(
            node.name for state in ([*fullest_first], *(state.nodes for state in states[1:])) for node in state
        )
    )


def _draw(
    title: str, state: Fragmentation, groups: Iterable[Sequence[str]], had_pods: set[str], resource: str
) -> NodeMap:
    by_name = {node.name: node for node in state.nodes}
    cells = tuple(_cell(group, by_name, had_pods, resource) for group in groups)
    empty = len(state.empty_nodes)
    text = f"{title}: {count(len(state.nodes), 'node')}, {empty} without pods, {_percent(state.utilisation(resource))}"
    return NodeMap(title, f"{text} of {resource} requested.", cells)


def _cell(group: Sequence[str], by_name: Mapping[str, NodeUsage], had_pods: set[str], resource: str) -> Cell:
    nodes = [by_name[node_name] for node_name in group if node_name in by_name]
    freed_nodes = sum(node.pods == 0 and node.name in had_pods for node in nodes)
    band, share = _band(nodes, resource), requested_share(nodes, resource)
    # Rounded up, so that a node with one small pod is not drawn as an empty one.
    level = 0 if band in {Band.EMPTY, Band.GONE} else max(1, min(_LEVELS, -(-share * _LEVELS // 1)))
    return Cell(
        band,
        int(level),
        bool(freed_nodes) and 2 * freed_nodes >= len(group),
        _title(group, nodes, freed_nodes, resource),
    )


def _title(group: Sequence[str], nodes: Sequence[NodeUsage], freed: int, resource: str) -> str:
    cell_name = group[0] if len(group) == 1 else f"{len(group)} nodes such as {group[0]}"
    if not nodes:
        return f"{cell_name}: not there"
    used = f"{_percent(requested_share(nodes, resource))} {resource}, {count(sum(node.pods for node in nodes), 'pod')}"
    freed_text = f", {freed} freed" if len(group) > 1 else ", freed"
    return f"{cell_name}: {used}{freed_text if freed else ''}"


def _explain(maps: Sequence[NodeMap], nodes_per_cell: int) -> tuple[LegendEntry, ...]:
    """Return the legend: the ordinary bands, and whatever else the cells show."""
    cells = [cell for node_map in maps for cell in node_map.cells]
    shown_bands = {cell.band for cell in cells} | set(Band) - _RARE
    entries = [
        LegendEntry(band, _LEGEND_LEVELS[band], freed=False, meaning=band) for band in Band if band in shown_bands
    ]
    if any(cell.freed for cell in cells):
        meaning = "freed" if nodes_per_cell == 1 else f"freed, at least half of the {nodes_per_cell} nodes"
        entries.insert(1, LegendEntry(Band.EMPTY, 0, freed=True, meaning=meaning))
    return tuple(entries)


def _count_bands(states: Sequence[Fragmentation], resource: str) -> tuple[BandCount, ...]:
    """Return the ordinary bands, and the rare ones if there are any."""
    nodes_per_band = [Counter(_band([node], resource) for node in state.nodes) for state in states]
    highest_count = (
        max((node_count for band_counts in nodes_per_band for node_count in band_counts.values()), default=0) or 1
    )
    shown_bands = [
        band for band in Band if band not in _RARE or any(band_counts[band] for band_counts in nodes_per_band)
    ]
    return tuple(
        BandCount(
            band,
            tuple(band_counts[band] for band_counts in nodes_per_band),
            tuple(100 * band_counts[band] // highest_count for band_counts in nodes_per_band),
        )
        for band in shown_bands
    )


def _band(nodes: Sequence[NodeUsage], resource: str) -> Band:
    if not nodes:
        return Band.GONE
    if all(node.pods == 0 for node in nodes):
        return Band.EMPTY
    share = requested_share(nodes, resource)
    return next((band for limit, band in _LIMITS if share <= limit), Band.OVER)


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.0f} %"
