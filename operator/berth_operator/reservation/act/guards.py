"""Guards and fences of nodes: during hand-overs, and while capacity is awaited.

A node has our taint and its fence while a pod with a note waits for its place there, and for the settling time after
such a pod was bound: other schedulers may not have heard of it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
import structlog

from berth_core import (
    BEST_EFFORT_LABEL,
    DAEMON_POD_LABEL,
    FENCE_LABEL,
    HANDOVER_TAINT,
    LATEST_UNIX_SECONDS,
    RESERVATION_LABEL,
    STANDING_FENCE_LABEL,
    BerthError,
    Fence,
    PermanentError,
    Pod,
    PodStatus,
    effective_requests,
    fence_name,
    is_best_effort,
    is_unschedulable,
    parse_timestamp,
    read_whole_number,
    standing_fence_name,
)
from berth_kube import PODS, AlreadyExistsError, ConflictError, KubeClient, NotFoundError, put_taint, remove_taint
from berth_operator import telemetry
from berth_operator.reservation.act.context import WITHOUT_NODE, Context
from berth_operator.reservation.act.scheduling_objects import PriorityClasses
from berth_operator.reservation.manifests import FENCE_PRIORITY, FenceKind, build_fence, build_standing_fence
from berth_operator.reservation.node_choice import FenceBudget
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.workqueue import BEST_EFFORT_KEY, Key

# --- fences ----------------------------------------------------------------------------------------------------------
# A fence is a pod that keeps other pods off a guarded node, even those that tolerate its taint.
#
# It requests nothing; schedulers honour its anti-affinity. It is created before the guard and deleted after it, so
# that each node with our taint has a fence. A fence covers the hand-overs that end within a period and ends by itself
# soon after it, so that none remains for long when no operator runs; an extended hand-over gets the next one.

_PERIOD_SECONDS: Final = 120
_MARGIN_SECONDS: Final = 60
"""How long a fence outlives its period; the next fence is in place by then."""
NO_POD_SLOT: Final = "it has no pod slot to spare"
REQUESTS_ADDED: Final = "admission gives a pod without requests some in this namespace"
_SPARE_SLOTS: Final = 10
"""With so many more to spare the watched count of a node's pods suffices: it lags by moments, and that many pods are
not bound to one node in them. The pods of a fuller node are listed."""
_TRIES: Final = 3
"""After this many failures in a row the node gets only its guard: the hand-over goes on."""

_LOG = structlog.get_logger(__name__)


class _Occupant(msgspec.Struct, frozen=True):
    """The pod fields that show whether it uses a pod slot."""

    status: PodStatus = PodStatus()


class FenceManager:
    """Creates and deletes fences; thread-safe, for one node at a time."""

    def __init__(self, context: Context, priorities: PriorityClasses) -> None:
        self._client = context.client
        self._cache = context.cache
        self._priorities = priorities
        self._settings = context.settings.placeholders
        self._lock = threading.Lock()
        self._fences: dict[str, set[str]] = {}
        """Names of the fences to delete by node, of those that have ended as well."""
        self._failures: Counter[str] = Counter()
        """Failed creations in a row by node."""

    def create(self, node: str, deadline: int, now: datetime) -> None:
        """Create a node's fence for hand-overs until a deadline in unix seconds."""
        period = deadline // _PERIOD_SECONDS
        name = fence_name(node, period)
        if name not in self._names(node) and not has_room(self._client, self._cache, node):
            note_omission(node, NO_POD_SLOT)
            return
        seconds = int((period + 1) * _PERIOD_SECONDS + _MARGIN_SECONDS - now.timestamp())
        body = build_fence(node, name, seconds=seconds, settings=self._settings)
        try:
            self._priorities.ensure(FENCE_PRIORITY)
            made = self._client.create(PODS, body, namespace=self._settings.namespace, type=Pod)
        except AlreadyExistsError:
            self._add(node, name, stands=True)
        except BerthError as error:
            self._tolerate(node, error)
        else:
            self._add(node, made.metadata.name, stands=True)
            if requests_anything(made):
                self.delete(node)
                note_omission(node, REQUESTS_ADDED)

    def delete(self, node: str) -> None:
        """Force-delete the fences of a node."""
        for name in self._names(node):
            with suppress(NotFoundError):
                self._client.delete(PODS, name, namespace=self._settings.namespace, grace_seconds=0)
            with self._lock:
                self._fences[node].discard(name)
                if not self._fences[node]:
                    del self._fences[node]
                    self._cache.put_fenced(node, is_fenced=False)

    def know(self, node: str, guard_deadline: str) -> None:
        """Record the fences of a guard.

        They include those that the previous leader made after our list.
        """
        deadline = read_whole_number(guard_deadline, most=LATEST_UNIX_SECONDS)
        if deadline is None or self._names(node):
            return
        period = deadline // _PERIOD_SECONDS
        for one in (period - 1, period):  # the previous period's fence outlives it
            self._add(node, fence_name(node, one), stands=False)

    def find(self) -> frozenset[str]:
        """List the nodes with a fence, including fences of an earlier operator."""
        selector = f"{FENCE_LABEL},!{STANDING_FENCE_LABEL}"
        listed = self._client.list(PODS, namespace=self._settings.namespace, label_selector=selector, type=Pod)
        for pod in listed.items:
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
                self._cache.put_fenced(node, is_fenced=True)

    def _tolerate(self, node: str, error: BerthError) -> None:
        """Raise the error of a failed creation while tries are left.

        After the last try it goes on without a fence.
        """
        self._priorities.forget(FENCE_PRIORITY)  # our own class may be missing
        with self._lock:
            self._failures[node] += 1
            may_recover = self._failures[node] < _TRIES
        if may_recover:
            raise error
        note_omission(node, str(error))


