"""Owns `berth plans`, `berth show`, `berth approve` and `berth abort`: the plans in the cluster, for people.

It does not own what is told of a plan (`stored_plans`) nor what may be asked of it (`plan_requests`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from berth_core.clock import Clock, SystemClock
from berth_core.errors import InputError
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.printable import printable_line
from berth_descheduler import plan_requests
from berth_descheduler.commands.completion import complete_plans, complete_policies
from berth_descheduler.commands.plan_waiting import PlanWaiter
from berth_descheduler.display.html_report import ReportFile, report_option
from berth_descheduler.display.plan_tables import output_console
from berth_descheduler.display.stored_plans import (
    describe_in_short,
    describe_stored_plan,
    newest_first,
    render_plan_list,
    render_stored_plan,
    what_to_do,
)
from berth_descheduler.display.terminal import Terminal
from berth_descheduler.options.command_options import cluster_options
from berth_descheduler.options.described_output import Output, output_option, write_described
from berth_descheduler.options.duration_options import duration_option
from berth_kube.client import KubeClient, connect
from berth_kube.errors import NotFoundError
from berth_kube.resources import MIGRATION_PLANS

F = TypeVar("F", bound=Callable[..., Any])

_FAILED: Final = 1
_plan_argument: Final = click.argument("plan", shell_complete=complete_plans)


def wait_options(what: str, default: str) -> Callable[[F], F]:
    """Return what adds `--wait` and `--timeout`; `what` is waited for."""

    def add(command: F) -> F:
        timeout = f"With --wait: give up after this long; default {default}."
        command = click.option("--timeout", default=default, metavar="DURATION", help=timeout)(command)
        return click.option("--wait", is_flag=True, help=f"Wait until {what}.")(command)

    return add


@click.command("plans")
@cluster_options
@click.option("--policy", metavar="NAME", shell_complete=complete_policies, help="Only plans of this policy.")
@click.option(
    "--phase",
    multiple=True,
    type=click.Choice([phase.value for phase in PlanPhase], case_sensitive=False),
    help="Only plans in this phase; may be repeated.",
)
@output_option
def plans_command(
    *, kubeconfig: str | None, context: str | None, policy: str | None, phase: tuple[str, ...], output: Output
) -> None:
    """List the plans in the cluster, the newest first, with how far they are."""
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-plans") as client:
        found = _list(client)
    if policy is not None:
        found = tuple(one for one in found if one.spec.policy == policy)
    if phase:
        found = tuple(one for one in found if one.phase.value in phase)
    if output is Output.TABLE:
        output_console().print(render_plan_list(found, SystemClock().now()))
    else:
        write_described([describe_in_short(one) for one in found], output)


@click.command("show")
@click.argument("plan", required=False, shell_complete=complete_plans)
@cluster_options
@output_option
@report_option
def show_command(
    *, plan: str | None, kubeconfig: str | None, context: str | None, output: Output, report: ReportFile | None
) -> None:
    """Show a plan of the cluster: its moves with their states and reasons, predicted beside achieved.

    Without a name the newest one.
    """
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-show") as client:
        found = _newest(client) if plan is None else _get(client, plan)
        if report is not None:
            _write_report(client, found, report, context)
    if output is Output.TABLE:
        output_console().print(render_stored_plan(found, SystemClock().now()))
    else:
        write_described(describe_stored_plan(found), output)


@click.command("approve")
@_plan_argument
@cluster_options
@wait_options("the plan is over", "30m")
@output_option
def approve_command(
    *, plan: str, kubeconfig: str | None, context: str | None, wait: bool, timeout: str, output: Output
) -> int:
    """Let a plan be carried out that waits for approval. With --wait, exit code 1 if it did not all go as planned."""
    seconds = duration_option({"timeout": timeout}, "timeout")
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-approve") as client:
        found = _ask(client, plan, plan_requests.approve, said="is approved", wait_seconds=seconds if wait else None)
    return tell(found, output, waited=wait)


@click.command("abort")
@_plan_argument
@cluster_options
@wait_options("the plan is over", "5m")
@output_option
def abort_command(
    *, plan: str, kubeconfig: str | None, context: str | None, wait: bool, timeout: str, output: Output
) -> int:
    """Have a plan brought to a safe end: nothing new is begun, what is reserved and not evicted is released."""
    seconds = duration_option({"timeout": timeout}, "timeout")
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-abort") as client:
        found = _ask(client, plan, plan_requests.abort, said="is being aborted", wait_seconds=seconds if wait else None)
    tell(found, output, waited=wait)
    return 0


@contextmanager
def known(argument: str, name: str | None, listed_by: str) -> Iterator[None]:
    """Raise what is not found in the block as an `InputError`: of the name that was given, or of the cluster."""
    try:
        yield
    except NotFoundError as error:
        if name is None:
            raise InputError("cluster", error.call.target, "one with Berth's CRDs", said="one without them") from error
        raise InputError(argument, name, f"a name that `{listed_by}` lists") from error


def waiter(client: KubeClient, seconds: float, clock: Clock | None = None) -> PlanWaiter:
    """Return what waits for a plan, with its progress on standard error."""
    return PlanWaiter(client, clock or SystemClock(), Terminal(stderr=True), seconds)


def tell(plan: MigrationPlan, output: Output, *, waited: bool) -> int:
    """Show a plan that something was asked of and return the exit code: 1 if it is over and not all landed."""
    if output is not Output.TABLE:
        write_described(describe_stored_plan(plan), output)
    elif waited:
        output_console().print(f"{plan.phase.value}: {plan.status.message}", highlight=False, markup=False)
        if advice := what_to_do(plan):
            _say(advice)
    return _FAILED if plan.phase in {PlanPhase.PARTIAL, PlanPhase.FAILED, PlanPhase.ABORTED} else 0


def _ask(
    client: KubeClient,
    plan: str,
    ask: Callable[[KubeClient, str], MigrationPlan],
    *,
    said: str,
    wait_seconds: float | None,
) -> MigrationPlan:
    """Ask something of a plan, say so, and return it; with seconds to wait, as it is when it is over."""
    with known("PLAN", plan, "berth plans"):
        found = ask(client, plan)
    _say(f"plan {plan} {said}")
    return found if wait_seconds is None else waiter(client, wait_seconds).wait_until_over(plan)


def _list(client: KubeClient) -> tuple[MigrationPlan, ...]:
    with known("PLAN", None, "berth plans"):
        return newest_first(client.list(MIGRATION_PLANS, type=MigrationPlan).items)


def _get(client: KubeClient, plan: str) -> MigrationPlan:
    with known("PLAN", plan, "berth plans"):
        return client.get(MIGRATION_PLANS, plan, type=MigrationPlan)


def _newest(client: KubeClient) -> MigrationPlan:
    found = _list(client)
    if not found:
        raise InputError("PLAN", None, "the name of a plan", said="not given, and there is none in the cluster")
    return found[0]


def _write_report(client: KubeClient, plan: MigrationPlan, report: ReportFile, context: str | None) -> None:
    from berth_descheduler.display.report_page import Occasion  # noqa: PLC0415 - only a report needs it
    from berth_descheduler.display.stored_plan_page import stored_plan_page  # noqa: PLC0415 - the same
    from berth_descheduler.snapshots import read_capacity  # noqa: PLC0415 - the same

    occasion = Occasion(SystemClock().now(), f"Live cluster{f', context {context}' if context else ''}")
    report.write(stored_plan_page(plan, read_capacity(client), occasion))


def _say(line: str) -> None:
    """Write a line for people to standard error, which leaves standard output to what was asked for."""
    click.echo(printable_line(line), err=True)
