"""Resync of the cache with the API, and collection of orphans."""

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from berth_core import (
    HANDOVER_GATE,
    RESERVATION_LABEL,
    RESERVATION_NAME_ANNOTATION,
    ObjectMeta,
    PermanentError,
    Pod,
    SchedulingGate,
)
from berth_kube import PODS, RESERVATIONS, KubeClient, NotFoundError
from berth_operator import metrics, telemetry
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.executor import ActionExecutor
from berth_operator.reservation.act.guards import FenceManager
from berth_operator.reservation.act.handover_path import WebhookRegistration
from berth_operator.reservation.act.scheduling_objects import PodGroups, PriorityClasses
from berth_operator.reservation.pod_state import holds_our_gate
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.reservations import read_reservation
from berth_operator.runtime.workqueue import BEST_EFFORT_KEY, STRAYS_KEY, Key, KeyKind

_ONE_BY_ONE: Final = 20
"""Up to this many changed Reservations are fetched one by one."""
_TURNS: Final = 4
"""This many resyncs reconcile every Reservation once."""

_LOG = structlog.get_logger(__name__)


class _Header(msgspec.Struct, frozen=True):
    """The part of a Reservation that shows whether it has changed."""

    metadata: ObjectMeta


def list_reservations(client: KubeClient, cache: Cache) -> None:
    """Refresh all Reservations in the cache; fetch only changed ones in full."""
    listing = client.list(RESERVATIONS, type=_Header)
    changed = [item.metadata for item in listing.items if not _is_known(cache, item.metadata)]
    if len(changed) > _ONE_BY_ONE:
        whole = client.list(RESERVATIONS)
        cache.replace_reservations([read_reservation(body) for body in whole.items], whole.resource_version)
        return
    for meta in changed:
        try:
            body = client.get(RESERVATIONS, meta.name, namespace=meta.namespace)
        except NotFoundError:
            continue
        cache.put_reservation(read_reservation(body))
    cache.keep_reservations({item.metadata.uid for item in listing.items}, listing.resource_version)


def _is_known(cache: Cache, meta: ObjectMeta) -> bool:
    return cache.knows_reservation(meta.uid, meta.resource_version)


class Resync:
    """Repairs missed events: nothing of ours remains where nothing needs it."""

    def __init__(
        self,
        context: Context,
        scope: WebhookRegistration,
        priorities: PriorityClasses,
        pod_groups: PodGroups,
        fences: FenceManager,
        enqueue: Callable[[Key], None],
        further: Callable[[Callable[[str], bool]], None] = lambda _: None,
    ) -> None:
        """`further` queues what else must be compared; it gets what says whether it is the turn of a uid."""
        self._client = context.client
        self._cache = context.cache
        self._scope = scope
        self._priorities = priorities
        self._pod_groups = pod_groups
        self._fences = fences
        self._enqueue = enqueue
        self._further = further
        self._turn = 0

    def run(self, *, everything: bool = True) -> None:
        """Queue Reservations, orphans, guards and fences, and refresh the registration.

        Each pass takes another quarter of the Reservations, or `everything` if this replica has just begun to lead.
        Reservations that lack pods come first.
        """
        started = time.monotonic()
        list_reservations(self._client, self._cache)
        self._turn = (self._turn + 1) % _TURNS

        def is_due(uid: str) -> bool:
            return everything or zlib.crc32(uid.encode()) % _TURNS == self._turn

        for uid in sorted(self._cache.named_uids(), key=self._cache.has_all_its_pods):
            if is_due(uid):
                self._enqueue(Key(KeyKind.RESERVATION, uid))
        self._further(is_due)
        self._enqueue(STRAYS_KEY)
        self._enqueue(BEST_EFFORT_KEY)
        for node in self._cache.nodes_of_interest() | self._cache.awaited_nodes() | self._fences.find():
            self._enqueue(Key(KeyKind.NODE, node))
        self._scope.refresh()
        if not self._cache.live_namespaces():
            self._priorities.collect()
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


# --- orphans ---------------------------------------------------------------------------------------------------------
# Placeholders and labelled pods of a Reservation that is gone, and stray gates.


class _Gates(msgspec.Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class _GatedPod(msgspec.Struct, frozen=True):
    """The part of a pod that shows our gate.

    Few of many pending pods have it.
    """

    metadata: ObjectMeta
    spec: _Gates = _Gates()

    @property
    def is_ours(self) -> bool:
        """Return whether the pod has our gate."""
        return any(gate.name == HANDOVER_GATE for gate in self.spec.scheduling_gates)


class OrphanCollector:
    """Releases pods whose Reservation is gone, as the API server confirms."""

    def __init__(self, context: Context, executor: ActionExecutor) -> None:
        self._client = context.client
        self._cache = context.cache
        self._executor = executor

    def release(self, uid: str) -> None:
        """Release the pods that name an unknown Reservation.

        Raises the first error at the end. Placeholders are force-deleted: on a node that is gone no kubelet would end
        them.
        """
        placeholders, owners = self._cache.pods_of(uid)
        if not placeholders and not owners:
            return
        if self._exists(uid, placeholders, owners):
            list_reservations(self._client, self._cache)
            return
        kept_back = [pod for pod in owners if not pod.is_terminating]
        self._try_all(lambda pod: self._executor.delete_placeholder(pod, at_once=True), list(placeholders))
        self._try_all(lambda pod: self._executor.release(pod, elsewhere=True), kept_back)
        if placeholders or kept_back:
            count = len(placeholders) + len(kept_back)
            _LOG.info(telemetry.ORPHAN_RELEASED, **{telemetry.KEY_UID: uid, telemetry.KEY_COUNT: count})

    def release_stray_gates(self) -> None:
        """Remove our gate from pods without our label: no Reservation reconciles them."""
        waiting = self._client.list(
            PODS, field_selector="status.phase=Pending", label_selector=f"!{RESERVATION_LABEL}", type=_GatedPod
        ).items
        self._try_all(self._executor.release, [pod for one in waiting if one.is_ours for pod in self._read(one)])

    def _read(self, found: _GatedPod) -> Sequence[Pod]:
        """Fetch a pod if it still has our gate and no label."""
        listed = self._client.list(
            PODS,
            namespace=found.metadata.namespace,
            field_selector=f"metadata.name={found.metadata.name}",
            type=Pod,
        )
        same = (pod for pod in listed.items if pod.metadata.uid == found.metadata.uid and not pod.is_terminating)
        return [pod for pod in same if holds_our_gate(pod) and RESERVATION_LABEL not in pod.metadata.labels]

    def _try_all(self, act: Callable[[Pod], None], pods: list[Pod]) -> None:
        """Call `act` for every pod; a refusal does not stop the others."""
        first: PermanentError | None = None
        for pod in pods:
            try:
                act(pod)
            except PermanentError as error:
                first = first or error
        if first is not None:
            raise first

    def _exists(self, uid: str, placeholders: tuple[Pod, ...], owners: tuple[Pod, ...]) -> bool:
        """Return whether a Reservation of this uid exists in the possible namespaces."""
        named = {pod.metadata.annotations.get(RESERVATION_NAME_ANNOTATION, "") for pod in placeholders}
        for key in named - {""}:
            namespace, _, name = key.partition("/")
            try:
                body = self._client.get(RESERVATIONS, name or "-", namespace=namespace or "default")
            except NotFoundError:
                continue
            if body["metadata"]["uid"] == uid:
                return True
        return any(
            item["metadata"]["uid"] == uid
            for namespace in {pod.metadata.namespace for pod in owners}
            for item in self._client.list(RESERVATIONS, namespace=namespace).items
        )
