"""Guards and fences of nodes during hand-overs.

A node has our taint and fence pod exactly during a hand-over. The note on the owner pod shows that a hand-over is in
progress.
"""

import threading
from collections import Counter
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
import structlog

from berth_core import (
    FENCE_LABEL,
    HANDOVER_TAINT,
    LATEST_UNIX_SECONDS,
    BerthError,
    Pod,
    PodStatus,
    effective_requests,
    fence_name,
    read_whole_number,
)
from berth_kube import PODS, AlreadyExistsError, NotFoundError, put_taint, remove_taint
from berth_operator import telemetry
from berth_operator.cache import GuardableNode
from berth_operator.executor.context import Context
from berth_operator.executor.priority_classes import PriorityClasses
from berth_operator.reconcile import FENCE_PRIORITY, build_fence

# --- fences ----------------------------------------------------------------------------------------------------------
# A fence is a pod that keeps other pods off a guarded node, even those that tolerate its taint.
#
# It requests nothing; schedulers honour its anti-affinity. It is created before the guard and deleted after it, so
# that each node with our taint has a fence. A fence covers the hand-overs that end within a period and ends by itself
# soon after it, so that none remains for long when no operator runs; an extended hand-over gets the next one.

_PERIOD_SECONDS: Final = 120
_MARGIN_SECONDS: Final = 60
"""How long a fence outlives its period; the next fence is in place by then."""
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
        """Fence names by node."""
        self._failures: Counter[str] = Counter()
        """Failed creations in a row by node."""

    def create(self, node: str, deadline: int, now: datetime) -> None:
        """Create a node's fence for hand-overs until a deadline in unix seconds."""
        period = deadline // _PERIOD_SECONDS
        name = fence_name(node, period)
        if name not in self._names(node) and not self._has_room(node):
            _note_omission(node, "it has no pod slot to spare")
            return
        seconds = int((period + 1) * _PERIOD_SECONDS + _MARGIN_SECONDS - now.timestamp())
        body = build_fence(node, name, seconds=seconds, settings=self._settings)
        try:
            self._priorities.ensure(FENCE_PRIORITY)
            made = self._client.create(PODS, body, namespace=self._settings.namespace, type=Pod)
        except AlreadyExistsError:
            self._add(node, name)
        except BerthError as error:
            self._tolerate(node, error)
        else:
            self._add(node, made.metadata.name)
            if any(effective_requests(made.spec).to_quantities().values()):
                self.delete(node)
                _note_omission(node, "admission gives a pod without requests some in this namespace")

    def delete(self, node: str) -> None:
        """Force-delete the fences of a node."""
        for name in self._names(node):
            with suppress(NotFoundError):
                self._client.delete(PODS, name, namespace=self._settings.namespace, grace_seconds=0)
            with self._lock:
                self._fences[node].discard(name)
                if not self._fences[node]:
                    del self._fences[node]

    def know(self, node: str, guard_deadline: str) -> None:
        """Record the fences of a guard.

        They include those that the previous leader made after our list.
        """
        deadline = read_whole_number(guard_deadline, most=LATEST_UNIX_SECONDS)
        if deadline is None or self._names(node):
            return
        period = deadline // _PERIOD_SECONDS
        for one in (period - 1, period):  # the previous period's fence outlives it
            self._add(node, fence_name(node, one))

    def find(self) -> frozenset[str]:
        """List the nodes with a fence, including fences of an earlier operator."""
        listed = self._client.list(PODS, namespace=self._settings.namespace, label_selector=FENCE_LABEL, type=Pod)
        for pod in listed.items:
            if FENCE_LABEL in pod.metadata.labels:
                self._add(pod.spec.node_name, pod.metadata.name)
        with self._lock:
            return frozenset(self._fences)

    def _names(self, node: str) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._fences.get(node, ())))

    def _add(self, node: str, name: str) -> None:
        with self._lock:
            self._failures.pop(node, None)
            self._fences.setdefault(node, set()).add(name)

    def _has_room(self, node: str) -> bool:
        """Return whether a node has a spare pod slot.

        Its pods and those on their way use one each.
        """
        # The cache comes first: a pod that is bound in between counts twice, never not at all. A pod whose placeholder
        # is gone is in no list, and its slot is free until it is bound.
        coming = len(self._cache.guard_users(node))
        listed = self._client.list(PODS, field_selector=f"spec.nodeName={node}", type=_Occupant)
        used = sum(one.status.phase not in {"Succeeded", "Failed"} for one in listed.items)
        return used + coming < self._cache.pod_slots(node)

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
        _note_omission(node, str(error))


def _note_omission(node: str, why: str) -> None:
    _LOG.warning(telemetry.FENCE_LEFT_OUT, **{telemetry.KEY_NODE: node, telemetry.KEY_MESSAGE: why})


class NodeGuard:
    """Reconciles a node's guard and fence with the hand-overs on it."""

    def __init__(self, context: Context, fences: FenceManager) -> None:
        self._client = context.client
        self._cache = context.cache
        self._fences = fences
        self._settings = context.settings.handover

    def reconcile(self, node: str, now: datetime) -> None:
        """Guard a node until its hand-overs' last deadline, or unguard it.

        A deadline in the past does not remove the guard: it is extended as long as the hand-over goes on.
        """
        deadline = max((given.deadline for given in self._cache.guard_users(node)), default=None)
        current = self._cache.guard_deadline(node)
        try:
            if deadline is None:
                if current is not None:
                    self._fences.know(node, current)
                    self._unguard(node)
                self._fences.delete(node)
            elif not self._is_long_enough(current, deadline):
                self._fences.create(node, max(deadline, int(now.timestamp())), now)
                self._guard(node, deadline)
        except NotFoundError:
            self._fences.delete(node)  # a node that is gone needs no guard

    def _is_long_enough(self, current: str | None, deadline: int) -> bool:
        """Return whether a guard lasts until a deadline, and not much longer."""
        # A much longer one means that the clock was set back.
        stands_until = read_whole_number(current or "", most=LATEST_UNIX_SECONDS)
        return stands_until is not None and 0 <= stands_until - deadline <= self._settings.timeout_seconds

    def _guard(self, node: str, deadline: int) -> None:
        patched = put_taint(self._client, node, key=HANDOVER_TAINT, value=str(deadline), type=GuardableNode)
        self._cache.put_node(patched)
        _LOG.info(telemetry.GUARDED, **{telemetry.KEY_NODE: node, telemetry.KEY_EXPIRES: deadline})

    def _unguard(self, node: str) -> None:
        self._cache.put_node(remove_taint(self._client, node, key=HANDOVER_TAINT, type=GuardableNode))
        _LOG.info(telemetry.UNGUARDED, **{telemetry.KEY_NODE: node})
