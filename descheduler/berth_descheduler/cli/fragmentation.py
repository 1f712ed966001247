"""`berth fragmentation`: how many of a shape still fit, and what is stranded and why."""

from collections.abc import Sequence
from typing import Final

import click
import msgspec

from berth_core import InputError, Snapshot, SnapshotKind, SystemClock
from berth_descheduler.cli.snapshot import snapshot_option
from berth_descheduler.options import (
    Output,
    cluster_options,
    namespace_option,
    naming_options,
    output_option,
    write_described,
)
from berth_descheduler.planner import read_shape, report_capacity
from berth_descheduler.registry import EVERY_CAPABILITY
from berth_descheduler.report import describe_capacity, output_console, render_capacity, working
from berth_descheduler.snapshots import read_capacity, read_snapshot_file
from berth_kube import connect
from berth_service.command_line import OwnCommand

_SECTIONS: Final = tuple(section for capability in EVERY_CAPABILITY for section in capability.capacity_sections)
_FRAGMENTATION_HELP: Final = """
Show how many pods of a shape still fit, and how much of what is free they cannot use, and why.

What is free is stranded for a shape where a node has too little of something else left, or does not take it.
"""


@click.command(
    "fragmentation",
    cls=OwnCommand,
    help=" ".join((_FRAGMENTATION_HELP.strip(), *(section.help for section in _SECTIONS))),
)
@snapshot_option
@cluster_options
@click.option(
    "--shape",
    multiple=True,
    metavar="RESOURCE=AMOUNT,...",
    help="What a pod asks for, such as cpu=4,memory=8Gi; may be repeated. Default: what most pending pods ask for, "
    "else the largest pods that controllers make.",
)
@namespace_option
@output_option
def fragmentation_command(
    *,
    snapshot: str | None,
    kubeconfig: str | None,
    context: str | None,
    shape: Sequence[str],
    namespace: str,
    output: Output,
) -> None:
    with naming_options({"shape": tuple(shape)}):
        shapes = tuple(map(read_shape, shape))
    with working("reading the cluster"):
        read = _read_for_capacity(snapshot, kubeconfig, context).within(namespace)
        capacity = report_capacity(read, shapes)
        further = [section.measure(read) for section in _SECTIONS]
    if output.for_people:
        output_console().print(render_capacity(capacity), *(section.render() for section in further))
    else:
        measured_at = None if snapshot is not None else SystemClock().now()
        fields = msgspec.to_builtins(describe_capacity(capacity, measured_at))
        for section in further:
            fields |= section.fields()
        write_described(fields, output)


def _read_for_capacity(snapshot: str | None, kubeconfig: str | None, context: str | None) -> Snapshot:
    if snapshot is not None:
        file_snapshot = read_snapshot_file(snapshot)
        if missing_kinds := sorted({SnapshotKind.NODES, SnapshotKind.PODS}.intersection(file_snapshot.missing)):
            expected = "what `berth snapshot` or `kubectl get nodes,pods -A -o json` writes"
            raise InputError("--snapshot", snapshot, expected, said=f"without {' and '.join(missing_kinds)}")
        return file_snapshot
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-fragmentation") as client:
        return read_capacity(client)
