"""Owns which disruption budgets cover a pod and how many disruptions each allows at once.

It does not own the eviction itself: the API server has the last word there.
"""

from collections import defaultdict
from collections.abc import Iterable

from berth_core.objects import Pod, PodDisruptionBudget
from berth_core.selectors import matches_labels


class DisruptionBudgets:
    """The budgets of a snapshot by namespace."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._in_namespace: defaultdict[str, list[PodDisruptionBudget]] = defaultdict(list)
        for budget in budgets:
            self._in_namespace[budget.metadata.namespace].append(budget)

    def covering(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector selects a pod."""
        budgets = self._in_namespace.get(pod.metadata.namespace, ())
        return tuple(budget for budget in budgets if matches_labels(budget.spec.selector, pod.metadata.labels))


def disruptions_allowed(budget: PodDisruptionBudget) -> int:
    """Return how many pods a budget lets go at once; none while its status is older than its spec."""
    observed, generation = budget.status.observed_generation, budget.metadata.generation
    if observed is not None and generation is not None and observed < generation:
        return 0
    return max(0, budget.status.disruptions_allowed)


def budget_key(budget: PodDisruptionBudget) -> str:
    """Return `namespace/name`."""
    return f"{budget.metadata.namespace}/{budget.metadata.name}"
