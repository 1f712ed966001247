"""The operator's cache: Reservations, placeholders, owner pods and guarded nodes.

It can be rebuilt from the API at any time, so it is never the only record of a fact.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from berth_core import (
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    ObjectMeta,
    Pod,
    Reservation,
    ReservationStatus,
    SlotState,
    oldest_first,
)
from berth_kube import Listed, version_number
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.node_choice import NodeChoice, SlotId
from berth_operator.reservation.observation import Observation, ProbeResult, Verdict
from berth_operator.reservation.pod_state import awaited_node
from berth_operator.reservation.store.fenced_nodes import FencedNodes
from berth_operator.reservation.store.handover_guards import HandoverGuards
from berth_operator.reservation.store.node_surveys import NodeChoices, NodeSurveys
from berth_operator.reservation.store.nodes import GuardableNode, NodeIndex
from berth_operator.reservation.store.pod_counts import PodCounts
from berth_operator.reservation.store.pods import PodStore, by_slot, reservation_key
from berth_operator.reservation.store.reservation_reading import differs_by_status_only
from berth_operator.reservation.store.reservations import ReservationStore
from berth_operator.reservation.store.versions import Tombstones, must_have, put_all, supersedes, version_of
from berth_operator.reservation.surveys import build_survey
from berth_operator.runtime.workqueue import Key, KeyKind


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
        self._choices = NodeChoices()
        self.fenced = FencedNodes(self._lock, enqueue, self._reservations, self._pods.placeholders)
        self.guards = HandoverGuards(self._lock, enqueue, self._reservations, self._pods, self._nodes)
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

    def put_written(
        self,
        uid: str,
        status: ReservationStatus,
        epoch: int,
        stored: Reservation | None = None,
        *,
        is_settled: bool = False,
    ) -> None:
        """Store a status that we wrote, and `stored` as the API server returned it; None if nothing was stored.

        A Reservation that is settled with it is queued only if `stored` shows another change.
        """
        with self._lock:
            known_reservation = self._reservations.get(uid)
            keys = self._reservations.put_written(uid, status, epoch, stored)
        if is_settled and stored and known_reservation and differs_by_status_only(stored, known_reservation):
            keys = tuple(key for key in keys if key.kind != KeyKind.RESERVATION)
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
            self.guards.queue_handovers(node_name)
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
        self.guards.queue_handovers(node_name)

    def replace_nodes(self, listed: Listed[GuardableNode]) -> None:
        self._end_refuted(listed)
        for gone_node in put_all(listed, self.put_node, self.nodes):
            self.remove_node(gone_node)

    def _enqueue_held(self, node: str) -> None:
        """Queue every Reservation with a placeholder on a node."""
        with self._lock:
            pods = self._pods.placeholders.on(node)
        self._enqueue(*map(reservation_key, pods))

    def control_plane_nodes(self) -> frozenset[str]:
        """Return the names of control-plane nodes, by label or taint."""
        with self._lock:
            return self._nodes.of_control_plane()

    def unlabelled_control_plane_nodes(self) -> frozenset[str]:
        """Return the names of control-plane nodes that only a taint marks."""
        with self._lock:
            return self._nodes.unlabelled_control_plane()

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
                owners=tuple(sorted(owners, key=lambda pod: pod.metadata.age_order)),
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
                unfenced=self.fenced.unfenced(nodes_awaited),
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
