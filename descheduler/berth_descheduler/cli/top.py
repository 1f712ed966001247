"""`berth top`: the nodes and the plan under way, live on a terminal, shown once where there is none."""

import os
import re
import select
import sys
import termios
import threading
import tty
from contextlib import suppress
from typing import Any, Self

import click
from rich.console import Console
from rich.live import Live

from berth_core import MigrationPlan, SystemClock
from berth_descheduler.options import (
    Output,
    cluster_options,
    duration_option,
    objects_output_option,
    selector_option,
    write_described,
    write_names,
)
from berth_descheduler.report import Scroll, TopView, describe_view, output_console, render_frame, view_cluster
from berth_descheduler.snapshots import read_capacity
from berth_descheduler.watched_cluster import WatchedCluster
from berth_kube import MIGRATION_PLANS, NODES, KubeClient, NotFoundError, connect
from berth_service.command_line import OwnCommand
from berth_service.signals import interrupt_on_signals

FIRST_LOOK_SECONDS = 60.0
"""How long the first reading of a cluster may take."""

_QUIT = "q"
_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Z])|.", re.DOTALL)


@click.command("top", cls=OwnCommand)
@cluster_options
@click.option("--once", is_flag=True, help="Show one frame and exit; the default without a terminal.")
@click.option("--interval", default="2s", show_default=True, metavar="DURATION", help="Time between two refreshes.")
@selector_option("nodes")
@objects_output_option
def top_command(
    *, kubeconfig: str | None, context: str | None, once: bool, interval: str, selector: str, output: Output
) -> None:
    """Show every node with how full it is and what goes on there, and the plan under way. Changes nothing.

    The picture follows the cluster by watches until q or Ctrl-C; arrows, PgUp, PgDn, Home and End scroll the nodes.
    """
    seconds = duration_option({"interval": interval}, "interval")
    console = output_console()
    is_live = output.for_people and not once and console.is_terminal and not console.is_dumb_terminal
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-top") as client:
        if is_live:
            with suppress(KeyboardInterrupt), interrupt_on_signals():
                show_live(client, console, seconds, threading.Event(), selector)
            return
        view = _look_once(client, selector)
    if output.for_people:
        console.print(render_frame(view, SystemClock().now(), wide=output is Output.WIDE))
    elif output is Output.NAME:
        write_names(NODES.name_for_kubectl, (line.usage.name for line in view.nodes))
    else:
        write_described(describe_view(view), output)


def show_live(client: KubeClient, console: Console, seconds: float, stop: threading.Event, selector: str = "") -> None:
    """Draw the cluster again and again until asked to stop; raises what keeps it from being read."""
    clock, scroll = SystemClock(), Scroll()
    with WatchedCluster(client) as cluster, _Keys(stop) as keys:
        with console.status("reading the cluster"):
            cluster.await_first_look(FIRST_LOOK_SECONDS)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            view, due = view_cluster(cluster.snapshot(), cluster.plans(), selector), clock.monotonic() + seconds
            while not stop.is_set():
                live.update(render_frame(view, clock.now(), console.height, scroll=scroll), refresh=True)
                for key in keys.read(due - clock.monotonic()):
                    if key == _QUIT:
                        return
                    scroll.press(key)
                if (now := clock.monotonic()) >= due:
                    cluster.check()
                    view, due = view_cluster(cluster.snapshot(), cluster.plans(), selector), now + seconds


class _Keys:
    """Reads the keys that are pressed on a terminal, without echo and Enter."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._terminal = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        if self._terminal is not None:
            self._before = termios.tcgetattr(self._terminal)
            # At once: by default `setcbreak` drops keys that were typed before, while the cluster was being read.
            tty.setcbreak(self._terminal, termios.TCSANOW)
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)

    def read(self, seconds: float) -> list[str]:
        """Return the keys as their sequences, as soon as there are some, none after so many seconds."""
        if self._terminal is None:
            self._stop.wait(max(0.0, seconds))
        elif select.select([self._terminal], [], [], max(0.0, seconds))[0]:
            # Nothing to read although there is something: the terminal is gone, and with it whoever could press q.
            return _KEY.findall(os.read(self._terminal, 1024).decode(errors="replace")) or [_QUIT]
        return []


def _look_once(client: KubeClient, selector: str) -> TopView:
    snapshot = read_capacity(client)
    try:
        plans = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    except NotFoundError:
        plans = ()  # a cluster without Berth has nodes, too
    return view_cluster(snapshot, plans, selector)
