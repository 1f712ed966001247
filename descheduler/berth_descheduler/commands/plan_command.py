"""Owns `berth plan`: a plan for a snapshot or for the live cluster, shown and not carried out.

It does not own planning.
"""

from typing import Any

import click

from berth_core.clock import SystemClock
from berth_core.snapshot import Snapshot
from berth_descheduler.display.html_report import ReportFile, report_option
from berth_descheduler.display.plan_tables import output_console, print_plan, working
from berth_descheduler.display.report import describe_plan
from berth_descheduler.display.report_page import Occasion, plan_page
from berth_descheduler.options.command_options import cluster_options, planner_options
from berth_descheduler.options.described_output import Output, output_option, write_described
from berth_descheduler.options.policy_option import naming_what_was_typed, policy_option, settings_to_plan
from berth_descheduler.planner import ClockDeadline, plan, why_pods_stay
from berth_descheduler.snapshots import read_live_snapshot, read_snapshot_file
from berth_kube.client import connect


@click.command("plan")
@click.option("--snapshot", metavar="FILE", help="File that `berth snapshot` wrote, - for standard input.")
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
        read = _read(snapshot, kubeconfig, context)
    with naming_what_was_typed(options, policy), working("planning"):
        found = plan(read, settings, ClockDeadline(SystemClock(), settings.time_limit_seconds))
    if report is not None:
        cluster = f"Live cluster{f', context {context}' if context else ''}" if snapshot is None else f"File {snapshot}"
        report.write(plan_page(found, Occasion(SystemClock().now(), cluster)))
    if output is Output.TABLE:
        print_plan(found, output_console())
    else:
        write_described(describe_plan(found, why_pods_stay(read, found) if every_pod else None), output)


def _read(snapshot: str | None, kubeconfig: str | None, context: str | None) -> Snapshot:
    if snapshot is not None:
        return read_snapshot_file(snapshot)
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-plan") as client:
        return read_live_snapshot(client)
