"""Owns which Reservations are neither finished nor being deleted: by namespace, and by the pods that they may be for.

It is not thread-safe by itself: `picture.cache` guards it.
"""

import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from berth_core.clock import parse_timestamp
from berth_core.errors import InputError
from berth_core.matching import DEPLOYMENT, deployment_name
from berth_core.objects import LabelSelector, ObjectMeta, Pod
from berth_core.pod_requests import effective_requests
from berth_core.reservations import ConditionType, Reservation, ReservationOwner, ReservationStatus, expires_at
from berth_core.unreadable import mark
from berth_operator.reconcile.observation import ProbeResult

# --- owner index -----------------------------------------------------------------------------------------------------
# Finding the Reservations whose owners may mean a pod, without asking each of them.
#
# It says who may, not who does: `decisions.fitting` compares owner and template.

_Mark = tuple[str, ...]
"""Something that a pod of an owner must have: namespace, and a uid, a name, a label, a label's key, or nothing else."""

_MOST_VALUES: Final = 100
"""An expression with more values is no owner_mark: every value would take a place in the index."""

_NOBODY: Final[Mapping[str, Reservation]] = {}


class OwnerIndex:
    """Reservations by something that every pod of an owner of theirs has; one look-up costs as much as a pod has."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self._by_mark: dict[_Mark, dict[str, Reservation]] = {}
        for reservation in reservations:
            self.put(reservation)

    def put(self, reservation: Reservation) -> None:
        """Take in a Reservation, or another version of one, whose owners are the same."""
        for owner_mark in _marks_of(reservation):
            self._by_mark.setdefault(owner_mark, {})[reservation.metadata.uid] = reservation

    def remove(self, reservation: Reservation) -> None:
        """Forget a Reservation, if it is there."""
        for owner_mark in _marks_of(reservation):
            group = self._by_mark.get(owner_mark, {})
            if group.pop(reservation.metadata.uid, None) is not None and not group:
                del self._by_mark[owner_mark]

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return the Reservations that a pod may belong to, in no particular order."""
        found = {
            uid: one for owner_mark in _marks_on(pod) for uid, one in self._by_mark.get(owner_mark, _NOBODY).items()
        }
        return list(found.values())


def age_order(reservation: Reservation) -> tuple[str, str]:
    """Return what sorts Reservations by age."""
    return reservation.metadata.creation_timestamp or "", reservation.metadata.uid


def _marks_of(reservation: Reservation) -> set[_Mark]:
    namespace = reservation.metadata.namespace
    return {(namespace, *owner_mark) for owner in reservation.spec.owners for owner_mark in _marks_of_owner(owner)}


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
    """Yield every owner_mark that a pod has."""
    meta = pod.metadata
    for owner_mark in _own_marks(pod):
        yield (meta.namespace, *owner_mark)
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


# --- own statuses ----------------------------------------------------------------------------------------------------
# The memory of what this replica wrote as the status of each Reservation while it leads.
#
# What somebody else writes there is not believed. It is not thread-safe by itself: `picture.cache` guards it.


