"""Fences of hand-overs, which keep other pods off a guarded node even if they tolerate its taint.

A fence is a pod that requests nothing; schedulers honour its anti-affinity. It is created before the guard and deleted
after it, so that each node with our taint has a fence. A fence covers the hand-overs that end within a period and ends
by itself soon after it, so that none remains for long when no operator runs; an extended hand-over gets the next one.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
import structlog

from berth_core import (
    FENCE_LABEL,
    LATEST_UNIX_SECONDS,
    STANDING_FENCE_LABEL,
    BerthError,
    PermanentError,
    Pod,
    PodStatus,
    effective_requests,
    fence_name,
    parse_timestamp,
    read_whole_number,
    standing_fence_name,
)
from berth_kube import PODS, AlreadyExistsError, ConflictError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.act.slow_admission import SlowAdmissionError
from berth_operator.reservation.manifests import FENCE_PRIORITY, build_fence
from berth_operator.reservation.store.cache import Cache

_LOG = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 120
_MARGIN_SECONDS: Final = 60
"""How long a fence outlives its period; the next fence is in place by then."""
NO_POD_SLOT: Final = "it has no pod slot to spare"
REQUESTS_ADDED: Final = "admission gives a pod without requests some in this namespace"
_SPARE_SLOTS: Final = 10
"""With so many to spare the watched count of a node's pods suffices: it lags by moments, in which fewer pods than that
are bound to one node. The pods of a fuller node are listed."""
_TRIES: Final = 3
"""After this many failures in a row the node gets only its guard: the hand-over goes on."""


class _Occupant(msgspec.Struct, frozen=True):
    """The field of a pod that shows whether it uses a pod slot."""

    status: PodStatus = PodStatus()


class FenceManager:
    """Creates and deletes fences; thread-safe, as long as each node is handled by one thread at a time."""

    def __init__(self, context: Context, priorities: PriorityClasses) -> None:
        self._client = context.client
        self._cache = context.cache
        self._priorities = priorities
        self._settings = context.settings.placeholders
        self._admission = context.admission
        self._lock = threading.Lock()
        self._fences: dict[str, set[str]] = {}
        """Names of the fences to delete by node, of those that have ended as well."""
        self._failures: Counter[str] = Counter()
        """Failed creations in a row by node."""

    def create(self, node: str, deadline: int, now: datetime) -> None:
        """Create a node's fence for hand-overs until a deadline in unix seconds."""
        period = deadline // _PERIOD_SECONDS
        # The name follows from node and period, so that two replicas or a restarted operator create one fence, not two.
        fence_pod = fence_name(node, period)
        if fence_pod not in self._names(node) and not has_room(self._client, self._cache, node):
            note_omission(node, NO_POD_SLOT)
            return
        seconds = int((period + 1) * _PERIOD_SECONDS + _MARGIN_SECONDS - now.timestamp())
        body = build_fence(node, fence_pod, seconds=seconds, settings=self._settings)
        try:
            with self._admission.asking(self._settings.namespace, is_dispensable=True):
                self._priorities.ensure(FENCE_PRIORITY)
                fence = self._client.create(PODS, body, namespace=self._settings.namespace, type=Pod)
        except AlreadyExistsError:
            # The name is that of the period: an earlier operator, or an earlier hand-over on the node, created it. Of a
            # known fence it is known whether it has ended.
            self._add(node, fence_pod, stands=fence_pod not in self._names(node) and self._is_standing(fence_pod))
        except SlowAdmissionError as error:
            note_omission(node, str(error))
        except BerthError as error:
            self._tolerate(node, error)
        else:
            self._add(node, fence.metadata.name, stands=True)
            # A LimitRange or a webhook may have added requests: such a fence would take room from the very pod that it
            # guards.
            if requests_anything(fence):
                self.delete(node)
                note_omission(node, REQUESTS_ADDED)

    def _is_standing(self, fence_pod: str) -> bool:
        """Return whether a fence that exists has not ended: a kubelet may have refused it, or a system pod its room."""
        try:
            return not self._client.get(PODS, fence_pod, namespace=self._settings.namespace, type=Pod).is_terminal
        except NotFoundError:
            return False

    def delete(self, node: str) -> None:
        """Force-delete the fences of a node."""
        for fence_pod in self._names(node):
            with suppress(NotFoundError):
                # Without grace: no container has started, and a kubelet that is away would keep the fence in the API.
                self._client.delete(PODS, fence_pod, namespace=self._settings.namespace, grace_seconds=0)
            with self._lock:
                self._fences[node].discard(fence_pod)
                if not self._fences[node]:
                    del self._fences[node]
                    self._cache.guards.put_fenced(node, is_fenced=False)

    def know(self, node: str, guard_deadline: str) -> None:
        """Record the fences of a guard, which the previous leader may have created after our list."""
        deadline = read_whole_number(guard_deadline, most=LATEST_UNIX_SECONDS)
        if deadline is None or self._names(node):
            return
        period = deadline // _PERIOD_SECONDS
        for number in (period - 1, period):  # the previous period's fence outlives it
            self._add(node, fence_name(node, number), stands=False)

    def find(self) -> frozenset[str]:
        """List the nodes with a fence, including fences of an earlier operator."""
        selector = f"{FENCE_LABEL},!{STANDING_FENCE_LABEL}"
        fences = self._client.list(PODS, namespace=self._settings.namespace, label_selector=selector, type=Pod)
        for pod in fences.items:
            if FENCE_LABEL in pod.metadata.labels and STANDING_FENCE_LABEL not in pod.metadata.labels:
                self._add(pod.spec.node_name, pod.metadata.name, stands=not pod.is_terminal)
        with self._lock:
            return frozenset(self._fences)

    def _names(self, node: str) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._fences.get(node, ())))

    def _add(self, node: str, name: str, *, stands: bool) -> None:
        """Record a fence, which is deleted with the guard; one that has ended keeps no pod off until then."""
        with self._lock:
            self._failures.pop(node, None)
            self._fences.setdefault(node, set()).add(name)
            if stands:
                self._cache.guards.put_fenced(node, is_fenced=True)

    def _tolerate(self, node: str, error: BerthError) -> None:
        """Raise the error of a failed creation while tries are left; after the last one the node has no fence."""
        self._priorities.forget(FENCE_PRIORITY)  # our own class may be missing
        with self._lock:
            self._failures[node] += 1
            may_recover = self._failures[node] < _TRIES
        if may_recover:
            raise error
        note_omission(node, str(error))


