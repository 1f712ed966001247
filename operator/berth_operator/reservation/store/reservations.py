"""Cached Reservations: versions, statuses, probe results and waiting pods.

These stores are not thread-safe: `store.cache` locks them.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from berth_core import (
    DEPLOYMENT,
    ConditionType,
    InputError,
    LabelSelector,
    ObjectMeta,
    Pod,
    Reservation,
    ReservationOwner,
    ReservationReason,
    ReservationStatus,
    SlotState,
    deployment_name,
    effective_requests,
    expires_at,
    mark,
    parse_timestamp,
)
from berth_core.decoding import decode_json
from berth_operator.reservation.observation import ProbeResult, Verdict
from berth_operator.runtime.workqueue import SCOPE_KEY, Key, KeyKind

# --- owner index -----------------------------------------------------------------------------------------------------
# Finds the Reservations whose owners may include a pod, without a scan of all.

_Mark = tuple[str, ...]
"""What each pod of an owner has: namespace, and a uid, name, label, label key, annotation or nothing."""

_MOST_VALUES: Final = 100
"""An expression with more values is no mark: each value takes an index entry."""

_NONE: Final[Mapping[str, Reservation]] = {}


class OwnerIndex:
    """Reservations by the marks of their owners.

    A look-up costs as much as a pod has marks.
    """

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self._by_mark: dict[_Mark, dict[str, Reservation]] = {}
        for reservation in reservations:
            self.put(reservation)

    def put(self, reservation: Reservation) -> None:
        """Add a version of a Reservation; its owners never change."""
        for owner_mark in _marks_of(reservation):
            self._by_mark.setdefault(owner_mark, {})[reservation.metadata.uid] = reservation

    def remove(self, reservation: Reservation) -> None:
        for owner_mark in _marks_of(reservation):
            group = self._by_mark.get(owner_mark, {})
            if group.pop(reservation.metadata.uid, None) is not None and not group:
                del self._by_mark[owner_mark]

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return the Reservations that a pod may belong to, in any order."""
        found = {uid: one for owner_mark in _marks_on(pod) for uid, one in self._by_mark.get(owner_mark, _NONE).items()}
        return list(found.values())


def _marks_of(reservation: Reservation) -> set[_Mark]:
    namespace = reservation.metadata.namespace
    return {(namespace, *owner_mark) for owner in reservation.spec.owners for owner_mark in _marks_of_owner(owner)}


def _marks_of_owner(owner: ReservationOwner) -> Iterator[_Mark]:
    """Yield marks of which every pod of an owner has one."""
    wanted = owner.object
    if wanted is not None:
        by_uid = bool(wanted.uid) and wanted.kind != DEPLOYMENT
        yield ("uid", wanted.uid) if by_uid else ("name", wanted.kind, wanted.name)
    if owner.label_selector is not None:
        yield from _marks_of_selector(owner.label_selector)
    if owner.annotations:
        key = min(owner.annotations)
        yield "annotation", key, owner.annotations[key]


def _marks_of_selector(selector: LabelSelector) -> Iterable[_Mark]:
    """Return marks of which every selected pod has one.

    They are the rarest that are known.
    """
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
    meta = pod.metadata
    for owner_mark in _own_marks(pod):
        yield (meta.namespace, *owner_mark)
    for key, value in meta.labels.items():
        yield meta.namespace, "label", key, value
        yield meta.namespace, "key", key
    for key, value in meta.annotations.items():
        yield meta.namespace, "annotation", key, value


def _own_marks(pod: Pod) -> Iterator[_Mark]:
    """Yield the marks of a pod and its controllers.

    Marks consist of uids and names.
    """
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


# --- statuses --------------------------------------------------------------------------------------------------------
# The statuses that this replica wrote while it leads. What other writers write there does not count.


