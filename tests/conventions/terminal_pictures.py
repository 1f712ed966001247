"""What people see in a terminal of 80 and of 120 columns, from the bundled snapshot: no time of this day is in it."""

import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, cast
from unittest import mock

import msgspec

from berth_core import MigrationPlan, Snapshot
from berth_descheduler.capabilities.demo.cli import command as demo
from berth_descheduler.capabilities.demo.cli import scenario
from berth_descheduler.capabilities.demo.cli.narration import ConsoleNarrator
from berth_descheduler.capabilities.demo.cli.scenario import PLANNER_SETTINGS, DemoResult
from berth_descheduler.options import Output
from berth_descheduler.planner import Plan, plan
from berth_descheduler.report import Scroll, Terminal, print_plan, render_frame, view_cluster
from berth_descheduler.snapshots import read_snapshot_file
from berth_sandbox.sandbox import Sandbox
from builders import NOON
from descheduler.stored_bodies import how, move
from descheduler.stored_bodies import plan as stored_plan

_WIDTHS: Final = (80, 120)
_HEIGHTS: Final = {80: 24, 120: 40}
_PRICES: Final = {"node": 0.40}
_RUNNING: Final = ("Landed", "Landed", "Evicted", "Evicted", "Reserved", "Pending")


class _Kept:
    kubeconfig = Path("~/.local/state/berth/sandboxes/demo/kubeconfig.yaml")
    folder = kubeconfig.parent


def pictures() -> Iterator[str]:
    """List what each command shows, for each width."""
    shown: Mapping[str, Callable[[Terminal, int], None]] = {
        "berth plan --price node=0.40": _show_plan,
        "berth top": _show_top,
        "berth top --once": _show_top_once,
        "berth demo --keep": _show_demo,
    }
    for command, show in shown.items():
        for width in _WIDTHS:
            yield from ("", f"# {command}, {width} columns", *_lines(show, width))


def _lines(show: Callable[[Terminal, int], None], width: int) -> Iterator[str]:
    seen = io.StringIO()
    with redirect_stdout(seen), mock.patch.dict(os.environ, {"COLUMNS": str(width), "LINES": "40", "TERM": "dumb"}):
        show(Terminal(file=seen, width=width), width)
    return (line.rstrip() for line in seen.getvalue().splitlines())


@cache
def _snapshot() -> Snapshot:
    with as_file(files("berth_descheduler.capabilities.demo") / "data" / "demo-snapshot.json.gz") as path:
        return read_snapshot_file(str(path))


@cache
def _planned() -> Plan:
    return plan(_snapshot(), PLANNER_SETTINGS)


@cache
def _running() -> MigrationPlan:
    """Return a plan of the first moves, under way."""
    moves = [move(one.pod, one.source, one.target or "", wave=one.wave) for one in _planned().moves[: len(_RUNNING)]]
    statuses = [how(one["pod"], state) for one, state in zip(moves, _RUNNING, strict=True)]
    body = stored_plan("plan-20261121-120000-3f9c1a7e", "Running", moves=moves, statuses=statuses, approved=True)
    return msgspec.convert(body, MigrationPlan)


def _show_plan(console: Terminal, _width: int) -> None:
    print_plan(_planned(), console, _PRICES)


def _show_top(console: Terminal, width: int) -> None:
    console.print(render_frame(view_cluster(_snapshot(), (_running(),)), NOON, _HEIGHTS[width], scroll=Scroll()))


def _show_top_once(console: Terminal, _width: int) -> None:
    console.print(render_frame(view_cluster(_snapshot(), ()), NOON))


def _show_demo(console: Terminal, _width: int) -> None:
    planned = _planned()
    narrator = ConsoleNarrator(console)
    narrator.show_nodes("before: 0 of 60 nodes are empty", planned.before)
    scenario._show_plan(planned, narrator)
    narrator.say("both services are running under their own service accounts")
    narrator.show_moves(_running())
    narrator.show_nodes("after: 27 of 60 nodes are empty", planned.after)
    numbers = {"nodes": 60, "freed_nodes": 27, "upper_bound": 27, "proven_optimal": True, "elsewhere": 0, "pending": 0}
    found = DemoResult(
        **numbers, moves=112, landed_on_target=112, lost=0, pods=341, seconds=61.5, plan="plan-1", outcome="112 of 112"
    )
    demo._print(found, Output.TABLE, console)
    demo._say_how_to_look(console, cast("Sandbox", _Kept()))