def has_room(client: KubeClient, cache: Cache, node: str, pods: int = 1) -> bool:
    """Return whether a node has spare slots for so many pods.

    Its pods and those on their way use one each.
    """
    # The cache comes first: a pod that is bound in between counts twice, never not at all. A pod whose placeholder is
    # gone is in no list, and its slot is free until it is bound.
    coming, slots = len(cache.guard_users(node)), cache.pod_slots(node)
    counted = cache.pod_counts.on(node)
    if counted is not None and counted + coming + pods + _SPARE_SLOTS <= slots:
        return True
    listed = client.list(PODS, field_selector=f"spec.nodeName={node}", type=_Occupant)
    used = sum(one.status.phase not in {"Succeeded", "Failed"} for one in listed.items)
    return used + coming + pods <= slots


def kind_of_fence(fence: Pod) -> str:
    return fence.metadata.labels.get(STANDING_FENCE_LABEL, "")


def requests_anything(fence: Pod) -> bool:
    """Return whether admission gave a fence requests."""
    return any(effective_requests(fence.spec).to_quantities().values())


def note_omission(node: str, why: str) -> None:
    _LOG.warning(telemetry.FENCE_LEFT_OUT, **{telemetry.KEY_NODE: node, telemetry.KEY_MESSAGE: why})


# --- standing fences -------------------------------------------------------------------------------------------------
# A standing fence keeps a node's capacity for Reservations that wait for its pods to end. It ends by itself an hour
# after it was made; the next one takes its place after half of that. System pods may preempt it; it is made again once
# it is gone: made sooner, it would be preempted again, and the system pods would not get in.