@dataclass(slots=True)
class StatusTracker:
    """Statuses by uid of their Reservation; empty while another replica leads."""

    epoch: int = 0
    """Rises when this replica starts over: statuses of an earlier epoch no longer count."""

    _written: dict[str, ReservationStatus] = field(default_factory=dict)
    _stored: dict[str, ReservationStatus] = field(default_factory=dict)
    """The status that the API server holds, where it differs."""
    _underway: dict[str, ReservationStatus] = field(default_factory=dict)
    """Statuses that are being written: others may read one before its writer learns of it."""

    def begin_write(self, uid: str, status: ReservationStatus) -> None:
        self._underway[uid] = status

    def end_write(self, uid: str) -> None:
        """Forget the write in progress, whether it was stored or not."""
        self._underway.pop(uid, None)

    def published(self, known: Reservation) -> ReservationStatus:
        """Return the status that others may have read."""
        return self._underway.get(known.metadata.uid, known.status)

    def record(self, uid: str, status: ReservationStatus, epoch: int) -> None:
        """Record a status written, or found to be true, in an epoch."""
        if epoch == self.epoch:
            self._written[uid] = status

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)
        self._stored.pop(uid, None)

    def start_epoch(self) -> dict[str, ReservationStatus]:
        """Forget all statuses; return by uid the stored ones that were overruled."""
        overruled = self._stored
        self.epoch += 1
        self._written, self._stored = {}, {}
        return overruled

    def reconcile(self, stored: Reservation) -> Reservation:
        """Return a stored Reservation with the status known to be ours."""
        uid = stored.metadata.uid
        ours = self._written.get(uid)
        if ours is None or ours == stored.status:
            self._stored.pop(uid, None)
            return stored
        self._stored[uid] = stored.status
        return msgspec.structs.replace(stored, status=ours)

    def stored(self, known: Reservation) -> Reservation:
        """Return a Reservation as the API server holds it."""
        status = self._stored.get(known.metadata.uid)
        return known if status is None else msgspec.structs.replace(known, status=status)

    def has_written(self, uid: str) -> bool:
        """Return whether this replica wrote or confirmed the status in this epoch."""
        return uid in self._written

    def is_forged(self, uid: str) -> bool:
        return uid in self._stored


# --- versions --------------------------------------------------------------------------------------------------------
# Order of an object's versions, and deleted objects.

_TOMBSTONE_SECONDS: Final = 120.0
"""How late an answer about a deleted object may arrive."""


def version_number(resource_version: str) -> float:
    """Return a resourceVersion as a number; 0 without one."""
    return float(resource_version) if resource_version.isdecimal() else 0.0


def version_of(metadata: ObjectMeta) -> float:
    """Return an object's resourceVersion as a number; 0 without one."""
    return version_number(metadata.resource_version)


def was_due(metadata: ObjectMeta, version: str) -> bool:
    """Return whether a list of this version must contain the object."""
    return version_of(metadata) <= version_number(version)


def is_newer(candidate: ObjectMeta, known: ObjectMeta) -> bool:
    return version_of(candidate) > version_of(known)


class Tombstones:
    """Deleted objects, so that a late answer does not restore one."""

    def __init__(self) -> None:
        self._removed: dict[str, tuple[float, float]] = {}
        """Uid to (time of removal, version), in order of removal."""

    def add(self, uid: str, version: float = math.inf) -> None:
        """Record that an object is gone as of a version.

        By default it is gone for good.
        """
        now = time.monotonic()
        _, known = self._removed.pop(uid, (now, -1.0))
        self._removed[uid] = (now, max(version, known))
        while (oldest := next(iter(self._removed))) != uid and self._removed[oldest][0] < now - _TOMBSTONE_SECONDS:
            del self._removed[oldest]

    def covers(self, metadata: ObjectMeta) -> bool:
        """Return whether this version of an object is gone."""
        _, version = self._removed.get(metadata.uid, (0.0, -1.0))
        return version_of(metadata) <= version


