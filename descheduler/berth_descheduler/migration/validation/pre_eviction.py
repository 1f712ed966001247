"""The last check before an eviction: the rules and filters, asked about the pod as it is now, with its place held.

Plugins are called one at a time, in any thread, and see no cluster that is older than half a minute. Pods of a gang
are evicted one after another, each on freshly read state. An unanswered question keeps the pod where it is.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import msgspec

from berth_core import DEFAULT_NAMESPACE, Clock, InputError, Pod, Snapshot
from berth_core.decoding import convert
from berth_core.policies import MOVES_PER_CONTROLLER
from berth_descheduler.capability import EvictedPod
from berth_descheduler.framework import ClusterView, Refusal, RefusalReason
from berth_descheduler.framework.enabled_plugins import PluginSet, Refusing
from berth_descheduler.migration.validation.live_owners import read_owners, read_siblings
from berth_descheduler.migration.validation.live_volumes import volume_refusals
from berth_descheduler.planner import Gangs, gangs_of
from berth_descheduler.planner.autoscalers.pods import wish_refusals
from berth_descheduler.planner.availability import Availability
from berth_descheduler.registry import why_not_evicted
from berth_descheduler.snapshots import read_gangs
from berth_kube import KubeClient, ReadCache

# A view may list the whole cluster, and pods are evicted several a second.
_OLDEST_VIEW_SECONDS: Final = 30.0
_EVICTION_REASON: Final = "EvictionByEvictionAPI"


class PreEvictionCheck:
    """Checks just before an eviction whether the pod may be evicted.

    Asks the rules whose answers change at any time, and the plan's pre-eviction filters. `client` is where controllers,
    siblings, groups and volumes are read for each eviction, and `read_snapshot` the whole cluster. `gone_at_once` pods
    of one controller may be gone at once.
    """

    def __init__(
        self,
        plugins: PluginSet,
        read_snapshot: Callable[[], Snapshot],
        client: KubeClient,
        clock: Clock,
        own_namespace: str = DEFAULT_NAMESPACE,
        *,
        gone_at_once: int = MOVES_PER_CONTROLLER,
    ) -> None:
        self._own_namespace = own_namespace
        self._gone_at_once = gone_at_once
        self._plugins = plugins
        self._read_snapshot = read_snapshot
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._gang_lock = threading.Lock()
        self._controller_locks: dict[tuple[str, str, str], threading.Lock] = {}
        self._refusing: Refusing | None = None
        self._made_at = 0.0

    @contextmanager
    def eviction_lock(self, raw_pod: dict[str, Any], *, has_place: bool = True) -> Iterator[ReadCache]:
        """Hold the lock until the eviction is over; yields the cache that all questions before it read from.

        Pods of gangs go one by one, and so do those without a place, because budgets of jobs count pods. Pods of one
        controller go one by one as well, because it counts those that are gone.
        """
        with self._lock_of(raw_pod, has_place=has_place):
            yield self.reads()

    def reads(self) -> ReadCache:
        """Return a new cache of reads for one eviction: nothing that was read before counts."""
        return ReadCache(self._client)

    def _lock_of(self, raw_pod: dict[str, Any], *, has_place: bool) -> AbstractContextManager[Any]:
        if not has_place:
            return self._gang_lock
        try:
            pod = convert(raw_pod, Pod)
        # A pod that cannot be read may be one of a gang.
        except msgspec.ValidationError:
            return self._gang_lock
        if gangs_of(pod):
            return self._gang_lock
        owner = pod.controller
        if owner is None:
            return nullcontext()
        with self._lock:
            return self._controller_locks.setdefault((pod.metadata.namespace, owner.kind, owner.name), threading.Lock())

    def refusals(self, raw_pod: dict[str, Any], reads: ReadCache, *, has_place: bool = True) -> tuple[Refusal, ...]:
        """Return all refusals to evict a pod now; raises `RetryableError` if the cluster cannot be read."""
        try:
            pod = convert(raw_pod, Pod)
            filter_refusals = self._ask_filters(pod)  # first: a snapshot may take seconds, in which siblings go
            gang_refusals = Gangs(self._gangs(pod.metadata.namespace, reads)).refusals(pod) if gangs_of(pod) else ()
            refusals_without_place = () if has_place else self._refusals_without_place(pod, reads)
            wishes = wish_refusals(pod, self._clock.now())
            claim_refusals = volume_refusals(reads, pod) if has_place else ()  # one without a place goes for good
            owner_refusals = read_owners(reads, self._clock, pod).refusals(_without_own_mark(pod))
        except (InputError, msgspec.ValidationError) as error:
            return (Refusal(RefusalReason.PLUGIN_FAILED, str(error)),)
        return (*refusals_without_place, *owner_refusals, *claim_refusals, *gang_refusals, *wishes, *filter_refusals)

    def why_not_now(self, raw_pod: dict[str, Any], reads: ReadCache) -> str:
        """Return why a pod may not be gone for now, as its controller lacks as many pods as it may; "" where it may go.

        A pod that may be evicted without a place has to leave, however few siblings are Ready. Raises `RetryableError`
        if these cannot be read.
        """
        try:
            pod = convert(raw_pod, Pod)
            if not pod.is_ready or pod.controller is None:
                return ""
            siblings = read_siblings(reads, pod)
            refusal = Availability(siblings.pods, siblings.workloads, self._gone_at_once).refusal(pod)
            return refusal.message if refusal is not None and self._refusals_without_place(pod, reads) else ""
        except (InputError, msgspec.ValidationError) as error:
            return f"it is not known whether it may leave: {error}"

    def _refusals_without_place(self, pod: Pod, reads: ReadCache) -> tuple[Refusal, ...]:
        """Return why no capability lets a pod be evicted without a place."""
        evicted_pod = EvictedPod(
            pod=pod,
            neighbours=self._gangs(pod.metadata.namespace, reads),
            own=self._gangs(self._own_namespace, reads),
            own_namespace=self._own_namespace,
            now=self._clock.now(),
            plugins=self._plugins,
        )
        reason = why_not_evicted(evicted_pod)
        return (Refusal(RefusalReason.REFUSED_BY_PLUGIN, reason),) if reason else ()

    def _gangs(self, namespace: str, reads: ReadCache) -> Snapshot:
        return read_gangs(reads, namespace, self._own_namespace)

    def _ask_filters(self, pod: Pod) -> tuple[Refusal, ...]:
        if not self._plugins.pre_eviction_filters:
            return ()
        with self._lock:
            return self._current()(pod)

    def _current(self) -> Refusing:
        """Return the filters on a fresh view of the cluster, which is read only if a filter needs it."""
        now = self._clock.monotonic()
        if self._refusing is None or now - self._made_at > _OLDEST_VIEW_SECONDS:
            self._refusing = self._plugins.refusing_eviction(
                ClusterView(self._read_snapshot, self._clock.now(), self._own_namespace)
            )
            self._made_at = now
        return self._refusing


def _without_own_mark(pod: Pod) -> Pod:
    """Return a pod without the condition DisruptionTarget that the eviction API sets before it deletes the pod.

    The condition stays where the deletion failed (pkg/registry/core/pod/storage/eviction.go), and the eviction is then
    asked for again.
    """
    kept = tuple(condition for condition in pod.status.conditions if condition.reason != _EVICTION_REASON)
    if len(kept) == len(pod.status.conditions):
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=kept))
