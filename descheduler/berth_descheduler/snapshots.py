"""Reads snapshots from files and the live cluster; writes snapshot files."""

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeVar

import msgspec

from berth_core import (
    ControllerRevision,
    CSINode,
    GatedQueue,
    InputError,
    LocalQueue,
    Namespace,
    Node,
    PermanentError,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PodGroupWorkload,
    PriorityClass,
    QueueObject,
    Reservation,
    Snapshot,
    SnapshotKind,
    StorageClass,
    SurgeObjects,
    SystemClock,
    VolcanoJob,
    VolumeAttachment,
    Workload,
    format_timestamp,
)
from berth_core.object_lists import ObjectKind, RawObject, items_beside
from berth_descheduler.pods_in_order import FENCE_LABELS, KeptPods
from berth_kube import (
    CONTROLLER_REVISIONS,
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    KUEUE_LOCAL_QUEUES,
    LEADER_WORKER_SETS,
    NAMESPACES,
    NODES,
    PDBS,
    POD_GROUP_WORKLOADS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    QUEUES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESERVATIONS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLCANO_JOBS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    VOLUME_ATTACHMENTS,
    ForbiddenError,
    KubeClient,
    ListSource,
    NotFoundError,
    ObjectReader,
    ReadOnce,
    Resource,
    ServerError,
)
from berth_service.standard_output import own_output
from berth_service.whole_files import replace_file

STANDARD_STREAM: Final = "-"
"""As a file name: standard input or output."""

_READERS: Final = 4
"""Threads that read the kinds of a snapshot: on a busy API server each call waits its turn."""

LARGEST_BYTES: Final = 1 << 30
"""Of a snapshot file, unpacked; 150,000 pods have some 700 MiB."""

_CHUNK_BYTES: Final = 1 << 20
_ALWAYS_UNPACKED_BYTES: Final = 64 << 20
_MOST_UNPACKED: Final = 200
"""How many times as long as the packed file the unpacked one may be, beyond those; clusters have some 15."""
_GZIP_SUFFIX: Final = ".gz"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MAKERS: Final = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS)
_FURTHER_MAKERS: Final = (REPLICATION_CONTROLLERS, DAEMON_SETS)
"""Without the right to list them, their pods are planned as if the controllers were there and wanted them."""
_RULES: Final[Mapping[str, tuple[Resource, type[Any]]]] = {
    "disruption_budgets": (PDBS, PodDisruptionBudget),
    "priority_classes": (PRIORITY_CLASSES, PriorityClass),
    "namespaces": (NAMESPACES, Namespace),
}
_VOLUMES: Final[Mapping[str, tuple[Resource, type[Any]]]] = {
    "persistent_volume_claims": (PVCS, PersistentVolumeClaim),
    "persistent_volumes": (PVS, PersistentVolume),
    "storage_classes": (STORAGE_CLASSES, StorageClass),
    "csi_nodes": (CSI_NODES, CSINode),
    "volume_attachments": (VOLUME_ATTACHMENTS, VolumeAttachment),
}
_NOT_EVERYWHERE: Final = frozenset(
    {
        RESERVATIONS,
        VOLCANO_JOBS,
        VOLCANO_POD_GROUPS,
        *POD_GROUPS,
        POD_GROUP_WORKLOADS,
        VOLCANO_QUEUES,
        QUEUES,
        LEADER_WORKER_SETS,
    }
)
"""Kinds that a cluster may lack."""
_WRITTEN: Final = (
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
    CSI_NODES,
    VOLUME_ATTACHMENTS,
    PVS,
    PVCS,
    PDBS,
    *_MAKERS,
    DAEMON_SETS,
    REPLICATION_CONTROLLERS,
    LEADER_WORKER_SETS,
    CONTROLLER_REVISIONS,
    SERVICES,
    HORIZONTAL_POD_AUTOSCALERS,
    RESOURCE_QUOTAS,
    RESERVATIONS,
    VOLCANO_JOBS,
    VOLCANO_POD_GROUPS,
    POD_GROUPS,
    POD_GROUP_WORKLOADS,
    VOLCANO_QUEUES,
    QUEUES,
    KUEUE_LOCAL_QUEUES,
    PODS,
)
"""What a snapshot file has, in its order; pods last, so that every node they are on was read before."""

