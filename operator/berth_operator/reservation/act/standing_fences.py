"""Standing fences, which keep a node's capacity for Reservations that wait for its pods to end.

One ends by itself an hour after it was made; the next one takes its place after half of that. System pods may preempt
it; it is made again once it is gone: made sooner, it would be preempted again, and the system pods would not get in.
Pods without requests are let in.
"""

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from berth_core import BEST_EFFORT_LABEL, DAEMON_POD_LABEL, RESERVATION_LABEL, BerthError, Fence, Pod, is_best_effort
from berth_kube import PODS, AlreadyExistsError
from berth_operator import telemetry
from berth_operator.reservation.act.context import WITHOUT_NODE, Context
from berth_operator.reservation.act.fences import (
    NO_POD_SLOT,
    REQUESTS_ADDED,
    delete_at_once,
    has_room,
    kind_of_fence,
    label_oldest,
    lasts,
    name_fence_now,
    requests_anything,
)
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.manifests import FENCE_PRIORITY, FenceKind, build_standing_fence
from berth_operator.reservation.node_choice import FenceBudget
from berth_operator.runtime.workqueue import BEST_EFFORT_KEY, Key

_LOG = structlog.get_logger(__name__)

# The kubelet ends a fence after this time, also when no operator is left to delete it. Its successor is made at half of
# it.
_STANDING_SECONDS: Final = 3600
_STANDING_PERIOD_SECONDS: Final = _STANDING_SECONDS // 2
_LET_IN: Final = (RESERVATION_LABEL, DAEMON_POD_LABEL, BEST_EFFORT_LABEL)
"""Pods with one of these labels get past standing fences."""
_BEST_EFFORT_SECONDS: Final = 5.0
"""Between two searches for pods without requests."""


