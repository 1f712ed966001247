"""`berth calendar`: what ReservationWindows open and close in the next hours, on which nodes, and what is held."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import (
    ActiveOccurrence,
    InputError,
    Occurrence,
    ReservationWindow,
    SystemClock,
    WindowSchedule,
    first_few,
    format_timestamp,
    refuse_unreadable,
    requests_of_slot,
    span_in_words,
)
from berth_descheduler.options import (
    Output,
    all_namespaces_option,
    cluster_options,
    complete_namespaces,
    objects_output_option,
    selector_option,
    write_described,
    write_names,
)
from berth_descheduler.report import output_console
from berth_kube import RESERVATION_WINDOWS, NotFoundError, connect
from berth_service.command_line import OwnCommand

_AHEAD: Final = timedelta(hours=24)
_MOST_OF_ONE: Final = 500
"""Occurrences of one window that are listed; one may come every minute."""
_NODES_SHOWN: Final = 4


@click.command("calendar", cls=OwnCommand)
@cluster_options
@click.option("-n", "--namespace", metavar="NAME", shell_complete=complete_namespaces, help="Only of this namespace.")
@all_namespaces_option
@selector_option("windows")
@objects_output_option
def calendar_command(
    *, kubeconfig: str | None, context: str | None, namespace: str | None, selector: str, output: Output
) -> None:
    """Show what ReservationWindows open and close in the next 24 hours, on which nodes, and what is held."""
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-calendar") as client:
        try:
            raw_windows = client.list(RESERVATION_WINDOWS, namespace=namespace, label_selector=selector).items
            windows = [ReservationWindow.read(body) for body in raw_windows]
        except NotFoundError:
            windows = []
    described = describe_calendar(windows, SystemClock().now())
    if output.for_people:
        output_console().print(_render(described))
    elif output is Output.NAME:
        write_names(RESERVATION_WINDOWS.name_for_kubectl, sorted(window.metadata.name for window in windows))
    else:
        write_described(described, output)


def describe_calendar(windows: Iterable[ReservationWindow], now: datetime) -> dict[str, Any]:
    """Return the calendar in builtins; the names are a promise to those who read the JSON."""
    entries: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    for window in windows:
        if window.spec.suspend:
            continue
        try:
            refuse_unreadable("ReservationWindow", window.metadata)
            entries += _entries_of(window, now)
        except InputError as error:
            problems.append({"window": window.key, "problem": str(error)})
    return {
        "from": format_timestamp(now),
        "until": format_timestamp(now + _AHEAD),
        "items": sorted(entries, key=lambda entry: (entry["time"], entry["window"], entry["start"])),
        "problems": sorted(problems, key=lambda problem: problem["window"]),
    }


def _entries_of(window: ReservationWindow, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield what a window does, by occurrence."""
    active_by_start = {active_occurrence.start: active_occurrence for active_occurrence in window.status.active}
    requests_of_slot(window.spec)
    for occurrence in _occurrences(WindowSchedule.parse(window.spec), now):
        active = active_by_start.get(format_timestamp(occurrence.start))
        for change, moment in (
            ("reserves", occurrence.reserve_at),
            ("opens", occurrence.start),
            ("closes", occurrence.end),
        ):
            if now < moment <= now + _AHEAD and not (
                change == "reserves" and occurrence.reserve_at == occurrence.start
            ):
                yield _describe(window, occurrence, change, moment, active)


def _occurrences(schedule: WindowSchedule, now: datetime) -> Iterator[Occurrence]:
    """Yield the occurrences that are under way or reserve within the time."""
    begun_occurrences: list[Occurrence] = []
    for occurrence in schedule.back_from(now):
        if occurrence.end <= now or len(begun_occurrences) == _MOST_OF_ONE:
            break
        begun_occurrences.append(occurrence)
    yield from reversed(begun_occurrences)
    next_occurrence = schedule.next_after(now)
    for _ in range(_MOST_OF_ONE):
        if next_occurrence.reserve_at > now + _AHEAD:
            return
        yield next_occurrence
        next_occurrence = schedule.next_after(next_occurrence.reserve_at)


def _describe(
    window: ReservationWindow, one: Occurrence, what: str, moment: datetime, active: ActiveOccurrence | None
) -> dict[str, Any]:
    return {
        "time": format_timestamp(moment),
        "what": what,
        "window": window.key,
        "start": format_timestamp(one.start),
        "end": format_timestamp(one.end),
        "pods": window.spec.pod_num_to_reserve,
        "resources": dict(window.spec.resources),
        "nodeSelector": dict(window.spec.node_selector),
        "reservation": active.reservation if active else None,
        "nodes": list(active.nodes) if active else [],
        "held": active.held if active else 0,
        "taken": active.taken if active else 0,
        "expectedAt": active.expected_at if active else None,
    }


def _render(described: dict[str, Any]) -> RenderableType:
    """Return the calendar as a table, a line for each change."""
    if not (described["items"] or described["problems"]):
        return Text("Nothing opens or closes in the next 24 hours. A ReservationWindow holds capacity by the clock.")
    table = Table("time", "in", "window", "", "pods", "held", "taken", "nodes", box=None, padding=(0, 2, 0, 0))
    now = datetime.fromisoformat(described["from"])
    for entry in described["items"]:
        selected = ", ".join(f"{key}={value}" for key, value in sorted(entry["nodeSelector"].items())) or "any"
        nodes = first_few(entry["nodes"], _NODES_SHOWN) if entry["nodes"] else f"of {selected}"
        time_left = span_in_words(datetime.fromisoformat(entry["time"]) - now)
        numbers = (str(entry[key]) for key in ("pods", "held", "taken"))
        table.add_row(entry["time"], time_left, Text(entry["window"]), entry["what"], *numbers, Text(nodes))
    for entry in described["problems"]:
        table.add_row(
            "never", "", Text(entry["window"]), Text("invalid", style="red"), "", "", "", Text(entry["problem"])
        )
    return table
