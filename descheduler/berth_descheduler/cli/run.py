"""`berth run`: one cycle on the live cluster, now.

It shows progress and outcome.
"""

from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from berth_core import BerthError, MigrationPlan, SystemClock
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.options import (
    Output,
    cluster_options,
    cycle_settings,
    naming_what_was_typed,
    output_option,
    planner_options,
    policy_option,
    run_options,
    settings_to_run,
    write_described,
)
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Fragmentation, Plan, measure_cluster
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import PlanSettings, RunDefaults, read_plan_settings
from berth_descheduler.report import Occasion, ReportFile, RunProgress, Terminal, describe_run, report_option, run_page
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube import KubeClient, connect
from berth_service.process import configure_logs, stop_on_signals

_LISTED_FAILURES: Final = 20
_FAILED: Final = 1


@click.command("run")
@cluster_options
@policy_option
@planner_options
@run_options
@click.option("--dry-run", is_flag=True, help="Plan only: nothing is written to the cluster.")
@click.option("--verbose", is_flag=True, help="Log every step to standard error.")
@output_option
@report_option
def run_command(
    *,
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    dry_run: bool,
    verbose: bool,
    output: Output,
    report: ReportFile | None,
    **options: Any,  # noqa: ANN401 - read once by the functions that declare them
) -> int:
    """Plan, reserve, evict and verify, once and now. Exit code 1 if a pod did not land where it was to."""
    asked = cycle_settings(options, trigger="Manual", dry_run=dry_run)
    settings, planner = settings_to_run(options, policy, asked)
    configure_logs("info" if verbose else "error", as_json=False)
    console = Terminal(stderr=True)
    with (
        connect(kubeconfig=kubeconfig, context=context, user_agent="berth-run") as client,
        stop_on_signals() as stop,
        RunProgress(console, asks_for_approval=options["approve"]) as progress,
        naming_what_was_typed(options, policy),
    ):
        clock, defaults = SystemClock(), RunDefaults(settings, planner)

        def settings_of_plan(plan: MigrationPlan) -> PlanSettings:
            return read_plan_settings(client, plan, defaults, installed_plugins(), clock.now())

        outcome = Cycle(CycleContext(client, clock, progress, stop, settings_of_plan), settings, planner).run()
        measured = _look_again(client, progress.found, outcome) if report is not None else None
    if output is Output.TABLE:
        print_outcome(outcome, Terminal())
    else:
        write_described(describe_run(outcome), output)
    if report is not None:
        occasion = Occasion(SystemClock().now(), f"Live cluster{f', context {context}' if context else ''}")
        report.write(run_page(outcome, progress.found, occasion, measured=measured, settings=settings))
    return 0 if outcome.clean else _FAILED


def _look_again(client: KubeClient, planned: Plan | None, outcome: Outcome) -> Fragmentation | None:
    """Return the fragmentation after a run.

    None without moves or where the cluster cannot be read.
    """
    if planned is None or outcome.verdict is not Verdict.CARRIED_OUT:
        return None
    try:
        return measure_cluster(read_live_snapshot(client), planned.settings)
    except BerthError:
        return None


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Show what a cycle did to people."""
    console.print(outcome.sentence, highlight=False)
    if outcome.plan is None:
        return
    if outcome.plan.freed_nodes:
        console.print(f"freed: {', '.join(outcome.plan.freed_nodes)}", highlight=False)
    others = [status for status in outcome.plan.statuses if not status.state.succeeded]
    if not others:
        return
    table = Table("pod", "state", "reason", "message", box=None, padding=(0, 2, 0, 0))
    for status in others[:_LISTED_FAILURES]:
        table.add_row(f"{status.namespace}/{status.pod}", status.state.value, status.reason, status.message)
    console.print(table)
    if len(others) > _LISTED_FAILURES:
        console.print(f"... and {len(others) - _LISTED_FAILURES} more: kubectl get migrationplan -o yaml")
