"""Owns where snapshots come from and go to: a file, standard input or output, the live cluster.

It does not own what a snapshot means (`berth_core.snapshot`) nor how the API server is talked to (`berth_kube`).
"""

import gzip
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from berth_core.errors import InputError
from berth_core.objects import Namespace, Node, Pod, PodDisruptionBudget, PriorityClass
from berth_core.reservations import Reservation
from berth_core.snapshot import Snapshot
from berth_core.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from berth_core.workloads import Workload
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import (
    CSI_NODES,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)

STANDARD_STREAM: Final = "-"
"""As a file name: standard input or output."""

_GZIP_SUFFIX: Final = ".gz"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MAKERS: Final = (REPLICA_SETS, STATEFUL_SETS, JOBS)
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
    DEPLOYMENTS,
    *_MAKERS,
    RESERVATIONS,
    PODS,
)
"""What a snapshot file has, in its order; pods last, so that every node they are on was read before."""

T = TypeVar("T")


def read_snapshot_file(name: str) -> Snapshot:
    """Return the snapshot in a file, or on standard input for `-`; compressed ones are known by their first bytes.

    Raises `InputError` that says what is wrong with the file or the object in it.
    """
    return Snapshot.from_json(_unpacked(name, _read(name)))


def read_live_snapshot(client: KubeClient) -> Snapshot:
    """Return what the planner looks at as the API server has it now; raises a `KubeError`."""
    return Snapshot(
        nodes=_list(client, NODES, Node),
        pods=_list(client, PODS, Pod),
        workloads=tuple(workload for resource in _MAKERS for workload in _list_workloads(client, resource)),
        disruption_budgets=_list(client, PDBS, PodDisruptionBudget),
        persistent_volume_claims=_list(client, PVCS, PersistentVolumeClaim),
        persistent_volumes=_list(client, PVS, PersistentVolume),
        storage_classes=_list(client, STORAGE_CLASSES, StorageClass),
        csi_nodes=_list(client, CSI_NODES, CSINode),
        volume_attachments=_list(client, VOLUME_ATTACHMENTS, VolumeAttachment),
        priority_classes=_list(client, PRIORITY_CLASSES, PriorityClass),
        namespaces=_list(client, NAMESPACES, Namespace),
        reservations=tuple(map(Reservation.read, _list(client, RESERVATIONS, dict))),
    )


def read_capacity(client: KubeClient) -> Snapshot:
    """Return the part of a snapshot that says what is free: nodes, pods and reservations; raises a `KubeError`."""
    return Snapshot(
        nodes=_list(client, NODES, Node),
        pods=_list(client, PODS, Pod),
        reservations=tuple(map(Reservation.read, _list(client, RESERVATIONS, dict))),
    )


def dump_cluster(client: KubeClient) -> bytes:
    """Return a `v1` List in JSON of what the planner looks at, as the API server has it without managed fields."""
    items = [item for resource in _WRITTEN for item in _raw_items(client, resource)]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}) + b"\n"


def write_snapshot_file(name: str, raw: bytes) -> None:
    """Write a snapshot to a file, compressed if its name ends in `.gz`, or to standard output for `-`.

    Raises `InputError` where the file cannot be written.
    """
    if name == STANDARD_STREAM:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    packed = gzip.compress(raw, mtime=0) if name.endswith(_GZIP_SUFFIX) else raw
    try:
        Path(name).write_bytes(packed)
    except OSError as error:
        raise InputError("--output", name, f"a file that can be written ({error.strerror})") from error


def _read(name: str) -> bytes:
    if name == STANDARD_STREAM:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InputError("--snapshot", name, f"a file that can be read ({error.strerror})") from error


def _unpacked(name: str, raw: bytes) -> bytes:
    if not raw.startswith(_GZIP_MAGIC):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("--snapshot", name, f"a whole gzip file ({error})") from error


def _list(client: KubeClient, resource: Resource, item_type: type[T]) -> tuple[T, ...]:
    """Return all objects of a kind; none where the kind is Berth's own and the cluster does not have it."""
    try:
        return client.list(resource, type=item_type).items
    except NotFoundError:
        if resource is not RESERVATIONS:
            raise
        return ()


def _list_workloads(client: KubeClient, resource: Resource) -> Iterator[Workload]:
    """Yield workloads with what a list leaves out: what kind they are of."""
    for workload in _list(client, resource, Workload):
        yield msgspec.structs.replace(workload, api_version=resource.api_version, kind=resource.kind)


def _raw_items(client: KubeClient, resource: Resource) -> Iterator[dict[str, Any]]:
    items: tuple[dict[str, Any], ...] = _list(client, resource, dict)
    for item in sorted(items, key=_identity):
        metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
        yield {**item, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _identity(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
