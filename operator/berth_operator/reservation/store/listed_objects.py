"""Objects that are listed instead of watched, and fences."""

import threading
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from berth_core import ObjectMeta, Pod
from berth_operator.reservation.store.pods import PodIndex
from berth_operator.reservation.store.versions import Tombstones, is_newer, was_due
from berth_operator.runtime.workqueue import Key, KeyKind


class _Listed(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_Listed)


class ListedObjects(Generic[T]):
    """All known objects of a kind by uid; each change queues the object. Thread-safe."""

    def __init__(self, kind: str, enqueue: Callable[[Key], None]) -> None:
        self._kind = kind
        self._enqueue = enqueue
        self._lock = threading.RLock()
        self._tombstones = Tombstones()
        self._by_uid: dict[str, T] = {}

    def all(self) -> tuple[T, ...]:
        with self._lock:
            return tuple(self._by_uid.values())

    def get(self, uid: str) -> T | None:
        with self._lock:
            return self._by_uid.get(uid)

    def put(self, found: T) -> None:
        """Store an object as the API server returned it; ignore older versions."""
        uid = found.metadata.uid
        with self._lock:
            known_object = self._by_uid.get(uid)
            if self._tombstones.covers(found.metadata) or (
                known_object and not is_newer(found.metadata, known_object.metadata)
            ):
                return
            self._by_uid[uid] = found
        self._enqueue(Key(self._kind, uid))

    def remove(self, uid: str) -> None:
        with self._lock:
            self._tombstones.add(uid)
            self._by_uid.pop(uid, None)

    def replace(self, listed: Iterable[T], version: str) -> None:
        """Store a complete list, and remove the objects that it lacks."""
        listed_by_uid = {obj.metadata.uid: obj for obj in listed}
        for listed_object in listed_by_uid.values():
            self.put(listed_object)
        for known_object in self.all():
            if known_object.metadata.uid not in listed_by_uid and was_due(known_object.metadata, version):
                self.remove(known_object.metadata.uid)


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

    def put(self, pod: Pod) -> None:
        with self._lock:
            known_pod = self._pods.get(pod.metadata.name)
            if self._tombstones.covers(pod.metadata) or (known_pod and not is_newer(pod.metadata, known_pod.metadata)):
                return
            self._pods.put(pod)
        for key in (Key(KeyKind.NODE, pod.spec.node_name), *self._further):
            self._enqueue(key)

    def remove(self, pod: Pod) -> None:
        with self._lock:
            self._tombstones.add(pod.metadata.uid)
            known_pod = self._pods.get(pod.metadata.name)
            if known_pod is None or known_pod.metadata.uid != pod.metadata.uid:
                return
            self._pods.remove(pod.metadata.name)
        self._enqueue(Key(KeyKind.NODE, pod.spec.node_name))

    def replace(self, listed: Iterable[Pod], version: str) -> None:
        """Store a complete list, and remove the fences that it lacks."""
        listed_by_uid = {pod.metadata.uid: pod for pod in listed}
        for pod in listed_by_uid.values():
            self.put(pod)
        for pod in self.all():
            if pod.metadata.uid not in listed_by_uid and was_due(pod.metadata, version):
                self.remove(pod)
