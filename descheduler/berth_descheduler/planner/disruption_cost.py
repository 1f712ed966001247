"""The cost of moving a pod, to choose between alternatives."""

from collections import Counter
from typing import Final

from berth_core import NO_EVICTION_ANNOTATION, Pod
from berth_descheduler.planner.simulation import Cluster, PodIndex

_PRIORITY_BITS: Final = 8
_MOST_RESTARTS: Final = 16
_LONG_GRACE_SECONDS: Final = 60
_FEW_PODS: Final = 16
_CLAIM: Final = 4
_LEFT_IN_PEACE: Final = 1 << 14
"""More than all else together."""


class DisruptionCost:
    """Weighs the pods of a cluster by the cost of moving them.

    The numbers have no unit, only an order.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        sizes = Counter(placed.class_index for placed in cluster.pods)
        self._pods_of_controller: Counter[tuple[str, str]] = Counter()
        for pods in cluster.classes:
            self._pods_of_controller[_controller_key(pods.example)] += sizes[pods.index]
        self.of_class = tuple(self._weigh_class(pods.example) for pods in cluster.classes)
        """Return the cost that all pods of a class share."""

    def weight(self, pod: PodIndex) -> int:
        """Return the cost of moving a pod.

        Higher priority costs more, few pods in the controller (a single one is an outage), many restarts (the pod may
        not come up again), a long grace period, volumes, and most of all an annotation that asks for no eviction.
        """
        return self.of_class[self._cluster.pods[pod].class_index] + self.of_itself(pod)

    def of_itself(self, pod: PodIndex) -> int:
        """Return a pod's own cost, by its restarts and annotation.

        Restarts of a container count up to a limit; the annotation asks for no eviction.
        """
        placed = self._cluster.pods[pod].pod
        wish = _LEFT_IN_PEACE if NO_EVICTION_ANNOTATION in placed.metadata.annotations else 0
        statuses = placed.status.container_statuses
        return wish + (sum(min(_MOST_RESTARTS, status.restart_count) for status in statuses) if statuses else 0)

    def cheapest_first(self, pods: list[PodIndex]) -> list[PodIndex]:
        """Return pods by ascending cost."""
        return sorted(pods, key=lambda pod: (self.weight(pod), pod))

    def _weigh_class(self, example: Pod) -> int:
        priority = max(0, example.spec.priority or 0).bit_length() << _PRIORITY_BITS
        alone = _FEW_PODS // max(1, self._pods_of_controller[_controller_key(example)])
        slow = (example.spec.termination_grace_period_seconds or 0) // _LONG_GRACE_SECONDS
        claims = sum(volume.persistent_volume_claim is not None for volume in example.spec.volumes)
        return priority + alone + min(_FEW_PODS, slow) + _CLAIM * claims


def _controller_key(pod: Pod) -> tuple[str, str]:
    owner = pod.controller
    return (pod.metadata.namespace, (owner.uid or owner.name) if owner else pod.metadata.name)
