"""Owns `berth snapshot`: writes what `berth plan` reads.

It does not own the format.
"""

import click

from berth_descheduler.options.command_options import cluster_options
from berth_descheduler.snapshots import STANDARD_STREAM, dump_cluster, write_snapshot_file
from berth_kube.client import connect


@click.command("snapshot")
@cluster_options
@click.option(
    "-o",
    "--output",
    default=STANDARD_STREAM,
    metavar="FILE",
    help="File to write, compressed if its name ends in .gz; default: standard output.",
)
def snapshot_command(*, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Write the nodes, the pods and all else that a plan is made from, as a v1 List.

    Pods are written as the API server has them, environment variables among them.
    """
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-snapshot") as client:
        raw = dump_cluster(client)
    write_snapshot_file(output, raw)
