"""Owns what the operator has heard of the cluster: Reservations, placeholders, owner pods and guarded nodes.

It decides nothing and is never the only place of a fact: it can be filled again from the API at any time.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

import msgspec

from berth_core.labels import PLACEHOLDER_LABEL, RESERVATION_LABEL, SLOT_ANNOTATION
from berth_core.objects import ObjectMeta, Pod
from berth_core.reservations import Reservation, ReservationReason, ReservationStatus, SlotState
from berth_operator.cache.nodes import Findings, GuardableNode, NodeIndex
from berth_operator.cache.pods import HandoverTargets, PodIndex, by_slot, reservation_uid
from berth_operator.cache.reservations import (
    LiveReservations,
    ProbeResults,
    StatusTracker,
    Tombstones,
    age_order,
    is_newer,
    keep_what_was_computed,
    version_number,
    version_of,
    why_unreadable,
)
from berth_operator.reconcile.observation import (
    Assignment,
    Observation,
    ProbeResult,
    Verdict,
    build_survey,
    has_started,
    slots_by_key,
    trusted_assignment,
)
from berth_operator.workqueue import SCOPE_KEY, Key, KeyKind

_SETTLED = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


class Cache:
    """A thread-safe picture of the cluster; every change queues the keys that it concerns.

    A complete list is taken in with the version that it was made at: what was heard of since then is not gone though
    the list does not know it.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._lock = threading.RLock()
        self._enqueue = enqueue
        self._seconds: Callable[[], float] = time.monotonic
        self._reservations: dict[str, Reservation] = {}
        self._live = LiveReservations()
        self._placeholders = PodIndex(lambda pod: pod.metadata.name)
        self._owners = PodIndex(lambda pod: pod.metadata.uid)
        self._targets = HandoverTargets()
        self._nodes = NodeIndex()
        self._started_since: dict[str, float] = {}
        self._probes = ProbeResults()
        self._verdicts: dict[str, Verdict] = {}
        self._validated: set[str] = set()
        self._findings = Findings()
        self._statuses = StatusTracker()
        self._new_owner_listeners: list[Callable[[Pod], None]] = []
        self._tombstones = Tombstones()
        self._tell_version: Callable[[Reservation], None] = _tell_nobody
        self._tell_end: Callable[[str], None] = _tell_nobody

    def count_time_by(self, seconds: Callable[[], float]) -> None:
        """Have what takes part in hand-overs age by the time that was attended to them."""
        self._seconds = self._nodes.seconds = seconds

    def on_reservation(self, version: Callable[[Reservation], None], end: Callable[[str], None]) -> None:
        """Have somebody told of each version of a Reservation, in order, and by uid of each one that is gone."""
        self._tell_version, self._tell_end = version, end

    def on_new_owner(self, listener: Callable[[Pod], None]) -> None:
        """Have a listener told of every pod that first appears with the label of a Reservation."""
        self._new_owner_listeners.append(listener)

    # --- Reservations

    def put_reservation(self, reservation: Reservation) -> None:
        """Take in a Reservation as the API server holds it; older versions are ignored."""
        uid = reservation.metadata.uid
        with self._lock:
            known = self._reservations.get(uid)
            if self._tombstones.cover(reservation.metadata) or (
                known and not is_newer(reservation.metadata, known.metadata)
            ):
                return
            if known is not None:
                keep_what_was_computed(reservation, known)
            scope_changed = self._store(self._statuses.reconcile(reservation), known)
        self._enqueue(Key(KeyKind.RESERVATION, uid))
        if scope_changed:
            self._enqueue(SCOPE_KEY)

    def _store(self, reservation: Reservation, known: Reservation | None) -> bool:
        """Put a version of a Reservation in place of the known one; tell whether it began or ceased to be live."""
        uid = reservation.metadata.uid
        self._reservations[uid] = reservation
        self._tell_version(reservation)
        self._live.note(reservation)
        if _holds_more(reservation, known):
            self._findings.search_again(uid)
        return known is None or known.is_live != reservation.is_live

    @property
    def epoch(self) -> int:
        """Return what to give to `put_written` with a status that is written from now on."""
        return self._statuses.epoch

    def put_written(self, uid: str, status: ReservationStatus, epoch: int, stored: Reservation | None = None) -> None:
        """Take in a status that is ours, and the Reservation as it was stored with it, if it had to be written.

        The watch may have told of it before: then it was taken for somebody else's.
        """
        with self._lock:
            known = self._reservations.get(uid)
            if known is None:
                return
            raw = self._statuses.stored(known)
            self._statuses.record(uid, status, epoch)
            if stored is None:
                return
            if is_newer(stored.metadata, known.metadata):
                self.put_reservation(stored)
            elif self._store(self._statuses.reconcile(raw), known):
                self._enqueue(SCOPE_KEY)

    @contextmanager
    def writing(self, uid: str, status: ReservationStatus) -> Iterator[None]:
        """Count a status as told while the block writes it."""
        with self._lock:
            self._statuses.begin_write(uid, status)
        try:
            yield
        finally:
            with self._lock:
                self._statuses.end_write(uid)

    def published_status(self, reservation: Reservation) -> ReservationStatus:
        """Return the status that others may know by now, and act on: it may be stored before its writer hears of it."""
        with self._lock:
            return self._statuses.published(reservation)

    def is_own(self, uid: str) -> bool:
        """Tell whether this replica has written the status, or found it true, since it began to lead."""
        with self._lock:
            return self._statuses.has_written(uid)

    def is_forged(self, uid: str) -> bool:
        """Tell whether somebody else has changed the status that this replica wrote."""
        with self._lock:
            return self._statuses.is_forged(uid)

    def start_epoch(self) -> None:
        """Believe what the API server holds again, for another replica may have written it."""
        with self._lock:
            for uid, status in self._statuses.start_epoch().items():
                known = self._reservations[uid]
                self._store(msgspec.structs.replace(known, status=status), known)

    def remove_reservation(self, uid: str) -> None:
        """Forget a deleted Reservation."""
        with self._lock:
            self._tombstones.add(uid)
            known = self._reservations.pop(uid, None)
            if known is not None:
                self._live.forget(known)
            self._tell_end(uid)
            self._probes.forget(uid)
            self._verdicts.pop(uid, None)
            self._validated.discard(uid)
            self._findings.search_again(uid)
            self._statuses.forget(uid)
        self._enqueue(Key(KeyKind.RESERVATION, uid))
        self._enqueue(SCOPE_KEY)

    def replace_reservations(self, listed: Iterable[Reservation], version: str) -> None:
        """Take in a complete list of Reservations; those that are older than it and not in it are gone."""
        present = {reservation.metadata.uid: reservation for reservation in listed}
        for reservation in present.values():
            self.put_reservation(reservation)
        self.keep_reservations(present.keys(), version)

    def keep_reservations(self, present: AbstractSet[str], version: str) -> None:
        """Forget the Reservations that are older than a complete list of uids and not in it."""
        for reservation in self.reservations():
            if reservation.metadata.uid not in present and _was_due(reservation.metadata, version):
                self.remove_reservation(reservation.metadata.uid)

    def knows_reservation(self, uid: str, version: str) -> bool:
        """Tell whether this version of a Reservation, or a newer one, was taken in."""
        with self._lock:
            known = self._reservations.get(uid)
            return known is not None and version_of(known.metadata) >= version_number(version)

    def reservation(self, uid: str) -> Reservation | None:
        """Return a Reservation by uid."""
        with self._lock:
            return self._reservations.get(uid)

    def reservations(self) -> tuple[Reservation, ...]:
        """Return all known Reservations."""
        with self._lock:
            return tuple(self._reservations.values())

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return the live Reservations that a pod may belong to, the oldest first; costs as much as the pod has."""
        with self._lock:
            found = self._live.candidates(pod)
        return sorted(found, key=age_order)

    def live_namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a Reservation which is not finished."""
        with self._lock:
            return self._live.namespaces()

    # --- placeholders

    def put_placeholder(self, pod: Pod) -> None:
        """Take in a placeholder."""
        with self._lock:
            known = self._placeholders.get(pod.metadata.name)
            if not self._accepts(pod, known):
                return
            self._placeholders.put(pod)
            self._targets.replace(known, pod)
            if has_started(pod) and SLOT_ANNOTATION in pod.metadata.annotations:
                self._started_since.setdefault(pod.metadata.uid, self._seconds())
        self._announce_pod(pod, known)

    def remove_placeholder(self, pod: Pod) -> None:
        """Forget a placeholder that is gone."""
        with self._lock:
            self._tombstones.add(pod.metadata.uid)
            known = self._placeholders.get(pod.metadata.name)
            if known is not None and known.metadata.uid == pod.metadata.uid:
                self._placeholders.take(pod.metadata.name)
                self._targets.replace(known, None)
                self._started_since.pop(pod.metadata.uid, None)
        self._announce_pod(pod, known)

    def replace_placeholders(self, listed: Iterable[Pod], version: str) -> None:
        """Take in a complete list of placeholders; those that are older than it and not in it are gone."""
        for pod in _put_all(listed, self.put_placeholder, self.placeholders, version):
            self.remove_placeholder(pod)

    def placeholders(self) -> tuple[Pod, ...]:
        """Return all placeholders."""
        with self._lock:
            return tuple(self._placeholders)

    # --- owner pods

    def put_pod(self, pod: Pod) -> None:
        """Take in a pod in a hand-over, an owner's or a placeholder's successor."""
        put = self.put_placeholder if PLACEHOLDER_LABEL in pod.metadata.labels else self.put_owner
        put(pod)

    def remove_pod(self, pod: Pod) -> None:
        """Forget a pod in a hand-over that is gone."""
        remove = self.remove_placeholder if PLACEHOLDER_LABEL in pod.metadata.labels else self.remove_owner
        remove(pod)

    def put_owner(self, pod: Pod) -> None:
        """Take in a pod that carries the label of a Reservation; without the label it is forgotten.

        Listeners hear of a new pod before it is known here, so that nobody counts it twice.
        """
        if RESERVATION_LABEL not in pod.metadata.labels:
            self.remove_owner(pod, for_good=False)
            return
        if self._is_new_owner(pod):
            for tell in self._new_owner_listeners:
                tell(pod)
        with self._lock:
            known = self._owners.get(pod.metadata.uid)
            if not self._accepts(pod, known):
                return
            self._owners.put(pod)
            self._targets.replace(known, pod)
            if has_started(pod):
                self._started_since.setdefault(pod.metadata.uid, self._seconds())
        self._announce_pod(pod, known)

    def remove_owner(self, pod: Pod, *, for_good: bool = True) -> None:
        """Forget an owner pod that is gone; not for good where only its label is, and a newer version may have it."""
        with self._lock:
            self._tombstones.add(pod.metadata.uid, math.inf if for_good else version_of(pod.metadata))
            known = self._owners.get(pod.metadata.uid)
            if known is not None and self._tombstones.cover(known.metadata):
                self._owners.take(pod.metadata.uid)
                self._targets.replace(known, None)
                self._started_since.pop(pod.metadata.uid, None)
        self._announce_pod(pod, known)

    def replace_owners(self, listed: Iterable[Pod], version: str) -> None:
        """Take in a complete list of owner pods; those that are older than it and not in it lost their label."""
        for pod in _put_all(listed, self.put_owner, self.owners, version):
            self.remove_owner(pod, for_good=False)

    def owners(self) -> tuple[Pod, ...]:
        """Return all pods that carry the label of a Reservation."""
        with self._lock:
            return tuple(self._owners)

    def _is_new_owner(self, pod: Pod) -> bool:
        with self._lock:
            return self._owners.get(pod.metadata.uid) is None and not self._tombstones.cover(pod.metadata)

    def _announce_pod(self, pod: Pod, known: Pod | None) -> None:
        """Queue what a pod's change concerns: its Reservation and the node of the slot that it is on the way to."""
        for version in (pod, known):
            if version is None:
                continue
            self._enqueue(_reservation_key(version))
            assignment = Assignment.from_pod(version)
            if assignment is not None:
                self._enqueue(Key(KeyKind.NODE, assignment.node))

    # --- nodes

    def put_node(self, node: GuardableNode) -> None:
        """Take in a node; what is on the way there is looked at again, what is held there where it lets others in."""
        name = node.metadata.name
        with self._lock:
            known = self._nodes.get(name)
            if self._tombstones.cover(node.metadata) or (known and not is_newer(node.metadata, known.metadata)):
                return
            news = self._nodes.put(node)
        if news.of_guard:
            self._announce_node(name)
        if news.of_access:
            self._announce_held_on(name)

    def control_plane_nodes(self) -> frozenset[str]:
        """Return the names of the control plane's nodes, by label or taint."""
        with self._lock:
            return self._nodes.of_control_plane()

    def barred_nodes(self) -> frozenset[str]:
        """Return the names of the control plane's nodes that no label shows to be that."""
        with self._lock:
            return self._nodes.barred()

    def replace_nodes(self, listed: Iterable[GuardableNode], version: str) -> None:
        """Take in a complete list of nodes; those that are older than it and not in it are gone."""
        present = {node.metadata.uid: node for node in listed}
        for node in present.values():
            self.put_node(node)
        with self._lock:
            gone = [n for n in self._nodes if n.metadata.uid not in present and _was_due(n.metadata, version)]
        for node in gone:
            self.remove_node(node)

    def remove_node(self, node: GuardableNode) -> None:
        """Forget a node that is gone."""
        name = node.metadata.name
        with self._lock:
            self._tombstones.add(node.metadata.uid)
            known = self._nodes.get(name)
            if known is None or known.metadata.uid != node.metadata.uid:
                return
            self._nodes.take(name)
        self._announce_held_on(name)
        self._announce_node(name)

    def _announce_held_on(self, name: str) -> None:
        """Queue every Reservation that has a placeholder on a node."""
        with self._lock:
            pods = self._placeholders.on(name)
        for pod in pods:
            self._enqueue(_reservation_key(pod))

    def _announce_node(self, name: str) -> None:
        """Queue the node and every Reservation that hands over a slot on it."""
        self._enqueue(Key(KeyKind.NODE, name))
        with self._lock:
            pods = self._targets.on(name)
        for pod in pods:
            self._enqueue(_reservation_key(pod))

    def guard_users(self, node: str) -> tuple[Assignment, ...]:
        """Return the slots on a node that living owner pods were given and are on the way to still."""
        with self._lock:
            pods = self._targets.on(node)
            known = {reservation_uid(pod): self._reservations.get(reservation_uid(pod)) for pod in pods}
        found: list[Assignment] = []
        for pod in pods:
            reservation = known[reservation_uid(pod)]
            if reservation is None or pod.is_terminating or pod.spec.node_name not in {"", node}:
                continue
            ours = PLACEHOLDER_LABEL in pod.metadata.labels
            slots = slots_by_key(reservation)
            given = Assignment.from_pod(pod) if ours else trusted_assignment(reservation, pod, slots)
            if given is not None and (ours or slots[given.task, given.index].state not in _SETTLED):
                found.append(given)
        return tuple(found)

    def handovers(self) -> Counter[str]:
        """Return how many pods of each namespace have a slot and have not taken it yet; costs as much as there are."""
        with self._lock:
            return self._targets.count_waiting()

    def guard_deadline(self, node: str) -> str | None:
        """Return the value of a node's guard, None where it has none or is unknown."""
        with self._lock:
            known = self._nodes.get(node)
        return known.guard_deadline if known else None

    def pod_slots(self, node: str) -> int:
        """Return how many pods a node takes, 0 where it is unknown."""
        with self._lock:
            return self._nodes.pod_slots(node)

    def nodes_of_interest(self) -> set[str]:
        """Return the nodes that carry our guard or that an owner pod's note names."""
        with self._lock:
            return {*self._nodes.guarded(), *self._targets.nodes()}

    # --- what this process found out

    def put_probe(self, uid: str, result: ProbeResult) -> None:
        """Keep how the last proof of a Reservation's path ended, and how many have failed in a row."""
        with self._lock:
            if uid in self._reservations:
                self._probes.put(uid, result)
        self._enqueue(Key(KeyKind.RESERVATION, uid))

    def put_shared_probe(self, probed: Reservation, registered: AbstractSet[str]) -> None:
        """Keep that a Reservation's probe came back gated while the webhook was registered for some namespaces."""
        with self._lock:
            self._probes.put_shared(probed, registered)

    def put_path(self, result: ProbeResult | None) -> None:
        """Keep whether the path that all Reservations share works, None where it is not known; looks at all again."""
        with self._lock:
            changed = self._probes.put_path(result)
            concerned = [uid for uid, one in self._reservations.items() if one.is_live and one.status.slots]
        if changed and result is not None:
            for uid in concerned:
                self._enqueue(Key(KeyKind.RESERVATION, uid))

    def path(self) -> ProbeResult | None:
        """Return whether the path that all Reservations share works, None where it is not known."""
        with self._lock:
            return self._probes.path

    def unproven(self) -> tuple[Reservation, ...]:
        """Return the live Reservations of which it is not known whether a pod would be gated for them."""
        with self._lock:
            known = self._reservations.values()
            return tuple(one for one in known if one.is_live and self._probes.result_for(one) is None)

    def put_verdict(self, uid: str, verdict: Verdict | None) -> None:
        """Keep that a Reservation's templates were put to the API server, and what it refused."""
        with self._lock:
            if uid in self._reservations:
                self._validated.add(uid)
                if verdict is not None:
                    self._verdicts[uid] = verdict
        self._enqueue(Key(KeyKind.RESERVATION, uid))

    def put_waiting(self, uid: str, pods: Sequence[Pod]) -> None:
        """Keep which pods were found waiting for a slot of a Reservation; it is looked at if there are any."""
        with self._lock:
            if uid in self._reservations:
                self._findings.put_waiting(uid, pods)
        if pods:
            self._enqueue(Key(KeyKind.RESERVATION, uid))

    def put_pods_of_node(self, name: str, pods: Iterable[Pod], *, asked_by: str) -> None:
        """Keep what the pods on a node say, and have the Reservation looked at that asked for it."""
        with self._lock:
            node = self._nodes.get(name)
            if node is not None:
                self._findings.put_survey(name, build_survey(node.status.allocatable, pods))
        self._enqueue(Key(KeyKind.RESERVATION, asked_by))

    # --- views

    def observe(self, uid: str) -> Observation | None:
        """Return what is seen of one Reservation, None where it is unknown; costs as much as it has pods."""
        now = self._seconds()
        with self._lock:
            reservation = self._reservations.get(uid)
            if reservation is None:
                return None
            placeholders, owners = self.pods_of(uid)
            on_the_way = (*owners, *placeholders)
            notes = [(pod, given) for pod in on_the_way if (given := Assignment.from_pod(pod)) is not None]
            targets = {given.node for _, given in notes}
            holders, successors = by_slot(placeholders)
            held = {slot.node for slot in reservation.status.slots if slot.state is SlotState.HELD}
            concerned = (targets | held | {pod.spec.node_name for pod in placeholders}) - {""}
            return Observation(
                reservation=reservation,
                placeholders=holders,
                successors=successors,
                owners=tuple(sorted(owners, key=_age_order)),
                missing_nodes=self._nodes.missing(concerned),
                accesses=self._nodes.accesses(concerned),
                guards=self._nodes.guards(targets),
                running_ages={
                    pod.metadata.uid: now - self._started_since[pod.metadata.uid]
                    for pod in on_the_way
                    if pod.metadata.uid in self._started_since
                },
                stage_ages={
                    pod.metadata.uid: self._targets.stage_age(pod, holders.get((given.task, given.index)), now)
                    for pod, given in notes
                },
                verdict=self._verdicts.get(uid) or _verdict_on(reservation),
                validated=uid in self._validated,
                surveys=self._findings.surveys(targets | _pins(reservation)),
                waiting=tuple(p for p in self._findings.waiting(uid) if self._owners.get(p.metadata.uid) is None),
                searched=self._findings.searched(uid),
                probe=self._probes.aged_result_for(reservation, time.monotonic()),
            )

    def pods_of(self, uid: str) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """Return the placeholders and the owner pods that name a Reservation, known or not."""
        with self._lock:
            return self._placeholders.of(uid), self._owners.of(uid)

    def named_uids(self) -> set[str]:
        """Return the uids of all Reservations that are known or that a pod names."""
        with self._lock:
            return {*self._reservations, *self._placeholders.named(), *self._owners.named()}

    def has_all_its_pods(self, uid: str) -> bool:
        """Tell whether a live Reservation has a placeholder for each slot that its status says is held."""
        with self._lock:
            reservation = self._reservations.get(uid)
            if reservation is None:
                return False
            held = sum(slot.state is SlotState.HELD for slot in reservation.status.slots)
            return reservation.is_live and held == len(self._placeholders.of(uid)) > 0

    def count_slots(self) -> dict[SlotState, int]:
        """Return how many slots of all known Reservations are in which state."""
        counts = dict.fromkeys(SlotState, 0)
        for reservation in self.reservations():
            for slot in reservation.status.slots:
                counts[slot.state] += 1
        return counts

    def _accepts(self, pod: Pod, known: Pod | None) -> bool:
        """Tell whether a version of a pod is news: neither gone nor older than what is known."""
        if self._tombstones.cover(pod.metadata):
            return False
        return known is None or is_newer(pod.metadata, known.metadata)


