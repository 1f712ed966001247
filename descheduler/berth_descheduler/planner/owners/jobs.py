"""Whether a Job makes an evicted pod again, and whether evictions could fail it.

This follows its controller (pkg/controller/job, `syncJob` and `manageJob`). Without `completions` it makes no pod once
one has succeeded; with `completions` it wants as many as are missing, at most `parallelism`. A Job that has met its
success criteria, fails, or belongs to another controller gets no pods.

A pod that is deleted before it has succeeded is a failure to the Job controller, whatever its `restartPolicy`, and the
Job fails with more of them than its `backoffLimit` says. That is not so if a rule of its `podFailurePolicy` ignores the
condition `DisruptionTarget`, which every evicted pod has (KEP-3329), and no rule before it could do something else.
What is not known of a Job keeps its pods where they are.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from berth_core import InputError, Pod, PodFailurePolicyRule, Workload, count, parse_timestamp
from berth_core.objects.pods import DISRUPTION_TARGET
from berth_descheduler.framework import Refusal, RefusalReason

_CONTROLLER: Final = "kubernetes.io/job-controller"
"""The value of `spec.managedBy` for the controller that kube-controller-manager runs."""

_ENDS: Final = ("SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")
"""Conditions of a Job that makes no pods any more."""

_START: Final = timedelta(minutes=1)
"""Time for a replacement to start in, beside the grace period of the pod before it."""

# `DefaultTerminationGracePeriodSeconds` of core/v1.
_DEFAULT_GRACE_SECONDS: Final = 30
_IGNORE: Final = "Ignore"
_MOVES_OF_A_POD: Final = 2
"""A pod that is in the way moves twice at most."""


def ending_refusals(
    job: Workload, pod: Pod, pods: Sequence[Pod], now: datetime | None, *, has_succeeded: bool
) -> Iterator[Refusal]:
    """Yield why a Job makes no pod in the stead of one of its `pods`.

    `has_succeeded` says that its success policy is met already.
    """
    name = f"Job {job.metadata.name}"
    # The controller of Kubernetes leaves such a Job to another one, such as Kueue's MultiKueue (KEP-4368).
    if job.spec.managed_by not in {"", _CONTROLLER}:
        text = f"its {name} is managed by {job.spec.managed_by}, which is not known to make its pods again"
        yield Refusal(RefusalReason.UNKNOWN_CONTROLLER, text)
        return
    ends = [condition for condition in job.status.conditions if condition.type in _ENDS and condition.status == "True"]
    if ends:
        text = f"its {name} has the condition {ends[0].type} and makes no pods any more"
        yield Refusal(RefusalReason.NO_REPLACEMENT, text)
        return
    if has_succeeded:
        text = f"its {name} has succeeded by its successPolicy and makes no pods any more"
        yield Refusal(RefusalReason.NO_REPLACEMENT, text)
        return
    if why := _why_none_wanted(job, pods):
        yield Refusal(RefusalReason.NO_REPLACEMENT, f"its {name} {why}, so it would not make the pod again")
    if (left := _time_left(job, now)) is not None:
        grace = timedelta(seconds=pod.spec.termination_grace_period_seconds or _DEFAULT_GRACE_SECONDS)
        if left < grace + _START:
            text = f"its {name} reaches its activeDeadlineSeconds in {max(0, int(left.total_seconds()))} s"
            yield Refusal(RefusalReason.NO_REPLACEMENT, text)


def failing_refusal(job: Workload | None, active_pods: int) -> Refusal | None:
    """Return why evicting a Job's pods could fail it, None if evicting all of them cannot."""
    if job is None:
        return _refusal("its Job is not in the snapshot, so it is not known how many evictions would fail that")
    spec, name = job.spec, f"Job {job.metadata.name}"
    # An eviction counts as a failure unless a rule says otherwise (KEP-3329).
    rules = spec.pod_failure_policy.rules if spec.pod_failure_policy else ()
    if _ignores_evictions(rules):
        return None
    if rules:
        return _refusal(f"the podFailurePolicy of its {name} does not ignore an eviction first of all")
    # Failures are then counted for each index (KEP-3850), and in annotations of pods that may be gone.
    if spec.backoff_limit_per_index is not None or spec.backoff_limit is None:
        return _refusal(f"it is not known how many evictions its {name} outlives")
    retries = spec.backoff_limit - (job.status.failed or 0)
    if retries < _MOVES_OF_A_POD * active_pods:
        text = f"its {name} outlives {max(0, retries)} more failures, an eviction is one, and it has {active_pods} pods"
        return _refusal(text)
    return None


def _why_none_wanted(job: Workload, pods: Sequence[Pod]) -> str:
    """Return why a Job wants no further pod once one of its active pods has gone, "" if it does."""
    # The controller counts a pod that has ended in the status only once it has removed its finalizer (KEP-2307).
    ended = sum(pod.status.phase == "Succeeded" for pod in pods)
    succeeded, completions = max(job.status.succeeded or 0, ended), job.spec.completions
    if completions is None and succeeded:
        return f"has no completions and a pod that has succeeded ({succeeded})"
    active = sum(not pod.is_terminal and not pod.is_terminating for pod in pods)
    if completions is not None and completions - succeeded < active:
        lacking = max(0, completions - succeeded)
        return f"lacks {lacking} of {count(completions, 'completion')} and has {count(active, 'pod')}"
    if job.spec.parallelism is not None and job.spec.parallelism < active:
        return f"wants {count(job.spec.parallelism, 'pod')} at a time and has {active}"
    return ""


def _time_left(job: Workload, now: datetime | None) -> timedelta | None:
    """Return how long a Job may go on, None where nothing ends it or the time is not known."""
    seconds = job.spec.active_deadline_seconds
    if seconds is None or now is None or job.status.start_time is None:
        return None
    try:
        return parse_timestamp(job.status.start_time) + timedelta(seconds=seconds) - now
    # A deadline may be any number of seconds that an int64 holds; timedelta ends before.
    except (InputError, OverflowError):
        return None


def _ignores_evictions(rules: tuple[PodFailurePolicyRule, ...]) -> bool:
    """Return whether the first rule that may match an eviction ignores it.

    Such a rule matches the condition `DisruptionTarget`; rules before it that ignore something else do no harm.
    """
    for rule in rules:
        if any(
            pod_condition.type == DISRUPTION_TARGET and pod_condition.status in {"", "True"}
            for pod_condition in rule.on_pod_conditions
        ):
            return rule.action == _IGNORE
        if rule.action != _IGNORE:
            return False
    return False


def _refusal(message: str) -> Refusal:
    return Refusal(RefusalReason.JOB_COULD_FAIL, message)
