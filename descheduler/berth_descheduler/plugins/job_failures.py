"""Owns whether evictions could fail the Job of a pod: each counts as a failure, unless the Job's policy ignores it.

It does not own the other conditions on a pod's controller: those are `movable`'s.

A pod that is deleted before it has succeeded is a failure to the Job controller, whatever its `restartPolicy`, and the
Job fails with more of them than its `backoffLimit` says. Not so if a rule of its `podFailurePolicy` ignores the
condition `DisruptionTarget`, which every evicted pod has, and no rule before it could do something else. What is not
known of a Job keeps its pods where they are.
"""

from typing import Final

from berth_core.workloads import PodFailurePolicyRule, Workload
from berth_descheduler.refusals import Refusal, RefusalReason

JOB_KIND: Final = ("batch", "Job")

_IGNORE: Final = "Ignore"
_DISRUPTION: Final = "DisruptionTarget"
_MOVES_OF_A_POD: Final = 2
"""A pod that stands in the way is moved twice at most."""


def failing_refusal(job: Workload | None, active_pods: int) -> Refusal | None:
    """Return why pods of a Job stay, None if even the eviction of all of them could not fail it; None: not known."""
    if job is None:
        return _refusal("its Job is not in the snapshot, so it is not known how many evictions would fail that")
    spec, name = job.spec, f"Job {job.metadata.name}"
    rules = spec.pod_failure_policy.rules if spec.pod_failure_policy else ()
    if _ignores_evictions(rules):
        return None
    if rules:
        return _refusal(f"the podFailurePolicy of its {name} does not ignore an eviction first of all")
    if spec.backoff_limit_per_index is not None or spec.backoff_limit is None:
        return _refusal(f"it is not known how many evictions its {name} outlives")
    left = spec.backoff_limit - (job.status.failed or 0)
    if left < _MOVES_OF_A_POD * active_pods:
        text = f"its {name} outlives {max(0, left)} more failures, an eviction is one, and it has {active_pods} pods"
        return _refusal(text)
    return None


def _ignores_evictions(rules: tuple[PodFailurePolicyRule, ...]) -> bool:
    """Tell whether the first rule that may apply to an evicted pod ignores it for being evicted."""
    for rule in rules:
        if any(one.type == _DISRUPTION and one.status in {"", "True"} for one in rule.on_pod_conditions):
            return rule.action == _IGNORE
        if rule.action != _IGNORE:
            return False
    return False


def _refusal(message: str) -> Refusal:
    return Refusal(RefusalReason.JOB_COULD_FAIL, message)
