"""The regular resync: the store is compared with the API server, and leftovers are looked for."""

import time
import zlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from berth_core import ObjectMeta
from berth_kube import RESERVATIONS, KubeClient, Listed, Listing, NotFoundError, T, version_number
from berth_operator import metrics, telemetry
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.act.pod_groups import PodGroups
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.runtime.workqueue import BEST_EFFORT_KEY, ENDING_KEY, STRAYS_KEY, Key, KeyKind

_LOG = structlog.get_logger(__name__)

_ONE_BY_ONE: Final = 20
"""Up to this many changed Reservations are fetched one by one."""
_TURNS: Final = 4
"""This many resyncs reconcile every Reservation once."""
_SETTLING: Final = 2 * _TURNS
"""How many resyncs after the end of the last Reservation look for leftovers and new ones; then each fourth does."""


class _ReservationHeader(msgspec.Struct, frozen=True):
    """The part of a Reservation that shows whether it has changed."""

    metadata: ObjectMeta


def list_reservations(client: KubeClient, cache: Cache) -> None:
    """Refresh all Reservations in the cache, fetching only the changed ones in full."""
    # Lower versions than the cache's show that etcd was restored from a backup. No watch reports it
    # (kubernetes/kubernetes#118501), so everything is read anew.
    highest_version = cache.highest_reservation_version()
    if not highest_version:
        _read_all(client, cache, highest_version)  # nothing is known yet, so a list of heads would only come on top
        return
    listed = _as_listed(client.list(RESERVATIONS, type=_ReservationHeader), highest_version)
    changed_metas = [item.metadata for item in listed.items if not _is_known(cache, item.metadata)]
    are_of_another_history = listed.restored or any(
        cache.is_refuted(meta, listed) for meta in (item.metadata for item in listed.items)
    )
    if are_of_another_history or len(changed_metas) > _ONE_BY_ONE:
        _read_all(client, cache, highest_version)
        return
    for meta in changed_metas:
        try:
            body = client.get(RESERVATIONS, meta.name, namespace=meta.namespace)
        except NotFoundError:
            continue
        cache.put_reservation(read_reservation(body))
    cache.keep_reservations(listed)


def _read_all(client: KubeClient, cache: Cache, highest_version: int) -> None:
    listing = client.list(RESERVATIONS)
    reservations = tuple(read_reservation(body) for body in listing.items)
    full_listing = Listing(reservations, listing.resource_version, listing.began)
    cache.replace_reservations(_as_listed(full_listing, highest_version))


def _as_listed(listing: Listing[T], highest_version: int) -> Listed[T]:
    is_restored = version_number(listing.resource_version) < highest_version
    return Listed(listing.items, listing.resource_version, listing.began, is_restored)


def _is_known(cache: Cache, meta: ObjectMeta) -> bool:
    return cache.knows_reservation(meta.uid, meta.resource_version)


class Resync:
    """Repairs missed events: nothing of ours remains where nothing needs it."""

    def __init__(
        self,
        context: Context,
        scope: WebhookRegistration,
        pod_groups: PodGroups,
        fences: FenceManager,
        enqueue: Callable[[Key], None],
        further: Callable[[Callable[[str], bool]], None] = lambda _: None,
    ) -> None:
        """`further` queues what else must be compared, given a function that returns whether it is a uid's turn."""
        self._client = context.client
        self._cache = context.cache
        self._scope = scope
        self._pod_groups = pod_groups
        self._fences = fences
        self._enqueue = enqueue
        self._further = further
        self._turn = 0
        self._resyncs_at_rest = 0
        """How many in a row have found no Reservation, and no pod that names one."""

    def run(self, *, everything: bool = True) -> None:
        """Queue Reservations, orphans, guards and fences, and refresh the registration.

        Each pass takes another quarter of the Reservations, those that lack pods first. A replica that has just begun
        to lead takes `everything`.
        """
        started = time.monotonic()
        self._turn = (self._turn + 1) % _TURNS
        is_at_rest = self._resyncs_at_rest > _SETTLING and not self._cache.named_uids()
        if everything or not (is_at_rest and self._turn):
            list_reservations(self._client, self._cache)

        def is_due(uid: str) -> bool:
            # Not `hash`, which differs in each process for a text: a restarted operator should go on with the same
            # quarters.
            return everything or zlib.crc32(uid.encode()) % _TURNS == self._turn

        for uid in sorted(self._cache.named_uids(), key=self._cache.has_all_its_pods):
            if is_due(uid):
                self._enqueue(Key(KeyKind.RESERVATION, uid))
        self._further(is_due)
        self._resyncs_at_rest = 0 if everything or self._cache.named_uids() else self._resyncs_at_rest + 1
        looks_for_leftovers = self._resyncs_at_rest <= _SETTLING or not self._turn
        if looks_for_leftovers:
            self._enqueue(STRAYS_KEY)
        if everything or not self._turn:
            self._enqueue(ENDING_KEY)
        self._enqueue(BEST_EFFORT_KEY)
        left_nodes = self._fences.find() if looks_for_leftovers else frozenset()
        for node in self._cache.nodes_of_interest() | self._cache.fenced.awaited_nodes() | left_nodes:
            self._enqueue(Key(KeyKind.NODE, node))
        if looks_for_leftovers:
            self._scope.refresh(everything=everything)
        for name in self._pod_groups.collect(self._holds_places, everything=everything):
            _LOG.info(telemetry.POD_GROUP_COLLECTED, **{telemetry.KEY_NAME: name})
        for state, count in self._cache.count_slots().items():
            metrics.SLOTS.labels(state=state.value).set(count)
        _LOG.debug(telemetry.SWEEP_DONE, **{telemetry.KEY_SECONDS: round(time.monotonic() - started, 3)})

    def _holds_places(self, uid: str) -> bool:
        """Return whether a Reservation is live or still has placeholders."""
        reservation = self._cache.reservation(uid)
        placeholders, _ = self._cache.pods_of(uid)
        return bool(placeholders) or (reservation is not None and reservation.is_live)
