"""The pods of a cluster in the order of a snapshot, kept from one look to the next: a later look costs what changed."""

import threading
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from berth_core import FENCE_LABEL, STANDING_FENCE_LABEL, Pod
from berth_core.labels import LEADER_WORKER_SET_LABEL
from berth_core.snapshot import BY_NAME

FENCE_LABELS: Final = frozenset({FENCE_LABEL, STANDING_FENCE_LABEL})
_RARE_LABELS: Final = FENCE_LABELS | {LEADER_WORKER_SET_LABEL}


@dataclass(frozen=True, slots=True)
class OrderedPods:
    """All pods of a cluster in the order of a snapshot."""

    pods: tuple[Pod, ...] = ()
    have_fence_labels: bool = False
    have_leaders: bool = False
    """Whether a pod is of a LeaderWorkerSet."""


class KeptPods:
    """Puts the pods of one list after another in order; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: list[Pod] = []
        self._rare_labels: dict[int, frozenset[str]] = {}
        """By the identity of each pod that has some."""

    def order(self, listed: Sequence[Pod]) -> OrderedPods:
        """Return the pods of a list, which mostly are the very ones of the last list, in order."""
        with self._lock:
            # Identities are the pods' own for as long as these are held.
            known, identities = set(map(id, self._pods)), set(map(id, listed))
            added = [pod for pod in listed if id(pod) not in known]
            for gone in [identity for identity in self._rare_labels if identity not in identities]:
                del self._rare_labels[gone]
            for pod in added:
                if labels := _RARE_LABELS.intersection(pod.metadata.labels):
                    self._rare_labels[id(pod)] = labels
            if 2 * len(added) > len(listed):
                self._pods = sorted(listed, key=BY_NAME)
            elif added or len(identities) < len(known):
                self._pods = [pod for pod in self._pods if id(pod) in identities]
                for pod in added:
                    insort(self._pods, pod, key=BY_NAME)
            rare_labels = frozenset[str]().union(*self._rare_labels.values())
            return OrderedPods(
                pods=tuple(self._pods),
                have_fence_labels=not rare_labels.isdisjoint(FENCE_LABELS),
                have_leaders=LEADER_WORKER_SET_LABEL in rare_labels,
            )
