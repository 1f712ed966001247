"""The guards: our taint and our fence are on a node exactly while a slot on it changes hands.

That a hand-over goes on is read from the note on the owner pod.
"""

import threading
from collections import Counter
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
import structlog

from berth_core.clock import LATEST_UNIX_SECONDS
from berth_core.errors import BerthError
from berth_core.labels import FENCE_LABEL, HANDOVER_TAINT
from berth_core.names import fence_name
from berth_core.objects import Pod, PodStatus
from berth_core.pod_requests import effective_requests
from berth_core.resources import read_whole_number
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, NotFoundError
from berth_kube.events import put_taint, remove_taint
from berth_kube.resources import PODS
from berth_operator import telemetry
from berth_operator.cache.cache import Cache
from berth_operator.cache.nodes import GuardableNode
from berth_operator.executor.priority_classes import PriorityClasses
from berth_operator.reconcile.manifests import FENCE_PRIORITY, build_fence
from berth_operator.settings import HandoverSettings, PlaceholderSettings

# --- fences ----------------------------------------------------------------------------------------------------------
# The fences: pods that keep others off a guarded node, also those that tolerate its taint.
#
# A fence has no requests; its anti-affinity is what schedulers honour. It stands before the guard and goes after it,
# so that a node with our taint is fenced off, too. Each covers the hand-overs that end within a period of time and
# ends by itself soon after it, so that none is left for long when no operator runs; an extended hand-over gets the
# next one.

_PERIOD_SECONDS: Final = 120
_MARGIN_SECONDS: Final = 60
"""How long a fence outlives its period: the next one has settled by then."""
_SPARE_SLOTS: Final = 2
"""A node with fewer pod slots left gets no fence: one is for it, one for a pod that comes meanwhile."""
_TRIES: Final = 3
"""After this many failures in a row a node is guarded without a fence: a second guard may not stop a hand-over."""

_LOG = structlog.get_logger(__name__)


class _Occupant(msgspec.Struct, frozen=True):
    """The part of a pod that shows whether it uses one of its node's slots."""

    status: PodStatus = PodStatus()


class FenceManager:
    """Puts fences up and takes them down; thread-safe, for one node at a time."""

    def __init__(
        self, client: KubeClient, cache: Cache, priorities: PriorityClasses, settings: PlaceholderSettings
    ) -> None:
        self._client = client
        self._cache = cache
        self._priorities = priorities
        self._settings = settings
        self._lock = threading.Lock()
        self._standing: dict[str, set[str]] = {}
        """Names of the fences by node."""
        self._failures: Counter[str] = Counter()
        """By node: how often in a row none could be made."""

    def put_up(self, node: str, deadline: int, now: datetime) -> None:
        """Fence a node off for hand-overs that end by a deadline (unix seconds), if it can be done without harm."""
        if not self._names(node) and not self._has_room(node):
            _note_omission(node, "it has no pod slot to spare")
            return
        period = deadline // _PERIOD_SECONDS
        seconds = int((period + 1) * _PERIOD_SECONDS + _MARGIN_SECONDS - now.timestamp())
        body = build_fence(node, fence_name(node, period), seconds=seconds, settings=self._settings)
        try:
            self._priorities.ensure(FENCE_PRIORITY)
            made = self._client.create(PODS, body, namespace=self._settings.namespace, type=Pod)
        except AlreadyExistsError:
            self._keep(node, body["metadata"]["name"])
        except BerthError as error:
            self._bear(node, error)
        else:
            self._keep(node, made.metadata.name)
            if any(effective_requests(made.spec).to_quantities().values()):
                self.take_down(node)
                _note_omission(node, "a pod without requests is given some in this namespace")

    def take_down(self, node: str) -> None:
        """Delete the fences of a node, without waiting for a kubelet."""
        for name in self._names(node):
            with suppress(NotFoundError):
                self._client.delete(PODS, name, namespace=self._settings.namespace, grace_seconds=0)
            with self._lock:
                self._standing[node].discard(name)
                if not self._standing[node]:
                    del self._standing[node]

    def find(self) -> frozenset[str]:
        """Return the nodes that have a fence, also one that an earlier operator put up."""
        listed = self._client.list(PODS, namespace=self._settings.namespace, label_selector=FENCE_LABEL, type=Pod)
        for pod in listed.items:
            if FENCE_LABEL in pod.metadata.labels:
                self._keep(pod.spec.node_name, pod.metadata.name)
        with self._lock:
            return frozenset(self._standing)

    def _names(self, node: str) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._standing.get(node, ())))

    def _keep(self, node: str, name: str) -> None:
        with self._lock:
            self._failures.pop(node, None)
            self._standing.setdefault(node, set()).add(name)

    def _has_room(self, node: str) -> bool:
        """Return whether a node has pod slots to spare for a fence."""
        listed = self._client.list(PODS, field_selector=f"spec.nodeName={node}", type=_Occupant)
        used = sum(one.status.phase not in {"Succeeded", "Failed"} for one in listed.items)
        return used + _SPARE_SLOTS <= self._cache.pod_slots(node)

    def _bear(self, node: str, error: BerthError) -> None:
        """Go on without a fence where none can be made; raises the error until it has been tried often enough."""
        self._priorities.forget(FENCE_PRIORITY)  # it may be our own class that is gone
        with self._lock:
            self._failures[node] += 1
            may_pass = self._failures[node] < _TRIES
        if may_pass:
            raise error
        _note_omission(node, str(error))


def _note_omission(node: str, why: str) -> None:
    _LOG.warning(telemetry.FENCE_LEFT_OUT, **{telemetry.KEY_NODE: node, telemetry.KEY_MESSAGE: why})


class NodeGuard:
    """Brings one node's guard in line with the hand-overs on it."""

    def __init__(self, client: KubeClient, cache: Cache, fences: FenceManager, settings: HandoverSettings) -> None:
        self._client = client
        self._cache = cache
        self._fences = fences
        self._settings = settings

    def reconcile(self, node: str, now: datetime) -> None:
        """Guard the node until the last deadline of its hand-overs, or take off a guard that nothing needs.

        A deadline that has passed is no reason to take it off: it is put off as long as the hand-over goes on.
        """
        deadline = max((given.deadline for given in self._cache.guard_users(node)), default=None)
        current = self._cache.guard_deadline(node)
        try:
            if deadline is None:
                if current is not None:
                    self._unguard(node)
                self._fences.take_down(node)
            elif not self._is_long_enough(current, deadline):
                self._fences.put_up(node, max(deadline, int(now.timestamp())), now)
                self._guard(node, deadline)
        except NotFoundError:
            self._fences.take_down(node)  # a node that is gone needs no guard

    def _is_long_enough(self, current: str | None, deadline: int) -> bool:
        """Return whether a guard stands until a deadline, and by no clock that was set back since for much longer."""
        stands_until = read_whole_number(current or "", most=LATEST_UNIX_SECONDS)
        return stands_until is not None and 0 <= stands_until - deadline <= self._settings.timeout_seconds

    def _guard(self, node: str, deadline: int) -> None:
        patched = put_taint(self._client, node, key=HANDOVER_TAINT, value=str(deadline), type=GuardableNode)
        self._cache.put_node(patched)
        _LOG.info(telemetry.GUARDED, **{telemetry.KEY_NODE: node, telemetry.KEY_EXPIRES: deadline})

    def _unguard(self, node: str) -> None:
        self._cache.put_node(remove_taint(self._client, node, key=HANDOVER_TAINT, type=GuardableNode))
        _LOG.info(telemetry.UNGUARDED, **{telemetry.KEY_NODE: node})
