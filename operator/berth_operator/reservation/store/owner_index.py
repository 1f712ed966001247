"""The Reservations whose owners may include a pod, found without a scan of all."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_core import DEPLOYMENT, LabelSelector, Pod, Reservation, ReservationOwner, deployment_name

_Mark = tuple[str, ...]
"""Namespace, and the uid, name, label, label key or annotation that each pod of an owner has, or nothing."""

_MAX_VALUES: Final = 100
"""An expression with more values is no mark: each value takes an index entry."""

_NONE: Final[Mapping[str, Reservation]] = {}


class OwnerIndex:
    """Reservations by the marks of their owners; a look-up costs as much as a pod has marks."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self._by_mark: dict[_Mark, dict[str, Reservation]] = {}
        for reservation in reservations:
            self.put(reservation)

    def put(self, reservation: Reservation) -> None:
        """Add a version of a Reservation; owners change once at most, from none."""
        for owner_mark in _marks_of(reservation):
            self._by_mark.setdefault(owner_mark, {})[reservation.metadata.uid] = reservation

    def remove(self, reservation: Reservation) -> None:
        for owner_mark in _marks_of(reservation):
            group = self._by_mark.get(owner_mark, {})
            if group.pop(reservation.metadata.uid, None) is not None and not group:
                del self._by_mark[owner_mark]

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return the Reservations that a pod may belong to, in any order."""
        marked = (self._by_mark.get(mark, _NONE) for mark in _marks_on(pod))
        by_uid = {uid: reservation for reservations in marked for uid, reservation in reservations.items()}
        return list(by_uid.values())


def _marks_of(reservation: Reservation) -> set[_Mark]:
    namespace = reservation.metadata.namespace
    return {(namespace, *owner_mark) for owner in reservation.spec.owners for owner_mark in _marks_of_owner(owner)}


def _marks_of_owner(owner: ReservationOwner) -> Iterator[_Mark]:
    """Yield marks of which every pod of an owner has one."""
    owner_object = owner.object
    if owner_object is not None:
        if owner_object.uid and owner_object.kind != DEPLOYMENT:
            yield "uid", owner_object.uid
        if owner_object.name:  # also beside a uid: a pod of a later namesake gets the event OwnerDiffers
            yield "name", owner_object.kind, owner_object.name
    if owner.label_selector is not None:
        yield from _marks_of_selector(owner.label_selector)
    if owner.annotations:
        key = min(owner.annotations)
        yield "annotation", key, owner.annotations[key]


def _marks_of_selector(selector: LabelSelector) -> Iterable[_Mark]:
    """Return marks of which every selected pod has one, probably the rarest of the selector."""
    if selector.match_labels:
        # Any one of the labels will do, as all of them must match; the first by name, so that each version is found
        # under the same mark.
        key = min(selector.match_labels)
        return [("label", key, selector.match_labels[key])]
    with_few_values = [
        requirement
        for requirement in selector.match_expressions
        if requirement.operator == "In" and len(requirement.values) <= _MAX_VALUES
    ]
    if with_few_values:
        fewest = min(with_few_values, key=lambda requirement: (len(requirement.values), requirement.key))
        return [("label", fewest.key, value) for value in fewest.values]
    required_keys = [
        requirement.key for requirement in selector.match_expressions if requirement.operator in {"In", "Exists"}
    ]
    return [("key", min(required_keys))] if required_keys else [()]


def _marks_on(pod: Pod) -> Iterator[_Mark]:
    meta = pod.metadata
    for owner_mark in _own_marks(pod):
        yield (meta.namespace, *owner_mark)
    for key, value in meta.labels.items():
        yield meta.namespace, "label", key, value
        yield meta.namespace, "key", key
    for key, value in meta.annotations.items():
        yield meta.namespace, "annotation", key, value


def _own_marks(pod: Pod) -> Iterator[_Mark]:
    """Yield the marks that are the uids and names of a pod and its controllers."""
    meta, controller = pod.metadata, pod.controller
    # The mark of selectors that require nothing by name, which may select any pod of the namespace.
    yield ()
    yield "uid", meta.uid
    yield "name", "Pod", meta.name
    if controller is not None:
        yield "uid", controller.uid
        yield "name", controller.kind, controller.name
        # A pod names its ReplicaSet only; a Reservation for the Deployment outlives a rollout, which makes another
        # ReplicaSet.
        deployment = deployment_name(controller.kind, controller.name, meta.labels)
        if deployment:
            yield "name", DEPLOYMENT, deployment


@dataclass(slots=True)
class LiveReservations:
    """Live Reservations, by namespace and by owner."""

    _by_namespace: dict[str, set[str]] = field(default_factory=dict)
    """Namespace to the uids of its live Reservations."""

    _by_owner: OwnerIndex = field(default_factory=OwnerIndex)

    def put(self, reservation: Reservation) -> None:
        """Store a version of a Reservation, live or not."""
        if not reservation.is_live:
            self.remove(reservation)
            return
        self._by_namespace.setdefault(reservation.metadata.namespace, set()).add(reservation.metadata.uid)
        self._by_owner.put(reservation)

    def remove(self, reservation: Reservation) -> None:
        """Remove a Reservation that is finished or gone."""
        namespace = reservation.metadata.namespace
        group = self._by_namespace.get(namespace, set())
        group.discard(reservation.metadata.uid)
        if not group:
            self._by_namespace.pop(namespace, None)
        self._by_owner.remove(reservation)

    def namespaces(self) -> frozenset[str]:
        return frozenset(self._by_namespace)

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return the Reservations that a pod may belong to, in any order."""
        return self._by_owner.candidates(pod)
