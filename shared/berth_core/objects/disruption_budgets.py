"""Disruption budgets."""

from berth_core.objects.metadata import ApiStruct, LabelSelector, ObjectMeta


class PodDisruptionBudgetSpec(ApiStruct, frozen=True, kw_only=True):
    """The pods that are protected, and by which number or percentage."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(ApiStruct, frozen=True, kw_only=True):
    """The number of disruptions that the budget allows now."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int | None = None


class PodDisruptionBudget(ApiStruct, frozen=True, kw_only=True):
    """A disruption budget as the API server holds it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
