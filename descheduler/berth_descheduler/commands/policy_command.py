"""Owns `berth policy lint`: what is said of a policy's file before the cluster sees it.

It does not own what is found (`policies.lint`).
"""

from collections.abc import Iterable, Sequence

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from berth_core.errors import InputError
from berth_descheduler.display.plan_tables import output_console
from berth_descheduler.options.described_output import Output, output_option, write_described
from berth_descheduler.plugins.builtin import installed_plugins
from berth_descheduler.policies.files import read_documents
from berth_descheduler.policies.lint import Linted, Severity, lint_document

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
    """Return what was found in builtins; the names are a promise to those who read the JSON."""
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