_OF_QUEUES: Final[Mapping[Resource | tuple[Resource, ...], SnapshotKind]] = {
    VOLCANO_QUEUES: SnapshotKind.VOLCANO_QUEUES,
    QUEUES: SnapshotKind.QUEUES,
    KUEUE_LOCAL_QUEUES: SnapshotKind.KUEUE_LOCAL_QUEUES,
    NAMESPACES: SnapshotKind.NAMESPACES,
}
"""Kinds without which only questions about queues are open, for an account that may not list them."""

_OF_SURGES: Final[Mapping[Resource | tuple[Resource, ...], SnapshotKind]] = {
    DAEMON_SETS: SnapshotKind.DAEMON_SETS,
    REPLICATION_CONTROLLERS: SnapshotKind.REPLICATION_CONTROLLERS,
    SERVICES: SnapshotKind.SERVICES,
    HORIZONTAL_POD_AUTOSCALERS: SnapshotKind.AUTOSCALERS,
    RESOURCE_QUOTAS: SnapshotKind.QUOTAS,
}
"""Kinds without which only is not known which pods can surge, for an account that may not list them."""

_OF_OWNERS: Final[Mapping[Resource | tuple[Resource, ...], SnapshotKind]] = {
    CONTROLLER_REVISIONS: SnapshotKind.CONTROLLER_REVISIONS,
}
"""Kinds without which pods stay whose replacement is not known, for an account that may not list them."""

T = TypeVar("T")


def read_snapshot_file(name: str, stated: Iterable[SnapshotKind] = ()) -> Snapshot:
    """Return the snapshot in a file, or on standard input for `-`.

    Knows compressed files by their first bytes. Of the kinds that are `stated` the cluster has no more objects than are
    in it. Raises `InputError` that says what is wrong with the file or the object in it.
    """
    return SnapshotFile(name, stated).read()


class PlanSource(Protocol):
    """What a plan is made on."""

    objects: ObjectReader
    """Gives what else decides which pods can surge."""

    @property
    def lacking_for_surges(self) -> tuple[SnapshotKind, ...]:
        """Return the kinds without which `objects` says nothing."""
        ...

    def read(self, own_namespace: str, beside: Iterable[ObjectKind] = ()) -> Snapshot:
        """Read all that the planner needs, and the kinds that plugins read; raises `BerthError`."""
        ...


class SnapshotFile:
    """A snapshot in a file, or on standard input, read once."""

    def __init__(self, name: str, stated: Iterable[SnapshotKind] = ()) -> None:
        """`stated` are the kinds of which the cluster has no more objects than are in the file."""
        self._name = name
        self._stated = tuple(stated)
        self._raw = b""
        self.objects: ObjectReader = ReadOnce(self._of_kind)

    @cached_property
    def _surges(self) -> SurgeObjects:
        return SurgeObjects.from_json(self._raw, self._stated)

    @property
    def lacking_for_surges(self) -> tuple[SnapshotKind, ...]:
        """Return the kinds that the file lacks."""
        return self._surges.lacking

    def read(self, own_namespace: str = "", beside: Iterable[ObjectKind] = ()) -> Snapshot:  # noqa: ARG002 - the file is taken as it is
        """Return the snapshot in the file, as `read_snapshot_file` does."""
        self._raw = _unpacked(self._name, _read(self._name))
        return Snapshot.from_json(self._raw, self._stated)

    def _of_kind(self, resource: Resource, namespace: str | None) -> Iterator[dict[str, Any]]:
        """Return a namespace's objects of a kind, and those of which the namespace cannot be read."""
        of_kind = self._surges.by_kind.get(resource.kind, ())
        return (raw_object for raw_object in of_kind if raw_object["metadata"].get("namespace") in {namespace, None})


