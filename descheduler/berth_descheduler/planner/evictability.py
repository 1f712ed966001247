"""Which pods may be evicted, and why the others may not.

These rules hold whatever a policy says: without them a pod would be lost, or no place could be held for it. Unknown
facts keep a pod in place. `default_evictor` has the rules that a policy can change.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from berth_core import (
    DEFAULT_NAMESPACE,
    LONGEST_GRACE,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    OwnerReference,
    Pod,
    PodFailurePolicyRule,
    Snapshot,
    Volume,
    Workload,
    api_group,
    format_duration,
)
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.autoscalers.marks import DAEMONSET_POD
from berth_descheduler.planner.autoscalers.pods import wish_refusals
from berth_descheduler.planner.disruption_budgets import DisruptionBudgets
from berth_descheduler.planner.gangs import VOLCANO_JOB_KIND, Gangs
from berth_descheduler.planner.settings import EvictableNamespaces
from berth_descheduler.planner.unreadable_objects import UnreadableObjects

# --- annotations -----------------------------------------------------------------------------------------------------
# Annotations with which users mark single pods, as upstream's descheduler defines them; those of autoscalers are in
# `autoscalers`.

EVICT_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/evict"
"""The pod may be moved, whatever `DefaultEvictor` requires of single pods."""

NO_EVICTION_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The pod should rather stay."""

# --- job failures ----------------------------------------------------------------------------------------------------
# Whether evictions could fail a pod's Job: each counts as a failure, unless the Job's policy ignores it.
#
# A pod that is deleted before it has succeeded is a failure to the Job controller, whatever its `restartPolicy`, and
# the Job fails with more of them than its `backoffLimit` says. Not so if a rule of its `podFailurePolicy` ignores the
# condition `DisruptionTarget`, which every evicted pod has, and no rule before it could do something else. What is not
# known of a Job keeps its pods where they are.

JOB_KIND: Final = ("batch", "Job")

_IGNORE: Final = "Ignore"
_DISRUPTION: Final = "DisruptionTarget"
_MOVES_OF_A_POD: Final = 2
"""A pod that is in the way moves twice at most."""


def failing_refusal(job: Workload | None, active_pods: int) -> Refusal | None:
    """Return why evicting a Job's pods could fail it.

    None if evicting all of them cannot fail it.
    """
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
    retries = spec.backoff_limit - (job.status.failed or 0)
    if retries < _MOVES_OF_A_POD * active_pods:
        text = f"its {name} outlives {max(0, retries)} more failures, an eviction is one, and it has {active_pods} pods"
        return _refusal(text)
    return None


def _ignores_evictions(rules: tuple[PodFailurePolicyRule, ...]) -> bool:
    """Return whether the first rule that may match an eviction ignores it.

    The rule has to match the condition `DisruptionTarget`; rules before it that ignore something else do no harm.
    """
    for rule in rules:
        if any(
            pod_condition.type == _DISRUPTION and pod_condition.status in {"", "True"}
            for pod_condition in rule.on_pod_conditions
        ):
            return rule.action == _IGNORE
        if rule.action != _IGNORE:
            return False
    return False


def _refusal(message: str) -> Refusal:
    return Refusal(RefusalReason.JOB_COULD_FAIL, message)


Refusals: TypeAlias = tuple[Refusal, ...]

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""From here on priorities are Kubernetes' own."""

_SYSTEM_CRITICAL_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})

_MAKERS: Final = frozenset(
    {
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("", "ReplicationController"),
        JOB_KIND,
        VOLCANO_JOB_KIND,
    }
)
"""API group and kind of the controllers that make an evicted pod again."""


