"""Fragmentation as tables for people."""

from collections.abc import Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import CPU, EPHEMERAL_STORAGE, HUGE_PAGES_PREFIX, MEMORY, PODS, count, percent
from berth_descheduler.framework import RefusalReason
from berth_descheduler.planner import CapacityReport, ShapeFit, StrandedPart
from berth_descheduler.report.documents import ALL_IN_JSON

_LISTED_PARTS: Final = 8
_LISTED_NODES: Final = 3
_BINARY_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_REASONS_IN_WORDS: Final = {
    RefusalReason.NODE_NOT_READY: "nodes that are not ready",
    RefusalReason.NODE_UNSCHEDULABLE: "cordoned nodes",
    RefusalReason.NODE_DRAINING: "nodes that a running plan drains",
    RefusalReason.NODE_DATA_MISSING: "nodes that report no capacity",
    RefusalReason.NODE_DATA_ODD: "nodes with unreadable data",
    RefusalReason.UNTOLERATED_TAINT: "nodes with a taint that is not tolerated",
    RefusalReason.NODE_AFFINITY: "nodes that its selector or affinity excludes",
}


def render_capacity(report: CapacityReport) -> RenderableType:
    """Return tables of the resources, and of the room and stranded capacity for each shape."""
    nodes = f"{count(report.nodes, 'node')}, {report.empty_nodes} of them empty; {count(report.pods, 'pod')}."
    parts: list[RenderableType] = [Text(nodes, style="bold"), _resources_table(report), *_workload_lines(report)]
    for room in report.shapes:
        parts += [Text(), *_render_shape(room)]
    if not report.shapes:
        parts += [Text(), Text("No pod asks for anything, and the nodes have nothing: name a shape with --shape.")]
    return Group(*parts)


def say_why(part: StrandedPart) -> str:
    """Return in a few words why a shape cannot use free capacity."""
    if part.reason is not RefusalReason.INSUFFICIENT_RESOURCES:
        return _REASONS_IN_WORDS.get(part.reason, part.reason.value)
    return f"too little {'pod slots' if part.resource == PODS else part.resource} left"


def _resources_table(report: CapacityReport) -> Table:
    table = Table("resource", box=None, padding=(0, 2, 0, 0))
    for heading in ("requested", "of", "", "free", "largest piece", "fragmented"):
        table.add_column(heading, justify="right", no_wrap=True)
    for resource in report.resources:
        amounts = (resource.requested, resource.allocatable, resource.free, resource.largest_free)
        requested, allocatable, free, largest = (readable(resource.name, amount) for amount in amounts)
        share = report.workload.share(resource.name)
        fragmented = "" if share is None else percent(share)
        table.add_row(resource.name, requested, allocatable, percent(resource.utilisation), free, largest, fragmented)
    return table


def _workload_lines(report: CapacityReport) -> Iterator[Text]:
    """Yield lines on the column `fragmented` of the resources' table."""
    workload = report.workload
    if workload.fragmented:
        of_all_pods = f" of {workload.all_pods}" if workload.pods < workload.all_pods else ""
        pods_in_shapes = f"{count(workload.pods, 'pod')}{of_all_pods} in {count(workload.shapes, 'shape')}"
        yield Text(f"Fragmented: what is free where a pod does not fit, on average over {pods_in_shapes}.")
    for resource_name, nodes in workload.nodes.items():
        worst_nodes = (
            f"{node.name} ({readable(resource_name, round(node.fragmented))})" for node in nodes[:_LISTED_NODES]
        )
        if nodes:
            yield Text(f"Most fragmented {resource_name}: {', '.join(worst_nodes)}.")


def _render_shape(room: ShapeFit) -> Iterator[RenderableType]:
    asked_by = f" ({room.shape.asked_by})" if room.shape.asked_by else ""
    fit_verb = "fits" if room.fits == 1 else "fit"
    yield Text(
        f"{room.shape.name}{asked_by}: {room.fits} more {fit_verb}, on {count(room.nodes, 'node')}.", style="bold"
    )
    stranded_texts = [
        f"{percent(room.share(resource))} of the free {resource} ({readable(resource, room.stranded.get(resource))})"
        for resource in room.shape.amounts
    ]
    if room.absent:
        yield Text(f"No node has {' or '.join(room.absent)}.")
    if not room.parts:
        yield Text("Nothing that is free is stranded." if room.free else "Nothing of what it asks for is free.")
        return
    yield Text(f"Stranded: {', '.join(stranded_texts)}.")
    yield _parts_table(room)


def _parts_table(room: ShapeFit) -> Table:
    names = tuple(room.shape.amounts)
    table = Table("because of", box=None, padding=(0, 2, 0, 0))
    table.add_column("nodes", justify="right", no_wrap=True)
    for resource in names:
        table.add_column(resource, justify="right", no_wrap=True)
    table.add_column("for example", overflow="fold")
    for part in room.parts[:_LISTED_PARTS]:
        amounts = (readable(resource_name, part.amounts.get(resource_name)) for resource_name in names)
        table.add_row(say_why(part), str(part.nodes), *amounts, f"{part.example}: {part.message}")
    if len(room.parts) > _LISTED_PARTS:
        table.caption = f"and {len(room.parts) - _LISTED_PARTS} more reasons; {ALL_IN_JSON}"
    return table


def readable(name: str, amount: int) -> str:
    """Return an amount in cores or binary units, others unchanged."""
    if name == CPU:
        return f"{amount / 1000:.1f}".removesuffix(".0")
    if name in {MEMORY, EPHEMERAL_STORAGE} or name.startswith(HUGE_PAGES_PREFIX):
        unit, size = next((binary_unit for binary_unit in _BINARY_UNITS if amount >= binary_unit[1]), ("", 1))
        return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)
