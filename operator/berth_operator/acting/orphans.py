"""Owns releasing what belongs to no Reservation: placeholders and labelled pods of one that is gone, stray gates.

It does not own what a live or finished Reservation still needs: `decisions.reconcile` does.
"""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from berth_core.errors import PermanentError
from berth_core.labels import HANDOVER_GATE, RESERVATION_LABEL, RESERVATION_NAME_ANNOTATION
from berth_core.objects import ObjectMeta, Pod, SchedulingGate
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import PODS, RESERVATIONS
from berth_operator import log_keys
from berth_operator.acting.performer import Performer
from berth_operator.acting.sweep import list_reservations
from berth_operator.decisions.observation import holds_our_gate
from berth_operator.picture.cache import Cache

log = structlog.get_logger(__name__)


class _Gates(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that keeps it back."""

    scheduling_gates: tuple[SchedulingGate, ...] = ()


class _GatedPod(msgspec.Struct, frozen=True):
    """Of a pod only what tells whether our gate is on it: many may be pending, and hardly one has it."""

    metadata: ObjectMeta
    spec: _Gates = _Gates()

    @property
    def is_ours(self) -> bool:
        """Tell whether our gate is on it."""
        return any(gate.name == HANDOVER_GATE for gate in self.spec.scheduling_gates)


class OrphanKeeper:
    """Lets go of pods whose Reservation is gone, after asking the API server whether it really is."""

    def __init__(self, client: KubeClient, cache: Cache, performer: Performer) -> None:
        self._client = client
        self._cache = cache
        self._performer = performer

    def release(self, uid: str) -> None:
        """Release what names a Reservation that is unknown; raises the first error after trying them all.

        Placeholders go at once, as they hold a place for nobody: on a node that is gone no kubelet would end them.
        """
        placeholders, owners = self._cache.belongings(uid)
        if not placeholders and not owners:
            return
        if self._exists(uid, placeholders, owners):
            list_reservations(self._client, self._cache)
            return
        kept_back = [pod for pod in owners if not pod.is_terminating]
        self._try_all(lambda pod: self._performer.delete_placeholder(pod, at_once=True), list(placeholders))
        self._try_all(lambda pod: self._performer.release(pod, elsewhere=True), kept_back)
        if placeholders or kept_back:
            count = len(placeholders) + len(kept_back)
            log.info(log_keys.ORPHAN_RELEASED, **{log_keys.KEY_UID: uid, log_keys.KEY_COUNT: count})

    def release_stray_gates(self) -> None:
        """Take our gate off pods that carry it without the label, which no Reservation will ever look at."""
        waiting = self._client.list(
            PODS, field_selector="status.phase=Pending", label_selector=f"!{RESERVATION_LABEL}", type=_GatedPod
        ).items
        self._try_all(self._performer.release, [pod for one in waiting if one.is_ours for pod in self._read(one)])

    def _read(self, found: _GatedPod) -> Sequence[Pod]:
        """Return a pod in full if it is still without the label and not on its way out; nothing otherwise."""
        listed = self._client.list(
            PODS,
            namespace=found.metadata.namespace,
            field_selector=f"metadata.name={found.metadata.name}",
            type=Pod,
        )
        same = (pod for pod in listed.items if pod.metadata.uid == found.metadata.uid and not pod.is_terminating)
        return [pod for pod in same if holds_our_gate(pod) and RESERVATION_LABEL not in pod.metadata.labels]

    def _try_all(self, act: Callable[[Pod], None], pods: list[Pod]) -> None:
        """Act on every pod; one that is refused does not keep the others back."""
        first: PermanentError | None = None
        for pod in pods:
            try:
                act(pod)
            except PermanentError as error:
                first = first or error
        if first is not None:
            raise first

    def _exists(self, uid: str, placeholders: tuple[Pod, ...], owners: tuple[Pod, ...]) -> bool:
        """Tell whether the API server has a Reservation of this uid in the namespaces that it could be in."""
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
