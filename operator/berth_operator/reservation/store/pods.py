"""Cached placeholders and owner pods, indexed by Reservation, node and hand-over target.

These stores are not thread-safe: `store.cache` locks them.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from berth_core import (
    HIGHEST_SLOT_INDEX,
    INDEX_ANNOTATION,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    TASK_ANNOTATION,
    Pod,
    read_whole_number,
)
from berth_kube import Listed
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.handover import AwaitedComponent, holders_of, stage_of
from berth_operator.reservation.pod_state import awaited_node
from berth_operator.reservation.store.versions import Tombstones, version_of
from berth_operator.runtime.workqueue import Key, KeyKind


def reservation_uid(pod: Pod) -> str:
    """Return the uid of the Reservation a pod names, or ""."""
    return pod.metadata.labels.get(RESERVATION_LABEL, "")


def reservation_key(pod: Pod) -> Key:
    return Key(KeyKind.RESERVATION, reservation_uid(pod))


class PodIndex:
    """Pods by key, by Reservation and by node; a look-up costs as much as it returns."""

    def __init__(self, key: Callable[[Pod], str]) -> None:
        self._key = key
        self._pods: dict[str, Pod] = {}
        self._by_reservation: dict[str, dict[str, Pod]] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._by_awaited_node: dict[str, dict[str, Pod]] = {}

    def __iter__(self) -> Iterator[Pod]:
        return iter(tuple(self._pods.values()))

    def get(self, key: str) -> Pod | None:
        return self._pods.get(key)

    def put(self, pod: Pod) -> None:
        # First out of the groups of its known version: node and Reservation may have changed.
        self.remove(self._key(pod))
        self._pods[self._key(pod)] = pod
        for groups, group_key in self._groups_of(pod):
            groups.setdefault(group_key, {})[self._key(pod)] = pod

    def remove(self, key: str) -> None:
        pod = self._pods.pop(key, None)
        if pod is not None:
            for groups, group_key in self._groups_of(pod):
                del groups[group_key][key]
                if not groups[group_key]:
                    del groups[group_key]

    def _groups_of(self, pod: Pod) -> tuple[tuple[dict[str, dict[str, Pod]], str], ...]:
        groups = (self._by_reservation, reservation_uid(pod)), (self._by_node, pod.spec.node_name)
        node_awaited = awaited_node(pod)
        return (*groups, (self._by_awaited_node, node_awaited)) if node_awaited else groups

    def of(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods that name a Reservation."""
        return tuple(self._by_reservation.get(uid, {}).values())

    def on(self, node: str) -> tuple[Pod, ...]:
        return tuple(self._by_node.get(node, {}).values())

    def awaiting(self, node: str) -> tuple[Pod, ...]:
        """Return the placeholders that await a node's capacity."""
        return tuple(self._by_awaited_node.get(node, {}).values())

    def awaited_nodes(self) -> set[str]:
        """Return the nodes whose capacity placeholders await."""
        return set(self._by_awaited_node)

    def named(self) -> set[str]:
        """Return the uids of the Reservations that pods name."""
        return set(self._by_reservation)


