"""Which queues there are, and which of them each pod is in."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from berth_core import (
    DEFAULT_QUEUE,
    PLACEHOLDER_LABEL,
    QUEUE_ANNOTATION,
    RESERVATION_LABEL,
    VOLCANO_POD_GROUP_API_VERSION,
    VOLCANO_SCHEDULER,
    InputError,
    Pod,
    Queue,
    QueueSource,
    SlotState,
    Snapshot,
    SnapshotKind,
    choose_namespaces,
    queue_of_slot,
    volcano_group_of,
)

_JOB_QUEUE: Final = "volcano.sh/queue-name"
"""The annotation and label that name the queue of a Volcano Job on its pods."""

_ON_THE_WAY: Final = frozenset({SlotState.HANDING_OVER, SlotState.TAKEN})

QueueKey: TypeAlias = tuple[QueueSource, str]
"""What no two queues have in common, `Queue.key`."""


class QueueMembers:
    """Knows the queues of each pod: one of Volcano by its group, Reservation or annotation, one of Berth by namespace.

    A pod may be in one of each.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._of_group = {
            (pod_group.metadata.namespace, pod_group.metadata.name): pod_group.spec.queue or DEFAULT_QUEUE
            for pod_group in snapshot.pod_groups
            if pod_group.api_version == VOLCANO_POD_GROUP_API_VERSION
        }
        self._of_job = {
            volcano_job.metadata.uid: volcano_job.spec.queue or DEFAULT_QUEUE for volcano_job in snapshot.volcano_jobs
        }
        self._of_reservation = {reservation.metadata.uid: reservation for reservation in snapshot.reservations}
        labels = {namespace.metadata.name: namespace.metadata.labels for namespace in snapshot.namespaces}
        of_kueue = {local_queue.metadata.namespace: local_queue.metadata.name for local_queue in snapshot.local_queues}
        choice = choose_namespaces(snapshot.gated_queues, labels, of_kueue, snapshot.own_namespace)
        self._of_namespace = choice.queue_of
        self._uids = {gated_queue.metadata.name: gated_queue.metadata.uid for gated_queue in snapshot.gated_queues}

    def queues_of(self, pod: Pod) -> tuple[QueueKey, ...]:
        """Return the keys of a pod's queues."""
        queue_keys = ((QueueSource.VOLCANO, self._of_volcano(pod)), (QueueSource.BERTH, self._of_berth(pod)))
        return tuple(key for key in queue_keys if key[1])

    def namespaces_of(self, queue: Queue) -> tuple[str, ...]:
        """Return the namespaces of a queue of Berth in order."""
        return tuple(sorted(name for name, own_queue in self._of_namespace.items() if own_queue == queue.name))

    def is_held(self, pod: Pod, queue: QueueKey) -> bool:
        """Return whether a pod is for a slot that Berth's queue holds, or is to, and no pod is about to take."""
        if PLACEHOLDER_LABEL not in pod.metadata.labels or queue[0] is not QueueSource.BERTH:
            return False
        reservation = self._of_reservation.get(pod.metadata.labels.get(RESERVATION_LABEL, ""))
        if reservation is None or queue_of_slot(reservation) != self._uids.get(queue[1], ""):
            return False
        return not any(slot.state in _ON_THE_WAY for slot in reservation.status.slots)

    def _of_berth(self, pod: Pod) -> str:
        """Return the queue of a pod's namespace; a placeholder is in that of its Reservation."""
        # Pods of DaemonSets are made for each node and never gated: a gate would keep a new node from becoming ready.
        if pod.belongs_to_node:
            return ""
        labels, home = pod.metadata.labels, pod.metadata.namespace
        if PLACEHOLDER_LABEL in labels and (reservation := self._of_reservation.get(labels.get(RESERVATION_LABEL, ""))):
            home = reservation.metadata.namespace
        return self._of_namespace.get(home, "")

    def _of_volcano(self, pod: Pod) -> str:
        meta = pod.metadata
        # Volcano's controller for plain pods reads the annotation when it makes their group; before that it is all
        # there is (`pkg/controllers/podgroup`).
        annotated_queue = meta.annotations.get(QUEUE_ANNOTATION) or meta.annotations.get(_JOB_QUEUE, "")
        if PLACEHOLDER_LABEL in meta.labels:
            reservation = self._of_reservation.get(meta.labels.get(RESERVATION_LABEL, ""))
            return annotated_queue if reservation is None else reservation.spec.queue
        controller = pod.controller.uid if pod.controller else ""
        # Volcano puts a group that names no queue into `default`, also before its webhook has written so.
        by_default = DEFAULT_QUEUE if pod.spec.scheduler_name == VOLCANO_SCHEDULER else ""
        return (
            self._of_group.get((meta.namespace, volcano_group_of(pod)), "")
            or annotated_queue
            or self._of_job.get(controller, by_default)
        )


def queue_families(queues: Iterable[Queue]) -> Mapping[QueueKey, tuple[QueueKey, ...]]:
    """Return the queues above each queue, itself first: its pods count in all of them."""
    parents = {queue.key: (queue.source, queue.parent) for queue in queues}
    families: dict[QueueKey, tuple[QueueKey, ...]] = {}
    for key in parents:
        above = [key]
        # Nothing in the API forbids a cycle of parents; the walk must end for each.
        while (parent := parents.get(above[-1])) and parent in parents and parent not in above:
            above.append(parent)
        families[key] = tuple(above)
    return families


def find_queue(snapshot: Snapshot, text: str) -> Queue:
    """Return the queue of a name, with its kind before it where both kinds have one of that name.

    Raises `InputError` for one that is not known.
    """
    queues = [queue for queue in snapshot.queues if text in {queue.name, queue.full_name}]
    if len(queues) == 1:
        return queues[0]
    if queues:
        expected = f"one of the two: {' or '.join(queue.full_name for queue in queues)}"
        raise InputError("room.queue", text, expected)
    unread = [source.resource for source in QueueSource if SnapshotKind(source.resource) in snapshot.unread]
    if unread:
        raise InputError("room.queue", text, f"a queue that can be read: the snapshot has no {' and no '.join(unread)}")
    names = ", ".join(label_queues(snapshot.queues).values())
    raise InputError("room.queue", text, f"the name of a queue: {names or 'there is none'}")


def label_queues(queues: Iterable[Queue]) -> Mapping[QueueKey, str]:
    """Return what people call each queue: its name, with the kind before it where both kinds have one of that name."""
    name_counts = Counter(queue.name for queue in queues)
    return {queue.key: queue.name if name_counts[queue.name] == 1 else queue.full_name for queue in queues}
