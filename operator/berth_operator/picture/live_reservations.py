"""Owns which Reservations are neither finished nor being deleted: by namespace, and by the pods that they may be for.

It is not thread-safe by itself: `picture.cache` guards it.
"""

from dataclasses import dataclass, field

from berth_core.objects import Pod
from berth_core.reservations import Reservation
from berth_operator.picture.owner_index import OwnerIndex


@dataclass(slots=True)
class LiveReservations:
    """The live ones of the Reservations that it is told of."""

    _by_namespace: dict[str, set[str]] = field(default_factory=dict)
    """Namespace to the uids of its live Reservations."""

    _by_owner: OwnerIndex = field(default_factory=OwnerIndex)

    def note(self, reservation: Reservation) -> None:
        """Take in a version of a Reservation, live or not."""
        if not reservation.is_live:
            self.forget(reservation)
            return
        self._by_namespace.setdefault(reservation.metadata.namespace, set()).add(reservation.metadata.uid)
        self._by_owner.put(reservation)

    def forget(self, reservation: Reservation) -> None:
        """Forget a Reservation that is over or gone."""
        namespace = reservation.metadata.namespace
        group = self._by_namespace.get(namespace, set())
        group.discard(reservation.metadata.uid)
        if not group:
            self._by_namespace.pop(namespace, None)
        self._by_owner.remove(reservation)

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a live Reservation."""
        return frozenset(self._by_namespace)

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return those that a pod may belong to, in no particular order."""
        return self._by_owner.candidates(pod)
