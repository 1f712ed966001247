"""`berth run`: a cycle on the live cluster, now, with its progress and outcome."""

import select
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from berth_core import BerthError, InputError, MigrationPlan, MoveState, SystemClock, count
from berth_descheduler.cli.lost_leases import run_persistently
from berth_descheduler.cli.main import INTERRUPTED
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.options import (
    GroupedCommand,
    Output,
    cluster_options,
    cycle_settings,
    naming_what_was_typed,
    objects_output_option,
    planner_options,
    policy_option,
    run_options,
    settings_to_run,
    write_described,
    write_names,
)
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Fragmentation, Plan, measure_cluster
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import PlanSettings, RunDefaults, read_plan_settings
from berth_descheduler.report import (
    Occasion,
    ReportFile,
    RunProgress,
    Terminal,
    describe_run,
    price_option,
    refuse_second_prices,
    report_option,
    run_page,
)
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube import MIGRATION_PLANS, KubeClient, connect
from berth_service.logs import configure_logs
from berth_service.signals import stop_on_signals

LISTED_FAILURES: Final = 20
_FAILED: Final = 1
_LOOK_SECONDS: Final = 1.0


@click.command("run", cls=GroupedCommand)
@cluster_options
@policy_option
@planner_options
@run_options
@click.option("--yes", is_flag=True, help="Carry the plan out without asking; required in scripts.")
@click.option("--dry-run", is_flag=True, help="Plan only: nothing is written to the cluster.")
@click.option("--verbose", is_flag=True, help="Log every step to standard error.")
@objects_output_option
@report_option
@price_option
def run_command(
    *,
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    yes: bool,
    dry_run: bool,
    verbose: bool,
    output: Output,
    report: ReportFile | None,
    **options: Any,  # noqa: ANN401 - read once by the functions that declare them
) -> int:
    """Plan, ask, reserve, evict and verify, once and now. Exit code 1 if a pod did not land where it was meant to."""
    cycle = cycle_settings(options, trigger="Manual", dry_run=dry_run)
    settings, planner = settings_to_run(options, policy, cycle)
    prices: Mapping[str, float] = options["price"]
    refuse_second_prices(prices, is_priced=planner.weighs_nodes)
    asks_people = not (yes or dry_run or options["wait_for_approval"])
    if asks_people and not _can_ask():
        expected = "it, --dry-run or --wait-for-approval where no terminal is there to ask"
        raise InputError("--yes", None, expected, said="missing")
    configure_logs("info" if verbose else "error", as_json=False)
    console = Terminal(stderr=True)
    with (
        connect(kubeconfig=kubeconfig, context=context, user_agent="berth-run") as client,
        stop_on_signals() as stop,
        RunProgress(console, asks_for_approval=options["wait_for_approval"], stop=stop, asks=asks_people) as progress,
        naming_what_was_typed(options, policy),
    ):
        clock, defaults = SystemClock(), RunDefaults(settings, planner)

        def settings_of_plan(plan: MigrationPlan) -> PlanSettings:
            return read_plan_settings(client, plan, defaults, installed_plugins(), clock.now())

        def confirm(found: Plan) -> bool:
            return progress.ask(found, lambda: _read_answer(stop, clock, settings.approval_seconds), prices)

        cycle_context = CycleContext(client, clock, progress, stop, settings_of_plan, confirm if asks_people else None)
        max_seconds = settings.execution.max_seconds
        outcome = run_persistently(lambda context: Cycle(context, settings, planner), cycle_context, max_seconds)
        proposed_plan = progress.begun or progress.proposed_plan
        measured = _look_again(client, proposed_plan, outcome) if report is not None else None
    if output.for_people:
        print_outcome(outcome, Terminal())
    elif output is Output.NAME:
        write_names(MIGRATION_PLANS.name_for_kubectl, plan_names(outcome))
    else:
        write_described(describe_run(outcome), output)
    if stop.is_set():
        say_what_stays(outcome, console)
    if report is not None:
        occasion = Occasion(SystemClock().now(), f"Live cluster{f', context {context}' if context else ''}")
        report.write(run_page(outcome, proposed_plan, occasion, measured=measured, settings=settings, prices=prices))
    return exit_code(stop, well=outcome.clean)


def plan_names(outcome: Outcome) -> Sequence[str]:
    """Return the names of the plans of a cycle, in their order."""
    return [plan_outcome.plan for plan_outcome in (*outcome.replanned, outcome.plan) if plan_outcome is not None]


def exit_code(stop: threading.Event, *, well: bool) -> int:
    return 0 if well else INTERRUPTED if stop.is_set() else _FAILED


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _read_answer(stop: threading.Event, clock: SystemClock, seconds: float) -> str:
    """Return the line that is typed, "" without one in time or once the run is to stop."""
    deadline = clock.monotonic() + seconds
    while not stop.is_set() and clock.monotonic() < deadline:
        if select.select([sys.stdin], [], [], _LOOK_SECONDS / 4)[0]:
            return sys.stdin.readline().strip()
    return ""


def say_what_stays(outcome: Outcome, console: Console) -> None:
    """Say what an interrupted run has left as it was."""
    if outcome.plan is None:
        return
    skipped_pods = sum(status.state is MoveState.SKIPPED for status in outcome.plan.statuses)
    stays_text = (
        "1 pod stays where it was" if skipped_pods == 1 else f"{count(skipped_pods, 'pod')} stay where they were"
    )
    hint = f"interrupted: {stays_text}; berth show {outcome.plan.plan} says what became of each move, berth run goes on"
    console.print(hint, highlight=False, soft_wrap=True)


def _look_again(client: KubeClient, planned: Plan | None, outcome: Outcome) -> Fragmentation | None:
    """Return the fragmentation after a run; None without moves or where the cluster cannot be read."""
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
    plans = (*outcome.replanned, outcome.plan)
    freed_nodes = {node for plan in plans for node in plan.freed_nodes}
    if freed_nodes:
        console.print(f"freed: {', '.join(sorted(freed_nodes))}", highlight=False)
    if freeing_nodes := {node for plan in plans for node in plan.freeing_nodes} - freed_nodes:
        console.print(f"to be freed once their pods have ended: {', '.join(sorted(freeing_nodes))}", highlight=False)
    noteworthy_statuses = [status for status in outcome.plan.statuses if not status.state.succeeded or status.reason]
    if not noteworthy_statuses:
        return
    table = Table("pod", "state", "reason", "message", box=None, padding=(0, 2, 0, 0))
    for status in noteworthy_statuses[:LISTED_FAILURES]:
        table.add_row(f"{status.namespace}/{status.pod}", status.state.value, status.reason, status.message)
    console.print(table)
    if len(noteworthy_statuses) > LISTED_FAILURES:
        console.print(f"... and {len(noteworthy_statuses) - LISTED_FAILURES} more: kubectl get migrationplan -o yaml")
