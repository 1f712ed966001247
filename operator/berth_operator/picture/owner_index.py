"""Owns finding the Reservations whose owners may mean a pod, without asking each of them.

It says who may, not who does: `decisions.fitting` compares owner and template.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationOwner

_Mark = tuple[str, ...]
"""Something that a pod of an owner must have: namespace, and a uid, a name, a label, or nothing in particular."""

_NOBODY: Final[Mapping[str, Reservation]] = {}


class OwnerIndex:
    """Reservations by something that every pod of an owner of theirs has; one look-up costs as much as a pod has."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self._by_mark: dict[_Mark, dict[str, Reservation]] = {}
        for reservation in reservations:
            self.put(reservation)

    def put(self, reservation: Reservation) -> None:
        """Take in a Reservation, or another version of one, whose owners are the same."""
        for mark in _marks_of(reservation):
            self._by_mark.setdefault(mark, {})[reservation.metadata.uid] = reservation

    def remove(self, reservation: Reservation) -> None:
        """Forget a Reservation, if it is there."""
        for mark in _marks_of(reservation):
            group = self._by_mark.get(mark, {})
            if group.pop(reservation.metadata.uid, None) is not None and not group:
                del self._by_mark[mark]

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return the Reservations that a pod may belong to, the oldest first."""
        found = {uid: one for mark in _marks_on(pod) for uid, one in self._by_mark.get(mark, _NOBODY).items()}
        return sorted(found.values(), key=age_order)


def age_order(reservation: Reservation) -> tuple[str, str]:
    """Return what sorts Reservations by age."""
    return reservation.metadata.creation_timestamp or "", reservation.metadata.uid


def _marks_of(reservation: Reservation) -> set[_Mark]:
    return {_mark_of(reservation.metadata.namespace, owner) for owner in reservation.spec.owners}


def _mark_of(namespace: str, owner: ReservationOwner) -> _Mark:
    """Return a mark that every pod of an owner has: its uid, its name, the first of its labels."""
    wanted, selector = owner.object, owner.label_selector
    if wanted is not None and wanted.uid and wanted.kind != "Deployment":
        return namespace, "uid", wanted.uid
    if wanted is not None and wanted.kind != "Deployment":
        return namespace, "name", wanted.kind, wanted.name
    if selector is not None and selector.match_labels:
        key = min(selector.match_labels)
        return namespace, "label", key, selector.match_labels[key]
    return (namespace,)


def _marks_on(pod: Pod) -> Iterator[_Mark]:
    """Yield every mark that a pod has."""
    meta, controller = pod.metadata, pod.controller
    yield (meta.namespace,)
    yield meta.namespace, "uid", meta.uid
    yield meta.namespace, "name", "Pod", meta.name
    if controller is not None:
        yield meta.namespace, "uid", controller.uid
        yield meta.namespace, "name", controller.kind, controller.name
    for key, value in meta.labels.items():
        yield meta.namespace, "label", key, value