class LiveCluster:
    """The cluster behind a client."""

    lacking_for_surges: tuple[SnapshotKind, ...] = ()

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.objects: ObjectReader = ReadOnce(lambda kind, namespace: client.list(kind, namespace=namespace).items)

    def read(self, own_namespace: str, beside: Iterable[ObjectKind] = ()) -> Snapshot:
        """Return the cluster as it is."""
        return read_live_snapshot(self._client, own_namespace, beside)


def read_live_snapshot(
    source: ListSource, own_namespace: str = "", beside: Iterable[ObjectKind] = (), kept: KeptPods | None = None
) -> Snapshot:
    """Return what the planner needs from the live cluster; raises `KubeError`.

    With Berth's own namespace given, pods of others are no fences, whatever they are labelled. Of the kinds `beside`,
    which plugins read, those are there that the cluster serves and the account may list. What is `kept` of the pods of
    an earlier look only saves time.
    """
    unread: list[SnapshotKind] = []
    nodes, ordered = _list(source, NODES, Node), (kept or KeptPods()).order(_list(source, PODS, Pod))
    pods = _believed(ordered.pods, own_namespace) if ordered.have_fence_labels else ordered.pods
    # What pods refer to is read after them, so that it is there; of these kinds several at once.
    with ThreadPoolExecutor(_READERS, thread_name_prefix="snapshot") as pool:
        volumes, gangs = pool.submit(_read_fields, source, _VOLUMES), pool.submit(_read_groups, source)
        workloads = pool.submit(_read_makers, source, has_leaders=ordered.have_leaders)
        queues = pool.submit(_read_queues, source, unread)
        reservations = tuple(map(Reservation.read, _list(source, RESERVATIONS, dict)))
        snapshot = Snapshot(
            nodes=nodes,
            **_read_fields(source, _RULES),
            reservations=reservations,
            workloads=workloads.result(),
            controller_revisions=tuple(read_revisions(source, workloads.result())),
            **volumes.result(),
            **gangs.result(),
            **queues.result(),
            beside=_read_beside(source, beside, own_namespace),
            unread=tuple(unread),  # last: those before note what they may not list
        )
    return snapshot.with_pods_in_order(pods)


def _read_beside(
    source: ListSource, kinds: Iterable[ObjectKind], own_namespace: str
) -> dict[str, tuple[RawObject, ...]]:
    """Return the objects of the kinds that plugins read, by the names of those that can be read now.

    A single object is looked for in Berth's own namespace, and in none where that is "". An aggregated API that is
    registered and whose server is away is answered 503: that stops no plan either.
    """
    beside: dict[str, tuple[RawObject, ...]] = {}
    for kind in kinds:
        resource = Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=kind.is_namespaced)
        with suppress(NotFoundError, ForbiddenError, ServerError):
            if not kind.only:
                beside[kind.name] = tuple(_raw_items(source, resource))
            elif own_namespace:
                item: dict[str, Any] = source.get(resource, kind.only, namespace=own_namespace)
                beside[kind.name] = (_as_in_file(item, resource),)
    return beside


def read_beside_pods(source: ListSource) -> dict[str, Any]:
    """Return the fields of a snapshot beside nodes, pods and what is Berth's own; raises a `KubeError`.

    Kinds that may not be listed are left out.
    """
    fields: dict[str, Any] = {}
    readers: list[Callable[[], dict[str, Any]]] = [
        *(partial(_read_fields, source, {field: kind}) for field, kind in {**_RULES, **_VOLUMES}.items()),
        partial(_read_groups, source),
        partial(_read_foreign_queues, source),
        lambda: {"workloads": _read_makers(source)},
    ]
    for read in readers:
        with suppress(ForbiddenError):
            fields |= read()
    return fields


def _read_foreign_queues(source: ListSource) -> dict[str, Any]:
    unread: list[SnapshotKind] = []
    local_queues = _list_of_queues(source, KUEUE_LOCAL_QUEUES, LocalQueue, unread)
    return {"local_queues": local_queues, "queue_objects": _list_volcano_queues(source, unread)}


