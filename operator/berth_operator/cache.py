"""Owns what the operator has heard of the cluster: Reservations, placeholders, owner pods and guarded nodes.

It decides nothing and is never the only place of a fact: it can be filled again from the API at any time.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from berth_core.labels import HANDOVER_TAINT, INDEX_ANNOTATION, RESERVATION_LABEL, TASK_ANNOTATION
from berth_core.objects import NodeSpec, ObjectMeta, Pod
from berth_core.reservations import Reservation, ReservationReason, SlotState
from berth_operator.assignments import Assignment
from berth_operator.observation import Observation, ProbeResult, Verdict, has_started
from berth_operator.readable import why_unreadable
from berth_operator.work_queue import SCOPE_KEY, Key, KeyKind

_GRAVE_SECONDS: Final = 120.0


class GuardableNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a node that guards need."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()

    @property
    def guard_deadline(self) -> str | None:
        """Return the value of our guard, None where the node has none."""
        return next((taint.value for taint in self.spec.taints if taint.key == HANDOVER_TAINT), None)


class Cache:
    """A thread-safe picture of the cluster; every change queues the keys that it concerns."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._lock = threading.RLock()
        self._enqueue = enqueue
        self._reservations: dict[str, Reservation] = {}
        self._placeholders: dict[str, Pod] = {}
        self._owners: dict[str, Pod] = {}
        self._nodes: dict[str, GuardableNode] = {}
        self._guarded_since: dict[str, float] = {}
        self._started_since: dict[str, float] = {}
        self._probes: dict[str, ProbeResult] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._validated: set[str] = set()
        self._new_owner_listeners: list[Callable[[Pod], None]] = []
        self._graves: deque[tuple[float, str]] = deque()
        self._buried: dict[str, float] = {}

    def on_new_owner(self, listener: Callable[[Pod], None]) -> None:
        """Have a listener told of every pod that first appears with the label of a Reservation."""
        self._new_owner_listeners.append(listener)

    # --- Reservations

    def put_reservation(self, reservation: Reservation) -> None:
        """Take in a Reservation as the API server holds it; older versions are ignored."""
        uid = reservation.metadata.uid
        with self._lock:
            known = self._reservations.get(uid)
            if self._is_buried(reservation.metadata) or (known and not _is_newer(reservation.metadata, known.metadata)):
                return
            self._reservations[uid] = reservation
            scope_changed = known is None or known.phase.terminal != reservation.phase.terminal
        self._enqueue(Key(KeyKind.RESERVATION, uid))
        if scope_changed:
            self._enqueue(SCOPE_KEY)

    def remove_reservation(self, uid: str) -> None:
        """Forget a deleted Reservation."""
        with self._lock:
            self._bury(uid, math.inf)
            self._reservations.pop(uid, None)
            self._probes.pop(uid, None)
            self._verdicts.pop(uid, None)
            self._validated.discard(uid)
        self._enqueue(Key(KeyKind.RESERVATION, uid))
        self._enqueue(SCOPE_KEY)

    def replace_reservations(self, listed: Iterable[Reservation]) -> None:
        """Take in a complete list of Reservations; those not in it are gone."""
        present = {reservation.metadata.uid: reservation for reservation in listed}
        for reservation in present.values():
            self.put_reservation(reservation)
        for uid in self.reservation_uids() - present.keys():
            self.remove_reservation(uid)

    def reservation(self, uid: str) -> Reservation | None:
        """Return a Reservation by uid."""
        with self._lock:
            return self._reservations.get(uid)

    def reservation_uids(self) -> set[str]:
        """Return the uids of all known Reservations."""
        with self._lock:
            return set(self._reservations)

    def reservations(self) -> tuple[Reservation, ...]:
        """Return all known Reservations."""
        with self._lock:
            return tuple(self._reservations.values())

    def live_namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a Reservation which is not finished."""
        return frozenset(r.metadata.namespace for r in self.reservations() if not r.phase.terminal)

    # --- pods

    def put_placeholder(self, pod: Pod) -> None:
        """Take in a placeholder."""
        with self._lock:
            if not self._accepts(pod, self._placeholders.get(pod.metadata.name)):
                return
            self._placeholders[pod.metadata.name] = pod
        self._enqueue(_reservation_key(pod))

    def remove_placeholder(self, pod: Pod) -> None:
        """Forget a placeholder that is gone."""
        with self._lock:
            self._bury(pod.metadata.uid, math.inf)
            known = self._placeholders.get(pod.metadata.name)
            if known is not None and known.metadata.uid == pod.metadata.uid:
                del self._placeholders[pod.metadata.name]
        self._enqueue(_reservation_key(pod))

    def put_owner(self, pod: Pod) -> None:
        """Take in a pod that carries the label of a Reservation; without the label it is forgotten."""
        if RESERVATION_LABEL not in pod.metadata.labels:
            self.remove_owner(pod, for_good=False)
            return
        with self._lock:
            known = self._owners.get(pod.metadata.uid)
            if not self._accepts(pod, known):
                return
            self._owners[pod.metadata.uid] = pod
            if has_started(pod):
                self._started_since.setdefault(pod.metadata.uid, time.monotonic())
        if known is None:
            for tell in self._new_owner_listeners:
                tell(pod)
        self._announce_owner(pod, known)

    def remove_owner(self, pod: Pod, *, for_good: bool = True) -> None:
        """Forget an owner pod that is gone; not for good where only its label is, and a newer version may have it."""
        with self._lock:
            self._bury(pod.metadata.uid, math.inf if for_good else _version(pod.metadata))
            known = self._owners.pop(pod.metadata.uid, None)
            self._started_since.pop(pod.metadata.uid, None)
        self._announce_owner(pod, known)

    def _announce_owner(self, pod: Pod, known: Pod | None) -> None:
        """Queue what an owner pod's change concerns: its Reservation and the node of its slot."""
        for version in (pod, known):
            if version is None:
                continue
            self._enqueue(_reservation_key(version))
            assignment = Assignment.from_pod(version)
            if assignment is not None:
                self._enqueue(Key(KeyKind.NODE, assignment.node))

    def placeholders(self) -> tuple[Pod, ...]:
        """Return all placeholders."""
        with self._lock:
            return tuple(self._placeholders.values())

    def owners(self) -> tuple[Pod, ...]:
        """Return all pods that carry the label of a Reservation."""
        with self._lock:
            return tuple(self._owners.values())

    # --- nodes

    def put_node(self, node: GuardableNode) -> None:
        """Take in a node."""
        name = node.metadata.name
        with self._lock:
            known = self._nodes.get(name)
            if known is not None and not _is_newer(node.metadata, known.metadata):
                return
            self._nodes[name] = node
            changed = known is None or known.guard_deadline != node.guard_deadline
            if node.guard_deadline is None:
                self._guarded_since.pop(name, None)
            else:
                self._guarded_since.setdefault(name, time.monotonic())
        if changed and node.guard_deadline is not None:
            self._announce_node(name)
        elif changed and known is not None:
            self._enqueue(Key(KeyKind.NODE, name))

    def replace_nodes(self, listed: Iterable[GuardableNode]) -> None:
        """Take in a complete list of nodes; those not in it are gone."""
        present = {node.metadata.name: node for node in listed}
        for node in present.values():
            self.put_node(node)
        with self._lock:
            gone = [node for name, node in self._nodes.items() if name not in present]
        for node in gone:
            self.remove_node(node)

    def remove_node(self, node: GuardableNode) -> None:
        """Forget a node that is gone."""
        with self._lock:
            self._nodes.pop(node.metadata.name, None)
            self._guarded_since.pop(node.metadata.name, None)
            held = [p for p in self._placeholders.values() if p.spec.node_name == node.metadata.name]
        for pod in held:
            self._enqueue(_reservation_key(pod))

    def _announce_node(self, name: str) -> None:
        """Queue the node and every Reservation that hands over a slot on it."""
        self._enqueue(Key(KeyKind.NODE, name))
        for pod, _ in self.guard_users(name):
            self._enqueue(_reservation_key(pod))

    def guard_users(self, node: str) -> tuple[tuple[Pod, Assignment], ...]:
        """Return the living owner pods that were given a slot on a node."""
        with self._lock:
            pairs = [(pod, Assignment.from_pod(pod)) for pod in self._owners.values() if not pod.is_terminating]
        return tuple((pod, given) for pod, given in pairs if given is not None and given.node == node)

    def guard_deadline(self, node: str) -> str | None:
        """Return the value of a node's guard, None where it has none or is unknown."""
        with self._lock:
            known = self._nodes.get(node)
        return known.guard_deadline if known else None

    def has_node(self, name: str) -> bool:
        """Tell whether a node exists."""
        with self._lock:
            return name in self._nodes

    def guarded_nodes(self) -> tuple[str, ...]:
        """Return the nodes that carry our guard."""
        with self._lock:
            return tuple(name for name, node in self._nodes.items() if node.guard_deadline is not None)

    # --- what this process found out

    def put_probe(self, uid: str, result: ProbeResult) -> None:
        """Keep how the last proof of a Reservation's path ended."""
        with self._lock:
            self._probes[uid] = result
        self._enqueue(Key(KeyKind.RESERVATION, uid))

    def put_verdict(self, uid: str, verdict: Verdict | None) -> None:
        """Keep that a Reservation's templates were put to the API server, and what it refused."""
        with self._lock:
            self._validated.add(uid)
            if verdict is not None:
                self._verdicts[uid] = verdict
        self._enqueue(Key(KeyKind.RESERVATION, uid))

    # --- views

    def observe(self, uid: str) -> Observation | None:
        """Return what is seen of one Reservation, None where it is unknown."""
        now = time.monotonic()
        with self._lock:
            reservation = self._reservations.get(uid)
            if reservation is None:
                return None
            owners = [p for p in self._owners.values() if p.metadata.labels.get(RESERVATION_LABEL) == uid]
            return Observation(
                reservation=reservation,
                placeholders=self._placeholders_of(uid),
                owners=tuple(sorted(owners, key=_age_order)),
                nodes=frozenset(self._nodes),
                guard_ages={name: now - since for name, since in self._guarded_since.items()},
                running_ages={
                    pod.metadata.uid: now - self._started_since[pod.metadata.uid]
                    for pod in owners
                    if pod.metadata.uid in self._started_since
                },
                verdict=self._verdicts.get(uid) or _verdict_on(reservation),
                validated=uid in self._validated,
                probe=self._probes.get(uid),
            )

    def belongings(self, uid: str) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """Return the placeholders and the owner pods that name a Reservation, known or not."""
        with self._lock:
            placeholders = tuple(
                p for p in self._placeholders.values() if p.metadata.labels.get(RESERVATION_LABEL) == uid
            )
            owners = tuple(p for p in self._owners.values() if p.metadata.labels.get(RESERVATION_LABEL) == uid)
        return placeholders, owners

    def count_slots(self) -> dict[SlotState, int]:
        """Return how many slots of all known Reservations are in which state."""
        counts = dict.fromkeys(SlotState, 0)
        for reservation in self.reservations():
            for slot in reservation.status.slots:
                counts[slot.state] += 1
        return counts

    def _placeholders_of(self, uid: str) -> dict[tuple[str, int], Pod]:
        found: dict[tuple[str, int], Pod] = {}
        for pod in self._placeholders.values():
            notes = pod.metadata.annotations
            if pod.metadata.labels.get(RESERVATION_LABEL) == uid and notes.get(INDEX_ANNOTATION, "").isdecimal():
                found[notes.get(TASK_ANNOTATION, ""), int(notes[INDEX_ANNOTATION])] = pod
        return found

    def _accepts(self, pod: Pod, known: Pod | None) -> bool:
        """Tell whether a version of a pod is news: neither buried nor older than what is known."""
        if self._is_buried(pod.metadata):
            return False
        return known is None or known.metadata.uid != pod.metadata.uid or _is_newer(pod.metadata, known.metadata)

    def _bury(self, uid: str, version: float) -> None:
        """Remember that an object is gone as of a version, so that a late answer about it does not bring it back."""
        now = time.monotonic()
        self._graves.append((now, uid))
        self._buried[uid] = max(version, self._buried.get(uid, 0.0))
        while self._graves and self._graves[0][0] < now - _GRAVE_SECONDS:
            self._buried.pop(self._graves.popleft()[1], None)

    def _is_buried(self, metadata: ObjectMeta) -> bool:
        return _version(metadata) <= self._buried.get(metadata.uid, -1.0)


def _verdict_on(reservation: Reservation) -> Verdict | None:
    """Return the verdict on a Reservation whose spec cannot be read."""
    reason = why_unreadable(reservation)
    return Verdict(ReservationReason.INVALID, reason) if reason else None


def _reservation_key(pod: Pod) -> Key:
    return Key(KeyKind.RESERVATION, pod.metadata.labels.get(RESERVATION_LABEL, ""))


def _age_order(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.uid


def _is_newer(candidate: ObjectMeta, known: ObjectMeta) -> bool:
    """Tell whether a version is newer than another; versions of one resource are comparable numbers."""
    return _version(candidate) > _version(known)


def _version(metadata: ObjectMeta) -> float:
    """Return a version as a number; 0 where there is none."""
    return float(metadata.resource_version) if metadata.resource_version.isdecimal() else 0.0