class Evictability:
    """Answers for the pods of one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        namespaces: EvictableNamespaces | None = None,
        own_namespace: str = DEFAULT_NAMESPACE,
        max_grace: timedelta = LONGEST_GRACE,
        now: datetime | None = None,
    ) -> None:
        self._namespaces = namespaces or EvictableNamespaces()
        self._own_namespace = own_namespace
        self._max_grace = max_grace
        self.budgets = DisruptionBudgets(snapshot.disruption_budgets)
        self._workloads = {_workload_key(workload): workload for workload in snapshot.workloads}
        self._known_kinds = {(api_group(workload.api_version), workload.kind) for workload in snapshot.workloads}
        self._active = Counter(_maker_uid(pod) for pod in snapshot.pods if _is_active(pod))
        self._checks: tuple[Callable[[Pod], Refusals], ...] = (
            _kind_refusals,
            _life_refusals,
            _berth_refusals,
            self._namespace_refusals,
            _importance_refusals,
            UnreadableObjects(snapshot).refusals,
            self._controller_refusals,
            Gangs(snapshot).refusals,
            partial(wish_refusals, now=now),
            self._grace_refusals,
            _storage_refusals,
            self._budget_refusals,
        )

    def refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why a pod may not be moved, the main reason first.

        The result is empty if it may be moved.
        """
        refusals: tuple[Refusal, ...] = ()
        for check in self._checks:  # called for every pod, and mostly there is no refusal
            if check_refusals := check(pod):
                refusals = (*refusals, *check_refusals)
        return refusals

    def _namespace_refusals(self, pod: Pod) -> Refusals:
        namespace = pod.metadata.namespace
        if namespace == self._own_namespace:
            return (Refusal(RefusalReason.NAMESPACE_NOT_EVICTABLE, "Berth does not move its own pods"),)
        if self._namespaces.allows(namespace):
            return ()
        return (Refusal(RefusalReason.NAMESPACE_NOT_EVICTABLE, f"pods of the namespace {namespace} may not be moved"),)

    def _controller_refusals(self, pod: Pod) -> Refusals:
        owner = pod.controller
        if owner is None:
            return _unmade_refusals(pod, None)
        kind = (api_group(owner.api_version), owner.kind)
        if kind not in _MAKERS:
            return _unmade_refusals(pod, owner)
        workload = self._workloads.get((*kind, pod.metadata.namespace, owner.name))
        if workload is None or (owner.uid and workload.metadata.uid and workload.metadata.uid != owner.uid):
            return _if_any(self._missing_controller(kind, owner))
        shrinking = _if_any(self._shrinking_refusal(pod, workload))
        if kind != JOB_KIND:
            return shrinking
        return (*shrinking, *_if_any(failing_refusal(workload, self._active[_maker_uid(pod)])))

    def _missing_controller(self, kind: tuple[str, str], owner: OwnerReference) -> Refusal | None:
        """Return why a pod stays whose controller the snapshot lacks.

        A snapshot without any object of the controller's kind was made without them: None, except for a Job.
        """
        if kind not in self._known_kinds:
            return failing_refusal(None, 0) if kind == JOB_KIND else None
        return Refusal(RefusalReason.UNKNOWN_CONTROLLER, f"its {owner.kind} {owner.name} is not in the snapshot")

    def _shrinking_refusal(self, pod: Pod, workload: Workload) -> Refusal | None:
        name = f"{workload.kind} {workload.metadata.name}"
        if workload.metadata.deletion_timestamp is not None or workload.spec.suspend:
            return Refusal(RefusalReason.CONTROLLER_SCALING_DOWN, f"its {name} is being deleted or is suspended")
        replicas = workload.spec.replicas
        if replicas is not None and replicas < self._active[_maker_uid(pod)]:
            text = (
                f"its {name} wants {replicas} pods and has {self._active[_maker_uid(pod)]}, it would not make it again"
            )
            return Refusal(RefusalReason.CONTROLLER_SCALING_DOWN, text)
        return None

    def _grace_refusals(self, pod: Pod) -> Refusals:
        seconds = pod.spec.termination_grace_period_seconds
        if seconds is None or seconds <= self._max_grace.total_seconds():
            return ()
        longest_grace = format_duration(self._max_grace)
        text = f"its grace period is {seconds} s, and a plan waits for {longest_grace} at most (maxGracePeriod)"
        return (Refusal(RefusalReason.GRACE_TOO_LONG, text),)

    def _budget_refusals(self, pod: Pod) -> Refusals:
        return _if_any(self.budgets.refusal(pod))


def _if_any(refusal: Refusal | None) -> Refusals:
    return () if refusal is None else (refusal,)