def _read_makers(source: ListSource, *, has_leaders: bool = False) -> tuple[Workload, ...]:
    """Return the controllers of pods; LeaderWorkerSets only where a pod names one."""
    makers = [maker for kind in _MAKERS for maker in _list_workloads(source, kind)]
    for kind in (*_FURTHER_MAKERS, *((LEADER_WORKER_SETS,) if has_leaders else ())):
        with suppress(ForbiddenError):
            makers += _list_workloads(source, kind)
    return tuple(makers)


def read_revisions(source: ListSource, workloads: Iterable[Workload]) -> Iterator[ControllerRevision]:
    """Yield the revisions from which StatefulSets make pods beside the one that their template is; these are few."""
    for workload in workloads:
        if workload.keeps_pods_of_current_revision:
            with suppress(PermanentError):  # one that is gone or cannot be read is not known
                yield source.get(
                    CONTROLLER_REVISIONS,
                    workload.status.current_revision,
                    namespace=workload.metadata.namespace,
                    type=ControllerRevision,
                )


def _read_fields(source: ListSource, fields: Mapping[str, tuple[Resource, type[Any]]]) -> dict[str, Any]:
    """Return fields of a snapshot by what is listed for each."""
    return {field: _list(source, resource, item_type) for field, (resource, item_type) in fields.items()}


def _read_groups(source: ListSource, namespace: str | None = None) -> dict[str, Any]:
    """Return the fields of a snapshot that say which pods belong together."""
    return {
        "volcano_jobs": _list(source, VOLCANO_JOBS, VolcanoJob, namespace),
        "pod_groups": _list_pod_groups(source, namespace),
        "pod_group_workloads": _list(source, POD_GROUP_WORKLOADS, PodGroupWorkload, namespace),
    }


def _read_queues(source: ListSource, unread: list[SnapshotKind]) -> dict[str, Any]:
    """Return the fields of a snapshot that are about queues; notes kinds that may not be listed."""
    own_queues = _list_gated_queues(source, unread)
    return {
        "gated_queues": own_queues,
        "local_queues": _list_of_queues(source, KUEUE_LOCAL_QUEUES, LocalQueue, unread) if own_queues else (),
        "queue_objects": _list_volcano_queues(source, unread),
    }


def _believed(pods: tuple[Pod, ...], own_namespace: str) -> tuple[Pod, ...]:
    """Return pods without the labels of fences but in Berth's own namespace: anyone may make pods elsewhere."""
    if not own_namespace:
        return pods
    return tuple(
        pod
        if pod.metadata.namespace == own_namespace or FENCE_LABELS.isdisjoint(pod.metadata.labels)
        else _unlabelled(pod)
        for pod in pods
    )


def _unlabelled(pod: Pod) -> Pod:
    labels = {key: value for key, value in pod.metadata.labels.items() if key not in FENCE_LABELS}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def read_gangs(source: ListSource, namespace: str, own_namespace: str = "") -> Snapshot:
    """Return the pods of a namespace and the groups they are in, as `read_live_snapshot` does; raises a `KubeError`."""
    pods = _believed(_list(source, PODS, Pod, namespace), own_namespace)
    return Snapshot(pods=pods, **_read_groups(source, namespace))


