"""Which replacements are pending after a plan's moves."""

from collections.abc import Iterable
from datetime import datetime

from berth_core import PlannedMove, Pod, parse_timestamp
from berth_descheduler.migration.nodes.pods import pods_where
from berth_kube import KubeClient


def count_pending(client: KubeClient, moves: Iterable[PlannedMove], since: datetime) -> int:
    """Count the pending pods of the moved pods' controllers.

    Pods created before `since` do not count.
    """
    owners = {(move.namespace, move.owner.kind, move.owner.name) for move in moves if move.owner}
    return sum(awaits_node(pod, owners, since) for pod in pods_where(client, "spec.nodeName="))


def awaits_node(pod: Pod, owners: set[tuple[str, str, str]], since: datetime) -> bool:
    """Return whether a pending pod replaces one that the plan evicted."""
    controller = pod.controller
    if controller is None or pod.is_terminal or pod.is_terminating:
        return False
    if (pod.metadata.namespace, controller.kind, controller.name) not in owners:
        return False
    created = pod.metadata.creation_timestamp
    return created is None or parse_timestamp(created) >= since
