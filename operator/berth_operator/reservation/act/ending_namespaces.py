"""Deletes Reservations of namespaces that are being deleted, where no pod can be created to take a place.

The namespace controller deletes all pods before anything else (KEP-5080). One that cannot go, because of a finalizer or
a node that is away, keeps the Reservations of its namespace for as long.
"""

from contextlib import suppress
from typing import Final

import msgspec
import structlog

from berth_core import ObjectMeta
from berth_kube import NAMESPACES, RESERVATIONS, ConflictError, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.act.context import Context

_ENDING: Final = "status.phase=Terminating"

_LOG = structlog.get_logger(__name__)


class _NamespaceName(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class EndingNamespaces:
    """Finds namespaces that are being deleted, and deletes their Reservations."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._cache = context.cache

    def clear(self) -> None:
        """Delete the unfinished Reservations of namespaces that are being deleted; raises a KubeError."""
        if not self._cache.live_namespaces():
            return
        listed = self._client.list(NAMESPACES, field_selector=_ENDING, type=_NamespaceName).items
        ending = self._cache.live_namespaces() & {namespace.metadata.name for namespace in listed}
        if not ending:
            return
        for reservation in self._cache.reservations():
            meta = reservation.metadata
            if meta.namespace not in ending or not reservation.is_live:
                continue
            with suppress(NotFoundError, ConflictError):  # it is gone, or another one has its name
                self._client.delete(RESERVATIONS, meta.name, namespace=meta.namespace, uid=meta.uid)
                _LOG.info(telemetry.NAMESPACE_ENDS, **{telemetry.KEY_RESERVATION: reservation.key})
