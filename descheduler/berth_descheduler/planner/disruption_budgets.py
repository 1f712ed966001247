"""The disruption budgets that cover a pod, and whether they block its eviction, as the API server decides it."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from berth_core import LabelSelector, PlannedMove, Pod, PodDisruptionBudget, Snapshot, deployment_name, matches_labels
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner.availability import Availability

MAX_COMPARISONS: Final = 100_000
"""Of selectors' parts with the label sets of one namespace; 1,000 label sets and 50 budgets of `NotIn` are as many."""

_ALWAYS_ALLOW: Final = "AlwaysAllow"
_SURGE_HELPS: Final = frozenset({RefusalReason.BUDGET_EXHAUSTED, RefusalReason.TOO_FEW_READY})
"""Why a pod stays that may leave once its replacement is Ready."""


_Labels: TypeAlias = frozenset[tuple[str, str]]
_RequiredLabel: TypeAlias = tuple[str, str, str | None]
"""A namespace, a label's key, and the value that a selector asks of it; None for any value."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """The budgets of a namespace whose selectors are equal."""

    selector: LabelSelector
    cost: int
    """How much is compared to learn whether the selector selects a label set."""
    budget_indices: list[int]

    @classmethod
    def of(cls, selector: LabelSelector) -> Self:
        expressions = selector.match_expressions
        cost = 1 + len(selector.match_labels) + sum(1 + len(expression.values) for expression in expressions)
        return cls(selector, cost, [])


class DisruptionBudgets:
    """The budgets of a snapshot by namespace, and by a label that their selectors ask for.

    A selector is compared once with each label set. A tenant can multiply both, so a namespace in which more would be
    compared than `MAX_COMPARISONS` is crowded: nothing is compared there, and its pods stay.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod] = ()) -> None:
        """Read the budgets; `pods` are those that will be asked about."""
        self._budgets = tuple(budgets)
        self._of_namespace: dict[str, list[_Selection]] = {}
        self._requiring: defaultdict[_RequiredLabel, list[_Selection]] = defaultdict(list)
        """Each selection is listed once, under what it asks for that fewest others ask for; alternatives under each."""
        self._requiring_none: defaultdict[str, list[_Selection]] = defaultdict(list)
        """The selections that name no label which a selected pod must have."""
        self._covering: dict[tuple[str, _Labels], tuple[PodDisruptionBudget, ...]] = {}
        selections: dict[tuple[str, bytes], _Selection] = {}
        for index, budget in enumerate(self._budgets):
            if (selector := budget.spec.selector) is None:
                continue  # it selects nothing
            namespace = budget.metadata.namespace
            key = namespace, msgspec.json.encode(selector, order="sorted")
            if key not in selections:
                selections[key] = _Selection.of(selector)
                self._of_namespace.setdefault(namespace, []).append(selections[key])
            selections[key].budget_indices.append(index)
        number = Counter(
            (namespace, *asked)
            for namespace, selections_there in self._of_namespace.items()
            for selection in selections_there
            for alternatives in _required_labels(selection.selector)
            for asked in alternatives
        )
        for namespace, selections_there in self._of_namespace.items():
            for selection in selections_there:
                # An inverted index is entered by its shortest list: then a pod meets few selections that turn out not
                # to select it.
                rarest = min(
                    _required_labels(selection.selector),
                    key=lambda alternatives: sum(number[namespace, *asked] for asked in alternatives),
                    default=None,
                )
                if rarest is None:
                    self._requiring_none[namespace].append(selection)
                for asked in set(rarest or ()):
                    self._requiring[namespace, *asked].append(selection)
        self.crowded: Mapping[str, Refusal] = self._find_crowded(pods) if self._of_namespace else {}
        """The namespaces in which no selector is compared, each with the reason for which its pods stay."""

    def _find_crowded(self, pods: Iterable[Pod]) -> dict[str, Refusal]:
        label_sets: defaultdict[str, set[_Labels]] = defaultdict(set)
        for pod in pods:
            if pod.metadata.namespace in self._of_namespace:
                label_sets[pod.metadata.namespace].add(frozenset(pod.metadata.labels.items()))
        costs = {asked: sum(selection.cost for selection in asking) for asked, asking in self._requiring.items()}
        crowded = {}
        for namespace, sets in label_sets.items():
            comparisons = len(sets) * sum(selection.cost for selection in self._requiring_none[namespace])
            for labels in sets:
                comparisons += sum(costs.get((namespace, *asked), 0) for asked in _lookup_keys(labels))
            if comparisons > MAX_COMPARISONS:
                text = (
                    f"the disruption budgets of the namespace {namespace} ask for {comparisons} comparisons with its "
                    f"pods' labels, and a plan makes {MAX_COMPARISONS} at most"
                )
                crowded[namespace] = Refusal(RefusalReason.TOO_MANY_RULES, text)
        return crowded

    def covering(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector selects a pod; none in a crowded namespace, where that is not known."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        if namespace not in self._of_namespace or namespace in self.crowded:
            return ()
        label_set = frozenset(labels.items())
        covering_budgets = self._covering.get((namespace, label_set))
        if covering_budgets is None:
            candidates = [*self._requiring_none.get(namespace, ())]
            for asked in _lookup_keys(label_set):
                candidates += self._requiring.get((namespace, *asked), ())
            selecting = (selection for selection in candidates if matches_labels(selection.selector, labels))
            indices = sorted({index for selection in selecting for index in selection.budget_indices})
            covering_budgets = tuple(self._budgets[index] for index in indices)
            self._covering[namespace, label_set] = covering_budgets
        return covering_budgets

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return why the API server would refuse to evict a pod now, None if it would evict it."""
        if (crowded := self.crowded.get(pod.metadata.namespace)) is not None:
            return crowded
        budgets = self.covering(pod)
        # `EvictionREST.Create` (pkg/registry/core/pod/storage/eviction.go) does not choose between budgets: it fails
        # with 500.
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
        snapshot = snapshot.replace_in_order(leaving_freely=surging_keys)
    budgets = snapshot.disruption_budgets
    if not budgets:
        return snapshot
    budgets_by_label = DisruptionBudgets(budgets, snapshot.pods)
    crowded = budgets_by_label.crowded
    staying_pods = (pod for pod in snapshot.pods if not has_deployment(pod) or pod.key in but)
    kept = {budget_key(covering_budget) for pod in staying_pods for covering_budget in budgets_by_label.covering(pod)}
    return snapshot.replace_in_order(
        disruption_budgets=tuple(
            budget if budget.metadata.namespace in crowded or budget_key(budget) in kept else _allowing_one(budget)
            for budget in budgets
        ),
    )


def pods_needing_surge(snapshot: Snapshot, moves: Iterable[PlannedMove]) -> tuple[Pod, ...]:
    """Return the moved pods that their budgets, or controllers that lack pods, keep from being evicted first."""
    budgets = DisruptionBudgets(snapshot.disruption_budgets, snapshot.pods)
    availability = Availability(snapshot.pods, snapshot.workloads)
    moved_keys = {f"{move.namespace}/{move.pod}" for move in moves}
    refusals = (
        (pod, budgets.refusal(pod) or availability.refusal(pod)) for pod in snapshot.pods if pod.key in moved_keys
    )
    return tuple(pod for pod, refusal in refusals if refusal is not None and refusal.reason in _SURGE_HELPS)


def with_reasons_not_to_surge(refused: Iterable[Refused], reasons: Mapping[str, str]) -> tuple[Refused, ...]:
    """Return refusals that say why pods do not surge that could then leave."""

    def explained(refusal: Refused) -> Refused:
        why_no_surge = reasons.get(f"{refusal.namespace}/{refusal.name}")
        if why_no_surge is None or refusal.reason not in _SURGE_HELPS:
            return refusal
        return dataclasses.replace(refusal, message=f"{refusal.message}, and it cannot surge: {why_no_surge}")

    return tuple(map(explained, refused))


def _required_labels(selector: LabelSelector) -> list[tuple[tuple[str, str | None], ...]]:
    """Return the labels that a selector requires: a selected pod has one of each entry; None stands for any value."""
    asked: list[tuple[tuple[str, str | None], ...]] = [(pair,) for pair in selector.match_labels.items()]
    for expression in selector.match_expressions:
        match expression.operator:
            case "In":
                asked.append(tuple((expression.key, label_value) for label_value in expression.values))
            case "Exists":
                asked.append(((expression.key, None),))
            case _:
                pass  # pods without the label may be selected
    return asked


def _lookup_keys(labels: _Labels) -> Iterator[tuple[str, str | None]]:
    """Yield the keys under which the selections that may select a label set are listed."""
    for key, label_value in labels:
        yield key, label_value
        yield key, None


def has_deployment(pod: Pod) -> bool:
    """Return whether a Deployment has the pod, which can surge then."""
    owner = pod.controller
    return owner is not None and bool(deployment_name(owner.kind, owner.name, pod.metadata.labels))


def _allowing_one(budget: PodDisruptionBudget) -> PodDisruptionBudget:
    if disruptions_allowed(budget):
        return budget
    # A surge adds a Ready pod before one leaves, so that by then the budget allows one.
    status = replace(budget.status, disruptions_allowed=1, observed_generation=budget.metadata.generation)
    return replace(budget, status=status)


def disruptions_allowed(budget: PodDisruptionBudget) -> int:
    """Return how many disruptions a budget allows now: none while its status is older than its spec."""
    # Until its controller has seen the spec, the API server answers every eviction with 429 (`checkAndDecrement`).
    return 0 if _is_stale(budget) else max(0, budget.status.disruptions_allowed)


def budget_key(budget: PodDisruptionBudget) -> str:
    """Return `namespace/name`."""
    return f"{budget.metadata.namespace}/{budget.metadata.name}"


def _is_stale(budget: PodDisruptionBudget) -> bool:
    observed, generation = budget.status.observed_generation, budget.metadata.generation
    return observed is not None and generation is not None and observed < generation


def _goes_uncounted(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether a pod is unready and may be evicted without counting against its budget."""
    if pod.is_ready:
        return False
    # KEP-3017; without it a pod that never becomes ready holds up each drain of its node.
    if budget.spec.unhealthy_pod_eviction_policy == _ALWAYS_ALLOW:
        return True
    healthy, desired = budget.status.current_healthy, budget.status.desired_healthy
    # With 0 desired pods, which is also the status of a budget that its controller has not seen, the API server counts
    # the pod (`pkg/registry/core/pod/storage/eviction.go`).
    return not _is_stale(budget) and 0 < desired <= healthy
