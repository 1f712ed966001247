"""Owns the cluster at one moment: all objects that Berth plans on, immutable and in a fixed order.

It does not own how they are fetched, nor the form of the file: that is `berth_core.api_lists`'s.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import msgspec

from berth_core.api_lists import Listed, decode_list, encode_items, encode_list, kind_of, name_of
from berth_core.errors import InputError
from berth_core.objects import Namespace, Node, Pod, PodDisruptionBudget, PriorityClass
from berth_core.pod_groups import PodGroup, PodGroupWorkload, VolcanoJob
from berth_core.pod_requests import occupied_requests
from berth_core.reservations import Reservation
from berth_core.resources import ResourceAmounts
from berth_core.snapshot_kinds import SnapshotKind, known_kinds, missing_kinds
from berth_core.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from berth_core.workloads import Workload

_FIELDS: Final[Mapping[type[Listed], str]] = {
    Node: "nodes",
    Pod: "pods",
    Workload: "workloads",
    PodDisruptionBudget: "disruption_budgets",
    PersistentVolumeClaim: "persistent_volume_claims",
    PersistentVolume: "persistent_volumes",
    StorageClass: "storage_classes",
    CSINode: "csi_nodes",
    VolumeAttachment: "volume_attachments",
    PriorityClass: "priority_classes",
    Namespace: "namespaces",
    Reservation: "reservations",
    VolcanoJob: "volcano_jobs",
    PodGroup: "pod_groups",
    PodGroupWorkload: "pod_group_workloads",
}


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All objects that Berth looks at; each tuple is sorted by kind, namespace and name, however it was given.

    `nodes` and `pods` are the whole cluster's; whatever is missing from the others is taken not to exist. `missing`
    names the kinds of which that is a guess.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    workloads: tuple[Workload, ...] = ()
    disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    volume_attachments: tuple[VolumeAttachment, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    volcano_jobs: tuple[VolcanoJob, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    pod_group_workloads: tuple[PodGroupWorkload, ...] = ()
    missing: tuple[SnapshotKind, ...] = ()
    """Kinds that plans for these pods depend on and that were not read."""

    def __post_init__(self) -> None:
        """Put every tuple in order."""
        for name in _FIELDS.values():
            object.__setattr__(self, name, tuple(sorted(getattr(self, name), key=_identity)))

    @classmethod
    def empty(cls) -> "Snapshot":
        """Return a cluster without anything."""
        return cls()

    @classmethod
    def from_api(cls, items: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> "Snapshot":
        """Return the snapshot of API objects, each with its `apiVersion` and `kind`, or of a `v1` List of them.

        Objects that are no List are all that there are, of every kind. Raises `InputError` as `from_json` does.
        """
        if isinstance(items, Mapping):
            return cls.from_json(msgspec.json.encode(items))
        return cls.from_json(encode_items(items), SnapshotKind)

    @classmethod
    def from_json(cls, raw: bytes, stated: Iterable[SnapshotKind] = ()) -> "Snapshot":
        """Return the snapshot that a `v1` List in JSON holds; kinds that Berth does not look at are skipped.

        Of the kinds that are `stated`, by the caller or in the file, the cluster has no more objects than these. Raises
        `InputError` that names the object, the field and what would be right.
        """
        sorted_out: dict[str, list[Listed]] = {}
        listed = decode_list(raw)
        for one in listed.objects:
            sorted_out.setdefault(_FIELDS[type(one)], []).append(one)
        pods = [one for one in listed.objects if isinstance(one, Pod)]
        missing = missing_kinds(pods, set(map(kind_of, listed.objects)), {*stated, *known_kinds(listed.kinds)})
        snapshot = cls(missing=missing, **{field: tuple(found) for field, found in sorted_out.items()})  # type: ignore[arg-type]
        snapshot.check()
        return snapshot

    def to_json(self) -> bytes:
        """Return the `v1` List in JSON from which `from_json` makes an equal snapshot; equal snapshots, equal bytes."""
        held = (kind for kind in SnapshotKind if kind not in self.missing)
        return encode_list((one for name in _FIELDS.values() for one in getattr(self, name)), held)

    def check(self) -> None:
        """Raise `InputError` for what no cluster has: an object twice, a pod on an unknown node, a bad amount."""
        for name in _FIELDS.values():
            _check_unique(getattr(self, name))
        for pod in self.pods:
            if pod.spec.node_name and not pod.is_terminal and pod.spec.node_name not in self.nodes_by_name:
                expected = "the name of a Node of the snapshot"
                raise InputError(f"Pod {pod.key}: spec.nodeName", pod.spec.node_name, expected)
        _ = self.requests, self.allocatable

    @cached_property
    def requests(self) -> Mapping[str, ResourceAmounts]:
        """Return what each pod takes of a node, by the pod's key; raises `InputError` that names pod and field."""
        return {pod.key: _requests(pod) for pod in self.pods}

    @cached_property
    def allocatable(self) -> Mapping[str, ResourceAmounts]:
        """Return what each node has for pods, by the node's name; raises `InputError` that names node and field."""
        return {node.metadata.name: _allocatable(node) for node in self.nodes}

    @cached_property
    def nodes_by_name(self) -> Mapping[str, Node]:
        """Return the nodes by name."""
        return {node.metadata.name: node for node in self.nodes}

    def pods_on(self, node_name: str) -> tuple[Pod, ...]:
        """Return the pods that hold a part of a node: bound to it and not ended."""
        return self._pods_by_node.get(node_name, ())

    @cached_property
    def _pods_by_node(self) -> Mapping[str, tuple[Pod, ...]]:
        """Return the pods that hold a part of each node."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if pod.spec.node_name and not pod.is_terminal:
                found.setdefault(pod.spec.node_name, []).append(pod)
        return {name: tuple(pods) for name, pods in found.items()}


def _identity(one: Listed) -> tuple[str, str, str]:
    """Return what tells an object from the others of its tuple."""
    return (_kind_within(one), one.metadata.namespace, one.metadata.name)


def _kind_within(one: Listed) -> str:
    """Return what sets an object apart from others of its type by the same name."""
    match one:
        case Workload():
            return one.kind
        case PodGroup():
            return one.api_group
        case _:
            return ""


def _check_unique(objects: tuple[Listed, ...]) -> None:
    """Raise `InputError` if an object stands twice in a sorted tuple."""
    for first, second in pairwise(objects):
        if _identity(first) == _identity(second):
            raise InputError(name_of(first), None, "each object once", said="listed twice")


def _requests(pod: Pod) -> ResourceAmounts:
    """Return what a pod takes; an error names the pod."""
    try:
        return occupied_requests(pod)
    except InputError as error:
        raise error.within(f"Pod {pod.key}", joint=": ") from error


def _allocatable(node: Node) -> ResourceAmounts:
    """Return what a node has; an error names the node."""
    try:
        return ResourceAmounts.from_quantities(node.status.allocatable)
    except InputError as error:
        raise error.within("status.allocatable").within(f"Node {node.metadata.name}", joint=": ") from error
