"""Disruption budgets that cover a pod, and whether they block its eviction.

The rules are those of the API server's eviction: no pod under several budgets, whatever they allow (it answers 500,
which no retry mends); no more ready pods than the budget's status allows, whatever the spec says, and none while that
status is older than the spec; an unready pod does not count as long as enough others are healthy, or never where the
budget's `unhealthyPodEvictionPolicy` is `AlwaysAllow`.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from berth_core import PlannedMove, Pod, PodDisruptionBudget, Snapshot, deployment_name, matches_labels
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner.availability import Availability

_ALWAYS_ALLOW: Final = "AlwaysAllow"
_SURGE_HELPS: Final = frozenset({RefusalReason.BUDGET_EXHAUSTED, RefusalReason.TOO_FEW_READY})
"""Why a pod stays that may leave once its replacement is Ready."""


class DisruptionBudgets:
    """The budgets of a snapshot by namespace, and by a label that their selectors ask for."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets = tuple(budgets)
        self._asking: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        """Each budget is listed once, under the label for which fewest budgets ask; under none if it asks for none."""

        number = Counter(pair for budget in self._budgets for pair in _pairs(budget))
        for index, budget in enumerate(self._budgets):
            rarest = min(_pairs(budget), key=lambda pair: number[pair], default=())
            self._asking[budget.metadata.namespace, *rarest].append(index)

    def covering(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector selects a pod."""
        namespace, labels, asking = pod.metadata.namespace, pod.metadata.labels, self._asking
        budget_indices = [*asking.get((namespace,), ())]
        for pair in labels.items():
            budget_indices += asking.get((namespace, *pair), ())
        if not budget_indices:
            return ()
        asking_budgets = (self._budgets[index] for index in sorted(budget_indices))
        return tuple(budget for budget in asking_budgets if matches_labels(budget.spec.selector, labels))

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return why the API server would refuse to evict a pod now.

        None if it would evict the pod.
        """
        budgets = self.covering(pod)
        if len(budgets) > 1:
            names = ", ".join(sorted(budget_key(budget) for budget in budgets))
            text = f"the API server evicts no pod under several disruption budgets: {names}"
            return Refusal(RefusalReason.SEVERAL_BUDGETS, text)
        if budgets and disruptions_allowed(budgets[0]) == 0 and not _goes_uncounted(budgets[0], pod):
            text = f"disruption budget {budget_key(budgets[0])} allows no disruption now"
            return Refusal(RefusalReason.BUDGET_EXHAUSTED, text)
        return None


def with_surges(snapshot: Snapshot, but: Collection[str] = ()) -> Snapshot:
    """Return a snapshot in which neither a budget nor a controller that lacks pods keeps pods that surge.

    Each budget allows one of its pods at a time. It counts as before if it selects any pod that no Deployment has, or
    one of those (`namespace/name`) that cannot surge for another reason; so do Ready pods for their controllers.
    """
    availability = Availability(snapshot.pods, snapshot.workloads)
    needed_pods = (pod.key for pod in snapshot.pods if has_deployment(pod) and availability.refusal(pod) is not None)
    surging_keys = frozenset(needed_pods).difference(but)
    if surging_keys != snapshot.leaving_freely:
        snapshot = dataclasses.replace(snapshot, leaving_freely=surging_keys)
    budgets = snapshot.disruption_budgets
    if not budgets:
        return snapshot
    budgets_by_label = DisruptionBudgets(budgets)
    staying_pods = (pod for pod in snapshot.pods if not has_deployment(pod) or pod.key in but)
    kept = {budget_key(covering_budget) for pod in staying_pods for covering_budget in budgets_by_label.covering(pod)}
    return dataclasses.replace(
        snapshot,
        disruption_budgets=tuple(budget if budget_key(budget) in kept else _allowing_one(budget) for budget in budgets),
    )


def pods_needing_surge(snapshot: Snapshot, moves: Iterable[PlannedMove]) -> tuple[Pod, ...]:
    """Return the moved pods that their budgets, or controllers that lack pods, keep from being evicted first."""
    budgets = DisruptionBudgets(snapshot.disruption_budgets)
    availability = Availability(snapshot.pods, snapshot.workloads)
    moved_keys = {f"{move.namespace}/{move.pod}" for move in moves}
    refusals = (
        (pod, budgets.refusal(pod) or availability.refusal(pod)) for pod in snapshot.pods if pod.key in moved_keys
    )
    return tuple(pod for pod, refusal in refusals if refusal is not None and refusal.reason in _SURGE_HELPS)


def with_reasons_not_to_surge(refused: Iterable[Refused], reasons: Mapping[str, str]) -> tuple[Refused, ...]:
    """Return refusals that say why pods do not surge that could then leave."""

    def said(one: Refused) -> Refused:
        why_no_surge = reasons.get(f"{one.namespace}/{one.name}")
        if why_no_surge is None or one.reason not in _SURGE_HELPS:
            return one
        return dataclasses.replace(one, message=f"{one.message}, and it cannot surge: {why_no_surge}")

    return tuple(map(said, refused))


def _pairs(budget: PodDisruptionBudget) -> Iterable[tuple[str, str]]:
    return () if budget.spec.selector is None else budget.spec.selector.match_labels.items()


def has_deployment(pod: Pod) -> bool:
    """Return whether a Deployment has the pod, which can surge then."""
    owner = pod.controller
    return owner is not None and bool(deployment_name(owner.kind, owner.name, pod.metadata.labels))


def _allowing_one(budget: PodDisruptionBudget) -> PodDisruptionBudget:
    if disruptions_allowed(budget):
        return budget
    status = replace(budget.status, disruptions_allowed=1, observed_generation=budget.metadata.generation)
    return replace(budget, status=status)


def disruptions_allowed(budget: PodDisruptionBudget) -> int:
    """Return how many disruptions a budget allows now.

    It allows none while its status is older than its spec.
    """
    return 0 if _is_stale(budget) else max(0, budget.status.disruptions_allowed)


def budget_key(budget: PodDisruptionBudget) -> str:
    """Return `namespace/name`."""
    return f"{budget.metadata.namespace}/{budget.metadata.name}"


def _is_stale(budget: PodDisruptionBudget) -> bool:
    observed, generation = budget.status.observed_generation, budget.metadata.generation
    return observed is not None and generation is not None and observed < generation


def _goes_uncounted(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether a pod is unready and uncounted by its budget."""
    if pod.is_ready:
        return False
    if budget.spec.unhealthy_pod_eviction_policy == _ALWAYS_ALLOW:
        return True
    healthy, desired = budget.status.current_healthy, budget.status.desired_healthy
    return not _is_stale(budget) and 0 < desired <= healthy
