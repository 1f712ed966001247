"""Owns the pass that compares everything with the API from scratch: what was missed is caught here.

It does not decide about a Reservation: it queues what has to be looked at.
"""

import time
from collections.abc import Callable

import structlog

from berth_kube.client import KubeClient
from berth_kube.resources import RESERVATIONS
from berth_operator import log_keys, metrics
from berth_operator.cache import Cache
from berth_operator.priorities import Priorities
from berth_operator.readable import read_reservation
from berth_operator.webhook_scope import WebhookScope
from berth_operator.work_queue import STRAYS_KEY, Key, KeyKind

log = structlog.get_logger(__name__)


def list_reservations(client: KubeClient, cache: Cache) -> None:
    """Take in all Reservations as they are now, also those that cannot be read."""
    listing = client.list(RESERVATIONS)
    cache.replace_reservations([read_reservation(body) for body in listing.items], listing.resource_version)


class Sweep:
    """Checks the invariants: nothing of ours is left where nothing needs it."""

    def __init__(
        self,
        client: KubeClient,
        cache: Cache,
        scope: WebhookScope,
        priorities: Priorities,
        enqueue: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._cache = cache
        self._scope = scope
        self._priorities = priorities
        self._enqueue = enqueue

    def run(self) -> None:
        """Do one pass: Reservations, pods without one, guards, the webhook's registration, priority classes."""
        started = time.monotonic()
        list_reservations(self._client, self._cache)
        for uid in self._cache.named_uids():
            self._enqueue(Key(KeyKind.RESERVATION, uid))
        self._enqueue(STRAYS_KEY)
        for node in self._cache.nodes_of_interest():
            self._enqueue(Key(KeyKind.NODE, node))
        self._scope.refresh()
        if not self._cache.live_namespaces():
            self._priorities.collect()
        for state, count in self._cache.count_slots().items():
            metrics.SLOTS.labels(state=state.value).set(count)
        log.debug(log_keys.SWEEP_DONE, **{log_keys.KEY_SECONDS: round(time.monotonic() - started, 3)})
