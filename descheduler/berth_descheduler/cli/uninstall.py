"""`berth uninstall`: takes Berth out of a cluster, in the order in which nothing is left behind.

Exit codes: 0 done, or there was nothing; 1 something is still there, which another call removes.
"""

from collections.abc import Sequence
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from berth_core import SystemClock, count
from berth_descheduler.options import (
    Output,
    cluster_options,
    duration_option,
    namespace_option,
    output_option,
    write_described,
)
from berth_descheduler.report import output_console
from berth_descheduler.uninstall import Item, Removal, Settings
from berth_kube import connect
from berth_service.command_line import OwnCommand, write_notice

_DONE: Final = 0
_LEFT: Final = 1


@click.command("uninstall", cls=OwnCommand)
@click.option("--yes", is_flag=True, help="Do it. Without this the command only shows what would go.")
@click.option("--release", default="berth", show_default=True, help="The release's name for helm.")
@click.option("--keep-crds", is_flag=True, help="Keep Berth's CRDs, without any objects.")
@click.option(
    "--timeout", default="2m", show_default=True, help="How long to wait for what Berth's programs still clear up."
)
@cluster_options
@namespace_option
@output_option
def uninstall_command(
    *,
    yes: bool,
    release: str,
    keep_crds: bool,
    timeout: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    output: Output,
) -> int:
    """Show all that Berth has in the cluster, and with --yes remove it.

    Ends what is live first, while both programs run and clear up after themselves; then removes the programs, their
    webhooks and policies, every mark on pods and nodes, the rest of the release, its namespace and the CRDs. It needs
    neither helm nor running programs, and after an interruption goes on where it ended.
    """
    settings = Settings(
        namespace=namespace,
        release=release,
        keep_crds=keep_crds,
        timeout_seconds=duration_option({"timeout": timeout}, "timeout"),
    )
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-uninstall") as client:
        removal = Removal(client, SystemClock(), settings, report=write_notice)
        if yes:
            removal.carry_out()
        items = tuple(removal.items())
        _show(items, output)
        if yes:
            return _LEFT if items else _DONE
        if items:
            write_notice(removal.why_namespace_stays() or "nothing was changed; --yes removes all of this")
    return _DONE


def _show(items: Sequence[Item], output: Output) -> None:
    if not output.for_people:
        write_described([_describe(item) for item in items], output)
        return
    if not items:
        write_notice("nothing of Berth is in the cluster")
        return
    table = Table("step", "kind", "name", "what goes", box=None, padding=(0, 2, 0, 0))
    for item in items:
        text = ", ".join(item.marks) or "all of it"
        table.add_row(Text(item.step.value), Text(item.resource.kind), Text(item.key), Text(text))
    output_console().print(table)
    write_notice(count(len(items), "object"))


def _describe(item: Item) -> dict[str, Any]:
    return {
        "step": item.step.value,
        "kind": item.resource.name_for_kubectl,
        "namespace": item.namespace,
        "name": item.name,
        "marks": list(item.marks),
    }
