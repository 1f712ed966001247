"""Owns `berth plan`: a plan for a snapshot or for the live cluster, shown and not carried out.

It does not own planning.
"""

from typing import Any

import click

from berth_core.clock import SystemClock
from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind, parse_kinds
from berth_descheduler.display.html_report import ReportFile, report_option
from berth_descheduler.display.plan_tables import output_console, print_plan, working
from berth_descheduler.display.report import describe_plan
from berth_descheduler.display.report_page import Occasion, plan_page
from berth_descheduler.options.command_options import cluster_options, planner_options
from berth_descheduler.options.described_output import Output, output_option, write_described
from berth_descheduler.options.policy_option import naming_what_was_typed, policy_option, settings_to_plan
from berth_descheduler.plan_quality import missing_in_words
from berth_descheduler.planner import ClockDeadline, plan, why_pods_stay
from berth_descheduler.snapshots import read_live_snapshot, read_snapshot_file
from berth_kube.client import connect


@click.command("plan")
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
@click.option("--at", metavar="TIME", help="RFC 3339 time to count the cool-down from; default: now.")
@output_option
@click.option("--every-pod", is_flag=True, help="For machines: name each pod that is not moved, with the reason.")
@report_option
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
        read = _read(snapshot, _stated(snapshot, options["snapshot_kinds"]), kubeconfig, context)
    with naming_what_was_typed(options, policy), working("planning"):
        found = plan(read, settings, ClockDeadline(SystemClock(), settings.time_limit_seconds))
    if report is not None:
        cluster = f"Live cluster{f', context {context}' if context else ''}" if snapshot is None else f"File {snapshot}"
        report.write(plan_page(found, Occasion(SystemClock().now(), cluster)))
    if output is Output.TABLE:
        print_plan(found, output_console())
    else:
        for line in missing_in_words(found):
            click.echo(line, err=True)
        write_described(describe_plan(found, why_pods_stay(read, found) if every_pod else None), output)


def _stated(snapshot: str | None, kinds: str | None) -> frozenset[SnapshotKind]:
    """Return the kinds that a snapshot file was made of, as far as the caller says; raises `InputError`."""
    if kinds is None:
        return frozenset()
    if snapshot is None:
        raise InputError("--snapshot-kinds", kinds, "--snapshot beside it: of a live cluster all kinds are read")
    try:
        return parse_kinds(kinds)
    except InputError as error:
        raise InputError("--snapshot-kinds", error.value, error.expected) from error


def _read(
    snapshot: str | None, stated: frozenset[SnapshotKind], kubeconfig: str | None, context: str | None
) -> Snapshot:
    if snapshot is not None:
        return read_snapshot_file(snapshot, stated)
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-plan") as client:
        return read_live_snapshot(client)