# --- probe results ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ProbeResults:
    """Results of probes, per Reservation and for the path that all share.

    The replica that answered the last gated probe knew every Reservation up to a version, and the webhook was
    registered for certain namespaces: a Reservation that is no newer and in one of these needs no probe of its own.
    """

    path: ProbeResult | None = None
    """Whether the shared path works; None for unknown."""

    _probes: dict[str, ProbeResult] = field(default_factory=dict)
    _probed_at: dict[str, float] = field(default_factory=dict)
    _proven_version: float = -1.0
    _registered: AbstractSet[str] = frozenset()

    def put(self, uid: str, result: ProbeResult) -> None:
        """Record a probe's result, and count the failures in a row."""
        known = self._probes.get(uid)
        failures = 0 if result.gated else (known.failures if known else 0) + 1
        self._probes[uid] = replace(result, failures=failures)
        self._probed_at[uid] = time.monotonic()

    def put_shared(self, probed: Reservation, registered: AbstractSet[str]) -> None:
        """Record a gated probe, made while the webhook covered these namespaces."""
        version = version_of(probed.metadata)
        if version >= self._proven_version or not registered <= self._registered:
            self._proven_version, self._registered = version, registered

    def forget(self, uid: str) -> None:
        self._probes.pop(uid, None)
        self._probed_at.pop(uid, None)

    def put_path(self, result: ProbeResult | None) -> bool:
        """Record whether the shared path works; return whether that changed."""
        changed = (result and result.gated) != (self.path and self.path.gated)
        self.path = result
        if result is None:
            self._proven_version, self._registered = -1.0, frozenset()
        return changed

    def result_for(self, reservation: Reservation) -> ProbeResult | None:
        """Return a Reservation's result: its own, another's, an earlier process's."""
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
        result = self.result_for(reservation)
        made = self._probed_at.get(reservation.metadata.uid)
        return result if result is None or result.gated or made is None else replace(result, age_seconds=now - made)

    def _is_covered(self, reservation: Reservation) -> bool:
        meta = reservation.metadata
        return meta.namespace in self._registered and version_of(meta) <= self._proven_version


# --- reading ---------------------------------------------------------------------------------------------------------
# The API server's schema admits templates with fields of the wrong type. Such a Reservation notes that itself.

TEMPLATES_ANNOTATION: Final = "berth.volcano.sh/templates-digest"
"""In memory only: a digest of the templates as written, with undecoded fields."""
_WRITTEN_ANNOTATION: Final = "berth.volcano.sh/templates"
"""In memory only: the templates as written, until the Reservation has a status; who writes it is overruled."""


def read_reservation(body: Mapping[str, Any]) -> Reservation:
    """Decode a Reservation.

    One with an unreadable spec has no tasks and notes why.
    """
    reservation = Reservation.read(body)
    if why_unreadable(reservation):
        return reservation
    try:
        expires_at(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))
        for task in reservation.spec.tasks:
            effective_requests(task.template.spec)
    except InputError as error:
        return Reservation.read(mark(dict(body), str(error)))
    written = msgspec.json.encode([task.get("template") for task in body["spec"]["tasks"] or ()], order="deterministic")
    meta = reservation.metadata
    notes = meta.annotations | {
        TEMPLATES_ANNOTATION: hashlib.sha256(written).hexdigest()[:32],
        _WRITTEN_ANNOTATION: "" if body.get("status") else written.decode(),
    }
    return msgspec.structs.replace(reservation, metadata=msgspec.structs.replace(meta, annotations=notes))


def templates_as_written(reservation: Reservation) -> list[dict[str, Any]]:
    """Return the templates with undecoded fields, none where they are no longer kept."""
    written = reservation.metadata.annotations.get(_WRITTEN_ANNOTATION, "")
    return decode_json(written, list[dict[str, Any]]) if written else []


def templates_digest(reservation: Reservation) -> str:
    """Return a digest that Reservations of equal templates share."""
    return reservation.metadata.annotations.get(TEMPLATES_ANNOTATION, "")


def reuse_computed(reservation: Reservation, known: Reservation) -> None:
    """Copy cached results from an earlier version with the same templates."""
    digest = templates_digest(reservation)
    if not digest or digest != templates_digest(known):
        return
    for task, before in zip(reservation.spec.tasks, known.spec.tasks, strict=False):
        vars(task.template.spec).update(vars(before.template.spec))


