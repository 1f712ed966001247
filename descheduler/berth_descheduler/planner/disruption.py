"""Owns what makes moving one pod worse than moving another, where both would do.

It does not own which pods may not be moved at all: that is the eviction filter's.
"""

from collections import Counter
from typing import Final

from berth_core.objects import Pod
from berth_descheduler.planner.cluster import Cluster, PodIndex

_PRIORITY_BITS: Final = 8
_MOST_RESTARTS: Final = 16
_LONG_GRACE_SECONDS: Final = 60
_FEW_PODS: Final = 16


class Disruption:
    """Weighs the pods of a cluster; the numbers have no unit, only an order."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pods_of_controller = Counter(_controller_key(one.pod) for one in cluster.pods)

    def weight(self, pod: PodIndex) -> int:
        """Return how bad it is to move a pod.

        Worse are pods of higher priority, of controllers with few pods (a single one is an outage), that restarted
        often (they may not come up again), that end slowly and that have volumes to take along.
        """
        found = self._cluster.pods[pod].pod
        priority = max(0, found.spec.priority or 0).bit_length() << _PRIORITY_BITS
        alone = _FEW_PODS // self._pods_of_controller[_controller_key(found)]
        restarts = sum(min(_MOST_RESTARTS, status.restart_count) for status in found.status.container_statuses)
        slow = (found.spec.termination_grace_period_seconds or 0) // _LONG_GRACE_SECONDS
        claims = sum(volume.persistent_volume_claim is not None for volume in found.spec.volumes)
        return priority + alone + restarts + min(_FEW_PODS, slow) + 4 * claims

    def cheapest_first(self, pods: list[PodIndex]) -> list[PodIndex]:
        """Return pods in the order in which they are best moved."""
        return sorted(pods, key=lambda pod: (self.weight(pod), pod))


def _controller_key(pod: Pod) -> tuple[str, str]:
    owner = pod.controller
    return (pod.metadata.namespace, (owner.uid or owner.name) if owner else pod.metadata.name)