def read_capacity(source: ListSource) -> Snapshot:
    """Return a snapshot of nodes, pods and reservations: what is free; and of queues. Raises a `KubeError`.

    Where a queue has a guarantee, the pods that are in it are read as well.
    """
    nodes, pods = _list(source, NODES, Node), _list(source, PODS, Pod)
    reservations = tuple(map(Reservation.read, _list(source, RESERVATIONS, dict)))
    unread: list[SnapshotKind] = []
    queues, own_queues = _list_volcano_queues(source, unread), _list_gated_queues(source, unread)
    has_guarantees = any(queue.spec.guarantee.resource for queue in queues)
    has_own = any(queue.spec.guarantee.resource for queue in own_queues)
    return Snapshot(
        nodes=nodes,
        pods=pods,
        namespaces=_list_of_queues(source, NAMESPACES, Namespace, unread) if has_own else (),
        reservations=reservations,
        volcano_jobs=_list(source, VOLCANO_JOBS, VolcanoJob) if has_guarantees else (),
        pod_groups=_list_pod_groups(source) if has_guarantees else (),
        queue_objects=queues,
        gated_queues=own_queues,
        local_queues=_list_of_queues(source, KUEUE_LOCAL_QUEUES, LocalQueue, unread) if has_own else (),
        unread=tuple(unread),
    )


def dump_cluster(source: ListSource, beside: Iterable[ObjectKind] = (), own_namespace: str = "") -> bytes:
    """Return what the planner reads, and what plugins read `beside`, as a `v1` List in JSON.

    Of Berth's own namespace come the single objects that plugins read.
    Objects are as the API server has them, without managed fields.
    """
    items: list[dict[str, Any]] = []
    kinds = list(SnapshotKind)
    for kind in _WRITTEN:
        try:
            items += _raw_items(source, kind)
        except ForbiddenError:
            # Plans on a live cluster do without them as well.
            if kind == LEADER_WORKER_SETS:
                continue
            left_out = {**_OF_QUEUES, **_OF_SURGES, **_OF_OWNERS}.get(kind)
            # Not queues alone go by namespaces: selectors of policies and of pod affinities choose them by their
            # labels.
            if left_out is None or kind == NAMESPACES:
                raise
            kinds.remove(left_out)
    listed = {"apiVersion": "v1", "kind": "List", "kinds": kinds, "items": items}
    if of_plugins := _read_beside(source, beside, own_namespace):
        items += map(dict, items_beside(of_plugins))
        listed |= {"beside": sorted(of_plugins), "readAt": format_timestamp(SystemClock().now())}
    return msgspec.json.encode(listed) + b"\n"


def write_snapshot_file(name: str, raw: bytes) -> None:
    """Write a snapshot to a file, packed if its name ends in `.gz`, or to standard output for `-`.

    Raises `InputError` where the file cannot be written; what it held before is still there then.
    """
    if name == STANDARD_STREAM:
        own_output().buffer.write(raw)
        own_output().buffer.flush()
        return
    # Without the time in its head, so that equal snapshots make equal files.
    packed = gzip.compress(raw, mtime=0) if name.endswith(_GZIP_SUFFIX) else raw
    try:
        replace_file(Path(name), packed)
    except OSError as error:
        raise InputError("--file", name, f"a file that can be written ({error.strerror})") from error


def _read(name: str) -> bytes:
    try:
        if name == STANDARD_STREAM:
            return _read_bounded(name, sys.stdin.buffer)
        with Path(name).open("rb") as open_file:
            return _read_bounded(name, open_file)
    except OSError as error:
        raise InputError("--snapshot", name, f"a file that can be read ({error.strerror})") from error


def _unpacked(name: str, raw: bytes) -> bytes:
    if not raw.startswith(_GZIP_MAGIC):
        return raw
    try:
        with gzip.open(io.BytesIO(raw)) as unpacked:
            return _read_bounded(name, unpacked, max(_ALWAYS_UNPACKED_BYTES, _MOST_UNPACKED * len(raw)))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("--snapshot", name, f"a whole gzip file ({error})") from error


def _read_bounded(name: str, source: BinaryIO | gzip.GzipFile, likely_bytes: int = LARGEST_BYTES) -> bytes:
    """Return what a file holds; raises `InputError` beyond `LARGEST_BYTES`, or what is likely for a packed file.

    The bounds are above the size of any cluster's file. Reading ends there, however long the file goes on.
    """
    content, most_bytes = io.BytesIO(), min(LARGEST_BYTES, likely_bytes)
    while chunk := source.read(_CHUNK_BYTES):
        content.write(chunk)
        if content.tell() > most_bytes:
            raise InputError("--snapshot", name, f"a file of at most {most_bytes} bytes, unpacked")
    return content.getvalue()