class StandingFences:
    """Reconciles nodes' standing fences with those who await or keep them; thread-safe."""

    def __init__(self, context: Context, priorities: PriorityClasses) -> None:
        self._client = context.client
        self._cache = context.cache
        self._priorities = priorities
        self._settings = context.settings.placeholders
        self._limits = context.settings.limits
        self._lock = threading.Lock()
        """Of several fences at a time, none may exceed a limit."""

    def budget(self, namespace: str) -> FenceBudget:
        """Return how many nodes may be fenced for a namespace, those soon to be fenced counted."""
        return self._budget(namespace, awaited=True)

    def _budget(self, namespace: str, *, awaited: bool) -> FenceBudget:
        nodes = len(self._cache.nodes())
        chosen_nodes = self._chosen_nodes() if awaited else []
        return FenceBudget(
            self._cache.fenced.nodes(namespace, awaited=awaited)
            | {node for node, chosen_for in chosen_nodes if chosen_for == namespace},
            self._cache.fenced.nodes(awaited=awaited) | {node for node, _ in chosen_nodes},
            self._limits.of(namespace).fenced_nodes.most_of(nodes),
            self._limits.cluster.fenced_nodes.most_of(nodes),
        )

    def _chosen_nodes(self) -> list[tuple[str, str]]:
        """Return the nodes of recent choices, each with the namespace."""
        recent = [
            (self._cache.reservation(uid), choice) for uid, choice in self._cache.choices().items() if choice.is_recent
        ]
        return [
            (node, reservation.metadata.namespace)
            for reservation, choice in recent
            if reservation is not None and reservation.is_live and reservation.spec.fence is Fence.NODE
            for node in choice.nodes.values()
        ]

    def reconcile(self, node: str, now: datetime) -> None:
        """Fence a node while a Reservation awaits its capacity, or it is kept."""
        using_namespaces = self._cache.fenced.users(node)
        standing_fences = self._cache.fenced.fences.on(node)
        if not using_namespaces and not self._cache.fenced.knows_kept_nodes:
            return
        lasting_by_kind = (
            {kind_of_fence(fence): fence for fence in standing_fences if lasts(fence, _STANDING_PERIOD_SECONDS, now)}
            if using_namespaces
            else {}
        )
        missing_kinds = [kind for kind in FenceKind if kind not in lasting_by_kind] if using_namespaces else []
        if any(fence.is_terminating for fence in standing_fences) and missing_kinds:
            return  # system pods are on their way in: a fence that is created now would be preempted, too
        why = self._create(node, missing_kinds, using_namespaces, now) if missing_kinds else ""
        self._cache.fenced.put_unfenced(node, why)
        if not why:
            for fence in standing_fences:
                if fence not in lasting_by_kind.values():
                    self._delete(fence)

    def _create(self, node: str, kinds: list[FenceKind], namespaces: frozenset[str], now: datetime) -> str:
        """Create fences of a node; return why there are none, or ""."""
        with self._lock:
            why = self._why_not(node, namespaces)
            if why:
                return why
            try:
                self._priorities.ensure(FENCE_PRIORITY)
                fences = [created for kind in kinds if (created := self._create_one(node, kind, now)) is not None]
            except BerthError as error:
                self._priorities.forget(FENCE_PRIORITY)  # our own class may be missing
                self._cache.fenced.put_unfenced(node, str(error))
                raise
        if any(map(requests_anything, fences)):
            for fence in fences:
                self._delete(fence)
            return REQUESTS_ADDED
        _LOG.info(telemetry.FENCED, **{telemetry.KEY_NODE: node})
        return ""

    def _create_one(self, node: str, kind: FenceKind, now: datetime) -> Pod | None:
        """Create one fence and return it; None if it exists already, as the watch reports it."""
        # A name per period: replicas that race create the same pod, and a renewal does not collide with the fence
        # before it.
        fence_name = name_fence_now(node, kind, _STANDING_PERIOD_SECONDS, now)
        body = build_standing_fence(node, fence_name, kind, seconds=_STANDING_SECONDS, settings=self._settings)
        try:
            fence = self._client.create(PODS, body, namespace=self._settings.namespace, type=Pod)
        except AlreadyExistsError:
            return None
        self._cache.fenced.fences.put(fence)
        return fence

    def _why_not(self, node: str, namespaces: frozenset[str]) -> str:
        """Return what forbids a fence, or ""; one namespace that may have it is enough."""
        refusals = [self._budget(namespace, awaited=False).why_not(node) for namespace in sorted(namespaces)]
        if all(refusals):
            return refusals[0]
        is_fenced = bool(self._cache.fenced.fences.on(node))
        return "" if is_fenced or has_room(self._client, self._cache, node, len(FenceKind)) else NO_POD_SLOT

    def _delete(self, fence: Pod) -> None:
        delete_at_once(self._client, fence)
        self._cache.fenced.fences.remove(fence)


class BestEffortPods:
    """Lets pods without requests past standing fences: they take nothing that is awaited."""

    def __init__(self, context: Context, enqueue: Callable[[Key, float], None]) -> None:
        self._client = context.client
        self._cache = context.cache
        self._enqueue = enqueue
        self._lock = threading.Lock()
        self._next = 0.0
        """Monotonic time from which the pods may be listed again."""

    def let_in(self) -> None:
        """Label the oldest such pods that a scheduler has refused; come back while fences stand.

        Raises the first refusal at the end.
        """
        if not self._cache.fenced.fences.all():
            return
        with self._lock:
            seconds_left = self._next - time.monotonic()
            if seconds_left <= 0:
                self._next = time.monotonic() + _BEST_EFFORT_SECONDS
        self._enqueue(BEST_EFFORT_KEY, seconds_left if seconds_left > 0 else _BEST_EFFORT_SECONDS)
        if seconds_left > 0:
            return
        kept_off = ",".join(f"!{label}" for label in _LET_IN)
        waiting_pods = self._client.list(PODS, field_selector=WITHOUT_NODE, label_selector=kept_off, type=Pod).items
        best_effort_pods = [
            pod for pod in waiting_pods if is_best_effort(pod.spec) and pod.is_unschedulable and not pod.is_terminating
        ]
        label_oldest(self._client, best_effort_pods, BEST_EFFORT_LABEL)