@dataclass(slots=True)
class StatusTracker:
    """Statuses by the uid of their Reservation; empty while another replica leads, for then that one is right."""

    epoch: int = 0
    """Counts the times that this replica began anew: what was written in an earlier epoch says nothing in this one."""

    _written: dict[str, ReservationStatus] = field(default_factory=dict)
    _stored: dict[str, ReservationStatus] = field(default_factory=dict)
    """What the API server holds, where that is something else."""
    _underway: dict[str, ReservationStatus] = field(default_factory=dict)
    """What is being written: others may know it before its writer hears that it is stored."""

    def begin_write(self, uid: str, status: ReservationStatus) -> None:
        """Remember what is about to be written."""
        self._underway[uid] = status

    def end_write(self, uid: str) -> None:
        """Forget what was being written, stored or not."""
        self._underway.pop(uid, None)

    def published(self, believed: Reservation) -> ReservationStatus:
        """Return the status of a Reservation that others may know by now."""
        return self._underway.get(believed.metadata.uid, believed.status)

    def record(self, uid: str, status: ReservationStatus, epoch: int) -> None:
        """Remember what was written, or found to be true, in a epoch."""
        if epoch == self.epoch:
            self._written[uid] = status

    def forget(self, uid: str) -> None:
        """Forget a Reservation that is gone."""
        self._written.pop(uid, None)
        self._stored.pop(uid, None)

    def start_epoch(self) -> dict[str, ReservationStatus]:
        """Forget all; return by uid what the API server holds where it was not believed."""
        doubted = self._stored
        self.epoch += 1
        self._written, self._stored = {}, {}
        return doubted

    def reconcile(self, stored: Reservation) -> Reservation:
        """Return a Reservation as the API server holds it, but with the status that is known to be ours."""
        uid = stored.metadata.uid
        ours = self._written.get(uid)
        if ours is None or ours == stored.status:
            self._stored.pop(uid, None)
            return stored
        self._stored[uid] = stored.status
        return msgspec.structs.replace(stored, status=ours)

    def stored(self, believed: Reservation) -> Reservation:
        """Return a Reservation as the API server holds it."""
        status = self._stored.get(believed.metadata.uid)
        return believed if status is None else msgspec.structs.replace(believed, status=status)

    def has_written(self, uid: str) -> bool:
        """Tell whether this replica has written the status, or found it true, since it began."""
        return uid in self._written

    def is_forged(self, uid: str) -> bool:
        """Tell whether somebody else has changed the status."""
        return uid in self._stored


# --- versions --------------------------------------------------------------------------------------------------------
# Which version of an object is the newer one, and the memory of objects that are gone.

_TOMBSTONE_SECONDS: Final = 120.0
"""How long a late answer about an object that is gone may come in."""


def version_number(resource_version: str) -> float:
    """Return a resourceVersion as a number; 0 where there is none."""
    return float(resource_version) if resource_version.isdecimal() else 0.0


def version_of(metadata: ObjectMeta) -> float:
    """Return the version of an object as a number; 0 where it has none."""
    return version_number(metadata.resource_version)


def is_newer(candidate: ObjectMeta, known: ObjectMeta) -> bool:
    """Tell whether a version of an object is newer than another."""
    return version_of(candidate) > version_of(known)


class Tombstones:
    """Remembers what is gone as of a version, so that a late answer about it does not bring it back."""

    def __init__(self) -> None:
        self._removed: dict[str, tuple[float, float]] = {}
        """Uid to (time of burial, version); in the order of burial."""

    def add(self, uid: str, version: float = math.inf) -> None:
        """Note that an object is gone as of a version, by default for good."""
        now = time.monotonic()
        _, known = self._removed.pop(uid, (now, -1.0))
        self._removed[uid] = (now, max(version, known))
        while (oldest := next(iter(self._removed))) != uid and self._removed[oldest][0] < now - _TOMBSTONE_SECONDS:
            del self._removed[oldest]

    def cover(self, metadata: ObjectMeta) -> bool:
        """Tell whether a version of an object is one that is gone."""
        _, version = self._removed.get(metadata.uid, (0.0, -1.0))
        return version_of(metadata) <= version


# --- proof book ------------------------------------------------------------------------------------------------------
# What is known of the hand-over path: of each Reservation by its own probe, and of all that a probe speaks for.
#
# It does not probe: `acting.proofs` does. It is not thread-safe by itself: `picture.cache` guards it.