_STANDING_SECONDS: Final = 3600
_STANDING_PERIOD_SECONDS: Final = _STANDING_SECONDS // 2
_LET_IN: Final = (RESERVATION_LABEL, DAEMON_POD_LABEL, BEST_EFFORT_LABEL)
"""Pods with one of these labels get past standing fences."""
_BEST_EFFORT_SECONDS: Final = 5.0
"""Between two searches for pods without requests."""
_MOST_LET_IN: Final = 100
"""At most so many pods are let in after one search."""


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
        chosen = self._chosen_nodes() if awaited else []
        return FenceBudget(
            self._cache.fenced_nodes(namespace, awaited=awaited) | {node for node, by in chosen if by == namespace},
            self._cache.fenced_nodes(awaited=awaited) | {node for node, _ in chosen},
            self._limits.of(namespace).most_fenced(nodes),
            self._limits.cluster.most_fenced(nodes),
        )

    def _chosen_nodes(self) -> list[tuple[str, str]]:
        """Return the nodes of recent choices, each with the namespace."""
        recent = [(self._cache.reservation(uid), one) for uid, one in self._cache.choices().items() if one.is_recent]
        return [
            (node, by.metadata.namespace)
            for by, choice in recent
            if by is not None and by.is_live and by.spec.fence is Fence.NODE
            for node in choice.nodes.values()
        ]

    def reconcile(self, node: str, now: datetime) -> None:
        """Fence a node while a Reservation awaits its capacity, or it is kept."""
        users = self._cache.fence_users(node)
        standing = self._cache.fences.on(node)
        if not users and not self._cache.knows_kept_nodes:
            return
        lasting = (
            {kind_of_fence(fence): fence for fence in standing if lasts(fence, _STANDING_PERIOD_SECONDS, now)}
            if users
            else {}
        )
        missing = [kind for kind in FenceKind if kind not in lasting] if users else []
        if any(one.is_terminating for one in standing) and missing:
            return  # system pods are on their way in: a fence made now would be preempted, too
        why = self._create(node, missing, users, now) if missing else ""
        self._cache.put_unfenced(node, why)
        if not why:
            for fence in standing:
                if fence not in lasting.values():
                    self._delete(fence)

    def _create(self, node: str, kinds: list[FenceKind], namespaces: frozenset[str], now: datetime) -> str:
        """Create fences of a node; return why there are none, or ""."""
        with self._lock:
            why = self._why_not(node, namespaces)
            if why:
                return why
            try:
                self._priorities.ensure(FENCE_PRIORITY)
                made = [one for kind in kinds if (one := self._create_one(node, kind, now)) is not None]
            except BerthError as error:
                self._priorities.forget(FENCE_PRIORITY)  # our own class may be missing
                self._cache.put_unfenced(node, str(error))
                raise
        if any(map(requests_anything, made)):
            for one in made:
                self._delete(one)
            return REQUESTS_ADDED
        _LOG.info(telemetry.FENCED, **{telemetry.KEY_NODE: node})
        return ""

    def _create_one(self, node: str, kind: FenceKind, now: datetime) -> Pod | None:
        """Create one fence; None if it exists: its watch reports what becomes of it."""
        name = name_fence_now(node, kind, _STANDING_PERIOD_SECONDS, now)
        body = build_standing_fence(node, name, kind, seconds=_STANDING_SECONDS, settings=self._settings)
        try:
            made = self._client.create(PODS, body, namespace=self._settings.namespace, type=Pod)
        except AlreadyExistsError:
            return None
        self._cache.fences.put(made)
        return made

    def _why_not(self, node: str, namespaces: frozenset[str]) -> str:
        """Return what forbids a fence, or ""; one namespace that may have it is enough."""
        refusals = [self._budget(one, awaited=False).why_not(node) for one in sorted(namespaces)]
        if all(refusals):
            return refusals[0]
        is_fenced = bool(self._cache.fences.on(node))
        return "" if is_fenced or has_room(self._client, self._cache, node, len(FenceKind)) else NO_POD_SLOT

    def _delete(self, fence: Pod) -> None:
        delete_at_once(self._client, fence)
        self._cache.fences.remove(fence)


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
        if not self._cache.fences.all():
            return
        with self._lock:
            left = self._next - time.monotonic()
            if left <= 0:
                self._next = time.monotonic() + _BEST_EFFORT_SECONDS
        self._enqueue(BEST_EFFORT_KEY, left if left > 0 else _BEST_EFFORT_SECONDS)
        if left > 0:
            return
        kept_off = ",".join(f"!{label}" for label in _LET_IN)
        listed = self._client.list(PODS, field_selector=WITHOUT_NODE, label_selector=kept_off, type=Pod).items
        waiting = [
            pod for pod in listed if is_best_effort(pod.spec) and is_unschedulable(pod) and not pod.is_terminating
        ]
        label_oldest(self._client, waiting, BEST_EFFORT_LABEL)


