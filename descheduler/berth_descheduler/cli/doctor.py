"""`berth doctor`: finds and explains what Berth should not have left.

It looks at a live cluster. It changes nothing.

Exit codes: 0 all is well; 1 something is not; 2 the input is wrong, or the cluster could not be looked at.
"""

from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from berth_core import BerthError, Clock, InputError, SystemClock, printable_line
from berth_descheduler.doctor import ADVICE, describe_finding, find_all_troubles
from berth_descheduler.migration.replacement_trial.findings import why_not_tried
from berth_descheduler.options import Output, cluster_options, namespace_option, output_option, write_described
from berth_descheduler.report import Terminal
from berth_kube import RESERVATIONS, KubeClient, NotFoundError, connect
from berth_sandbox.invariants import InvariantMonitor, Violation, monitor_invariants
from berth_service.command_line import OwnCommand

_TROUBLE: Final = 1
_CANNOT_LOOK: Final = 2


@click.command("doctor", cls=OwnCommand)
@cluster_options
@namespace_option
@output_option
def doctor_command(*, kubeconfig: str | None, context: str | None, namespace: str, output: Output) -> int:
    """Look for what Berth should not have left behind or cannot do, and explain it. Changes nothing.

    One look is enough if all is well. What may still resolve by itself is watched until it does, or until it has
    lasted for too long. Exit code 0: all is well; 1: something was found; 2: the cluster could not be looked at.
    """
    console = Terminal(stderr=True)
    clock = SystemClock()
    started = clock.monotonic()
    try:
        with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-doctor") as client:
            _require_berth(client)
            violations = _examine(client, clock, namespace, console)
            reason_not_tried = why_not_tried(client, namespace)
    except BerthError as error:
        click.echo(f"berth: {printable_line(str(error))}", err=True)
        return _CANNOT_LOOK
    seconds = clock.monotonic() - started
    if output.for_people:
        print_findings(violations, namespace, Terminal())
        print_trial(reason_not_tried, Terminal())
    else:
        described: dict[str, Any] = {"healthy": not violations, "seconds": round(seconds, 1)}
        described |= {"replacementsTried": not reason_not_tried, "replacementsNotTriedReason": reason_not_tried}
        findings = [msgspec.to_builtins(describe_finding(violation, namespace)) for violation in violations]
        write_described({**described, "findings": findings}, output)
    return _TROUBLE if violations else 0


def _require_berth(client: KubeClient) -> None:
    """Raise `InputError` where the cluster does not know Reservations: there would be nothing to look for."""
    try:
        client.list(RESERVATIONS)
    except NotFoundError as error:
        raise InputError("cluster", client.server_url, "one with Berth's CRDs installed") from error


def _examine(client: KubeClient, clock: Clock, namespace: str, console: Console) -> tuple[Violation, ...]:
    """Watch the cluster until nothing is in doubt, and show progress."""

    def look() -> tuple[Violation, ...]:
        return find_all_troubles(client, namespace, clock.now())

    with console.status("reading the cluster") as status:
        return monitor_invariants(look, clock, tell=lambda monitor: status.update(_describe_progress(monitor)))


def _describe_progress(monitor: InvariantMonitor) -> str:
    """Return what the watch has come to, for people."""
    suspect_count, breach_count = len(monitor.suspects()), len(monitor.breaches())
    breaches_text = f"{breach_count} found; " if breach_count else ""
    return f"{breaches_text}{suspect_count} may still pass by itself, watching for {monitor.seconds_left():.0f} s more"


def print_findings(found: Sequence[Violation], own_namespace: str, console: Console) -> None:
    """Print findings for people.

    Each kind is explained once, with all that it was found on.
    """
    if not found:
        console.print("All is well: Berth has left nothing behind, and what it says is true.")
    present_invariants = {violation.invariant for violation in found}
    for invariant, advice in (
        (invariant, sentence) for invariant, sentence in ADVICE.items() if invariant in present_invariants
    ):
        console.print(f"{invariant}: {advice.what}", style="bold", highlight=False, markup=False)
        console.print(f"  {advice.why}", highlight=False, markup=False)
        violations_of_invariant = [violation for violation in found if violation.invariant is invariant]
        for violation in violations_of_invariant:
            console.print(f"  - {violation.target}: {violation.detail}", highlight=False, markup=False)
        console.print(f"  {advice.to_do}", highlight=False, markup=False)
        for command in dict.fromkeys(
            advice.command_for(violation, own_namespace) for violation in violations_of_invariant
        ):
            console.print(f"    {command}", highlight=False, markup=False, soft_wrap=True)
        console.print()


def print_trial(reason_not_tried: str, console: Console) -> None:
    """Print whether evictions are preceded by a trial of what comes in the pod's stead."""
    text = "Before an eviction the API server is asked by dry run for the pod that comes in its stead."
    if reason_not_tried:
        text = f"Before an eviction the pod that comes in its stead is not tried by dry run: {reason_not_tried}."
    console.print(text, highlight=False, markup=False)