@dataclass(slots=True)
class ProbeResults:
    """Proofs by the uid of their Reservation, and how far the last probe that came back gated speaks for all.

    Whoever answered that probe had heard of every Reservation up to a version, and the webhook was registered for
    certain namespaces: what is no newer and in one of these needs no probe of its own.
    """

    path: ProbeResult | None = None
    """Whether what all Reservations share works, None where it is not known."""

    _probes: dict[str, ProbeResult] = field(default_factory=dict)
    _probed_at: dict[str, float] = field(default_factory=dict)
    _heard_version: float = -1.0
    _registered: AbstractSet[str] = frozenset()

    def put(self, uid: str, result: ProbeResult) -> None:
        """Keep how the last proof of a Reservation's path ended, and how many have failed in a row."""
        known = self._probes.get(uid)
        failures = 0 if result.gated else (known.failures if known else 0) + 1
        self._probes[uid] = replace(result, failures=failures)
        self._probed_at[uid] = time.monotonic()

    def put_shared(self, probed: Reservation, registered: AbstractSet[str]) -> None:
        """Keep that a Reservation's probe came back gated while the webhook was registered for some namespaces."""
        version = version_of(probed.metadata)
        if version >= self._heard_version or not registered <= self._registered:
            self._heard_version, self._registered = version, registered

    def forget(self, uid: str) -> None:
        """Forget a Reservation that is gone."""
        self._probes.pop(uid, None)
        self._probed_at.pop(uid, None)

    def put_path(self, result: ProbeResult | None) -> bool:
        """Keep whether the path that all share works, None where it is not known; tell whether that is news."""
        changed = (result and result.gated) != (self.path and self.path.gated)
        self.path = result
        if result is None:
            self._heard_version, self._registered = -1.0, frozenset()
        return changed

    def result_for(self, reservation: Reservation) -> ProbeResult | None:
        """Return whether a Reservation's hand-over is proven: by itself, by another's probe, by an earlier process."""
        uid = reservation.metadata.uid
        if self.path is None:
            return self._probes.get(uid)
        if not self.path.gated:
            return self.path
        if uid not in self._probes and (
            self._is_covered(reservation) or reservation.condition(ConditionType.HANDOVER_READY)
        ):
            self._probes[uid] = ProbeResult(gated=True, message=self.path.message)
        return self._probes.get(uid)

    def aged_result_for(self, reservation: Reservation, now: float) -> ProbeResult | None:
        """Return the proof of a Reservation with its age."""
        proof = self.result_for(reservation)
        made = self._probed_at.get(reservation.metadata.uid)
        return proof if proof is None or proof.gated or made is None else replace(proof, age_seconds=now - made)

    def _is_covered(self, reservation: Reservation) -> bool:
        meta = reservation.metadata
        return meta.namespace in self._registered and version_of(meta) <= self._heard_version


# --- readable --------------------------------------------------------------------------------------------------------
# Reading a Reservation from the API when it may be odd: what cannot be read becomes one that says so.
#
# The API server's schema lets templates through whose fields have the wrong type.

TEMPLATES_ANNOTATION: Final = "berth.volcano.sh/templates-digest"
"""Only in memory: a digest of the templates as they were written, also of fields that are not decoded."""


def read_reservation(body: Mapping[str, Any]) -> Reservation:
    """Decode a Reservation; where its spec cannot be read, return it without tasks and with the reason noted."""
    reservation = Reservation.read(body)
    if why_unreadable(reservation):
        return reservation
    try:
        expires_at(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))
        for task in reservation.spec.tasks:
            effective_requests(task.template.spec)
    except InputError as error:
        return Reservation.read(mark(dict(body), str(error)))
    return _annotated(reservation, TEMPLATES_ANNOTATION, _digest(body))


def templates_digest(reservation: Reservation) -> str:
    """Return what is the same for Reservations of the same templates."""
    return reservation.metadata.annotations.get(TEMPLATES_ANNOTATION, "")


def keep_what_was_computed(reservation: Reservation, known: Reservation) -> None:
    """Have the templates of a version remember what was computed of the same templates of an earlier one."""
    digest = templates_digest(reservation)
    if not digest or digest != templates_digest(known):
        return
    for task, before in zip(reservation.spec.tasks, known.spec.tasks, strict=False):
        vars(task.template.spec).update(vars(before.template.spec))


def _digest(body: Mapping[str, Any]) -> str:
    templates = [task.get("template") for task in body["spec"]["tasks"]]
    return hashlib.sha256(msgspec.json.encode(templates, order="deterministic")).hexdigest()[:32]


def _annotated(reservation: Reservation, key: str, value: str) -> Reservation:
    meta = reservation.metadata
    meta = msgspec.structs.replace(meta, annotations=meta.annotations | {key: value})
    return msgspec.structs.replace(reservation, metadata=meta)


def why_unreadable(reservation: Reservation) -> str:
    """Return why the spec could not be read, "" where it could."""
    return reservation.metadata.unreadable
