"""`berth calendar`: what ReservationWindows open and close in the next hours, on which nodes, and what is held."""

from datetime import datetime
from typing import Any, Final

import click
import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import ReservationWindow, SystemClock, first_few, span_in_words
from berth_descheduler.capabilities.windows.calendar import describe_calendar
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

_NODES_SHOWN: Final = 4


@click.command("calendar", cls=OwnCommand)
@cluster_options
@click.option("-n", "--namespace", metavar="NAME", shell_complete=complete_namespaces, help="Only this namespace.")
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
    described = msgspec.to_builtins(describe_calendar(windows, SystemClock().now()))
    if output.for_people:
        output_console().print(_render(described))
    elif output is Output.NAME:
        write_names(RESERVATION_WINDOWS.name_for_kubectl, sorted(window.metadata.name for window in windows))
    else:
        write_described(described, output)


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
