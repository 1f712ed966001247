"""The last check before an eviction: the rules and filters, asked about the pod as it is now, with its place held.

Plugins are called one at a time, in any thread, and see no cluster that is older than half a minute. Pods of a gang
are evicted one after another, each on freshly read state. An unanswered question keeps the pod where it is.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import msgspec

from berth_core import DEFAULT_NAMESPACE, Clock, InputError, Pod, Snapshot
from berth_core.decoding import convert
from berth_core.policies import MOVES_PER_CONTROLLER
from berth_descheduler.capability import EvictedPod
from berth_descheduler.framework import ClusterView, Refusal, RefusalReason
from berth_descheduler.framework.interfaces import PluginSet, Refusing
from berth_descheduler.planner import Gangs, Owners, gangs_of
from berth_descheduler.planner.autoscalers.pods import wish_refusals
from berth_descheduler.planner.availability import Availability
from berth_descheduler.registry import why_not_evicted

_OLDEST_VIEW_SECONDS: Final = 30.0
_EVICTION_REASON: Final = "EvictionByEvictionAPI"


class PreEvictionCheck:
    """Checks just before an eviction whether the pod may be evicted.

    Asks the rules whose answers change at any time, and the plan's pre-eviction filters. `read_gangs` returns the pods
    of a namespace with their groups, `read_owners` what makes a pod again, `read_siblings` what controls a pod and the
    pods of its namespace, `volume_refusals` why its volumes keep it, `read_snapshot` the whole cluster. `gone_at_once`
    pods of one controller may be gone at once.
    """

    def __init__(
        self,
        plugins: PluginSet,
        read_snapshot: Callable[[], Snapshot],
        read_gangs: Callable[[str], Snapshot],
        clock: Clock,
        own_namespace: str = DEFAULT_NAMESPACE,
        *,
        read_owners: Callable[[Pod], Owners],
        read_siblings: Callable[[Pod], Snapshot],
        volume_refusals: Callable[[Pod], tuple[Refusal, ...]] = lambda _: (),
        gone_at_once: int = MOVES_PER_CONTROLLER,
    ) -> None:
        self._own_namespace = own_namespace
        self._read_owners = read_owners
        self._read_siblings = read_siblings
        self._volume_refusals = volume_refusals
        self._gone_at_once = gone_at_once
        self._plugins = plugins
        self._read_snapshot = read_snapshot
        self._read_gangs = read_gangs
        self._clock = clock
        self._lock = threading.Lock()
        self._gang_lock = threading.Lock()
        self._controller_locks: dict[tuple[str, str, str], threading.Lock] = {}
        self._refusing: Refusing | None = None
        self._made_at = 0.0

    def eviction_lock(self, raw_pod: dict[str, Any], *, has_place: bool = True) -> AbstractContextManager[Any]:
        """Return the lock to hold until the eviction is over.

        Pods of gangs go one by one, and those without a place: budgets of jobs count pods. So do pods of one
        controller, which counts those that are gone.
        """
        if not has_place:
            return self._gang_lock
        try:
            pod = convert(raw_pod, Pod)
        except msgspec.ValidationError:
            return self._gang_lock
        if gangs_of(pod):
            return self._gang_lock
        owner = pod.controller
        if owner is None:
            return nullcontext()
        with self._lock:
            return self._controller_locks.setdefault((pod.metadata.namespace, owner.kind, owner.name), threading.Lock())

    def refusals(self, raw_pod: dict[str, Any], *, has_place: bool = True) -> tuple[Refusal, ...]:
        """Return all refusals to evict a pod now.

        Raises `RetryableError` if the cluster cannot be read.
        """
        try:
            pod = convert(raw_pod, Pod)
            gang_refusals = Gangs(self._read_gangs(pod.metadata.namespace)).refusals(pod) if gangs_of(pod) else ()
            refusals_without_place = () if has_place else self._refusals_without_place(pod)
            wishes = wish_refusals(pod, self._clock.now())
            of_owners = self._read_owners(pod).refusals(_without_own_mark(pod))
            of_volumes = self._volume_refusals(pod) if has_place else ()  # one without a place goes for good
            return (*refusals_without_place, *of_owners, *of_volumes, *gang_refusals, *wishes, *self._ask_filters(pod))
        except (InputError, msgspec.ValidationError) as error:
            return (Refusal(RefusalReason.PLUGIN_FAILED, str(error)),)

    def why_not_now(self, raw_pod: dict[str, Any]) -> str:
        """Return why a pod may not be gone for now: its controller lacks as many as it may; "" where it may go.

        A pod that may be evicted without a place has to leave, however few siblings are Ready. Raises `RetryableError`
        if these cannot be read.
        """
        try:
            pod = convert(raw_pod, Pod)
            if not pod.is_ready or pod.controller is None:
                return ""
            siblings = self._read_siblings(pod)
            refusal = Availability(siblings.pods, siblings.workloads, self._gone_at_once).refusal(pod)
            return refusal.message if refusal is not None and self._refusals_without_place(pod) else ""
        except (InputError, msgspec.ValidationError) as error:
            return f"it is not known whether it may leave: {error}"

    def _refusals_without_place(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why no capability lets a pod be evicted without a place."""
        own_gangs, gangs_beside = self._read_gangs(self._own_namespace), self._read_gangs(pod.metadata.namespace)
        evicted_pod = EvictedPod(
            pod=pod,
            neighbours=gangs_beside,
            own=own_gangs,
            own_namespace=self._own_namespace,
            now=self._clock.now(),
            plugins=self._plugins,
        )
        why = why_not_evicted(evicted_pod)
        return (Refusal(RefusalReason.REFUSED_BY_PLUGIN, why),) if why else ()

    def _ask_filters(self, pod: Pod) -> tuple[Refusal, ...]:
        if not self._plugins.pre_eviction_filters:
            return ()
        with self._lock:
            return self._current()(pod)

    def _current(self) -> Refusing:
        """Return the filters on a fresh view of the cluster.

        The cluster is read only if a filter needs it.
        """
        now = self._clock.monotonic()
        if self._refusing is None or now - self._made_at > _OLDEST_VIEW_SECONDS:
            self._refusing = self._plugins.refusing_eviction(
                ClusterView(self._read_snapshot, self._clock.now(), self._own_namespace)
            )
            self._made_at = now
        return self._refusing


def _without_own_mark(pod: Pod) -> Pod:
    """Return a pod without the condition by which the eviction API marks it before it deletes it.

    The mark stays where the deletion failed, and the eviction is then asked for again.
    """
    kept = tuple(condition for condition in pod.status.conditions if condition.reason != _EVICTION_REASON)
    if len(kept) == len(pod.status.conditions):
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=kept))