def _tell_nobody(_what: object) -> None:
    """Do nothing: nobody has asked to be told."""


def _put_all(
    listed: Iterable[Pod], put: Callable[[Pod], None], known: Callable[[], tuple[Pod, ...]], version: str
) -> list[Pod]:
    """Take in a complete list of pods and return the known ones that are older than it and not in it."""
    present = {pod.metadata.uid: pod for pod in listed}
    for pod in present.values():
        put(pod)
    return [pod for pod in known() if pod.metadata.uid not in present and _was_due(pod.metadata, version)]


def _was_due(metadata: ObjectMeta, version: str) -> bool:
    """Tell whether an object is old enough for a list of a version to know it."""
    return version_of(metadata) <= version_number(version)


def _verdict_on(reservation: Reservation) -> Verdict | None:
    """Return the verdict on a Reservation whose spec cannot be read."""
    reason = why_unreadable(reservation)
    return Verdict(ReservationReason.INVALID, reason) if reason else None


def _pins(reservation: Reservation) -> set[str]:
    """Return the nodes that a Reservation asks for by name."""
    return {name for task in reservation.spec.tasks for name in task.node_names}


def _holds_more(new: Reservation, known: Reservation | None) -> bool:
    """Tell whether a version of a Reservation holds more slots than the one before."""
    held = [sum(s.state is SlotState.HELD for s in one.status.slots) if one else 0 for one in (new, known)]
    return held[0] > held[1]


def _reservation_key(pod: Pod) -> Key:
    return Key(KeyKind.RESERVATION, reservation_uid(pod))


def _age_order(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.uid
