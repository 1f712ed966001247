"""Guards: our taint on a node while a pod with a note waits for its place there, and for the settling time after.

The settling time is for other schedulers, which may hear of a bound pod later than this process.
"""

from datetime import datetime

import structlog

from berth_core import HANDOVER_TAINT, LATEST_UNIX_SECONDS, read_whole_number
from berth_kube import NotFoundError, put_taint, remove_taint
from berth_operator import telemetry
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.store.nodes import GuardableNode

_LOG = structlog.get_logger(__name__)


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
        deadline = max((assignment.deadline for assignment in self._cache.guards.users(node)), default=None)
        try:
            if deadline is None:
                return self._open(node)
            is_long_enough = self._is_long_enough(self._cache.guards.deadline(node), deadline)
            if not (is_long_enough and self._cache.guards.stands_on(node)):
                # In this order, so that each node with our taint has a fence.
                self._fences.create(node, max(deadline, int(now.timestamp())), now)
                self._guard(node, deadline)
        except NotFoundError:
            self._fences.delete(node)  # a node that is gone needs no guard
        return None

    def _open(self, node: str) -> float | None:
        """Remove guard and fence once the settling time is over; return the seconds that are left of it."""
        current = self._cache.guards.deadline(node)
        if current is None:
            self._fences.delete(node)
            return None
        # A fence needs no more time: schedulers see its deletion after the binding, for both are changes of pods.
        is_fenced = self._cache.guards.is_fenced(node)
        settle_seconds = self._settings.settle_seconds if is_fenced else self._settings.unfenced_settle_seconds
        left_seconds = settle_seconds - self._cache.guards.idle_seconds(node)
        if left_seconds > 0:
            return left_seconds
        if self._cache.guards.begin_unguarding(node):
            self._fences.know(node, current)
            # The fence goes last: a node with our taint always has one, even if this process ends in between.
            self._unguard(node)
            self._fences.delete(node)
        return None

    def _is_long_enough(self, current: str | None, deadline: int) -> bool:
        """Return whether a guard lasts until a deadline, and not much longer."""
        # A much longer one means that the clock was set back.
        stands_until = read_whole_number(current or "", most=LATEST_UNIX_SECONDS)
        return stands_until is not None and 0 <= stands_until - deadline <= self._settings.timeout_seconds

    def _guard(self, node: str, deadline: int) -> None:
        known_node, value = self._cache.node(node), str(deadline)
        patched = put_taint(self._client, node, key=HANDOVER_TAINT, value=value, known=known_node, type=GuardableNode)
        self._cache.put_node(patched)
        self._cache.guards.end_unguarding(node)
        _LOG.info(telemetry.GUARDED, **{telemetry.KEY_NODE: node, telemetry.KEY_EXPIRES: deadline})

    def _unguard(self, node: str) -> None:
        known_node = self._cache.node(node)
        self._cache.put_node(remove_taint(self._client, node, key=HANDOVER_TAINT, known=known_node, type=GuardableNode))
        _LOG.info(telemetry.UNGUARDED, **{telemetry.KEY_NODE: node})
