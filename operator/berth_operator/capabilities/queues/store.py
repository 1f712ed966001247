"""The cache of Queues, and of the namespaces and pods from which decisions about them are made."""

import threading
from collections.abc import Iterable, Mapping, Sequence

from berth_core import (
    HANDOVER_GATE,
    INDEX_ANNOTATION,
    ONE_POD,
    PLACEHOLDER_LABEL,
    QUEUE_GATE,
    RESERVATION_LABEL,
    RESERVATION_NAME_ANNOTATION,
    TASK_ANNOTATION,
    GatedQueue,
    Namespace,
    Pod,
    Reservation,
    ResourceAmounts,
    readable_requests,
)
from berth_kube import Bookmark, Changed, Listed, Removed, WatchItem, version_number
from berth_operator.capabilities.queues.places import QueuePod
from berth_operator.capabilities.queues.view import QueueView
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.store.versions import Tombstones, version_of


def read_queue_pod(pod: Pod, own_namespace: str) -> QueuePod:
    """Return the part of a pod that queues need; an unreadable request counts as nothing.

    A placeholder counts for the namespace of its Reservation. Only pods of `own_namespace` can be placeholders: anyone
    could set the label elsewhere.
    """
    meta, spec = pod.metadata, pod.spec
    gates = [gate.name for gate in spec.scheduling_gates]
    uid = meta.labels.get(RESERVATION_LABEL, "")
    holds = meta.namespace == own_namespace and PLACEHOLDER_LABEL in meta.labels
    home, _, reservation_name = meta.annotations.get(RESERVATION_NAME_ANNOTATION, "").partition("/")
    return QueuePod(
        uid=meta.uid,
        namespace=home if holds and home else meta.namespace,
        name=meta.name,
        version=version_of(meta),
        requests=readable_requests(pod).plus(ONE_POD),
        node=spec.node_name,
        priority=spec.priority or 0,
        created=meta.creation_timestamp or "",
        gate_index=gates.index(QUEUE_GATE) if QUEUE_GATE in gates else None,
        reservation=uid if holds or HANDOVER_GATE in gates else "",
        reservation_name=reservation_name if holds else "",
        slot=_slot_of(pod, holds=holds),
        promised=assignment.node if not holds and (assignment := Assignment.from_pod(pod)) is not None else "",
        is_placeholder=holds,
        is_of_node=pod.belongs_to_node,
        is_terminating=pod.is_terminating,
        ends_at=meta.deletion_timestamp or "",
    )


def _slot_of(pod: Pod, *, holds: bool) -> str:
    """Return task and index of the slot that a placeholder holds, or of those that a pod was given; "" for none."""
    if holds:
        notes = pod.metadata.annotations
        return f"{notes.get(TASK_ANNOTATION, '')}/{notes.get(INDEX_ANNOTATION, '')}"
    assignment = Assignment.from_pod(pod)
    if assignment is None:
        return ""
    return f"{assignment.task}/{'+'.join(str(index) for _, index in assignment.slots)}"


