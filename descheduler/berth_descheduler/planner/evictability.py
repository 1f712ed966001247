"""Which pods may be evicted, and why the others may not.

These rules hold whatever a policy says: without them a pod would be lost, or no place could be held for it. Unknown
facts keep a pod in place. `default_evictor` has the rules that a policy can change.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from berth_core import (
    DEFAULT_NAMESPACE,
    LONGEST_GRACE,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    Pod,
    Snapshot,
    format_duration,
)
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.autoscalers.marks import DAEMONSET_POD
from berth_descheduler.planner.autoscalers.pods import wish_refusals
from berth_descheduler.planner.claimed_volumes import ClaimedVolumes
from berth_descheduler.planner.disruption_budgets import DisruptionBudgets
from berth_descheduler.planner.gangs import Gangs
from berth_descheduler.planner.owners import Owners
from berth_descheduler.planner.settings import EvictableNamespaces
from berth_descheduler.planner.unreadable_objects import UnreadableObjects

# The annotations with which users mark single pods are those of the upstream descheduler; those of
# autoscalers are in `autoscalers`.
EVICT_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/evict"
"""The pod may be moved, whatever `DefaultEvictor` requires of single pods."""

NO_EVICTION_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The pod should rather stay."""


Refusals: TypeAlias = tuple[Refusal, ...]

# `SystemCriticalPriority` in pkg/apis/scheduling: twice the highest priority that users may define.
SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""From here on priorities are Kubernetes' own."""

_SYSTEM_CRITICAL_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})


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
        self.budgets = DisruptionBudgets(snapshot.disruption_budgets, snapshot.pods)
        self._owners = Owners(snapshot, now)
        self._checks: tuple[Callable[[Pod], Refusals], ...] = (
            self._kind_refusals,
            _life_refusals,
            _berth_refusals,
            self._namespace_refusals,
            _importance_refusals,
            UnreadableObjects(snapshot).refusals,
            self._owners.refusals,
            self._owners.failure_refusals,
            Gangs(snapshot).refusals,
            partial(wish_refusals, now=now),
            self._grace_refusals,
            _storage_refusals,
            ClaimedVolumes(snapshot).refusals,
            self._budget_refusals,
        )

    def refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why a pod may not be moved, the main reason first; () if it may be moved."""
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

    def keeps_its_node(self, pod: Pod) -> bool:
        """Return whether a pod keeps its node from being freed, as daemon pods do that no DaemonSet makes again."""
        if pod.occupies_node:
            return True
        return (
            pod.is_daemon
            and not (pod.is_mirror or pod.is_terminal or pod.is_terminating)
            and bool(self._owners.orphan_refusals(pod))
        )

    def _kind_refusals(self, pod: Pod) -> Refusals:
        if pod.is_mirror:
            return (Refusal(RefusalReason.MIRROR_POD, "the kubelet runs it from a file on the node"),)
        if pod.is_daemon:
            orphan_refusals = self._owners.orphan_refusals(pod)
            return orphan_refusals or (Refusal(RefusalReason.DAEMON_POD, "its DaemonSet wants it on this node"),)
        if pod.counts_as_daemon:
            text = f"its annotation {DAEMONSET_POD} says that it belongs to its node, as pods of a DaemonSet do"
            return (Refusal(RefusalReason.DAEMON_POD, text),)
        return ()

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


def _life_refusals(pod: Pod) -> Refusals:
    # The eviction API asks no budget about a pod that is Pending or over (`canIgnorePDB`): such a pod has no place to
    # move.
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
    if not pod.spec.volumes and not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
        return ()
    return tuple(_tied_to(pod))


def _tied_to(pod: Pod) -> Iterator[Refusal]:
    """Yield why a pod would lose its volumes or devices, or why a placeholder cannot hold them."""
    for volume in pod.spec.volumes:
        # The pod owns the claim of a generic ephemeral volume (KEP-1698), so the garbage collector takes it along.
        if volume.ephemeral is not None:
            text = f"the claim of volume {volume.name} would be deleted with the pod"
            yield Refusal(RefusalReason.LOCAL_STORAGE, text)
        elif volume.is_attached:
            yield Refusal(RefusalReason.UNKNOWN_VOLUME, f"it is not known from where volume {volume.name} is reached")
    # Devices of extended resources may be claims as well (KEP-5004), which then stand in the status only.
    if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
        yield Refusal(RefusalReason.RESOURCE_CLAIM, "it holds devices by resource claims")
