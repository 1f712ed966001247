"""Owns a set of pods that is found by key and by the Reservation that each names; not thread-safe by itself.

It does not own what the pods are: placeholders and owner pods have a shelf each.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from berth_core.labels import INDEX_ANNOTATION, RESERVATION_LABEL, SLOT_ANNOTATION, TASK_ANNOTATION
from berth_core.objects import Pod
from berth_core.reservations import HIGHEST_SLOT_INDEX
from berth_core.resources import read_whole_number
from berth_operator.reconcile.handover import HandoverStage, stage_of
from berth_operator.reconcile.observation import Assignment, has_started


def reservation_uid(pod: Pod) -> str:
    """Return the uid of the Reservation that a pod names, "" where it names none."""
    return pod.metadata.labels.get(RESERVATION_LABEL, "")


class PodIndex:
    """Pods by key; finding those of one Reservation, or on one node, costs as much as there are."""

    def __init__(self, key: Callable[[Pod], str]) -> None:
        self._key = key
        self._pods: dict[str, Pod] = {}
        self._by_reservation: dict[str, dict[str, Pod]] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}

    def __iter__(self) -> Iterator[Pod]:
        return iter(tuple(self._pods.values()))

    def get(self, key: str) -> Pod | None:
        """Return the pod of a key."""
        return self._pods.get(key)

    def put(self, pod: Pod) -> None:
        """Put a pod in place of the one of the same key."""
        self.take(self._key(pod))
        self._pods[self._key(pod)] = pod
        for groups, name in self._groups_of(pod):
            groups.setdefault(name, {})[self._key(pod)] = pod

    def take(self, key: str) -> Pod | None:
        """Take the pod of a key away and return it."""
        pod = self._pods.pop(key, None)
        if pod is not None:
            for groups, name in self._groups_of(pod):
                del groups[name][key]
                if not groups[name]:
                    del groups[name]
        return pod

    def _groups_of(self, pod: Pod) -> tuple[tuple[dict[str, dict[str, Pod]], str], ...]:
        return (self._by_reservation, reservation_uid(pod)), (self._by_node, pod.spec.node_name)

    def of(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods that name a Reservation."""
        return tuple(self._by_reservation.get(uid, {}).values())

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods on a node."""
        return tuple(self._by_node.get(node, {}).values())

    def named(self) -> set[str]:
        """Return the uids of the Reservations that are named."""
        return set(self._by_reservation)


# --- handover targets ------------------------------------------------------------------------------------------------
# Which pods are on the way to which nodes, and for how long they are at their stage of it.
#
# They are known by their notes, owners' pods and successors of placeholders alike.
#
# It is not thread-safe by itself (`picture.cache` guards it), and does not say whether a note is to be trusted.


@dataclass(slots=True)
class HandoverTargets:
    """Pods with a note, by the node that it names and by uid."""

    _by_node: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _stages: dict[str, tuple[HandoverStage, float]] = field(default_factory=dict)
    """Uid of a pod to its stage, and since when it was seen there, in attended seconds."""

    def replace(self, known: Pod | None, pod: Pod | None) -> None:
        """Put a version of a pod in place of the known one; None where there was none, or is none any more."""
        if known is not None:
            self._take(known)
        given = Assignment.from_pod(pod) if pod is not None else None
        if pod is not None and given is not None:
            self._by_node.setdefault(given.node, {})[pod.metadata.uid] = pod
        elif known is not None:
            self._stages.pop(known.metadata.uid, None)

    def stage_age(self, pod: Pod, placeholder: Pod | None, now: float) -> float:
        """Return for how many attended seconds a pod is at the stage that it is seen at now."""
        stage = stage_of(pod, placeholder)
        known = self._stages.get(pod.metadata.uid)
        if known is None or known[0] is not stage:
            known = self._stages[pod.metadata.uid] = stage, now
        return now - known[1]

    def _take(self, pod: Pod) -> None:
        given = Assignment.from_pod(pod)
        group = self._by_node.get(given.node, {}) if given is not None else {}
        if given is not None and group.pop(pod.metadata.uid, None) is not None and not group:
            del self._by_node[given.node]

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods whose notes name a node."""
        return tuple(self._by_node.get(node, {}).values())

    def nodes(self) -> set[str]:
        """Return the nodes that are named."""
        return set(self._by_node)

    def count_waiting(self) -> Counter[str]:
        """Return how many of the pods of each namespace have not started; costs as much as there are."""
        pods = (pod for group in self._by_node.values() for pod in group.values())
        return Counter(pod.metadata.namespace for pod in pods if not has_started(pod))


# --- holders ---------------------------------------------------------------------------------------------------------
# Telling placeholders apart: those that hold a slot, and those that were made to succeed one.
#
# It does not say when one is succeeded: `decisions.deadlines` does.

BySlot = dict[tuple[str, int], Pod]


def by_slot(placeholders: Iterable[Pod]) -> tuple[BySlot, BySlot]:
    """Return the placeholders that hold a slot, and the successors that are to, each by (task, index)."""
    holders: BySlot = {}
    successors: BySlot = {}
    for pod in placeholders:
        notes = pod.metadata.annotations
        index = read_whole_number(notes.get(INDEX_ANNOTATION, ""), most=HIGHEST_SLOT_INDEX)
        if index is not None:
            found = successors if SLOT_ANNOTATION in notes else holders
            found[notes.get(TASK_ANNOTATION, ""), index] = pod
    return holders, successors
