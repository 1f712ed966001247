"""`berth snapshot` writes what `berth plan` reads; `--snapshot` reads it."""

import click

from berth_descheduler.options import cluster_options, namespace_option
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.snapshots import STANDARD_STREAM, dump_cluster, write_snapshot_file
from berth_kube import connect
from berth_service.command_line import OwnCommand

snapshot_option = click.option(
    "--snapshot",
    type=click.Path(),
    metavar="FILE",
    help="File that `berth snapshot` or kubectl wrote, - for standard input.",
)


@click.command("snapshot", cls=OwnCommand)
@cluster_options
@namespace_option
@click.option(
    "--file",
    type=click.Path(),
    default=STANDARD_STREAM,
    metavar="FILE",
    help="File to write, compressed if its name ends in .gz; default: standard output.",
)
def snapshot_command(*, kubeconfig: str | None, context: str | None, namespace: str, file: str) -> None:
    """Write the nodes, the pods and all else that a plan is made from, as a v1 List.

    Pods are written as the API server has them, environment variables among them.
    """
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-snapshot") as client:
        document = dump_cluster(client, installed_plugins().reads(), namespace)
    write_snapshot_file(file, document)
