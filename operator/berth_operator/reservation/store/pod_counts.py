"""How many pods take a pod slot of each node."""

import threading
import time
from collections import Counter
from typing import Final

import msgspec

from berth_kube import Listed


class _Place(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Identity(msgspec.Struct, frozen=True):
    uid: str = ""


class CountedPod(msgspec.Struct, frozen=True):
    """The part of a pod that says on which node it takes a pod slot."""

    metadata: _Identity
    spec: _Place = _Place()


_LONGEST_SILENCE_SECONDS: Final = 150.0
"""The API server sends a bookmark (KEP-956) about once a minute: a watch that is silent for longer is cut, or has never
begun."""


class PodCounts:
    """How many pods take a pod slot of each node; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard_at = 0.0
        self._nodes: dict[str, str] | None = None
        """Pod uid to node; None before the first list."""
        self._counts: Counter[str] = Counter()

    def on(self, node: str) -> int | None:
        """Return the number of pods on a node, None before the first list and while the watch is silent."""
        with self._lock:
            # A count that has stopped is worse than none: a caller without one lists the node's pods.
            is_silent = time.monotonic() - self._heard_at > _LONGEST_SILENCE_SECONDS
            return None if self._nodes is None or is_silent else self._counts[node]

    def note_heard(self) -> None:
        """Record that the watch has brought something, if only a bookmark."""
        self._heard_at = time.monotonic()

    def replace(self, listed: Listed[CountedPod]) -> None:
        self.note_heard()
        with self._lock:
            self._nodes = {pod.metadata.uid: pod.spec.node_name for pod in listed.items}
            self._counts = Counter(self._nodes.values())

    def put(self, pod: CountedPod) -> None:
        """Count a pod on its node, which never changes."""
        with self._lock:
            # A binding is final (`spec.nodeName` is immutable once it is set), so later versions of a pod change no
            # count.
            if self._nodes is not None and pod.metadata.uid not in self._nodes:
                self._nodes[pod.metadata.uid] = pod.spec.node_name
                self._counts[pod.spec.node_name] += 1

    def remove(self, pod: CountedPod) -> None:
        """Count a pod no more that is gone or has ended."""
        with self._lock:
            node = self._nodes.pop(pod.metadata.uid, None) if self._nodes is not None else None
            if node is None:
                return
            self._counts[node] -= 1
            if not self._counts[node]:
                del self._counts[node]