@dataclass(slots=True)
class HandoverTargets:
    """Owner pods and successors of placeholders by the node that their note names, trusted or not."""

    _by_node: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _awaited: dict[str, tuple[AwaitedComponent, float]] = field(default_factory=dict)
    """Pod uid to the component that it waits for, and since which attended second."""
    _last_bound: dict[str, float] = field(default_factory=dict)
    """Node to the attended second when one of these pods was last seen to be bound there."""

    def replace(self, known: Pod | None, pod: Pod | None, now: float) -> None:
        """Replace the known version of a pod by one seen at an attended second; None stands for no pod."""
        if known is not None:
            self._remove(known)
        assignment = Assignment.from_pod(pod) if pod is not None else None
        if pod is not None and assignment is not None:
            self._by_node.setdefault(assignment.node, {})[pod.metadata.uid] = pod
            if pod.spec.node_name and (known is None or not known.spec.node_name):
                self._last_bound[pod.spec.node_name] = now
        elif known is not None:
            self._awaited.pop(known.metadata.uid, None)

    def stage_age(self, pod: Pod, placeholders: Collection[Pod], now: float) -> float:
        """Return the attended seconds for which a pod has waited for the same component."""
        awaited = stage_of(pod, placeholders).awaited
        stage = self._awaited.get(pod.metadata.uid)
        if stage is None or stage[0] is not awaited:
            stage = self._awaited[pod.metadata.uid] = awaited, now
        return now - stage[1]

    def _remove(self, pod: Pod) -> None:
        assignment = Assignment.from_pod(pod)
        group = self._by_node.get(assignment.node, {}) if assignment is not None else {}
        if assignment is not None and group.pop(pod.metadata.uid, None) is not None and not group:
            del self._by_node[assignment.node]

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods whose notes name a node."""
        return tuple(self._by_node.get(node, {}).values())

    def nodes(self) -> set[str]:
        """Return the nodes that notes name."""
        return set(self._by_node)

    def last_bound(self, node: str) -> float:
        """Return the attended second when one of these pods was last seen to be bound to a node, or minus infinity."""
        return self._last_bound.get(node, -math.inf)

    def waiting(self) -> Iterator[tuple[Pod, Assignment]]:
        """Yield the pods that are not bound, each with its note; costs as much as there are indexed pods."""
        for pod in (pod for group in self._by_node.values() for pod in group.values()):
            if not pod.spec.node_name and (note := Assignment.from_pod(pod)) is not None:
                yield pod, note


class PodStore:
    """Placeholders and owner pods; a change returns the keys that it concerns."""

    def __init__(self, tombstones: Tombstones) -> None:
        self._tombstones = tombstones
        self.placeholders = PodIndex(lambda pod: pod.metadata.name)
        self.owners = PodIndex(lambda pod: pod.metadata.uid)
        self.targets = HandoverTargets()
        self.seconds: Callable[[], float] = time.monotonic
        """Attended time, by which pods in a hand-over age."""

    def put_placeholder(self, pod: Pod, listed: Listed[Pod] | None = None) -> tuple[Key, ...]:
        """Store a placeholder that is neither gone nor outdated."""
        known_pod = self.placeholders.get(pod.metadata.name)
        if not self._tombstones.takes(pod.metadata, known_pod, listed):
            return ()
        self.placeholders.put(pod)
        self.targets.replace(known_pod, pod, self.seconds())
        return _concerned(pod, known_pod)

    def remove_placeholder(self, pod: Pod) -> tuple[Key, ...]:
        """Remove a placeholder that is gone; a later one of the same name stays."""
        self._tombstones.add(pod.metadata.uid)
        known_pod = self.placeholders.get(pod.metadata.name)
        # A placeholder's name comes again with the next one for its slot.
        if known_pod is not None and known_pod.metadata.uid == pod.metadata.uid:
            self.placeholders.remove(pod.metadata.name)
            self.targets.replace(known_pod, None, self.seconds())
        return _concerned(pod, known_pod)

    def is_new_owner(self, pod: Pod) -> bool:
        """Return whether a labelled pod appears for the first time."""
        return self.owners.get(pod.metadata.uid) is None and not self._tombstones.covers(pod.metadata)

    def put_owner(self, pod: Pod, listed: Listed[Pod] | None = None) -> tuple[Key, ...]:
        """Store a labelled pod that is neither gone nor outdated."""
        known_pod = self.owners.get(pod.metadata.uid)
        if not self._tombstones.takes(pod.metadata, known_pod, listed):
            return ()
        self.owners.put(pod)
        self.targets.replace(known_pod, pod, self.seconds())
        return _concerned(pod, known_pod)

    def remove_owner(self, pod: Pod, *, for_good: bool) -> tuple[Key, ...]:
        """Remove a pod that is gone `for_good`, or that lost its label and may get it back."""
        # A list that began before the removal still has the pod. Its label may come back with a higher version; the pod
        # itself never does.
        self._tombstones.add(pod.metadata.uid, math.inf if for_good else version_of(pod.metadata))
        known_pod = self.owners.get(pod.metadata.uid)
        if known_pod is not None and self._tombstones.covers(known_pod.metadata):
            self.owners.remove(pod.metadata.uid)
            self.targets.replace(known_pod, None, self.seconds())
        return _concerned(pod, known_pod)

    def of(self, uid: str) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """Return the placeholders and owner pods that name a Reservation, known or not."""
        return self.placeholders.of(uid), self.owners.of(uid)

    def named(self) -> set[str]:
        """Return the uids of the Reservations that pods name."""
        return {*self.placeholders.named(), *self.owners.named()}

    def stage_ages(self, pods: Iterable[Pod], holders: Mapping[tuple[str, int], Pod], now: float) -> dict[str, float]:
        """Return by uid the attended seconds of each pod at its stage; pods without a note are absent."""
        notes = ((pod, Assignment.from_pod(pod)) for pod in pods)
        return {
            pod.metadata.uid: self.targets.stage_age(pod, holders_of(assignment, holders), now)
            for pod, assignment in notes
            if assignment is not None
        }


def _concerned(pod: Pod, known: Pod | None) -> tuple[Key, ...]:
    """Return the keys of a pod's Reservation and target node, in its new and its known version."""
    keys: list[Key] = []
    for version in (pod, known):
        if version is None:
            continue
        keys.append(reservation_key(version))
        assignment = Assignment.from_pod(version)
        if assignment is not None:
            keys.append(Key(KeyKind.NODE, assignment.node))
        if awaited_node(version):
            keys.append(Key(KeyKind.NODE, awaited_node(version)))
    return tuple(dict.fromkeys(keys))  # most changes concern the same keys as before


BySlot = dict[tuple[str, int], Pod]


def by_slot(placeholders: Iterable[Pod]) -> tuple[BySlot, BySlot]:
    """Return slot holders and their successors, each by (task, index)."""
    holders: BySlot = {}
    successors: BySlot = {}
    for pod in placeholders:
        notes = pod.metadata.annotations
        index = read_whole_number(notes.get(INDEX_ANNOTATION, ""), most=HIGHEST_SLOT_INDEX)
        if index is not None:
            pods_by_slot = successors if SLOT_ANNOTATION in notes else holders
            pods_by_slot[notes.get(TASK_ANNOTATION, ""), index] = pod
    return holders, successors
