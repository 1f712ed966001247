"""Owns `berth policies`: the DeschedulerPolicies in the cluster, and `berth policies run`, which asks for a run.

It does not own what is told of them (`policy_tables`), nor the run: the service makes it.
"""

import click

from berth_core.clock import SystemClock
from berth_core.migration_plans import MigrationPlan, PlanPhase, RunMode
from berth_core.policies import DeschedulerPolicy
from berth_descheduler import plan_requests
from berth_descheduler.commands.completion import complete_policies
from berth_descheduler.commands.plan_commands import known, tell, wait_options, waiter
from berth_descheduler.display.plan_tables import output_console
from berth_descheduler.display.policy_tables import describe_policy, render_policies
from berth_descheduler.options.command_options import cluster_options
from berth_descheduler.options.described_output import Output, output_option, write_described
from berth_descheduler.options.duration_options import duration_option
from berth_kube.client import connect
from berth_kube.resources import DESCHEDULER_POLICIES


@click.group("policies", invoke_without_command=True)
@cluster_options
@output_option
@click.pass_context
def policies_command(asked: click.Context, *, kubeconfig: str | None, context: str | None, output: Output) -> None:
    """List the policies in the cluster: when they run, whether they can, and what became of their last run."""
    if asked.invoked_subcommand is not None:
        given = {"kubeconfig": kubeconfig, "context": context, "output": output.value}
        asked.default_map = {asked.invoked_subcommand: given}  # options may stand before `run` as well as after it
        return
    with (
        connect(kubeconfig=kubeconfig, context=context, user_agent="berth-policies") as client,
        known("POLICY", None, "berth policies"),
    ):
        found = client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items
    if output is Output.TABLE:
        output_console().print(render_policies(found, SystemClock().now()))
    else:
        write_described([describe_policy(one) for one in sorted(found, key=lambda one: one.metadata.name)], output)


@policies_command.command("run")
@click.argument("policy", shell_complete=complete_policies)
@cluster_options
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in RunMode], case_sensitive=False),
    help="Plan: only make the plan; Approve: wait for `berth approve`; Auto: carry it out. Default: the policy's.",
)
@wait_options("the plan is made and, in the mode Auto, over", "30m")
@output_option
def run_policy_command(
    *,
    policy: str,
    kubeconfig: str | None,
    context: str | None,
    mode: str | None,
    wait: bool,
    timeout: str,
    output: Output,
) -> int:
    """Ask the service in the cluster to run a policy now. With --wait, exit code 1 if it did not all go as planned."""
    seconds = duration_option({"timeout": timeout}, "timeout")
    wanted = None if mode is None else RunMode(mode)
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-policies") as client:
        with known("POLICY", policy, "berth policies"):
            made = plan_requests.request_run(client, SystemClock(), policy, mode=wanted)
        name = made.metadata.name
        click.echo(f"asked for a run of policy {policy}: berth show {name}", err=True)
        if wait:
            made = waiter(client, seconds).wait(name, _has_come_to_rest)
    return tell(made, output, waited=wait)


def _has_come_to_rest(plan: MigrationPlan) -> bool:
    """Tell whether nothing more happens to a plan by itself."""
    if plan.phase is PlanPhase.PROPOSED:
        return plan.spec.mode is not RunMode.AUTO
    return plan.phase.terminal
