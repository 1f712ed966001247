"""The cluster as the service sees it: for plans, later looks at them, and the work beside runs."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from berth_core import Node, ObjectMeta, Pod, PodDisruptionBudget, Snapshot, Workload
from berth_core.object_lists import ObjectKind
from berth_core.objects.metadata import ApiStruct
from berth_descheduler.pods_in_order import KeptPods
from berth_descheduler.snapshots import read_capacity, read_live_snapshot
from berth_kube import (
    DAEMON_SETS,
    JOBS,
    NODES,
    PDBS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    ForbiddenError,
    KubeClient,
    Listing,
    ListSource,
    ObjectReader,
    Resource,
    WatchedLists,
    WatchItem,
)


class Picture:
    """Answers questions about the cluster; thread-safe.

    While someone watches, each kind is listed once, and later answers cost what has changed. Otherwise each question
    lists the cluster anew, and no memory is kept.
    """

    def __init__(self, client: KubeClient, own_namespace: str) -> None:
        """`own_namespace` is Berth's; pods elsewhere are no fences, whatever they are labelled."""
        self._client = client
        self._own_namespace = own_namespace
        self._lock = threading.Lock()
        self._watchers = 0
        self._watched: WatchedLists | None = None
        self._pods: KeptPods | None = None
        """Kept as long as they are watched, as their objects stay the same only then."""
        self.pass_on_pods: Callable[[Listing[Pod]], object] = lambda _: None
        """Gets all pods as they were last seen, once the last watcher has ended: a watch can go on from them."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep what is read up to date by watches until all who watch have ended."""
        with self._lock:
            self._watchers += 1
            self._watched = self._watched or WatchedLists(self._client)
            self._pods = self._pods or KeptPods()
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1
                over, self._watched = (None, self._watched) if self._watchers else (self._watched, None)
                self._pods = self._pods if self._watchers else None
            if over is not None:
                # Outside of the lock, for which others wait: ending the watches takes a while.
                pods = over.kept(PODS, Pod)
                over.close()
                if pods is not None:
                    self.pass_on_pods(pods)

    def snapshot(self, beside: Iterable[ObjectKind] = ()) -> Snapshot:
        """Return what the planner needs, and the kinds `beside` that plugins read; raises `KubeError`."""
        return read_live_snapshot(self._source, self._own_namespace, beside, self._pods)

    def capacity(self) -> Snapshot:
        """Return nodes, pods and Reservations, and what is guaranteed: what is free; raises `KubeError`."""
        return read_capacity(self._source).within(self._own_namespace)

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes; raises `KubeError`."""
        return self._source.list(NODES, type=Node).items

    def has_pods(self) -> bool:
        """Return whether all pods have been read and are watched."""
        return self._watched is not None and self._watched.keeps(PODS, Pod)

    def follow_pods(self, stop: threading.Event) -> Iterator[WatchItem[Pod]]:
        """Watch all pods, which costs the API server nothing where the picture has them; raises `KubeError`."""
        watched = self._watched or WatchedLists(self._client)
        return watched.watch(PODS, stop=stop, type=Pod)

    def around_surges(self) -> ObjectReader:
        """Return the source of what decides which pods can surge."""
        return _AroundSurges(self._client, lambda: self._watched)

    @property
    def _source(self) -> ListSource:
        return self._watched or self._client


class _Selecting(ApiStruct, frozen=True, kw_only=True):
    selector: Any = None
    scale_target_ref: Any = None


class _Used(ApiStruct, frozen=True, kw_only=True):
    hard: Any = None
    used: Any = None


class _AroundPod(ApiStruct, frozen=True, kw_only=True):
    """The part that is read of an object that selects, scales or limits pods: one may have many ports and labels."""

    metadata: ObjectMeta
    spec: _Selecting = _Selecting()
    status: _Used = _Used()


_AS_PLANNED: Final[dict[Resource, type[Any]]] = {
    REPLICA_SETS: Workload,
    STATEFUL_SETS: Workload,
    DAEMON_SETS: Workload,
    JOBS: Workload,
    PDBS: PodDisruptionBudget,
}
"""The types with which a plan has read kinds already."""


class _AroundSurges:
    """Reads what decides which pods can surge: single objects and quotas as they are now, kinds as they are watched.

    While the picture is not watched, and where the account may not watch a kind, lists those of the namespace.
    """

    def __init__(self, client: KubeClient, watched: Callable[[], WatchedLists | None]) -> None:
        self._client = client
        self._watched = watched
        self._asked: set[Resource] = set()
        """The kinds that have been asked for as a whole."""

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> dict[str, Any]:
        return self._client.get(resource, name, namespace=namespace)

    def list(self, resource: Resource, *, namespace: str | None = None) -> Listing[dict[str, Any]]:
        """Return the objects of a kind in a namespace, with the fields that are read of them alone."""
        objects = self._list_watched(resource)
        if objects is None:
            return self._client.list(resource, namespace=namespace)
        of_namespace = [obj for obj in objects if obj.metadata.namespace == namespace]
        # A connection that was forgotten on its way is noticed after 45 s, and a quota is used up by any pod.
        is_too_old = resource is RESOURCE_QUOTAS and of_namespace
        if is_too_old or any(obj.metadata.unreadable for obj in of_namespace):
            return self._client.list(resource, namespace=namespace)  # a stand-in seems to select nothing
        return Listing(tuple(map(_as_raw, of_namespace)), "")

    def _list_watched(self, resource: Resource) -> Sequence[Any] | None:
        """Return all objects of a kind, None where it is not watched."""
        watched, item_type = self._watched(), _AS_PLANNED.get(resource, _AroundPod)
        if watched is None or (resource in self._asked and not watched.keeps(resource, item_type)):
            return None
        self._asked.add(resource)
        try:
            return watched.list(resource, type=item_type).items
        except ForbiddenError:
            return None


def _as_raw(obj: Any) -> dict[str, Any]:  # noqa: ANN401 - one of the types above
    spec = obj.spec if isinstance(obj, _AroundPod) else {"selector": obj.spec.selector}
    raw_object = {"metadata": {"name": obj.metadata.name}, "spec": msgspec.to_builtins(spec)}
    return {**raw_object, "status": msgspec.to_builtins(obj.status)} if isinstance(obj, _AroundPod) else raw_object
