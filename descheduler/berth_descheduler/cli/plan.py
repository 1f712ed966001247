"""The commands that only look: `berth plan`, `fragmentation`, `snapshot` and `top`.

They look at a snapshot or at the live cluster, and change nothing.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from berth_core import (
    DEFAULT_NAMESPACE,
    ClockDeadline,
    InputError,
    MigrationPlan,
    Snapshot,
    SnapshotKind,
    SystemClock,
    parse_kinds,
)
from berth_descheduler.options import (
    GroupedCommand,
    Output,
    cluster_options,
    duration_option,
    naming_options,
    naming_what_was_typed,
    output_option,
    planner_options,
    policy_option,
    settings_to_plan,
    write_described,
)
from berth_descheduler.planner import explain_kept_pods, measure_queues, plan, read_shape, report_capacity
from berth_descheduler.report import (
    Occasion,
    ReportFile,
    TopView,
    describe_capacity_and_queues,
    describe_plan,
    describe_view,
    missing_in_words,
    output_console,
    plan_page,
    price_option,
    print_plan,
    render_capacity,
    render_frame,
    render_queues,
    report_option,
    view_cluster,
    working,
)
from berth_descheduler.snapshots import (
    STANDARD_STREAM,
    WatchedCluster,
    dump_cluster,
    read_capacity,
    read_live_snapshot,
    read_snapshot_file,
    write_snapshot_file,
)
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError, connect
from berth_service.process import interrupt_on_signals


@click.command("plan", cls=GroupedCommand)
@click.option("--snapshot", metavar="FILE", help="File that `berth snapshot` or kubectl wrote, - for standard input.")
@click.option(
    "--snapshot-kinds",
    metavar="KINDS",
    help="Kinds that the file was made of, such as nodes,pods,poddisruptionbudgets.policy, or all: of those that it "
    "has no object of there is none. `berth snapshot` writes that down; kubectl does not.",
)
@cluster_options
@policy_option
@planner_options
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Berth's own namespace.")
@click.option("--at", metavar="TIME", help="RFC 3339 time to count the cool-down from; default: now.")
@output_option
@click.option("--every-pod", is_flag=True, help="For machines: name each pod that is not moved, with the reason.")
@report_option
@price_option
def plan_command(
    *,
    snapshot: str | None,
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    at: str | None,
    output: Output,
    every_pod: bool,
    report: ReportFile | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Show what would be moved where, what that brings, and why not more. Changes nothing."""
    settings = settings_to_plan(options, policy, at=at)
    with working("reading the cluster"):
        read = _read_for_plan(snapshot, _stated(snapshot, options["snapshot_kinds"]), kubeconfig, context)
    with naming_what_was_typed(options, policy), working("planning"):
        found = plan(read, settings, ClockDeadline(SystemClock(), settings.time_limit_seconds))
    if report is not None:
        cluster = f"Live cluster{f', context {context}' if context else ''}" if snapshot is None else f"File {snapshot}"
        report.write(plan_page(found, Occasion(SystemClock().now(), cluster), options["price"]))
    if output is Output.TABLE:
        print_plan(found, output_console(), options["price"])
    else:
        for line in missing_in_words(found):
            click.echo(line, err=True)
        write_described(describe_plan(found, explain_kept_pods(read, found) if every_pod else None), output)


def _stated(snapshot: str | None, kinds: str | None) -> frozenset[SnapshotKind]:
    """Return the kinds that the caller states for a snapshot file.

    Raises `InputError` without a snapshot file, and for invalid kinds.
    """
    if kinds is None:
        return frozenset()
    if snapshot is None:
        raise InputError("--snapshot-kinds", kinds, "--snapshot beside it: of a live cluster all kinds are read")
    try:
        return parse_kinds(kinds)
    except InputError as error:
        raise InputError("--snapshot-kinds", error.value, error.expected) from error


def _read_for_plan(
    snapshot: str | None, stated: frozenset[SnapshotKind], kubeconfig: str | None, context: str | None
) -> Snapshot:
    if snapshot is not None:
        return read_snapshot_file(snapshot, stated)
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-plan") as client:
        return read_live_snapshot(client)


# --- fragmentation command -------------------------------------------------------------------------------------------
# `berth fragmentation`: how many of a shape still fit, and what is stranded and why.


@click.command("fragmentation")
@click.option("--snapshot", metavar="FILE", help="File that `berth snapshot` or kubectl wrote, - for standard input.")
@cluster_options
@click.option(
    "--shape",
    multiple=True,
    metavar="RESOURCE=AMOUNT,...",
    help="What a pod asks for, such as cpu=4,memory=8Gi; may be repeated. Default: what most pending pods ask for, "
    "else the largest pods that controllers make.",
)
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Berth's own namespace.")
@output_option
def fragmentation_command(
    *,
    snapshot: str | None,
    kubeconfig: str | None,
    context: str | None,
    shape: Sequence[str],
    namespace: str,
    output: Output,
) -> None:
    """Show how many pods of a shape still fit, and how much of what is free is of no use to them, and why.

    What is free is stranded for a shape where a node has too little of something else left, or does not take it. Of
    queues with a guarantee, show how much of what is left of it pods of the queue's own shapes could use now.
    """
    with naming_options({"shape": tuple(shape)}):
        shapes = tuple(map(read_shape, shape))
    with working("reading the cluster"):
        read = _read_for_capacity(snapshot, kubeconfig, context).within(namespace)
        found = report_capacity(read, shapes)
        queues, unread = measure_queues(read), frozenset(read.unread)
    if output is Output.TABLE:
        output_console().print(render_capacity(found), render_queues(queues, unread))
    else:
        at = None if snapshot is not None else SystemClock().now()
        write_described(describe_capacity_and_queues(found, queues, unread, at), output)


def _read_for_capacity(snapshot: str | None, kubeconfig: str | None, context: str | None) -> Snapshot:
    if snapshot is not None:
        found = read_snapshot_file(snapshot)
        if lacking := sorted({SnapshotKind.NODES, SnapshotKind.PODS}.intersection(found.missing)):
            expected = "what `berth snapshot` or `kubectl get nodes,pods -A -o json` writes"
            raise InputError("--snapshot", snapshot, expected, said=f"without {' and '.join(lacking)}")
        return found
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-fragmentation") as client:
        return read_capacity(client)


# --- snapshot command ------------------------------------------------------------------------------------------------
# `berth snapshot`: writes what `berth plan` reads.


@click.command("snapshot")
@cluster_options
@click.option(
    "--file",
    default=STANDARD_STREAM,
    metavar="FILE",
    help="File to write, compressed if its name ends in .gz; default: standard output.",
)
def snapshot_command(*, kubeconfig: str | None, context: str | None, file: str) -> None:
    """Write the nodes, the pods and all else that a plan is made from, as a v1 List.

    Pods are written as the API server has them, environment variables among them.
    """
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-snapshot") as client:
        raw = dump_cluster(client)
    write_snapshot_file(file, raw)


# --- berth top -------------------------------------------------------------------------------------------------------
# The nodes and the plan under way; live on a terminal, shown once where there is none.

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
