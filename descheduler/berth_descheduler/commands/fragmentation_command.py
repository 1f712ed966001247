"""Owns `berth fragmentation`: how many of a shape still fit, and what is stranded and why.

It does not own the numbers (`planner.stranded_capacity`) nor how they look (`capacity_report`).
"""

from collections.abc import Sequence

import click

from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.display.capacity_report import describe_capacity, render_capacity
from berth_descheduler.display.plan_tables import output_console, working
from berth_descheduler.options.command_options import cluster_options
from berth_descheduler.options.described_output import Output, output_option, write_described
from berth_descheduler.options.option_errors import naming_options
from berth_descheduler.planner.asked_shapes import read_shape
from berth_descheduler.planner.stranded_capacity import report_capacity
from berth_descheduler.snapshots import read_capacity, read_snapshot_file
from berth_kube.client import connect


@click.command("fragmentation")
@click.option("--snapshot", metavar="FILE", help="File that `berth snapshot` or kubectl wrote, - for standard input.")
@cluster_options
@click.option(
    "--shape",
    multiple=True,
    metavar="RESOURCE=AMOUNT,...",
    help="What a pod asks for, such as cpu=4,memory=8Gi; may be repeated. Default: what most pending pods ask for, "
    "else the largest pods that controllers make.",
)
@output_option
def fragmentation_command(
    *, snapshot: str | None, kubeconfig: str | None, context: str | None, shape: Sequence[str], output: Output
) -> None:
    """Show how many pods of a shape still fit, and how much of what is free is of no use to them, and why.

    What is free is stranded for a shape where a node has too little of something else left, or does not take it.
    """
    with naming_options({"shape": tuple(shape)}):
        shapes = tuple(map(read_shape, shape))
    with working("reading the cluster"):
        found = report_capacity(_read(snapshot, kubeconfig, context), shapes)
    if output is Output.TABLE:
        output_console().print(render_capacity(found))
    else:
        write_described(describe_capacity(found), output)


def _read(snapshot: str | None, kubeconfig: str | None, context: str | None) -> Snapshot:
    if snapshot is not None:
        found = read_snapshot_file(snapshot)
        if lacking := sorted({SnapshotKind.NODES, SnapshotKind.PODS}.intersection(found.missing)):
            expected = "what `berth snapshot` or `kubectl get nodes,pods -A -o json` writes"
            raise InputError("--snapshot", snapshot, expected, said=f"without {' and '.join(lacking)}")
        return found
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-fragmentation") as client:
        return read_capacity(client)
