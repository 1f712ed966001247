"""Owns the pass that compares everything with the API from scratch: what was missed is caught here.

It does not decide about a Reservation: it queues what has to be looked at.
"""

import time
import zlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from berth_core.objects import ObjectMeta
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import RESERVATIONS
from berth_operator import log_keys, metrics
from berth_operator.acting.fences import FenceKeeper
from berth_operator.acting.priorities import Priorities
from berth_operator.acting.webhook_scope import WebhookScope
from berth_operator.picture.cache import Cache
from berth_operator.picture.readable import read_reservation
from berth_operator.work_queue import STRAYS_KEY, Key, KeyKind

_ONE_BY_ONE: Final = 20
"""Up to so many Reservations that are news are read each by itself."""

_TURNS: Final = 4
"""So many sweeps look at every Reservation once."""

log = structlog.get_logger(__name__)


class _Sketch(msgspec.Struct, frozen=True):
    """Of a Reservation only what tells whether it is news."""

    metadata: ObjectMeta


def list_reservations(client: KubeClient, cache: Cache) -> None:
    """Take in all Reservations as they are now, also those that cannot be read; reads in full only what is news."""
    listing = client.list(RESERVATIONS, type=_Sketch)
    news = [item.metadata for item in listing.items if not _is_known(cache, item.metadata)]
    if len(news) > _ONE_BY_ONE:
        whole = client.list(RESERVATIONS)
        cache.replace_reservations([read_reservation(body) for body in whole.items], whole.resource_version)
        return
    for meta in news:
        try:
            body = client.get(RESERVATIONS, meta.name, namespace=meta.namespace)
        except NotFoundError:
            continue
        cache.put_reservation(read_reservation(body))
    cache.keep_reservations({item.metadata.uid for item in listing.items}, listing.resource_version)


def _is_known(cache: Cache, meta: ObjectMeta) -> bool:
    return cache.knows_reservation(meta.uid, meta.resource_version)


class Sweep:
    """Checks the invariants: nothing of ours is left where nothing needs it."""

    def __init__(
        self,
        client: KubeClient,
        cache: Cache,
        scope: WebhookScope,
        priorities: Priorities,
        fences: FenceKeeper,
        enqueue: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._cache = cache
        self._scope = scope
        self._priorities = priorities
        self._fences = fences
        self._enqueue = enqueue
        self._turn = 0

    def run(self, *, everything: bool = True) -> None:
        """Do one pass: Reservations, pods without one, guards and fences, the webhook's registration, priority classes.

        Of the Reservations whose versions are known a quarter is looked at, each time another one, unless `everything`
        is to be: who has just begun to lead knows of nothing that was done. Those that lack something come first.
        """
        started = time.monotonic()
        list_reservations(self._client, self._cache)
        self._turn = (self._turn + 1) % _TURNS
        for uid in sorted(self._cache.named_uids(), key=self._cache.has_all_its_pods):
            if everything or zlib.crc32(uid.encode()) % _TURNS == self._turn:
                self._enqueue(Key(KeyKind.RESERVATION, uid))
        self._enqueue(STRAYS_KEY)
        for node in self._cache.nodes_of_interest() | self._fences.find():
            self._enqueue(Key(KeyKind.NODE, node))
        self._scope.refresh()
        if not self._cache.live_namespaces():
            self._priorities.collect()
        for state, count in self._cache.count_slots().items():
            metrics.SLOTS.labels(state=state.value).set(count)
        log.debug(log_keys.SWEEP_DONE, **{log_keys.KEY_SECONDS: round(time.monotonic() - started, 3)})
