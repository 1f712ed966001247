"""`berth policy`: lints policy files before the cluster sees them, and converts those of the upstream descheduler."""

from collections.abc import Iterable, Sequence

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import InputError, printable_line
from berth_descheduler.options import Output, output_option, to_yaml, write_described
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import (
    CONVERTED_PLUGIN,
    ConvertedProfile,
    Linted,
    Severity,
    convert_upstream,
    lint_located,
    read_documents,
)
from berth_descheduler.report import output_console
from berth_descheduler.snapshots import read_snapshot_file
from berth_service.command_line import OwnGroup, write_line, write_notice

_CLEAN = 0
_WARNED = 1
_WRONG = 2


@click.group("policy", cls=OwnGroup)
def policy_command() -> None:
    """Work on the file of a DeschedulerPolicy; needs no cluster."""


@policy_command.command("lint")
@click.argument("file", type=click.Path())
@click.option("--strict", is_flag=True, help="Exit code 1 where there are warnings.")
@click.option(
    "--snapshot",
    type=click.Path(),
    metavar="SNAPSHOT",
    help="File that `berth snapshot` or kubectl wrote: also say which limits are too low for its nodes.",
)
@output_option
def lint_command(file: str, output: Output, *, strict: bool, snapshot: str | None) -> int:
    """Say what is wrong with the policies in FILE (- for standard input), and what will not work well.

    FILE may also be one of the upstream descheduler (descheduler/v1alpha2), each of whose profiles is read as a policy.
    Exit code 2 if a policy cannot be run.
    """
    documents = read_documents(file, "FILE")
    if not documents:
        raise InputError("FILE", file, "a DeschedulerPolicy", said="empty")
    registry, cluster = installed_plugins(), None if snapshot is None else read_snapshot_file(snapshot)
    linted = [linted_policy for document in documents for linted_policy in lint_located(document, registry, cluster)]
    if output.for_people:
        output_console().print(_render(linted))
    else:
        write_described(describe_linted(linted), output)
    return _exit_code(linted, strict=strict)


@policy_command.command("convert")
@click.argument("file", type=click.Path())
def convert_command(file: str) -> int:
    """Write the policies in FILE (- for standard input) of the upstream descheduler as DeschedulerPolicies.

    FILE is of descheduler/v1alpha2; each of its profiles becomes a policy, which moves no pod that the file keeps. What
    is otherwise than there stands in comments. A policy has the mode Plan and no trigger: set both.
    """
    registry = installed_plugins()
    converted = [
        profile for document in read_documents(file, "FILE") for profile in convert_upstream(document.content, registry)
    ]
    if not converted:
        raise InputError("FILE", file, "a policy of the upstream descheduler", said="empty")
    if all(profile.policy is None for profile in converted):
        notes = "; ".join(note for profile in converted for note in profile.notes)
        text = f"without a plugin that moves pods here: {notes or 'none is enabled'}"
        raise InputError("FILE", file, f"{CONVERTED_PLUGIN} or a plugin of Berth", said=text)
    write_line("---\n".join(map(_as_yaml, converted)).rstrip())
    for profile in converted:
        for note in profile.notes:
            write_notice(f"{profile.name or 'profile'}: {note}")
    return _CLEAN


def _as_yaml(profile: ConvertedProfile) -> str:
    """Return a policy with comments on what is otherwise than in the file; of a profile without one the comments."""
    head = f"From the profile {profile.name or 'without a name'} of a policy of the upstream descheduler."
    heads, document = [f"{head} No policy, as nothing is left that moves pods:"], ""
    if profile.policy is not None:
        heads = [head, "Runs are made on request and touch nothing: set spec.trigger and spec.mode."]
        document = to_yaml(profile.policy)
    return "".join(f"# {printable_line(comment)}\n" for comment in (*heads, *profile.notes)) + document


def describe_linted(linted: Iterable[Linted]) -> list[dict[str, object]]:
    """Return what was found in builtins.

    The names are a promise to those who read the JSON.
    """
    return [
        {
            "policy": linted_policy.name,
            "valid": not linted_policy.count(Severity.ERROR),
            "findings": [
                {
                    "severity": finding.severity.value,
                    "field": finding.field,
                    "line": finding.line,
                    "message": finding.message,
                }
                for finding in linted_policy.findings
            ],
        }
        for linted_policy in linted
    ]


def _render(linted: Sequence[Linted]) -> RenderableType:
    """Return what was found as a table, a line each."""
    table = Table("policy", "", "line", "field", "what is said of it", box=None, padding=(0, 2, 0, 0))
    colours = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
    for linted_policy in linted:
        for finding in linted_policy.findings:
            severity = Text(finding.severity.value, style=colours[finding.severity])
            line = str(finding.line or "")
            table.add_row(Text(linted_policy.name), severity, line, Text(finding.field), Text(finding.message))
        if not linted_policy.findings:
            table.add_row(Text(linted_policy.name), Text("ok", style="green"), "", "", "")
    return table


def _exit_code(linted: Iterable[Linted], *, strict: bool) -> int:
    linted_policies = tuple(linted)
    if any(linted_policy.count(Severity.ERROR) for linted_policy in linted_policies):
        return _WRONG
    has_warnings = any(linted_policy.count(Severity.WARNING) for linted_policy in linted_policies)
    return _WARNED if strict and has_warnings else _CLEAN
