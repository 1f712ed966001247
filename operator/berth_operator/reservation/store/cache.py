"""The operator's cache: Reservations, placeholders, owner pods and guarded nodes.

It can be rebuilt from the API at any time, so it is never the only record of a fact.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from berth_core import (
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    Fence,
    ObjectMeta,
    Pod,
    Reservation,
    ReservationStatus,
    SlotState,
    is_unschedulable,
    oldest_first,
)
from berth_core.objects import age_order
from berth_kube import Listed, version_number
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.fitting import slots_by_key, trusted_assignment
from berth_operator.reservation.node_choice import NodeChoice, SlotId
from berth_operator.reservation.observation import Observation, ProbeResult, Verdict
from berth_operator.reservation.pod_state import awaited_node
from berth_operator.reservation.store.listed_objects import FenceStore
from berth_operator.reservation.store.node_surveys import NodeChoices, NodeSurveys
from berth_operator.reservation.store.nodes import GuardableNode, NodeIndex
from berth_operator.reservation.store.pod_counts import PodCounts
from berth_operator.reservation.store.pods import PodStore, by_slot, reservation_key, reservation_uid
from berth_operator.reservation.store.reservations import ReservationStore
from berth_operator.reservation.store.versions import Tombstones, must_have, put_all, supersedes, version_of
from berth_operator.reservation.surveys import build_survey
from berth_operator.runtime.workqueue import BEST_EFFORT_KEY, Key, KeyKind

_SETTLED = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


class Cache:
    """Thread-safe facade of the stores; each change queues the keys concerned.

    A complete list carries its resourceVersion: an object that a later event brought is not gone because the list lacks
    it.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        # One lock for all stores, so that `observe` sees Reservations, pods and nodes as of one moment.
        self._lock = threading.RLock()
        self._enqueue_key = enqueue
        self._tombstones = Tombstones()
        self._reservations = ReservationStore(self._tombstones)
        self._pods = PodStore(self._tombstones)
        self._nodes = NodeIndex()
        self.pod_counts = PodCounts()
        self._surveys = NodeSurveys()
        self.fences = FenceStore(enqueue, BEST_EFFORT_KEY)
        """Standing fences."""
        self._other_fences: list[tuple[Callable[[Pod], bool], FenceStore]] = []
        self._unfenced: dict[str, str] = {}
        """Node whose capacity is awaited to why it has no fence."""
        self._kept: Mapping[str, frozenset[str]] | None = {}
        self._choices = NodeChoices()
        self._new_owner_listeners: list[Callable[[Pod], None]] = []

    def count_time_by(self, seconds: Callable[[], float]) -> None:
        """Measure the age of hand-overs in attended seconds."""
        self._pods.seconds = self._nodes.seconds = seconds

    def on_reservation(self, version: Callable[[Reservation], None], end: Callable[[str], None]) -> None:
        """Register callbacks: `version` gets each version of each Reservation in order, `end` each deleted uid."""
        self._reservations.on_version, self._reservations.on_end = version, end

    def index_controlled(
        self, kind: str, controller_of: Callable[[Reservation], str]
    ) -> Callable[[str], tuple[Reservation, ...]]:
        """Index Reservations by the uid of the object that controls them, "" for none; return the look-up by that uid.

        Each change of such a Reservation queues the key of its controller. Reservations that are known already are left
        out, so this comes before the first.
        """
        with self._lock:
            index = self._reservations.index_controlled(kind, controller_of)

        def controlled_by(uid: str) -> tuple[Reservation, ...]:
            with self._lock:
                return self._reservations.named(index.uids(uid))

        return controlled_by

    def on_new_owner(self, listener: Callable[[Pod], None]) -> None:
        """Register a callback for each pod that first appears with our label."""
        self._new_owner_listeners.append(listener)

    def _enqueue(self, *keys: Key) -> None:
        for key in keys:
            # Always called without the lock, which the worker that takes the key needs at once.
            self._enqueue_key(key)

    def put_reservation(self, reservation: Reservation, listed: Listed[Reservation] | None = None) -> None:
        """Store a Reservation that the API server returned or listed, unless the cache has a newer version."""
        with self._lock:
            keys = self._reservations.put(reservation, listed)
        self._enqueue(*keys)

    @property
    def epoch(self) -> int:
        """Return the epoch that `put_written` needs for statuses written from now on."""
        return self._reservations.statuses.epoch

    def put_written(self, uid: str, status: ReservationStatus, epoch: int, stored: Reservation | None = None) -> None:
        """Store a status that we wrote, and `stored` as the API server returned it; None if nothing was stored."""
        with self._lock:
            keys = self._reservations.put_written(uid, status, epoch, stored)
        self._enqueue(*keys)

    @contextmanager
    def writing(self, uid: str, status: ReservationStatus) -> Iterator[None]:
        """Count a status as published while the block writes it."""
        with self._lock:
            self._reservations.statuses.begin_write(uid, status)
        try:
            yield
        finally:
            with self._lock:
                self._reservations.statuses.end_write(uid)

    def published_status(self, reservation: Reservation) -> ReservationStatus:
        """Return the status that others may have read: it may be stored before its writer learns of it."""
        with self._lock:
            return self._reservations.statuses.published(reservation)

    def is_own(self, uid: str) -> bool:
        """Return whether this replica wrote or confirmed the status since it leads."""
        with self._lock:
            return self._reservations.statuses.has_written(uid)

    def is_forged(self, uid: str) -> bool:
        with self._lock:
            return self._reservations.statuses.is_forged(uid)

    def start_epoch(self) -> None:
        """Trust the API server's statuses again: another replica may have written them."""
        with self._lock:
            self._reservations.start_epoch()

    def remove_reservation(self, uid: str) -> None:
        with self._lock:
            self._choices.remove(uid)
            keys = self._reservations.remove(uid)
        self._enqueue(*keys)

    def replace_reservations(self, listed: Listed[Reservation]) -> None:
        self._end_refuted(listed)
        for reservation in listed.items:
            self.put_reservation(reservation, listed)
        self.keep_reservations(listed)

    def keep_reservations(self, listed: Listed[Any]) -> None:
        """Remove the Reservations whose uids a complete list lacks."""
        listed_uids = {item.metadata.uid for item in listed.items}
        for reservation in self.reservations():
            if reservation.metadata.uid not in listed_uids and must_have(listed, reservation.metadata):
                self.remove_reservation(reservation.metadata.uid)

    def highest_reservation_version(self) -> int:
        """Return the version that any later list must reach; a lower one shows that etcd was restored from a backup."""
        with self._lock:
            return max((version_of(reservation.metadata) for reservation in self._reservations), default=0)

    def is_refuted(self, metadata: ObjectMeta, listed: Listed[Any]) -> bool:
        """Return whether a list contradicts the cache: it shows an older version, or an object that was deleted.

        That can only be if etcd was restored from a backup.
        """
        with self._lock:
            known_reservation = self._reservations.get(metadata.uid)
            if known_reservation is None:
                return self._tombstones.is_refuted(metadata, listed)
            is_older = version_of(metadata) < version_of(known_reservation.metadata)
            return is_older and supersedes(metadata, known_reservation.metadata, listed)

    def _end_refuted(self, listed: Listed[Any]) -> None:
        with self._lock:
            self._tombstones.end_refuted(listed)

    def knows_reservation(self, uid: str, version: str) -> bool:
        """Return whether the cache has this version or a newer one."""
        known_reservation = self.reservation(uid)
        return known_reservation is not None and version_of(known_reservation.metadata) >= version_number(version)

    def reservation(self, uid: str) -> Reservation | None:
        with self._lock:
            return self._reservations.get(uid)

    def namespace_of(self, key: Key) -> str:
        """Return the namespace of a Reservation that is known, "" for any other key."""
        reservation = self.reservation(key.name) if key.kind == KeyKind.RESERVATION else None
        return "" if reservation is None else reservation.metadata.namespace

    def reservations(self) -> tuple[Reservation, ...]:
        with self._lock:
            return tuple(self._reservations)

    def candidates(self, pod: Pod) -> list[Reservation]:
        """Return the live Reservations that a pod may belong to, oldest first."""
        with self._lock:
            reservations = self._reservations.live.candidates(pod)
        return oldest_first(reservations)

    def live_namespaces(self) -> frozenset[str]:
        """Return the namespaces with an unfinished Reservation."""
        with self._lock:
            return self._reservations.live.namespaces()

    def count_slots(self) -> dict[SlotState, int]:
        """Count the slots of all Reservations by state."""
        counts = dict.fromkeys(SlotState, 0)
        for reservation in self.reservations():
            for slot in reservation.status.slots:
                counts[slot.state] += 1
        return counts

    def put_placeholder(self, pod: Pod, listed: Listed[Pod] | None = None) -> None:
        with self._lock:
            keys = self._pods.put_placeholder(pod, listed)
        self._enqueue(*keys)

    def remove_placeholder(self, pod: Pod) -> None:
        with self._lock:
            keys = self._pods.remove_placeholder(pod)
        self._enqueue(*keys)

    def replace_placeholders(self, listed: Listed[Pod]) -> None:
        self._end_refuted(listed)
        for pod in put_all(listed, self.put_placeholder, self.placeholders):
            self.remove_placeholder(pod)

    def placeholders(self) -> tuple[Pod, ...]:
        with self._lock:
            return tuple(self._pods.placeholders)

    def keep_fences(self, are_concerned: Callable[[Pod], bool]) -> FenceStore:
        """Return a store for certain fences, which count as no standing fences from now on."""
        store = FenceStore(self._enqueue_key)
        self._other_fences.append((are_concerned, store))
        return store

    def store_of_fence(self, fence: Pod) -> FenceStore:
        return next((store for is_concerned, store in self._other_fences if is_concerned(fence)), self.fences)

    def replace_fences(self, listed: Listed[Pod]) -> None:
        """Store a complete list of fences of all sorts."""
        by_store: dict[int, list[Pod]] = defaultdict(list)
        for fence in listed.items:
            by_store[id(self.store_of_fence(fence))].append(fence)
        for store in (self.fences, *(store for _, store in self._other_fences)):
            store.replace(replace(listed, items=tuple(by_store[id(store)])))

    def keep_nodes(self, kept: Mapping[str, frozenset[str]] | None) -> None:
        """Record the kept nodes, each with the namespaces that use it; while they are unknown (None) no fence goes."""
        with self._lock:
            kept_before, self._kept = self._kept, kept
        if kept_before != kept:
            fenced = [pod.spec.node_name for pod in self.fences.all()] if kept_before is None else []
            self._enqueue(*(Key(KeyKind.NODE, node) for node in sorted({*(kept_before or ()), *(kept or ()), *fenced})))

    def kept_from(self, namespace: str) -> frozenset[str]:
        """Return the nodes that are kept for other namespaces."""
        with self._lock:
            return frozenset(node for node, homes in self._to_be_fenced().items() if namespace not in homes)

    def _to_be_fenced(self) -> Mapping[str, frozenset[str]]:
        """Return the kept nodes, except those that may have no fence."""
        return {node: homes for node, homes in (self._kept or {}).items() if node not in self._unfenced}

    def unfenced(self) -> dict[str, str]:
        """Return why nodes that should be fenced are not."""
        with self._lock:
            return dict(self._unfenced)

    @property
    def knows_kept_nodes(self) -> bool:
        with self._lock:
            return self._kept is not None

    def fence_users(self, node: str) -> frozenset[str]:
        """Return the namespaces for which a node should be fenced.

        It is kept for them, or their Reservations await its capacity after a scheduler has found no room there.
        """
        with self._lock:
            waiting_pods = [pod for pod in self._pods.placeholders.awaiting(node) if not pod.is_terminating]
            uids = {reservation_uid(pod) for pod in waiting_pods if is_unschedulable(pod)}
            known_reservations = [
                reservation for uid in uids if (reservation := self._reservations.get(uid)) is not None
            ]
            kept_namespaces = (self._kept or {}).get(node, frozenset())
        awaiting = (
            reservation
            for reservation in known_reservations
            if reservation.is_live and reservation.spec.fence is Fence.NODE
        )
        return kept_namespaces | {reservation.metadata.namespace for reservation in awaiting}

    def fenced_nodes(self, namespace: str | None = None, *, awaited: bool = False) -> frozenset[str]:
        """Return the nodes that are fenced, for a namespace if one is given; `awaited` adds those soon to be fenced."""
        with self._lock:
            fenced = {pod.spec.node_name for pod in self.fences.all() if not pod.is_terminal}
            placeholders = self._pods.placeholders
            uids_by_node = {
                node: set(map(reservation_uid, placeholders.awaiting(node))) for node in placeholders.awaited_nodes()
            }
            wanting = {
                reservation.metadata.uid: reservation.metadata.namespace
                for uid in set().union(*uids_by_node.values())
                if (reservation := self._reservations.get(uid)) is not None and reservation.spec.fence is Fence.NODE
            }
            kept_by_node, nodes_to_fence = self._kept or {}, self._to_be_fenced().keys()
        namespaces_by_node = {
            node: {wanting[uid] for uid in uids if uid in wanting} for node, uids in uids_by_node.items()
        }
        if awaited:
            fenced |= nodes_to_fence | {node for node, namespaces in namespaces_by_node.items() if namespaces}
        return frozenset(
            node
            for node in fenced
            if namespace in {None, *namespaces_by_node.get(node, ()), *kept_by_node.get(node, ())}
        )

    def put_unfenced(self, node: str, why: str) -> None:
        """Record why an awaited node has no fence, "" for one that has or needs none."""
        with self._lock:
            why_before = self._unfenced.get(node, "")
            if why:
                self._unfenced[node] = why
            else:
                self._unfenced.pop(node, None)
            concerned_pods = self._pods.placeholders.awaiting(node) if why_before != why else ()
        self._enqueue(*map(reservation_key, concerned_pods))

    def awaited_nodes(self) -> set[str]:
        """Return the nodes with a standing fence, that are kept, or whose capacity is awaited."""
        with self._lock:
            nodes = {*self._pods.placeholders.awaited_nodes(), *(self._kept or ())}
            return nodes | {pod.spec.node_name for pod in self.fences.all()}

    def put_pod(self, pod: Pod) -> None:
        """Store a pod in a hand-over, which is an owner or the successor of a placeholder."""
        put = self.put_placeholder if PLACEHOLDER_LABEL in pod.metadata.labels else self.put_owner
        put(pod)

    def remove_pod(self, pod: Pod) -> None:
        remove = self.remove_placeholder if PLACEHOLDER_LABEL in pod.metadata.labels else self.remove_owner
        remove(pod)

    def put_owner(self, pod: Pod, listed: Listed[Pod] | None = None) -> None:
        """Store a pod with our label; remove one without it."""
        # As after a patch of ours that takes it off. The pod lives on, and may get the label again.
        if RESERVATION_LABEL not in pod.metadata.labels:
            self.remove_owner(pod, for_good=False)
            return
        with self._lock:
            is_new = self._pods.is_new_owner(pod)
        if is_new:  # listeners come first, so that they do not count the pod twice
            for listener in self._new_owner_listeners:
                listener(pod)
        with self._lock:
            keys = self._pods.put_owner(pod, listed)
        self._enqueue(*keys)

    def remove_owner(self, pod: Pod, *, for_good: bool = True) -> None:
        """Remove an owner pod that is gone or lost its label."""
        with self._lock:
            keys = self._pods.remove_owner(pod, for_good=for_good)
        self._enqueue(*keys)

    def replace_owners(self, listed: Listed[Pod]) -> None:
        """Replace all owner pods; a known pod that the list lacks has lost its label or is gone."""
        self._end_refuted(listed)
        for pod in put_all(listed, self.put_owner, self.owners):
            self.remove_owner(pod, for_good=False)

    def owners(self) -> tuple[Pod, ...]:
        with self._lock:
            return tuple(self._pods.owners)

    def nodes(self) -> tuple[GuardableNode, ...]:
        return tuple(self._nodes)  # iterates over a copy

    def node(self, name: str) -> GuardableNode | None:
        return self._nodes.get(name)

    def put_node(self, node: GuardableNode, listed: Listed[GuardableNode] | None = None) -> None:
        """Store a node and queue the hand-overs on it, and the held slots if it admits other pods than before."""
        node_name = node.metadata.name
        with self._lock:
            known_node = self._nodes.get(node_name)
            if not self._tombstones.takes(node.metadata, known_node, listed):
                return
            change = self._nodes.put(node)
        if change.of_guard:
            self._enqueue_handovers(node_name)
        if change.of_access:
            self._enqueue_held(node_name)

    def remove_node(self, node: GuardableNode) -> None:
        node_name = node.metadata.name
        with self._lock:
            self._tombstones.add(node.metadata.uid)
            known_node = self._nodes.get(node_name)
            # A node that registers again has the same name and another uid, and the end of the old object may arrive
            # late.
            if known_node is None or known_node.metadata.uid != node.metadata.uid:
                return
            self._nodes.remove(node_name)
        self._enqueue_held(node_name)
        self._enqueue_handovers(node_name)

    def replace_nodes(self, listed: Listed[GuardableNode]) -> None:
        self._end_refuted(listed)
        for gone_node in put_all(listed, self.put_node, self.nodes):
            self.remove_node(gone_node)

    def _enqueue_held(self, node: str) -> None:
        """Queue every Reservation with a placeholder on a node."""
        with self._lock:
            pods = self._pods.placeholders.on(node)
        self._enqueue(*map(reservation_key, pods))

    def _enqueue_handovers(self, node: str) -> None:
        """Queue a node and the Reservations that hand over slots there."""
        with self._lock:
            pods = self._pods.targets.on(node)
        self._enqueue(Key(KeyKind.NODE, node), *map(reservation_key, pods))

    def control_plane_nodes(self) -> frozenset[str]:
        """Return the names of control-plane nodes, by label or taint."""
        with self._lock:
            return self._nodes.of_control_plane()

    def unlabelled_control_plane_nodes(self) -> frozenset[str]:
        """Return the names of control-plane nodes that only a taint marks."""
        with self._lock:
            return self._nodes.unlabelled_control_plane()

    def guard_users(self, node: str) -> tuple[Assignment, ...]:
        """Return a node's slots that living pods were given and wait for; a bound pod waits no more."""
        with self._lock:
            pods = self._pods.targets.on(node)
            reservations = {reservation_uid(pod): self._reservations.get(reservation_uid(pod)) for pod in pods}
        users_by_slot: dict[tuple[str, str, int], Assignment] = {}
        for pod in pods:
            reservation = reservations[reservation_uid(pod)]
            if reservation is None or pod.is_terminating or pod.spec.node_name:
                continue
            is_placeholder = PLACEHOLDER_LABEL in pod.metadata.labels
            slots = slots_by_key(reservation)
            assignment = Assignment.from_pod(pod) if is_placeholder else trusted_assignment(reservation, pod, slots)
            if assignment is not None and (
                is_placeholder or slots[assignment.task, assignment.index].state not in _SETTLED
            ):
                slot = (reservation.metadata.uid, assignment.task, assignment.index)  # several pods may claim one
                users_by_slot[slot] = max(
                    assignment, users_by_slot.get(slot, assignment), key=lambda claim: claim.deadline
                )
        return tuple(users_by_slot.values())

    def guard_idle_seconds(self, node: str) -> float:
        """Return how long ago a node's guard was first seen or, if that is later, a pod was last bound there."""
        with self._lock:
            idle_since = max(self._nodes.guarded_since(node), self._pods.targets.last_bound(node))
            return self._pods.seconds() - idle_since

    def begin_unguarding(self, node: str) -> bool:
        """Stop relying on a node's guard for new hand-overs; return False if one is under way already."""
        # The check and the mark are one step: a hand-over that began between them would lose its guard.
        with self._lock:
            if self.guard_users(node):
                return False
            self._nodes.disregard_guard(node)
            return True

    def end_unguarding(self, node: str) -> None:
        """Rely on a node's guard for hand-overs again."""
        with self._lock:
            self._nodes.regard_guard(node)
        self._enqueue_handovers(node)

    def put_fenced(self, node: str, *, is_fenced: bool) -> None:
        """Record whether a fence of a node's hand-overs stands."""
        with self._lock:
            self._nodes.put_fenced(node, is_fenced=is_fenced)

    def is_fenced(self, node: str) -> bool:
        """Return whether a fence of a node's hand-overs stands, as far as this process knows."""
        with self._lock:
            return self._nodes.is_fenced(node)

    def has_guard(self, node: str) -> bool:
        """Return whether a node's guard stands, and is not being taken off."""
        with self._lock:
            return bool(self._nodes.guards({node}))

    def handovers(self) -> Counter[str]:
        """Count by namespace the slots that pods in a hand-over wait for; costs as much as there are such pods."""
        # A pod whose note cannot be trusted counts once: anyone may write a note of thousands of slots.
        slots_by_namespace: Counter[str] = Counter()
        with self._lock:
            for pod, claimed in self._pods.targets.waiting():
                reservation = self._reservations.get(reservation_uid(pod)) if claimed.further else None
                note = None
                if reservation is not None:
                    note = trusted_assignment(reservation, pod, slots_by_key(reservation))
                slots_by_namespace[pod.metadata.namespace] += 1 if note is None else len(note.slots)
        return slots_by_namespace

    def guard_deadline(self, node: str) -> str | None:
        """Return the value of a node's guard, None without one."""
        with self._lock:
            known_node = self._nodes.get(node)
        return known_node.guard_deadline if known_node else None

    def pod_slots(self, node: str) -> int:
        """Return a node's allocatable pods, 0 for an unknown node."""
        with self._lock:
            return self._nodes.pod_slots(node)

    def nodes_of_interest(self) -> set[str]:
        """Return the nodes with our guard or named by a pod's note."""
        with self._lock:
            return {*self._nodes.guarded(), *self._pods.targets.nodes()}

    def put_probe(self, uid: str, result: ProbeResult) -> None:
        """Record the result of a Reservation's own probe."""
        with self._lock:
            if uid in self._reservations:
                self._reservations.probes.put(uid, result)
        self._enqueue(Key(KeyKind.RESERVATION, uid))

    def put_shared_probe(self, probed: Reservation, registered: AbstractSet[str]) -> None:
        """Record a gated probe, made while the webhook covered these namespaces."""
        with self._lock:
            self._reservations.probes.put_shared(probed, registered)

    def put_path(self, result: ProbeResult | None) -> None:
        """Record whether the shared path works, None for unknown."""
        with self._lock:
            is_changed = self._reservations.probes.put_path(result)
            concerned_uids = [
                reservation.metadata.uid
                for reservation in self._reservations
                if reservation.is_live and reservation.status.slots
            ]
        if is_changed and result is not None:
            self._enqueue(*(Key(KeyKind.RESERVATION, uid) for uid in concerned_uids))

    def path(self) -> ProbeResult | None:
        with self._lock:
            return self._reservations.probes.path

    def unproven(self) -> tuple[Reservation, ...]:
        """Return the live Reservations without a probe result."""
        with self._lock:
            live_reservations = (reservation for reservation in self._reservations if reservation.is_live)
            return tuple(
                reservation
                for reservation in live_reservations
                if self._reservations.probes.result_for(reservation) is None
            )

    def put_verdict(self, uid: str, verdict: Verdict | None) -> None:
        """Record that a Reservation's templates were validated, and the refusal if any."""
        with self._lock:
            self._reservations.put_verdict(uid, verdict)
        self._enqueue(Key(KeyKind.RESERVATION, uid))

    def put_refusal(self, uid: str, slot: SlotId, text: str) -> bool:
        """Record why admission refuses a slot's placeholder, "" if it does not; return whether the text is new."""
        with self._lock:
            is_new = self._reservations.put_refusal(uid, slot, text)
        if is_new:
            self._enqueue(Key(KeyKind.RESERVATION, uid))  # for its status: the next try waits longer
        return is_new

    def put_choice(self, uid: str, choice: NodeChoice) -> None:
        """Record the nodes that were chosen for slots of a Reservation."""
        with self._lock:
            if uid in self._reservations:
                self._choices.put(uid, choice)
        self._enqueue(Key(KeyKind.RESERVATION, uid))

    def choices(self) -> dict[str, NodeChoice]:
        """Return the last choices of nodes by uid of their Reservation."""
        with self._lock:
            return self._choices.all()

    def put_waiting(self, uid: str, pods: Sequence[Pod]) -> None:
        """Record the pods that wait for a slot of a Reservation."""
        with self._lock:
            if uid in self._reservations:
                self._reservations.waiting.put(uid, pods)
        if pods:
            self._enqueue(Key(KeyKind.RESERVATION, uid))

    def put_pods_of_node(
        self, name: str, pods: Iterable[Pod], ends: Mapping[str, datetime] | None = None, *, asked_by: str
    ) -> None:
        """Record the pods on a node with their expected ends by uid, and queue the Reservation that asked."""
        with self._lock:
            node = self._nodes.get(name)
            if node is not None:
                self._surveys.put(name, build_survey(node.status.allocatable, pods, ends))
        self._enqueue(Key(KeyKind.RESERVATION, asked_by))

    def observe(self, uid: str) -> Observation | None:
        """Return the observation of one Reservation, None if it is unknown."""
        now = self._pods.seconds()
        with self._lock:
            reservation = self._reservations.get(uid)
            if reservation is None:
                return None
            placeholders, owners = self._pods.of(uid)
            pods = (*owners, *placeholders)
            targets = {assignment.node for pod in pods if (assignment := Assignment.from_pod(pod)) is not None}
            pins = {node_name for task in reservation.spec.tasks for node_name in task.node_names}
            choice = self._choices.of(uid)
            nodes_awaited = {node for pod in placeholders if (node := awaited_node(pod))}
            chosen_nodes = set(choice.nodes.values()) if choice is not None else set()
            holders, successors = by_slot(placeholders)
            held_nodes = {slot.node for slot in reservation.status.slots if slot.state is SlotState.HELD}
            concerned_nodes = (
                targets | held_nodes | nodes_awaited | chosen_nodes | {pod.spec.node_name for pod in placeholders}
            ) - {""}
            waiting_pods = self._reservations.waiting
            return Observation(
                reservation=reservation,
                placeholders=holders,
                successors=successors,
                owners=tuple(sorted(owners, key=lambda pod: age_order(pod.metadata))),
                missing_nodes=self._nodes.missing(concerned_nodes),
                unready_seconds=self._nodes.unready_seconds(concerned_nodes),
                accesses=self._nodes.accesses(concerned_nodes),
                guards=self._nodes.guards(targets),
                stage_ages=self._pods.stage_ages(pods, holders, now),
                verdict=self._reservations.verdict_on(reservation),
                validated=self._reservations.is_validated(uid),
                surveys=self._surveys.of(targets | pins | nodes_awaited),
                waiting=tuple(pod for pod in waiting_pods.of(uid) if self._pods.owners.get(pod.metadata.uid) is None),
                searched=waiting_pods.searched(uid),
                probe=self._reservations.probes.aged_result_for(reservation, time.monotonic()),
                choice=choice,
                refusal=self._reservations.refusal_of(uid),
                unfenced={node: self._unfenced[node] for node in nodes_awaited & self._unfenced.keys()},
            )

    def pods_of(self, uid: str) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """Return the placeholders and owner pods that name a Reservation, which may be unknown."""
        with self._lock:
            return self._pods.of(uid)

    def named_uids(self) -> set[str]:
        """Return the uids of Reservations that are known or that pods name."""
        with self._lock:
            return {*self._reservations.uids(), *self._pods.named()}

    def has_all_its_pods(self, uid: str) -> bool:
        """Return whether a live Reservation has a placeholder for each held slot."""
        with self._lock:
            reservation = self._reservations.get(uid)
            if reservation is None:
                return False
            slots_held = sum(slot.state is SlotState.HELD for slot in reservation.status.slots)
            return reservation.is_live and slots_held == len(self._pods.placeholders.of(uid)) > 0