class QueueStore:
    """Queues, namespaces and pods for decisions about queues; thread-safe.

    A pod that a call has returned counts until the watch reports a newer version, so that a pod which was just admitted
    is never missed.
    """

    def __init__(self, own_namespace: str) -> None:
        self._own_namespace = own_namespace
        self._lock = threading.Lock()
        self._queues: dict[str, GatedQueue] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything but the queues; watches that start later list it again."""
        with self._lock:
            self._namespaces: dict[str, Mapping[str, str]] = {}
            self._of_kueue: dict[str, str] = {}
            self._pods: dict[str, QueuePod] = {}
            self._gone = Tombstones()
            self._missing = {"pods", "namespaces"}

    @property
    def is_complete(self) -> bool:
        """Return whether pods and namespaces were listed."""
        with self._lock:
            return not self._missing

    @property
    def queues(self) -> tuple[GatedQueue, ...]:
        with self._lock:
            return tuple(self._queues.values())

    def replace_queues(self, queues: Iterable[GatedQueue]) -> None:
        with self._lock:
            self._queues = {queue.metadata.uid: queue for queue in queues}

    def put_queue(self, queue: GatedQueue) -> None:
        """Store a known queue as the API server returned it."""
        with self._lock:
            if queue.metadata.uid in self._queues:
                self._queues[queue.metadata.uid] = queue

    def replace_kueue(self, local_queues: Mapping[str, str]) -> None:
        """Store which namespaces Kueue manages, each with the name of a LocalQueue."""
        with self._lock:
            self._of_kueue = dict(local_queues)

    def take_namespace(self, item: WatchItem[Namespace]) -> None:
        """Apply an event of the namespaces' watch."""
        with self._lock:
            match item:
                case Listed(items):
                    self._namespaces = {namespace.metadata.name: namespace.metadata.labels for namespace in items}
                    self._missing.discard("namespaces")
                case Changed(namespace):
                    self._namespaces[namespace.metadata.name] = namespace.metadata.labels
                case Removed(namespace):
                    self._namespaces.pop(namespace.metadata.name, None)
                case Bookmark():
                    pass

    def take_pod(self, item: WatchItem[Pod]) -> None:
        """Apply an event of the watch of pods that have not ended; one that ends is reported as removed."""
        with self._lock:
            match item:
                case Listed():
                    self._replace(item)
                case Changed(pod):
                    self._put(pod)
                case Removed(pod):
                    self._remove(pod.metadata.uid)
                case Bookmark():
                    pass

    def put_pod(self, pod: Pod) -> None:
        """Store a pod that a call has returned."""
        with self._lock:
            self._put(pod)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod that is gone."""
        with self._lock:
            self._remove(uid)

    def has_gated(self) -> bool:
        """Return whether any pod has the gate."""
        with self._lock:
            return any(pod.is_gated for pod in self._pods.values())

    def view(
        self,
        nodes: Mapping[str, ResourceAmounts],
        reservations: Sequence[Reservation] = (),
        labelled: frozenset[str] = frozenset(),
        refused: Mapping[str, str] | None = None,
    ) -> QueueView:
        """Return the view of queues, namespaces and pods, together with what other caches have; see `QueueView`."""
        with self._lock:
            return QueueView(
                queues=tuple(self._queues.values()),
                namespaces=dict(self._namespaces),
                of_kueue=self._of_kueue,
                pods=tuple(self._pods.values()),
                nodes=nodes,
                own_namespace=self._own_namespace,
                reservations=reservations,
                labelled=labelled,
                refused=refused or {},
            )

    def _replace(self, listed: Listed[Pod]) -> None:
        version = version_number(listed.resource_version)
        self._gone.end_refuted(listed)
        listed_uids = {pod.metadata.uid for pod in listed.items}
        # A list is right about each version that is not newer than itself; after a restore of etcd, which sets versions
        # back, it is right about all.
        settled_uids = {uid for uid, known_pod in self._pods.items() if listed.restored or known_pod.version <= version}
        for uid in settled_uids - listed_uids:
            self._remove(uid)
        for uid in settled_uids & listed_uids:
            del self._pods[uid]
        for pod in listed.items:
            self._put(pod)
        self._missing.discard("pods")

    def _put(self, pod: Pod) -> None:
        known_pod = self._pods.get(pod.metadata.uid)
        if self._gone.covers(pod.metadata) or (known_pod is not None and known_pod.version >= version_of(pod.metadata)):
            return
        # Ended pods count for no quota either (`QuotaV1Pod` in kubernetes, pkg/quota/v1/evaluator/core/pods.go).
        if pod.is_terminal:
            self._remove(pod.metadata.uid)
        else:
            self._pods[pod.metadata.uid] = read_queue_pod(pod, self._own_namespace)

    def _remove(self, uid: str) -> None:
        self._gone.add(uid)
        self._pods.pop(uid, None)
