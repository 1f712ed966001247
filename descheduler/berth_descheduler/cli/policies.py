"""`berth policies`: the DeschedulerPolicies in the cluster.

`berth policies run` asks for a run.
"""

from collections.abc import Iterable, Sequence

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import DeschedulerPolicy, InputError, MigrationPlan, PlanPhase, RunMode, SystemClock
from berth_descheduler.cli.main import complete_policies
from berth_descheduler.cli.output import Output, output_option, write_described
from berth_descheduler.cli.plans import known, tell, wait_options, waiter
from berth_descheduler.migration import request_run
from berth_descheduler.options.command import cluster_options, duration_option
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import Linted, Severity, lint_document, read_documents
from berth_descheduler.report import list_policies, output_console, render_policies
from berth_kube import DESCHEDULER_POLICIES, connect


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
        write_described(list_policies(found), output)


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
            made = request_run(client, SystemClock(), policy, mode=wanted)
        name = made.metadata.name
        click.echo(f"asked for a run of policy {policy}: berth show {name}", err=True)
        if wait:
            made = waiter(client, seconds).wait(name, _has_come_to_rest)
    return tell(made, output, waited=wait)


def _has_come_to_rest(plan: MigrationPlan) -> bool:
    """Return whether nothing more happens to a plan by itself."""
    if plan.phase is PlanPhase.PROPOSED:
        return plan.spec.mode is not RunMode.AUTO
    return plan.phase.terminal


# --- policy command --------------------------------------------------------------------------------------------------
# `berth policy lint`: what is said of a policy's file before the cluster sees it.

_CLEAN = 0
_WARNED = 1
_WRONG = 2


@click.group("policy")
def policy_command() -> None:
    """Work on the file of a DeschedulerPolicy; needs no cluster."""


@policy_command.command("lint")
@click.argument("file")
@click.option("--strict", is_flag=True, help="Exit code 1 where there are warnings.")
@output_option
def lint_command(file: str, output: Output, *, strict: bool) -> int:
    """Say what is wrong with the policies in FILE (- for standard input), and what will not work well.

    FILE may also be one of the upstream descheduler (descheduler/v1alpha2), each of whose profiles is read as a policy.
    Exit code 2 if a policy cannot be run.
    """
    documents = read_documents(file, "FILE")
    if not documents:
        raise InputError("FILE", file, "a DeschedulerPolicy", said="empty")
    registry = installed_plugins()
    linted = [one for raw in documents for one in lint_document(raw, registry)]
    if output is Output.TABLE:
        output_console().print(_render(linted))
    else:
        write_described(describe_linted(linted), output)
    return _exit_code(linted, strict=strict)


def describe_linted(linted: Iterable[Linted]) -> list[dict[str, object]]:
    """Return what was found in builtins.

    The names are a promise to those who read the JSON.
    """
    return [
        {
            "policy": one.name,
            "valid": not one.count(Severity.ERROR),
            "findings": [
                {"severity": found.severity.value, "field": found.field, "message": found.message}
                for found in one.findings
            ],
        }
        for one in linted
    ]


def _render(linted: Sequence[Linted]) -> RenderableType:
    """Return what was found as a table, a line each."""
    table = Table("policy", "", "field", "what is said of it", box=None, padding=(0, 2, 0, 0))
    colours = {Severity.ERROR: "red", Severity.WARNING: "yellow"}
    for one in linted:
        for found in one.findings:
            severity = Text(found.severity.value, style=colours[found.severity])
            table.add_row(Text(one.name), severity, Text(found.field), Text(found.message))
        if not one.findings:
            table.add_row(Text(one.name), Text("ok", style="green"), "", "")
    return table


def _exit_code(linted: Iterable[Linted], *, strict: bool) -> int:
    found = tuple(linted)
    if any(one.count(Severity.ERROR) for one in found):
        return _WRONG
    return _WARNED if strict and any(one.findings for one in found) else _CLEAN
