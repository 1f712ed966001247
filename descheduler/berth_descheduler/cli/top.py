"""`berth top`: the nodes and the plan under way.

It is live on a terminal, shown once where there is none.
"""

import threading
from contextlib import suppress

import click
from rich.console import Console
from rich.live import Live

from berth_core import MigrationPlan, SystemClock
from berth_descheduler.cli.output import Output, output_option, write_described
from berth_descheduler.options.command import cluster_options, duration_option
from berth_descheduler.report import TopView, describe_view, output_console, render_frame, view_cluster
from berth_descheduler.snapshots import WatchedCluster, read_capacity
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError, connect
from berth_service.process import interrupt_on_signals

FIRST_LOOK_SECONDS = 60.0
"""How long the first reading of a cluster may take."""


@click.command("top")
@cluster_options
@click.option("--once", is_flag=True, help="Show one frame and end, as where there is no terminal.")
@click.option("--interval", default="2s", show_default=True, metavar="DURATION", help="Draw anew every so often.")
@output_option
def top_command(*, kubeconfig: str | None, context: str | None, once: bool, interval: str, output: Output) -> None:
    """Show every node with how full it is and what goes on there, and the plan under way. Changes nothing.

    The picture follows the cluster by watches until Ctrl-C.
    """
    seconds = duration_option({"interval": interval}, "interval")
    console = output_console()
    is_live = output is Output.TABLE and not once and console.is_terminal and not console.is_dumb_terminal
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-top") as client:
        if is_live:
            with suppress(KeyboardInterrupt), interrupt_on_signals():
                show_live(client, console, seconds, threading.Event())
            return
        view = _look_once(client)
    if output is Output.TABLE:
        console.print(render_frame(view, SystemClock().now()))
    else:
        write_described(describe_view(view), output)


def show_live(client: KubeClient, console: Console, seconds: float, stop: threading.Event) -> None:
    """Draw the cluster again and again until asked to stop.

    Raises what keeps it from being read.
    """
    clock = SystemClock()
    with WatchedCluster(client) as cluster:
        with console.status("reading the cluster"):
            cluster.await_first_look(FIRST_LOOK_SECONDS)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not stop.is_set():
                cluster.check()
                view = view_cluster(cluster.snapshot(), cluster.plans())
                live.update(render_frame(view, clock.now(), console.height), refresh=True)
                stop.wait(seconds)


def _look_once(client: KubeClient) -> TopView:
    snapshot = read_capacity(client)
    try:
        plans = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    except NotFoundError:
        plans = ()  # a cluster without Berth has nodes, too
    return view_cluster(snapshot, plans)
