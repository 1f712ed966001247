"""Objects that are listed instead of watched, and fences."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from berth_core import Pod
from berth_kube import HasMetadata, Listed, version_number
from berth_operator.reservation.store.pods import PodIndex
from berth_operator.reservation.store.versions import Tombstones, put_all, version_of
from berth_operator.runtime.workqueue import Key, KeyKind

T = TypeVar("T", bound=HasMetadata)


class ListedObjects(Generic[T]):
    """All known objects of a kind by uid; each change queues the object. Thread-safe."""

    def __init__(self, kind: str, enqueue: Callable[[Key], None]) -> None:
        self._kind = kind
        self._enqueue = enqueue
        self._lock = threading.RLock()
        self._tombstones = Tombstones()
        self._by_uid: dict[str, T] = {}
        self._highest_version = 0

    def all(self) -> tuple[T, ...]:
        with self._lock:
            return tuple(self._by_uid.values())

    def get(self, uid: str) -> T | None:
        with self._lock:
            return self._by_uid.get(uid)

    def put(self, obj: T, listed: Listed[T] | None = None) -> None:
        """Store an object that the API server returned or listed, unless the store has a newer version."""
        uid = obj.metadata.uid
        with self._lock:
            if not self._tombstones.takes(obj.metadata, self._by_uid.get(uid), listed):
                return
            self._by_uid[uid] = obj
        self._enqueue(Key(self._kind, uid))

    def remove(self, uid: str) -> None:
        with self._lock:
            self._tombstones.add(uid)
            self._by_uid.pop(uid, None)

    def replace(self, listed: Listed[T]) -> None:
        """Store a complete list, and remove the objects that it lacks."""
        version = version_number(listed.resource_version)
        with self._lock:
            listed = replace(listed, restored=listed.restored or version < self._highest_version)
            self._tombstones.end_refuted(listed)
        for gone_object in put_all(listed, self.put, self.all):
            self.remove(gone_object.metadata.uid)
        with self._lock:  # what the next list must have, unless etcd is restored before it
            self._highest_version = max(version, *(version_of(obj.metadata) for obj in self._by_uid.values()), 0)


class FenceStore:
    """Fences by name; each change queues the node, and each fence a further key. Thread-safe."""

    def __init__(self, enqueue: Callable[[Key], None], *further: Key) -> None:
        self._enqueue = enqueue
        self._further = further
        self._lock = threading.Lock()
        self._tombstones = Tombstones()
        self._pods = PodIndex(lambda pod: pod.metadata.name)

    def all(self) -> tuple[Pod, ...]:
        with self._lock:
            return tuple(self._pods)

    def on(self, node: str) -> tuple[Pod, ...]:
        with self._lock:
            return self._pods.on(node)

    def put(self, pod: Pod, listed: Listed[Pod] | None = None) -> None:
        with self._lock:
            if not self._tombstones.takes(pod.metadata, self._pods.get(pod.metadata.name), listed):
                return
            self._pods.put(pod)
        for key in (Key(KeyKind.NODE, pod.spec.node_name), *self._further):
            self._enqueue(key)

    def remove(self, pod: Pod) -> None:
        with self._lock:
            self._tombstones.add(pod.metadata.uid)
            known_pod = self._pods.get(pod.metadata.name)
            # The next fence of the node may have the name already.
            if known_pod is None or known_pod.metadata.uid != pod.metadata.uid:
                return
            self._pods.remove(pod.metadata.name)
        self._enqueue(Key(KeyKind.NODE, pod.spec.node_name))

    def replace(self, listed: Listed[Pod]) -> None:
        """Store a complete list, and remove the fences that it lacks."""
        with self._lock:
            self._tombstones.end_refuted(listed)
        for gone_fence in put_all(listed, self.put, self.all):
            self.remove(gone_fence)
