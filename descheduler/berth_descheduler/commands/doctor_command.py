"""Owns `berth doctor`: looks at a live cluster for what Berth should not have left, and explains it.

It does not own what is looked for (`berth_sandbox.invariants`) nor the words (`doctor_advice`). It changes nothing.

Exit codes: 0 all is well; 1 something is not; 2 the input is wrong, or the cluster could not be looked at.
"""

from collections.abc import Sequence
from typing import Any, Final

import click
from rich.console import Console

from berth_core.clock import Clock, SystemClock
from berth_core.errors import BerthError, InputError
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.printable import printable_line
from berth_descheduler.commands.doctor_advice import ADVICE
from berth_descheduler.display.terminal import Terminal
from berth_descheduler.options.command_options import cluster_options
from berth_descheduler.options.described_output import Output, output_option, write_described
from berth_kube.client import KubeClient, connect
from berth_kube.errors import NotFoundError
from berth_kube.resources import RESERVATIONS
from berth_sandbox.invariants import Vigil, Violation, find_troubles, keep_watch, read_state

_TROUBLE: Final = 1
_CANNOT_LOOK: Final = 2


@click.command("doctor")
@cluster_options
@click.option(
    "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Berth's own namespace: placeholders and Leases."
)
@output_option
def doctor_command(*, kubeconfig: str | None, context: str | None, namespace: str, output: Output) -> int:
    """Look for what Berth should not have left behind, and explain what is found. Changes nothing.

    One look is enough where all is well. What may still pass by itself is watched until it has, or has stood for
    longer than it may. Exit code 0: all is well; 1: something was found; 2: the cluster could not be looked at.
    """
    console = Terminal(stderr=True)
    clock = SystemClock()
    started = clock.monotonic()
    try:
        with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-doctor") as client:
            _require_berth(client)
            found = _examine(client, clock, namespace, console)
    except BerthError as error:
        click.echo(f"berth: {printable_line(str(error))}", err=True)
        return _CANNOT_LOOK
    seconds = clock.monotonic() - started
    if output is Output.TABLE:
        print_findings(found, namespace, Terminal())
    else:
        described = {"healthy": not found, "seconds": round(seconds, 1)}
        findings = [describe_finding(violation, namespace) for violation in found]
        write_described({**described, "findings": findings}, output)
    return _TROUBLE if found else 0


def _require_berth(client: KubeClient) -> None:
    """Raise InputError where the cluster does not know Reservations: there would be nothing to look for."""
    try:
        client.list(RESERVATIONS)
    except NotFoundError as error:
        raise InputError("cluster", client.server_url, "one with Berth's CRDs installed") from error


def _examine(client: KubeClient, clock: Clock, namespace: str, console: Console) -> tuple[Violation, ...]:
    """Watch the cluster until nothing is in doubt, and show how far that is."""

    def look() -> tuple[Violation, ...]:
        return find_troubles(read_state(client, own_namespace=namespace), now=clock.now())

    with console.status("reading the cluster") as status:
        return keep_watch(look, clock, tell=lambda vigil: status.update(_describe_progress(vigil)))


def _describe_progress(vigil: Vigil) -> str:
    """Return what the watch has come to, for people."""
    suspects, breaches = len(vigil.suspects()), len(vigil.breaches())
    found = f"{breaches} found; " if breaches else ""
    return f"{found}{suspects} may still pass by itself, watching for {vigil.seconds_left():.0f} s more"


def describe_finding(violation: Violation, own_namespace: str) -> dict[str, Any]:
    """Return a finding with its explanation, for JSON."""
    advice = ADVICE[violation.invariant]
    return {
        "invariant": violation.invariant.value,
        "kind": violation.kind,
        "namespace": violation.namespace,
        "name": violation.name,
        "detail": violation.detail,
        "what": advice.what,
        "why": advice.why,
        "toDo": advice.to_do,
        "command": advice.command_for(violation, own_namespace),
    }


def print_findings(found: Sequence[Violation], own_namespace: str, console: Console) -> None:
    """Print findings for people; each kind is explained once, with all that it was found on."""
    if not found:
        console.print("All is well: Berth has left nothing behind, and what it says is true.")
    present = {violation.invariant for violation in found}
    for invariant, advice in ((invariant, told) for invariant, told in ADVICE.items() if invariant in present):
        console.print(f"{invariant}: {advice.what}", style="bold", highlight=False, markup=False)
        console.print(f"  {advice.why}", highlight=False, markup=False)
        same = [violation for violation in found if violation.invariant is invariant]
        for violation in same:
            console.print(f"  - {violation.target}: {violation.detail}", highlight=False, markup=False)
        console.print(f"  {advice.to_do}", highlight=False, markup=False)
        for command in dict.fromkeys(advice.command_for(violation, own_namespace) for violation in same):
            console.print(f"    {command}", highlight=False, markup=False, soft_wrap=True)
        console.print()