def why_unreadable(reservation: Reservation) -> str:
    """Return why the spec could not be decoded, "" if it could."""
    return reservation.metadata.unreadable


# --- waiting pods ---------------------------------------------------------------------------------------------------

_SEARCH_SECONDS: Final = 10.0
"""How long a search for waiting pods counts; the next one finds newer pods."""

_FOUND_SECONDS: Final = 2.0
"""How long a pod that was found waiting counts as waiting."""


@dataclass(slots=True)
class WaitingPods:
    """Pods that wait for a slot, by uid of their Reservation."""

    _searched_at: dict[str, float] = field(default_factory=dict)
    """In monotonic seconds."""
    _found: dict[str, tuple[Pod, ...]] = field(default_factory=dict)

    def put(self, uid: str, pods: Iterable[Pod]) -> None:
        self._found[uid], self._searched_at[uid] = tuple(pods), time.monotonic()

    def search_again(self, uid: str) -> None:
        """Expire the last search, so that another one is due."""
        self._searched_at.pop(uid, None)
        self._found.pop(uid, None)

    def of(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods that waited at a recent search."""
        return self._found.get(uid, ()) if self._searched_within(uid, _FOUND_SECONDS) else ()

    def searched(self, uid: str) -> bool:
        """Return whether a recent search covers the Reservation."""
        return self._searched_within(uid, _SEARCH_SECONDS)

    def _searched_within(self, uid: str, seconds: float) -> bool:
        at = self._searched_at.get(uid)
        return at is not None and time.monotonic() - at < seconds


# --- the store -------------------------------------------------------------------------------------------------------


class ControlledIndex:
    """Reservations by the object of one kind that controls them."""

    def __init__(self, kind: str, controller_of: Callable[[Reservation], str]) -> None:
        self._kind = kind
        self._controller_of = controller_of
        self._by_controller: dict[str, set[str]] = {}

    def uids(self, controller: str) -> list[str]:
        """Return the uids of the Reservations that an object controls, in order."""
        return sorted(self._by_controller.get(controller, ()))

    def keys(self, reservation: Reservation) -> tuple[Key, ...]:
        """Return the key of the object that controls a Reservation."""
        controller = self._controller_of(reservation)
        return (Key(self._kind, controller),) if controller else ()

    def put(self, reservation: Reservation, known: Reservation | None) -> None:
        """Store a version of a Reservation in the place of the known one."""
        controller = self._controller_of(reservation)
        if known is not None and self._controller_of(known) != controller:
            self.remove(known)  # any user may write that reference
        if controller:
            self._by_controller.setdefault(controller, set()).add(reservation.metadata.uid)

    def remove(self, reservation: Reservation) -> None:
        controller = self._controller_of(reservation)
        group = self._by_controller.get(controller, set())
        group.discard(reservation.metadata.uid)
        if not group:
            self._by_controller.pop(controller, None)


class ReservationStore:
    """All known Reservations; a change returns the keys that it concerns."""

    def __init__(self, tombstones: Tombstones) -> None:
        self._tombstones = tombstones
        self._by_uid: dict[str, Reservation] = {}
        self._controlled: list[ControlledIndex] = []
        self._verdicts: dict[str, Verdict] = {}
        self._validated: set[str] = set()
        self.live = LiveReservations()
        self.statuses = StatusTracker()
        self.probes = ProbeResults()
        self.waiting = WaitingPods()
        self.on_version: Callable[[Reservation], None] = lambda _: None
        self.on_end: Callable[[str], None] = lambda _: None

    def __iter__(self) -> Iterator[Reservation]:
        return iter(tuple(self._by_uid.values()))

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def uids(self) -> AbstractSet[str]:
        return self._by_uid.keys()

    def get(self, uid: str) -> Reservation | None:
        return self._by_uid.get(uid)

    def index_controlled(self, kind: str, controller_of: Callable[[Reservation], str]) -> "ControlledIndex":
        """Return an index that is kept up to date from now on."""
        index = ControlledIndex(kind, controller_of)
        self._controlled.append(index)
        return index

    def named(self, uids: Iterable[str]) -> tuple[Reservation, ...]:
        """Return the Reservations with these uids, which are known."""
        return tuple(self._by_uid[uid] for uid in uids)

    def _controller_keys(self, reservation: Reservation) -> tuple[Key, ...]:
        """Return the keys of the objects that control a Reservation."""
        return tuple(key for index in self._controlled for key in index.keys(reservation))

    def put(self, reservation: Reservation) -> tuple[Key, ...]:
        """Store a Reservation that is neither gone nor outdated."""
        uid = reservation.metadata.uid
        known = self._by_uid.get(uid)
        if self._tombstones.covers(reservation.metadata) or (
            known and not is_newer(reservation.metadata, known.metadata)
        ):
            return ()
        if known is not None:
            reuse_computed(reservation, known)
        scope_changed = self._replace(self.statuses.reconcile(reservation), known)
        controllers = self._controller_keys(reservation)
        return (Key(KeyKind.RESERVATION, uid), *controllers, *((SCOPE_KEY,) if scope_changed else ()))

    def put_written(
        self, uid: str, status: ReservationStatus, epoch: int, stored: Reservation | None
    ) -> tuple[Key, ...]:
        """Store a status that this replica wrote, with the Reservation as stored."""
        known = self._by_uid.get(uid)
        if known is None:
            return ()
        raw = self.statuses.stored(known)
        self.statuses.record(uid, status, epoch)
        if stored is None:
            return ()
        if is_newer(stored.metadata, known.metadata):
            return self.put(stored)
        # The watch was faster, and the status counted as another writer's.
        scope_changed = self._replace(self.statuses.reconcile(raw), known)
        return (*self._controller_keys(raw), *((SCOPE_KEY,) if scope_changed else ()))

    def start_epoch(self) -> None:
        """Trust the API server's statuses again."""
        for uid, status in self.statuses.start_epoch().items():
            known = self._by_uid[uid]
            self._replace(msgspec.structs.replace(known, status=status), known)

    def _replace(self, reservation: Reservation, known: Reservation | None) -> bool:
        """Store a version; return whether the Reservation is new or changed liveness."""
        uid = reservation.metadata.uid
        self._by_uid[uid] = reservation
        for index in self._controlled:
            index.put(reservation, known)
        self.on_version(reservation)
        self.live.put(reservation)
        if _count_held(reservation) > _count_held(known):
            self.waiting.search_again(uid)
        return known is None or known.is_live != reservation.is_live

    def remove(self, uid: str) -> tuple[Key, ...]:
        self._tombstones.add(uid)
        known = self._by_uid.pop(uid, None)
        if known is not None:
            self.live.remove(known)
            for index in self._controlled:
                index.remove(known)
        self.on_end(uid)
        self.probes.forget(uid)
        self._verdicts.pop(uid, None)
        self._validated.discard(uid)
        self.waiting.search_again(uid)
        self.statuses.forget(uid)
        return Key(KeyKind.RESERVATION, uid), *(self._controller_keys(known) if known is not None else ()), SCOPE_KEY

    def put_verdict(self, uid: str, verdict: Verdict | None) -> None:
        """Record that the templates were validated, and the refusal if any."""
        if uid in self._by_uid:
            self._validated.add(uid)
            if verdict is not None:
                self._verdicts[uid] = verdict

    def verdict_on(self, reservation: Reservation) -> Verdict | None:
        """Return why a Reservation is impossible, including an unreadable spec."""
        why = why_unreadable(reservation)
        unreadable = Verdict(ReservationReason.INVALID, why) if why else None
        return self._verdicts.get(reservation.metadata.uid) or unreadable

    def is_validated(self, uid: str) -> bool:
        """Return whether the API server has validated the templates."""
        return uid in self._validated


def _count_held(reservation: Reservation | None) -> int:
    return sum(slot.state is SlotState.HELD for slot in reservation.status.slots) if reservation else 0
