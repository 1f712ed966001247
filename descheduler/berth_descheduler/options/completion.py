"""What shells are offered for names in the cluster and the kubeconfig.

A shell never waits long for it, and is offered nothing where something goes wrong.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem

from berth_core import ObjectMeta
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, NAMESPACES, NODES, Resource, connect, context_names

LONGEST_SECONDS: Final = 2.0
"""After this long nothing is offered: a shell that hangs is worse."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class _Named(msgspec.Struct, frozen=True):
    """Any object, of which only the name is looked at."""

    metadata: ObjectMeta


def _take_any(_: object) -> bool:
    return True


def names_of(resource: Resource, read_as: type[Any] = _Named, takes: Callable[[Any], bool] = _take_any) -> Complete:
    """Return the completion of the name of an object that a command takes; `read_as` has its metadata."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names: list[str] = []
        asking_thread = threading.Thread(target=_ask, args=(context, resource, read_as, takes, names), daemon=True)
        asking_thread.start()
        asking_thread.join(LONGEST_SECONDS)
        given_names = context.params.get(parameter.name or "") or ()
        names_given = frozenset(given_names if isinstance(given_names, tuple) else ())
        return [
            CompletionItem(name) for name in sorted(names) if name.startswith(incomplete) and name not in names_given
        ]

    return complete


complete_plans: Final = names_of(MIGRATION_PLANS)
complete_policies: Final = names_of(DESCHEDULER_POLICIES)
complete_nodes: Final = names_of(NODES)
complete_namespaces: Final = names_of(NAMESPACES)


def complete_contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the contexts of the kubeconfig."""
    with suppress(Exception):
        names = context_names(context.params.get("kubeconfig"))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []


def _ask(
    context: click.Context, resource: Resource, read_as: type[Any], takes: Callable[[Any], bool], found: list[str]
) -> None:
    """Add the names of all objects of a kind that a command takes.

    Errors are suppressed: a shell has no use for what went wrong.
    """
    connection = {name: context.params.get(name) for name in ("kubeconfig", "context")}
    with (
        suppress(Exception),
        connect(**connection, user_agent="berth-completion", request_timeout=LONGEST_SECONDS) as client,
    ):
        object_list = client.within(LONGEST_SECONDS).list(resource, type=read_as)
        found.extend(listed_object.metadata.name for listed_object in object_list.items if takes(listed_object))
