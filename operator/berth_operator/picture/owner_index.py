"""Owns finding the Reservations whose owners may mean a pod, without asking each of them.

It says who may, not who does: `decisions.fitting` compares owner and template.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from berth_core.matching import DEPLOYMENT, deployment_name
from berth_core.objects import LabelSelector, Pod
from berth_core.reservations import Reservation, ReservationOwner

_Mark = tuple[str, ...]
"""Something that a pod of an owner must have: namespace, and a uid, a name, a label, a label's key, or nothing else."""

_MOST_VALUES: Final = 100
"""An expression with more values is no mark: every value would take a place in the index."""

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
        """Return the Reservations that a pod may belong to, in no particular order."""
        found = {uid: one for mark in _marks_on(pod) for uid, one in self._by_mark.get(mark, _NOBODY).items()}
        return list(found.values())


def age_order(reservation: Reservation) -> tuple[str, str]:
    """Return what sorts Reservations by age."""
    return reservation.metadata.creation_timestamp or "", reservation.metadata.uid


def _marks_of(reservation: Reservation) -> set[_Mark]:
    namespace = reservation.metadata.namespace
    return {(namespace, *mark) for owner in reservation.spec.owners for mark in _marks_of_owner(owner)}


def _marks_of_owner(owner: ReservationOwner) -> Iterator[_Mark]:
    """Yield marks of which every pod of an owner has one: its uid, its name, one of its labels."""
    wanted = owner.object
    if wanted is not None:
        by_uid = bool(wanted.uid) and wanted.kind != DEPLOYMENT
        yield ("uid", wanted.uid) if by_uid else ("name", wanted.kind, wanted.name)
    if owner.label_selector is not None:
        yield from _marks_of_selector(owner.label_selector)


def _marks_of_selector(selector: LabelSelector) -> Iterable[_Mark]:
    """Return marks of which every pod that is selected has one; the fewer pods have them, the better."""
    if selector.match_labels:
        key = min(selector.match_labels)
        return [("label", key, selector.match_labels[key])]
    listed = [one for one in selector.match_expressions if one.operator == "In" and len(one.values) <= _MOST_VALUES]
    if listed:
        fewest = min(listed, key=lambda one: (len(one.values), one.key))
        return [("label", fewest.key, value) for value in fewest.values]
    present = [one.key for one in selector.match_expressions if one.operator in {"In", "Exists"}]
    return [("key", min(present))] if present else [()]


def _marks_on(pod: Pod) -> Iterator[_Mark]:
    """Yield every mark that a pod has."""
    meta = pod.metadata
    for mark in _own_marks(pod):
        yield (meta.namespace, *mark)
    for key, value in meta.labels.items():
        yield meta.namespace, "label", key, value
        yield meta.namespace, "key", key


def _own_marks(pod: Pod) -> Iterator[_Mark]:
    """Yield the marks of a pod and its controllers by uid and name, without the namespace, and the one of all."""
    meta, controller = pod.metadata, pod.controller
    yield ()
    yield "uid", meta.uid
    yield "name", "Pod", meta.name
    if controller is not None:
        yield "uid", controller.uid
        yield "name", controller.kind, controller.name
        deployment = deployment_name(controller.kind, controller.name, meta.labels)
        if deployment:
            yield "name", DEPLOYMENT, deployment
