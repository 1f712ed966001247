"""Owns the pass that compares everything with the API from scratch: what was missed is caught here.

It does not decide about a Reservation: it queues what has to be looked at.
"""

import time
from collections.abc import Callable

import structlog

from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.objects import PriorityClass
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import PRIORITY_CLASSES, RESERVATIONS
from berth_operator import log_keys, metrics
from berth_operator.cache import Cache
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

    def __init__(self, client: KubeClient, cache: Cache, scope: WebhookScope, enqueue: Callable[[Key], None]) -> None:
        self._client = client
        self._cache = cache
        self._scope = scope
        self._enqueue = enqueue
        self._unused_before: frozenset[str] = frozenset()

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
        self._collect_priority_classes()
        for state, count in self._cache.count_slots().items():
            metrics.SLOTS.labels(state=state.value).set(count)
        log.debug(log_keys.SWEEP_DONE, **{log_keys.KEY_SECONDS: round(time.monotonic() - started, 3)})

    def _collect_priority_classes(self) -> None:
        """Delete placeholders' classes that were unused in this pass and in the one before."""
        selector = f"{MANAGED_LABEL}={MANAGED_BY_OPERATOR}"
        listed = self._client.list(PRIORITY_CLASSES, label_selector=selector, type=PriorityClass).items
        used = {pod.spec.priority_class_name for pod in self._cache.placeholders()}
        if self._cache.live_namespaces():
            self._unused_before = frozenset()
            return
        unused = frozenset(item.metadata.name for item in listed) - used
        for name in unused & self._unused_before:
            try:
                self._client.delete(PRIORITY_CLASSES, name)
            except NotFoundError:
                continue
            log.info(log_keys.CLASS_COLLECTED, **{log_keys.KEY_NAME: name})
        self._unused_before = unused
