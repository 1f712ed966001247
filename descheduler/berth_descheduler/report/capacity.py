"""Fragmentation as a document for programs and as tables for people."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGE_PAGES_PREFIX,
    MEMORY,
    PODS,
    count,
    format_amount,
    format_timestamp,
    percent,
)
from berth_descheduler.framework import RefusalReason
from berth_descheduler.planner import CapacityReport, ResourceState, ShapeFit, StrandedPart
from berth_descheduler.report.documents import (
    ALL_IN_JSON,
    Capacity,
    ResourceCapacity,
    ShapeCapacity,
    ShapeResource,
    Stranded,
    rounded,
)

_LISTED_PARTS: Final = 8
_BINARY_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_WORDS: Final = {
    RefusalReason.NODE_NOT_READY: "nodes that are not ready",
    RefusalReason.NODE_UNSCHEDULABLE: "cordoned nodes",
    RefusalReason.NODE_DRAINING: "nodes that a running plan drains",
    RefusalReason.NODE_DATA_MISSING: "nodes that report no capacity",
    RefusalReason.NODE_DATA_ODD: "nodes with unreadable data",
    RefusalReason.UNTOLERATED_TAINT: "nodes with a taint that is not tolerated",
    RefusalReason.NODE_AFFINITY: "nodes that its selector or affinity excludes",
}


def describe_capacity(report: CapacityReport, measured_at: datetime | None = None) -> Capacity:
    """Return the document of a report, measured at a time if known."""
    return Capacity(
        nodes=report.nodes,
        empty_nodes=report.empty_nodes,
        pods=report.pods,
        resources=tuple(map(_describe_resource, report.resources)),
        measured_at=None if measured_at is None else format_timestamp(measured_at),
        shapes=tuple(map(_describe_shape, report.shapes)),
    )


def render_capacity(report: CapacityReport) -> RenderableType:
    """Return tables of resources, and of room and stranded capacity per shape."""
    nodes = f"{count(report.nodes, 'node')}, {report.empty_nodes} of them empty; {count(report.pods, 'pod')}."
    parts: list[RenderableType] = [Text(nodes, style="bold"), _resources_table(report)]
    for room in report.shapes:
        parts += [Text(), *_render_shape(room)]
    if not report.shapes:
        parts += [Text(), Text("No pod asks for anything, and the nodes have nothing: name a shape with --shape.")]
    return Group(*parts)


def say_why(part: StrandedPart) -> str:
    """Return in a few words why a shape cannot use free capacity."""
    if part.reason is not RefusalReason.INSUFFICIENT_RESOURCES:
        return _WORDS.get(part.reason, part.reason.value)
    return f"too little {'pod slots' if part.resource == PODS else part.resource} left"


# --- for programs -----------------------------------------------------------------------------------------------------


def _describe_resource(one: ResourceState) -> ResourceCapacity:
    return ResourceCapacity(
        resource=one.name,
        allocatable=format_amount(one.name, one.allocatable),
        requested=format_amount(one.name, one.requested),
        requested_ratio=rounded(one.utilisation),
        free=format_amount(one.name, one.free),
        largest_free=format_amount(one.name, one.largest_free),
    )


def _describe_shape(room: ShapeFit) -> ShapeCapacity:
    return ShapeCapacity(
        shape=room.shape.name,
        asked_by=room.shape.asked_by,
        fits=room.fits,
        nodes_with_room=room.nodes,
        absent_resources=tuple(room.absent),
        resources=tuple(
            ShapeResource(
                resource=name,
                free=format_amount(name, room.free.get(name)),
                stranded=format_amount(name, room.stranded.get(name)),
                stranded_ratio=rounded(room.share(name)),
            )
            for name in room.shape.amounts
        ),
        stranded_by=tuple(map(_describe_part, room.parts)),
    )


def _describe_part(part: StrandedPart) -> Stranded:
    return Stranded(
        reason=part.reason.value,
        resource=part.resource,
        nodes=part.nodes,
        amounts=part.amounts.to_quantities(),
        example=part.example,
        message=part.message,
    )


# --- for people -------------------------------------------------------------------------------------------------------


def _resources_table(report: CapacityReport) -> Table:
    table = Table("resource", box=None, padding=(0, 2, 0, 0))
    for heading in ("requested", "of", "", "free", "largest piece"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in report.resources:
        amounts = (one.requested, one.allocatable, one.free, one.largest_free)
        requested, allocatable, free, largest = (readable(one.name, amount) for amount in amounts)
        table.add_row(one.name, requested, allocatable, percent(one.utilisation), free, largest)
    return table


def _render_shape(room: ShapeFit) -> Iterator[RenderableType]:
    by = f" ({room.shape.asked_by})" if room.shape.asked_by else ""
    fit = "fits" if room.fits == 1 else "fit"
    yield Text(f"{room.shape.name}{by}: {room.fits} more {fit}, on {count(room.nodes, 'node')}.", style="bold")
    stranded = [
        f"{percent(room.share(name))} of the free {name} ({readable(name, room.stranded.get(name))})"
        for name in room.shape.amounts
    ]
    if room.absent:
        yield Text(f"No node has {' or '.join(room.absent)}.")
    if not room.parts:
        yield Text("Nothing that is free is stranded." if room.free else "Nothing of what it asks for is free.")
        return
    yield Text(f"Stranded: {', '.join(stranded)}.")
    yield _parts_table(room)


def _parts_table(room: ShapeFit) -> Table:
    names = tuple(room.shape.amounts)
    table = Table("because of", box=None, padding=(0, 2, 0, 0))
    table.add_column("nodes", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("for example", overflow="fold")
    for part in room.parts[:_LISTED_PARTS]:
        amounts = (readable(name, part.amounts.get(name)) for name in names)
        table.add_row(say_why(part), str(part.nodes), *amounts, f"{part.example}: {part.message}")
    if len(room.parts) > _LISTED_PARTS:
        table.caption = f"and {len(room.parts) - _LISTED_PARTS} more reasons; {ALL_IN_JSON}"
    return table


def readable(name: str, amount: int) -> str:
    """Return an amount in cores or binary units, others unchanged."""
    if name == CPU:
        return f"{amount / 1000:.1f}".removesuffix(".0")
    if name in {MEMORY, EPHEMERAL_STORAGE} or name.startswith(HUGE_PAGES_PREFIX):
        unit, size = next((one for one in _BINARY_UNITS if amount >= one[1]), ("", 1))
        return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)
