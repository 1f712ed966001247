"""Deletes Reservations of namespaces that are being deleted, where no pod can be created to take a place.

The namespace controller deletes all pods before anything else (KEP-5080). One that cannot go, because of a finalizer or
a node that is away, keeps the Reservations of its namespace for as long.
"""

from typing import Final

import structlog

from berth_core import BerthError, Namespace, Reservation
from berth_kube import NAMESPACES, RESERVATIONS, ConflictError, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.act.context import Context

_ENDING: Final = "status.phase=Terminating"

_LOG = structlog.get_logger(__name__)


class EndingNamespaces:
    """Finds namespaces that are being deleted, and deletes their Reservations."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._cache = context.cache

    def clear(self) -> None:
        """Delete the unfinished Reservations of namespaces that are being deleted.

        One that cannot be deleted keeps no other back; its error is raised at the end, or that of the list.
        """
        live_namespaces = self._cache.live_namespaces()
        if not live_namespaces:
            return
        listed = self._client.list(NAMESPACES, field_selector=_ENDING, type=Namespace).items
        ending_namespaces = live_namespaces & {namespace.metadata.name for namespace in listed}
        if not ending_namespaces:
            return
        first_error: BerthError | None = None
        for reservation in self._cache.reservations():
            if reservation.metadata.namespace in ending_namespaces and reservation.is_live:
                try:
                    self._delete(reservation)
                except BerthError as error:
                    first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _delete(self, reservation: Reservation) -> None:
        meta = reservation.metadata
        try:
            self._client.delete(RESERVATIONS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return  # it is gone, or another one has its name
        _LOG.info(telemetry.NAMESPACE_ENDS, **{telemetry.KEY_RESERVATION: reservation.key})