def _list(source: ListSource, resource: Resource, item_type: type[T], namespace: str | None = None) -> tuple[T, ...]:
    """Return all objects of a kind, none of an optional kind that the cluster does not have."""
    if resource in _NOT_EVERYWHERE:
        return _list_first_served(source, (resource,), item_type, namespace)[1]
    return source.list(resource, type=item_type, namespace=namespace).items


def _list_first_served(
    source: ListSource, versions: Iterable[Resource], item_type: type[T], namespace: str | None = None
) -> tuple[Resource | None, tuple[T, ...]]:
    """Return the first version of a kind that is served, with all objects; None and nothing if there is none."""
    for resource in versions:
        try:
            objects = source.list(resource, type=item_type, namespace=namespace).items
        except NotFoundError:
            continue
        return resource, objects
    return None, ()


def _list_workloads(source: ListSource, resource: Resource) -> Iterator[Workload]:
    """Yield workloads with their kind, which a list leaves out."""
    for workload in _list(source, resource, Workload):
        yield msgspec.structs.replace(workload, api_version=resource.api_version, kind=resource.kind)


def _list_pod_groups(source: ListSource, namespace: str | None = None) -> tuple[PodGroup, ...]:
    """Return the pod groups of Volcano and of Kubernetes, with their API version and kind, which a list leaves out."""
    pod_groups = []
    for versions in ((VOLCANO_POD_GROUPS,), POD_GROUPS):
        served, groups = _list_first_served(source, versions, PodGroup, namespace)
        if served is not None:
            pod_groups += [_with_kind(group, served) for group in groups]
    return tuple(pod_groups)


def _list_volcano_queues(source: ListSource, unread: list[SnapshotKind]) -> tuple[QueueObject, ...]:
    head = {"apiVersion": VOLCANO_QUEUES.api_version, "kind": VOLCANO_QUEUES.kind}
    queues = _list_of_queues(source, VOLCANO_QUEUES, dict, unread)
    return tuple(QueueObject.read({**queue, **head}) for queue in queues)


def _list_gated_queues(source: ListSource, unread: list[SnapshotKind]) -> tuple[GatedQueue, ...]:
    return tuple(map(GatedQueue.read, _list_of_queues(source, QUEUES, dict, unread)))


def _list_of_queues(
    source: ListSource, kind: Resource | tuple[Resource, ...], item_type: type[T], unread: list[SnapshotKind]
) -> tuple[T, ...]:
    """Return the objects of a kind that only questions about queues depend on; notes one that may not be listed.

    Few plans look at queues, so the others do not fail without the right to list them.
    """
    versions = kind if isinstance(kind, tuple) else (kind,)
    try:
        return _list_first_served(source, versions, item_type)[1]
    except ForbiddenError:
        unread.append(_OF_QUEUES[kind])
        return ()


def _with_kind(group: PodGroup, resource: Resource) -> PodGroup:
    return msgspec.structs.replace(group, api_version=resource.api_version, kind=resource.kind)


def _raw_items(source: ListSource, kind: Resource | tuple[Resource, ...]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a kind as a file has them.

    A kind that has several versions is given with all of them.
    """
    if isinstance(kind, tuple):
        resource, items = _list_first_served(source, kind, dict[str, Any])
    else:
        resource, items = kind, _list(source, kind, dict[str, Any])
    for item in sorted(items, key=_identity):
        yield _as_in_file(item, resource)


def _as_in_file(item: Mapping[str, Any], resource: Resource | None) -> dict[str, Any]:
    """Return an object with its kind, which a list leaves out, and without managed fields."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    # The API server writes the kind of a list's items once, at the list (kubernetes/kubernetes#63676).
    head = {"apiVersion": resource.api_version, "kind": resource.kind} if resource else {}
    return {**item, **head, "metadata": metadata}


def _identity(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace") or "", item["metadata"]["name"]
