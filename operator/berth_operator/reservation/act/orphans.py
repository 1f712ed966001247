"""Releases placeholders without a Reservation, and pods that were left with our gate."""

from collections.abc import Callable, Sequence

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
from berth_kube import PODS, RESERVATIONS, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.act.context import Context, find_pod
from berth_operator.reservation.act.executor import ActionExecutor
from berth_operator.reservation.act.resync import list_reservations
from berth_operator.reservation.pod_state import holds_our_gate

_LOG = structlog.get_logger(__name__)


class _Gates(msgspec.Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class _GatedPod(msgspec.Struct, frozen=True):
    """The part of a pod that shows our gate: few of the pending pods have it, and only those are read in full."""

    metadata: ObjectMeta
    spec: _Gates = _Gates()

    @property
    def is_ours(self) -> bool:
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
        # The cache may have missed the Reservation: what is released here cannot be taken back.
        if self._exists(uid, placeholders, owners):
            list_reservations(self._client, self._cache)
            return
        kept_back = [pod for pod in owners if not pod.is_terminating]
        self._try_all(lambda pod: self._executor.placeholders.delete(pod, at_once=True), list(placeholders))
        self._try_all(lambda pod: self._executor.handover_pods.release(pod, elsewhere=True), kept_back)
        if placeholders or kept_back:
            count = len(placeholders) + len(kept_back)
            _LOG.info(telemetry.ORPHAN_RELEASED, **{telemetry.KEY_UID: uid, telemetry.KEY_COUNT: count})

    def release_stray_gates(self) -> None:
        """Remove our gate from pods without our label, which no Reservation reconciles."""
        # There is no field selector for gates, so all pending pods are listed, of which only the gates are decoded.
        gated_pods = self._client.list(
            PODS, field_selector="status.phase=Pending", label_selector=f"!{RESERVATION_LABEL}", type=_GatedPod
        ).items
        self._try_all(
            self._executor.handover_pods.release,
            [pod for gated_pod in gated_pods if gated_pod.is_ours for pod in self._read(gated_pod)],
        )

    def _read(self, gated_pod: _GatedPod) -> Sequence[Pod]:
        """Fetch a pod if it still has our gate and no label."""
        meta = gated_pod.metadata
        pod = find_pod(self._client, meta.namespace, meta.name, meta.uid)
        if pod is None or pod.is_terminating or not holds_our_gate(pod) or RESERVATION_LABEL in pod.metadata.labels:
            return []
        return [pod]

    def _try_all(self, act: Callable[[Pod], None], pods: list[Pod]) -> None:
        """Call `act` for every pod; a refusal does not stop the others."""
        first_error: PermanentError | None = None
        for pod in pods:
            try:
                act(pod)
            except PermanentError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _exists(self, uid: str, placeholders: tuple[Pod, ...], owners: tuple[Pod, ...]) -> bool:
        """Return whether a Reservation of this uid exists in the possible namespaces."""
        reservation_keys = {pod.metadata.annotations.get(RESERVATION_NAME_ANNOTATION, "") for pod in placeholders}
        for key in reservation_keys - {""}:
            namespace, _, name = key.partition("/")
            try:
                # The annotation may be damaged by others: a name that no Reservation has is answered 404, like one that
                # is gone.
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