def has_room(client: KubeClient, cache: Cache, node: str, pods: int = 1) -> bool:
    """Return whether a node has `pods` pod slots beside those of its pods and of the pods on their way to it."""
    # The cache comes first: a pod that is bound in between counts twice, never not at all. A pod whose placeholder is
    # gone is in no list, and its slot is free until it is bound.
    pods_coming, slots = len(cache.guards.users(node)), cache.pod_slots(node)
    counted = cache.pod_counts.on(node)
    if counted is not None and counted + pods_coming + pods + _SPARE_SLOTS <= slots:
        return True
    # Pods of phase Succeeded or Failed use no slot: schedulers and kubelets leave them out of `pods`
    # (`filterOutInactivePods` in `pkg/kubelet/kubelet_pods.go`).
    occupants = client.list(PODS, field_selector=f"spec.nodeName={node}", type=_Occupant)
    pods_there = sum(occupant.status.phase not in {"Succeeded", "Failed"} for occupant in occupants.items)
    return pods_there + pods_coming + pods <= slots


def kind_of_fence(fence: Pod) -> str:
    return fence.metadata.labels.get(STANDING_FENCE_LABEL, "")


def requests_anything(fence: Pod) -> bool:
    """Return whether admission gave a fence requests."""
    return any(effective_requests(fence.spec).to_quantities().values())


def note_omission(node: str, why: str) -> None:
    _LOG.warning(telemetry.FENCE_LEFT_OUT, **{telemetry.KEY_NODE: node, telemetry.KEY_MESSAGE: why})


_MAX_LET_IN: Final = 100
"""At most so many pods are let in after one search."""


def label_oldest(client: KubeClient, pods: Iterable[Pod], label: str) -> None:
    """Give the oldest pods a label with which they pass fences; raises the first refusal at the end."""
    first_refusal: PermanentError | None = None
    for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or "")[:_MAX_LET_IN]:
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {label: "true"}}}
        try:
            client.merge_patch(PODS, pod.metadata.name, body, namespace=pod.metadata.namespace)
        except (NotFoundError, ConflictError):
            continue  # it is gone
        except PermanentError as error:
            first_refusal = first_refusal or error
    if first_refusal is not None:
        raise first_refusal


def delete_at_once(client: KubeClient, pod: Pod) -> None:
    """Delete this pod, and no other of its name, without waiting for a kubelet."""
    meta = pod.metadata
    with suppress(NotFoundError):
        client.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)


def name_fence_now(node: str, kind: str, period_seconds: int, now: datetime) -> str:
    """Return the name of a fence that is made now: in each period there is one of a kind."""
    return standing_fence_name(node, kind, int(now.timestamp()) // period_seconds)


def lasts(fence: Pod, period_seconds: int, now: datetime) -> bool:
    """Return whether a fence stands and has at least half of its time left."""
    if fence.is_terminal or fence.is_terminating or not fence.metadata.creation_timestamp:
        return False
    if fence.metadata.name == name_fence_now(fence.spec.node_name, kind_of_fence(fence), period_seconds, now):
        return True  # whatever the API server's clock says: the next one would have the same name
    return age_seconds(fence, now) < period_seconds


def age_seconds(fence: Pod, now: datetime) -> float:
    return (now - parse_timestamp(fence.metadata.creation_timestamp or "")).total_seconds()
