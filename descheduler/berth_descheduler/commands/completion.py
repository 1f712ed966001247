"""Owns what the shell is offered for the names of plans and policies, and that it never waits long for that.

It does not own the rest of completion, which is click's.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import click
import msgspec
from click.shell_completion import CompletionItem, ShellComplete

from berth_core.objects import ObjectMeta
from berth_core.printable import printable_text
from berth_kube.client import connect
from berth_kube.resources import DESCHEDULER_POLICIES, MIGRATION_PLANS, Resource

LONGEST_SECONDS: Final = 2.0
"""After this long nothing is offered: a shell that hangs is worse."""

_NO_FILE_NAMES: Final = 4
"""What kubectl's completion is told last: no names of files beside these."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class _Named(msgspec.Struct, frozen=True):
    """Any object, of which only the name is looked at."""

    metadata: ObjectMeta


def names_of(resource: Resource) -> Complete:
    """Return what completes the name of an object; where the cluster cannot be asked in time it offers nothing."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: list[str] = []
        asking = threading.Thread(target=_ask, args=(context, resource, found), daemon=True)
        asking.start()
        asking.join(LONGEST_SECONDS)
        return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]

    return complete


complete_plans: Final = names_of(MIGRATION_PLANS)
complete_policies: Final = names_of(DESCHEDULER_POLICIES)


def complete_for_kubectl(arguments: Sequence[str] | None = None) -> None:
    """Print what `kubectl` offers after `kubectl berth …`, as it asks plugins for it; the last word is incomplete."""
    from berth_descheduler.commands.cli import berth  # noqa: PLC0415 - the commands import this module

    *words, incomplete = sys.argv[1:] if arguments is None else arguments
    for item in ShellComplete(berth, {}, "kubectl berth", "").get_completions(words, incomplete):
        click.echo(printable_text(f"{item.value}\t{item.help}" if item.help else item.value))
    click.echo(f":{_NO_FILE_NAMES}")


def _ask(context: click.Context, resource: Resource, found: list[str]) -> None:
    """Add the names of all objects of a kind; a shell has no use for what went wrong."""
    which = {name: context.params.get(name) for name in ("kubeconfig", "context")}
    with (
        suppress(Exception),
        connect(**which, user_agent="berth-completion", request_timeout=LONGEST_SECONDS) as client,
    ):
        listed = client.within(LONGEST_SECONDS).list(resource, type=_Named)
        found.extend(one.metadata.name for one in listed.items)
