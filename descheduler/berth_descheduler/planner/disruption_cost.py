"""What it costs to move a pod, to choose between alternatives that are equally good otherwise."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from berth_core import Pod, read_timestamp
from berth_descheduler.planner.disruption_budgets import has_deployment
from berth_descheduler.planner.evictability import NO_EVICTION_ANNOTATION
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import PodIndex

_PRIORITY_BITS: Final = 8
_PRIORITY: Final = 1 << _PRIORITY_BITS
_EVICTED: Final = 64
_ONLY: Final = 16
_MOST_RESTARTS: Final = 16
_LONG_GRACE_SECONDS: Final = 60
_MOST_GRACE: Final = 16
_MOST_AGE: Final = 16
_BUDGET: Final = 8
_CLAIM: Final = 4
_LEFT_IN_PEACE: Final = 1 << 14
"""More than all else together."""

DISRUPTION_WEIGHTS: Final[Mapping[str, int]] = {
    "prefersNoEviction": _LEFT_IN_PEACE,
    "perBitOfPriority": _PRIORITY,
    "cannotSurge": _EVICTED,
    "onlyPodOfController": _ONLY,
    "perMinuteOfGrace": 1,
    "perRestart": 1,
    "perDoublingOfAgeInMinutes": 1,
    "underDisruptionBudget": _BUDGET,
    "perClaim": _CLAIM,
}
"""What each trait of a pod adds to the cost of moving it; the page on strategies says where they end."""


class DisruptionCost:
    """Weighs the pods of a cluster by the cost of moving them; the numbers have no unit, only an order."""

    def __init__(self, problem: Problem) -> None:
        self._cluster = cluster = problem.cluster
        self._budgets = problem.budgets
        born = (read_timestamp(placed_pod.pod.metadata.creation_timestamp) for placed_pod in cluster.pods)
        self._born = [0 if created_at is None else int(created_at.timestamp()) // 60 for created_at in born]  # minutes
        now = problem.settings.run.now
        self._now = max(self._born, default=0) if now is None else int(now.timestamp()) // 60
        sizes = Counter(placed_pod.class_index for placed_pod in cluster.pods)
        self._pods_of_controller: Counter[tuple[str, str]] = Counter()
        for pods in cluster.classes:
            self._pods_of_controller[_controller_key(pods.example)] += sizes[pods.index]
        self.of_class = tuple(self._weigh_class(pods.example) for pods in cluster.classes)
        """Return the cost that all pods of a class share."""

    def weight(self, pod: PodIndex) -> int:
        """Return the cost of moving a pod, by `DISRUPTION_WEIGHTS`.

        Higher priority costs more, then a pod that cannot surge and so is gone for a while, few pods in the controller
        (a single one is an outage), many restarts (the pod may not come up again), a long grace period, age (what ran
        long has more to lose), a disruption budget, volumes, and most of all an annotation that asks for no eviction.
        """
        return self.of_class[self._cluster.pods[pod].class_index] + self.of_itself(pod)

    def of_itself(self, pod: PodIndex) -> int:
        """Return a pod's own cost, by its restarts up to a limit, the doublings of its age, and its annotation."""
        weighed_pod = self._cluster.pods[pod].pod
        wish = _LEFT_IN_PEACE if NO_EVICTION_ANNOTATION in weighed_pod.metadata.annotations else 0
        age = min(_MOST_AGE, max(0, self._now - self._born[pod]).bit_length()) if self._born[pod] else 0
        statuses = weighed_pod.status.container_statuses
        restarts = sum(min(_MOST_RESTARTS, status.restart_count) for status in statuses) if statuses else 0
        return wish + age + restarts

    def cheapest_first(self, pods: list[PodIndex]) -> list[PodIndex]:
        """Return pods by ascending cost, of equals the youngest first."""
        return sorted(pods, key=lambda pod: (self.weight(pod), -self._born[pod], pod))

    def _weigh_class(self, example: Pod) -> int:
        # The logarithm: values of PriorityClasses spread over nine digits, of which only the order of magnitude matters
        # here.
        priority = max(0, example.spec.priority or 0).bit_length() << _PRIORITY_BITS
        evicted = 0 if has_deployment(example) else _EVICTED
        cost_alone = _ONLY // max(1, self._pods_of_controller[_controller_key(example)])
        cost_of_grace = (example.spec.termination_grace_period_seconds or 0) // _LONG_GRACE_SECONDS
        budget = _BUDGET if self._budgets.covering(example) else 0
        claims = sum(volume.persistent_volume_claim is not None for volume in example.spec.volumes)
        return priority + evicted + cost_alone + min(_MOST_GRACE, cost_of_grace) + budget + _CLAIM * claims


def _controller_key(pod: Pod) -> tuple[str, str]:
    owner = pod.controller
    return (pod.metadata.namespace, (owner.uid or owner.name) if owner else pod.metadata.name)