def label_oldest(client: KubeClient, pods: Iterable[Pod], label: str) -> None:
    """Give the oldest pods a label that lets them past fences; raises the first refusal at the end."""
    refused: PermanentError | None = None
    for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or "")[:_MOST_LET_IN]:
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {label: "true"}}}
        try:
            client.merge_patch(PODS, pod.metadata.name, body, namespace=pod.metadata.namespace)
        except (NotFoundError, ConflictError):
            continue  # it is gone
        except PermanentError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def delete_at_once(client: KubeClient, pod: Pod) -> None:
    """Delete this pod, and no other of its name, without waiting for a kubelet."""
    meta = pod.metadata
    with suppress(NotFoundError):
        client.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)


def name_fence_now(node: str, kind: str, period_seconds: int, now: datetime) -> str:
    """Return the name of a fence that is made now: in each period there is one of a kind."""
    return standing_fence_name(node, kind, int(now.timestamp()) // period_seconds)


def lasts(fence: Pod, period_seconds: int, now: datetime) -> bool:
    """Return whether a fence stands and has at least half of its time left.

    So has one of the present period, whatever the API server's clock says: there is no other name for the next one.
    """
    if fence.is_terminal or fence.is_terminating or not fence.metadata.creation_timestamp:
        return False
    if fence.metadata.name == name_fence_now(fence.spec.node_name, kind_of_fence(fence), period_seconds, now):
        return True
    return age_seconds(fence, now) < period_seconds


def age_seconds(fence: Pod, now: datetime) -> float:
    return (now - parse_timestamp(fence.metadata.creation_timestamp or "")).total_seconds()


# --- guards ----------------------------------------------------------------------------------------------------------


class NodeGuard:
    """Reconciles a node's guard and fence with the hand-overs on it."""

    def __init__(self, context: Context, fences: FenceManager) -> None:
        self._client = context.client
        self._cache = context.cache
        self._fences = fences
        self._settings = context.settings.handover

    def reconcile(self, node: str, now: datetime) -> float | None:
        """Guard a node until its hand-overs' last deadline, or unguard it.

        A deadline in the past does not remove the guard: it is extended as long as the hand-over goes on. Returns the
        seconds until the guard may go, None where time changes nothing.
        """
        deadline = max((given.deadline for given in self._cache.guard_users(node)), default=None)
        try:
            if deadline is None:
                return self._open(node)
            if not (self._is_long_enough(self._cache.guard_deadline(node), deadline) and self._cache.has_guard(node)):
                self._fences.create(node, max(deadline, int(now.timestamp())), now)
                self._guard(node, deadline)
        except NotFoundError:
            self._fences.delete(node)  # a node that is gone needs no guard
        return None

    def _open(self, node: str) -> float | None:
        """Take guard and fence off once the settling time is over; return the seconds that are left of it.

        A fence needs none: schedulers see its deletion after the binding that we saw before, for both are pods.
        """
        current = self._cache.guard_deadline(node)
        if current is None:
            self._fences.delete(node)
            return None
        is_fenced = self._cache.is_fenced(node)
        settle_seconds = self._settings.settle_seconds if is_fenced else self._settings.unfenced_settle_seconds
        left_seconds = settle_seconds - self._cache.guard_idle_seconds(node)
        if left_seconds > 0:
            return left_seconds
        if self._cache.begin_unguarding(node):
            self._fences.know(node, current)
            self._unguard(node)
            self._fences.delete(node)
        return None

    def _is_long_enough(self, current: str | None, deadline: int) -> bool:
        """Return whether a guard lasts until a deadline, and not much longer."""
        # A much longer one means that the clock was set back.
        stands_until = read_whole_number(current or "", most=LATEST_UNIX_SECONDS)
        return stands_until is not None and 0 <= stands_until - deadline <= self._settings.timeout_seconds

    def _guard(self, node: str, deadline: int) -> None:
        known, value = self._cache.node(node), str(deadline)
        patched = put_taint(self._client, node, key=HANDOVER_TAINT, value=value, known=known, type=GuardableNode)
        self._cache.put_node(patched)
        self._cache.end_unguarding(node)
        _LOG.info(telemetry.GUARDED, **{telemetry.KEY_NODE: node, telemetry.KEY_EXPIRES: deadline})

    def _unguard(self, node: str) -> None:
        known = self._cache.node(node)
        self._cache.put_node(remove_taint(self._client, node, key=HANDOVER_TAINT, known=known, type=GuardableNode))
        _LOG.info(telemetry.UNGUARDED, **{telemetry.KEY_NODE: node})
