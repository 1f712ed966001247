"""Commands whose help groups options by headings, and the options that say which cluster."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from berth_core import DEFAULT_NAMESPACE
from berth_descheduler.options.completion import complete_contexts, complete_namespaces
from berth_service.command_line import OwnCommand

F = TypeVar("F", bound=Callable[..., Any])


PARAMETERS: Final = "__click_params__"
"""Where click keeps the options of a function until it becomes a command."""

_OTHERS: Final = "Options"


class GroupedCommand(OwnCommand):
    """A command whose help lists its options under their headings, those without one last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section for each heading."""
        records: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                records.setdefault(getattr(parameter, "heading", _OTHERS), []).append(record)
        for heading in sorted(records, key=_OTHERS.__eq__):
            with formatter.section(heading):
                formatter.write_dl(records[heading])


def with_options(command: F, options: Sequence[Callable[[F], F]], heading: str = _OTHERS) -> F:
    """Return a command whose help lists options in the order given, in a `GroupedCommand` under a heading."""
    for option in reversed(options):
        command = option(command)
        getattr(command, PARAMETERS)[-1].heading = heading  # of the click.Option
    return command


def cluster_options(command: F) -> F:
    """Add `--kubeconfig` and `--context`."""
    options = (
        click.option(
            "--kubeconfig",
            type=click.Path(),
            metavar="FILE",
            help="Kubeconfig file; default: KUBECONFIG, the pod's, ~/.kube.",
        ),
        click.option(
            "--context",
            metavar="NAME",
            shell_complete=complete_contexts,
            help="Context of the kubeconfig; default: its current one.",
        ),
    )
    return with_options(command, options, "Cluster")


def namespace_option(command: F) -> F:
    """Add `--namespace`, which is Berth's own."""
    text = "Berth's own namespace: placeholders and Leases."
    option = click.option(
        "-n",
        "--namespace",
        default=DEFAULT_NAMESPACE,
        show_default=True,
        shell_complete=complete_namespaces,
        help=text,
    )
    return with_options(command, (option,), "Cluster")
