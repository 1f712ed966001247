"""The guards: our taint and our fence are on a node exactly while a slot on it changes hands.

That a hand-over goes on is read from the note on the owner pod.
"""

from datetime import datetime

import structlog

from berth_core.clock import LATEST_UNIX_SECONDS
from berth_core.labels import HANDOVER_TAINT
from berth_core.quantity import read_whole_number
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.taints import put_taint, remove_taint
from berth_operator import log_keys
from berth_operator.acting.fences import FenceKeeper
from berth_operator.picture.cache import Cache
from berth_operator.picture.node_book import GuardableNode
from berth_operator.settings import HandoverSettings

log = structlog.get_logger(__name__)


class GuardKeeper:
    """Brings one node's guard in line with the hand-overs on it."""

    def __init__(self, client: KubeClient, cache: Cache, fences: FenceKeeper, settings: HandoverSettings) -> None:
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
        log.info(log_keys.GUARDED, **{log_keys.KEY_NODE: node, log_keys.KEY_EXPIRES: deadline})

    def _unguard(self, node: str) -> None:
        self._cache.put_node(remove_taint(self._client, node, key=HANDOVER_TAINT, type=GuardableNode))
        log.info(log_keys.UNGUARDED, **{log_keys.KEY_NODE: node})
