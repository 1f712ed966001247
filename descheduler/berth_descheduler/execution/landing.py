"""Owns the look at the cluster after a plan's moves: which sources are free, which replacements wait for a node.

It does not own whether a single move landed: that is decided while it is under way (`moves`).
"""

from collections.abc import Collection, Container, Iterable
from datetime import datetime

from berth_core.clock import parse_timestamp
from berth_core.migration_plans import PlannedMove
from berth_core.names import is_dns_subdomain
from berth_core.objects import Pod
from berth_kube.client import KubeClient
from berth_kube.resources import PODS


def read_freed(client: KubeClient, moves: Collection[PlannedMove]) -> tuple[str, ...]:
    """Return the moves' sources that are empty now, sorted.

    Pods that were moved may still be on their way out. Others that are keep a node from being free, as they do for the
    planner: they may never go.
    """
    moved = {move.pod_uid for move in moves}
    sources = sorted({move.source for move in moves if is_dns_subdomain(move.source)})
    return tuple(source for source in sources if _is_emptied(_pods_where(client, f"spec.nodeName={source}"), moved))


def _is_emptied(pods: Iterable[Pod], moved: Container[str]) -> bool:
    return all(_never_counts(pod) or (pod.is_terminating and pod.metadata.uid in moved) for pod in pods)


def is_free(pods: Iterable[Pod]) -> bool:
    """Tell whether a node with these pods is free: only DaemonSet and mirror pods, and pods on their way out."""
    return all(_never_counts(pod) or pod.is_terminating for pod in pods)


def _never_counts(pod: Pod) -> bool:
    return pod.belongs_to_node or pod.is_terminal


def count_pending(client: KubeClient, moves: Iterable[PlannedMove], since: datetime) -> int:
    """Return how many pods of the moved pods' controllers were made since then and have no node."""
    owners = {(move.namespace, move.owner.kind, move.owner.name) for move in moves if move.owner}
    return sum(is_stranded(pod, owners, since) for pod in _pods_where(client, "spec.nodeName="))


def is_stranded(pod: Pod, owners: set[tuple[str, str, str]], since: datetime) -> bool:
    """Tell whether a pod without a node is one that the plan's evictions brought about."""
    controller = pod.controller
    if controller is None or pod.is_terminal or pod.is_terminating:
        return False
    if (pod.metadata.namespace, controller.kind, controller.name) not in owners:
        return False
    created = pod.metadata.creation_timestamp
    return created is None or parse_timestamp(created) >= since


def _pods_where(client: KubeClient, field_selector: str) -> tuple[Pod, ...]:
    return client.list(PODS, field_selector=field_selector, type=Pod).items