def _unmade_refusals(pod: Pod, owner: OwnerReference | None) -> Refusals:
    """Return why nothing would recreate a pod.

    Empty for mirror and DaemonSet pods, which are refused for their kind already.
    """
    if pod.is_mirror or pod.is_daemon or pod.counts_as_daemon:
        return ()
    if owner is None:
        return (Refusal(RefusalReason.NO_CONTROLLER, "no controller would make the pod again"),)
    text = f"a {owner.kind} of {owner.api_version} is not known to make its pods again"
    return (Refusal(RefusalReason.UNKNOWN_CONTROLLER, text),)


def _kind_refusals(pod: Pod) -> Refusals:
    if pod.is_mirror:
        return (Refusal(RefusalReason.MIRROR_POD, "the kubelet runs it from a file on the node"),)
    if pod.is_daemon:
        return (Refusal(RefusalReason.DAEMON_POD, "its DaemonSet wants it on this node"),)
    if pod.counts_as_daemon:
        text = f"its annotation {DAEMONSET_POD} says that it belongs to its node, as pods of a DaemonSet do"
        return (Refusal(RefusalReason.DAEMON_POD, text),)
    return ()


def _life_refusals(pod: Pod) -> Refusals:
    if pod.status.phase == "Running" and not pod.is_terminating and not pod.is_gated:
        return ()
    ending = (Refusal(RefusalReason.TERMINATING, "it is being deleted"),) if pod.is_terminating else ()
    if pod.is_gated:
        return (*ending, Refusal(RefusalReason.GATED, "a scheduling gate holds it back"))
    if pod.status.phase == "Running":
        return ending
    text = f"its phase is {pod.status.phase or 'not known'}, not Running"
    return (*ending, Refusal(RefusalReason.NOT_RUNNING, text))


def _berth_refusals(pod: Pod) -> Refusals:
    if PLACEHOLDER_LABEL in pod.metadata.labels:
        return (Refusal(RefusalReason.PLACEHOLDER, "it holds the place of a Reservation"),)
    if RESERVATION_LABEL in pod.metadata.labels:
        return (Refusal(RefusalReason.HANDING_OVER, "it is taking the place of a Reservation"),)
    return ()


def _importance_refusals(pod: Pod) -> Refusals:
    name, priority = pod.spec.priority_class_name, pod.spec.priority or 0
    if name in _SYSTEM_CRITICAL_CLASSES or priority >= SYSTEM_CRITICAL_PRIORITY:
        return (Refusal(RefusalReason.SYSTEM_CRITICAL, f"it is critical to the system ({name or priority})"),)
    return ()


def _storage_refusals(pod: Pod) -> Refusals:
    if not pod.spec.volumes and not pod.spec.resource_claims:
        return ()
    return tuple(_tied_to(pod))


def _tied_to(pod: Pod) -> Iterator[Refusal]:
    """Yield why a pod's volumes and devices keep it in place.

    The pod would lose them, or a placeholder cannot hold them.
    """
    for volume in pod.spec.volumes:
        if volume.ephemeral is not None:
            text = f"the claim of volume {volume.name} would be deleted with the pod"
            yield Refusal(RefusalReason.LOCAL_STORAGE, text)
        elif _is_bound_in_an_unknown_way(volume):
            yield Refusal(RefusalReason.UNKNOWN_VOLUME, f"it is not known from where volume {volume.name} is reached")
    if pod.spec.resource_claims:
        yield Refusal(RefusalReason.RESOURCE_CLAIM, "it holds devices by resource claims")


def _is_bound_in_an_unknown_way(volume: Volume) -> bool:
    inline = (
        volume.csi,
        volume.gce_persistent_disk,
        volume.aws_elastic_block_store,
        volume.azure_disk,
        volume.iscsi,
        volume.rbd,
    )
    return any(source is not None for source in inline)


def _is_active(pod: Pod) -> bool:
    return pod.controller is not None and not pod.is_terminal and not pod.is_terminating


def _maker_uid(pod: Pod) -> tuple[str, str, str]:
    owner = pod.controller
    return (pod.metadata.namespace, owner.kind, owner.uid or owner.name) if owner else ("", "", "")


def _workload_key(workload: Workload) -> tuple[str, str, str, str]:
    return (api_group(workload.api_version), workload.kind, workload.metadata.namespace, workload.metadata.name)
