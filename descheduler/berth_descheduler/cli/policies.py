"""`berth policies`: what is in force, and a run on request."""

import click

from berth_core import DeschedulerPolicy, MigrationPlan, PlanPhase, RunMode, SystemClock
from berth_descheduler.cli.plans import (
    build_waiter,
    explaining_not_found,
    refuse_without_service,
    show_after_request,
    wait_options,
    write_objects,
)
from berth_descheduler.migration.plans.requests import request_run
from berth_descheduler.options import (
    Output,
    all_namespaces_option,
    cluster_options,
    complete_policies,
    duration_option,
    objects_output_option,
    selector_option,
)
from berth_descheduler.report import NO_POLICIES, list_policies, output_console, render_policies
from berth_kube import DESCHEDULER_POLICIES, connect
from berth_service.command_line import OwnGroup, write_notice


@click.group("policies", cls=OwnGroup, invoke_without_command=True)
@cluster_options
@selector_option("policies")
@all_namespaces_option
@objects_output_option
@click.pass_context
def policies_command(
    asked: click.Context, *, kubeconfig: str | None, context: str | None, selector: str, output: Output
) -> None:
    """List the policies in the cluster: when they run, whether they can, and how their last run ended."""
    if asked.invoked_subcommand is not None:
        options = {"kubeconfig": kubeconfig, "context": context, "output": output.value}
        asked.default_map = {asked.invoked_subcommand: options}  # options may stand before `run` as well as after it
        return
    with (
        connect(kubeconfig=kubeconfig, context=context, user_agent="berth-policies") as client,
        explaining_not_found("POLICY", None, "berth policies"),
    ):
        policies = client.list(DESCHEDULER_POLICIES, label_selector=selector, type=DeschedulerPolicy).items
    if output.for_people:
        output_console().print(render_policies(policies, SystemClock().now(), wide=output is Output.WIDE))
    else:
        write_objects(DESCHEDULER_POLICIES, policies, list_policies(policies), output)
        if not policies:
            write_notice(NO_POLICIES)


@policies_command.command("run")
@click.argument("policy", shell_complete=complete_policies)
@cluster_options
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in RunMode], case_sensitive=False),
    help="Plan: only make the plan; Approve: wait for `berth approve`; Auto: carry it out. Default: the policy's.",
)
@wait_options("the plan is made and, in the mode Auto, over", "30m")
@objects_output_option
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
    run_mode = None if mode is None else RunMode(mode)
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-policies") as client:
        with explaining_not_found("POLICY", policy, "berth policies"):
            client.get(DESCHEDULER_POLICIES, policy, type=DeschedulerPolicy)
            if wait:
                refuse_without_service(client, "nothing was asked for")
            requested_plan = request_run(client, SystemClock(), policy, mode=run_mode)
        name = requested_plan.metadata.name
        click.echo(f"asked for a run of policy {policy}: berth show {name}", err=True)
        if wait:
            requested_plan = build_waiter(client, seconds).wait(name, _has_come_to_rest)
    return show_after_request(requested_plan, output, waited=wait)


def _has_come_to_rest(plan: MigrationPlan) -> bool:
    """Return whether nothing more happens to a plan by itself."""
    if plan.phase is PlanPhase.PROPOSED:
        return plan.spec.mode is not RunMode.AUTO
    return plan.phase.terminal
