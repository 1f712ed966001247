"""Which replacements are pending after a plan's moves."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TypeAlias

from berth_core import PlannedMove, Pod, parse_timestamp
from berth_descheduler.migration.nodes.pods import pods_where
from berth_kube import KubeClient

OwnerKey: TypeAlias = tuple[str, str, str]
"""Namespace, kind and name of a controller, as moves name it."""


def owners_of(moves: Iterable[PlannedMove]) -> frozenset[OwnerKey]:
    return frozenset((move.namespace, move.owner.kind, move.owner.name) for move in moves if move.owner is not None)


def is_owned_by(pod: Pod, owners: Collection[OwnerKey]) -> bool:
    controller = pod.controller
    return controller is not None and (pod.metadata.namespace, controller.kind, controller.name) in owners


def count_pending(client: KubeClient, moves: Iterable[PlannedMove], since: datetime) -> int:
    """Count the pending pods of the moved pods' controllers that were created `since` then."""
    owners = owners_of(moves)
    return sum(awaits_node(pod, owners, since) for pod in pods_where(client, "spec.nodeName="))


def awaits_node(pod: Pod, owners: Collection[OwnerKey], since: datetime) -> bool:
    """Return whether a pending pod replaces one that the plan evicted."""
    if pod.is_terminal or pod.is_terminating or not is_owned_by(pod, owners):
        return False
    created = pod.metadata.creation_timestamp
    return created is None or parse_timestamp(created) >= since
