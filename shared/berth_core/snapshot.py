"""A snapshot of the cluster, immutable and sorted: the objects that Berth plans on."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final

import msgspec

from berth_core.errors import InputError
from berth_core.gated_queues import GatedQueue, LocalQueue, offered_to_queues
from berth_core.labels import PLACEHOLDER_LABEL, STANDING_FENCE_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.object_lists import (
    STAND_INS,
    Listed,
    RawObject,
    decode_list,
    encode_items,
    encode_list,
    kind_of,
    name_of,
)
from berth_core.objects.disruption_budgets import PodDisruptionBudget
from berth_core.objects.metadata import Namespace, api_group
from berth_core.objects.nodes import Node
from berth_core.objects.pods import Pod, PriorityClass
from berth_core.pod_groups import PodGroup, PodGroupWorkload, VolcanoJob
from berth_core.pod_requests import occupied_requests
from berth_core.queues import Queue, QueueObject
from berth_core.reservations import Reservation
from berth_core.resources import ResourceAmounts
from berth_core.snapshot_kinds import ONLY_FOR_SURGES, SnapshotKind, known_kinds, missing_kinds, unread_kinds
from berth_core.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from berth_core.workloads import ControllerRevision, Workload

_WITHOUT_NAMESPACES: Final = "the labels of namespaces were not read, so it is not known which pods are its own"
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
    ControllerRevision: "controller_revisions",
    PriorityClass: "priority_classes",
    Namespace: "namespaces",
    Reservation: "reservations",
    VolcanoJob: "volcano_jobs",
    PodGroup: "pod_groups",
    PodGroupWorkload: "pod_group_workloads",
    QueueObject: "queue_objects",
    GatedQueue: "gated_queues",
    LocalQueue: "local_queues",
}
BY_NAME: Final = attrgetter("metadata.namespace", "metadata.name")
"""The order of most objects of a snapshot, and of its pods."""
_ORDERS: Final[Mapping[type[Listed], Callable[[Any], Any]]] = {
    Workload: attrgetter("kind", "metadata.namespace", "metadata.name"),
    PodGroup: attrgetter("api_group", "metadata.namespace", "metadata.name"),
    QueueObject: attrgetter("api_group", "metadata.namespace", "metadata.name"),
}
"""The order of types whose objects may have one name and be of several kinds."""
_WHY_UNREADABLE: Final = attrgetter("metadata.unreadable")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All objects that Berth reads.

    Each tuple is sorted by kind, namespace and name. `nodes` and `pods` are the whole cluster's; objects of other kinds
    that are not there count as absent. `missing` names the kinds for which that is a guess.
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
    controller_revisions: tuple[ControllerRevision, ...] = ()
    """Of a live cluster only those from which StatefulSets make pods that their own template does not describe."""
    priority_classes: tuple[PriorityClass, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    volcano_jobs: tuple[VolcanoJob, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    pod_group_workloads: tuple[PodGroupWorkload, ...] = ()
    queue_objects: tuple[QueueObject, ...] = ()
    gated_queues: tuple[GatedQueue, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    missing: tuple[SnapshotKind, ...] = ()
    """Kinds that plans for these pods depend on and that were not read."""
    unread: tuple[SnapshotKind, ...] = ()
    """Kinds that plans depend on only if they are asked about queues, and that were not read."""
    stated: frozenset[SnapshotKind] = field(default=frozenset(), compare=False)
    """Kinds that a file holds completely, even without objects, as its reader said."""
    unreadable: tuple[Listed, ...] = ()
    """Objects that cannot be read and are left out elsewhere. Nodes, Pods, Reservations and queues stay in their own
    fields, with what can be read of them."""
    own_namespace: str = DEFAULT_NAMESPACE
    """Berth's own, whose pods are in no queue."""
    beside: Mapping[str, tuple[RawObject, ...]] = field(default_factory=dict)
    """Objects of the kinds that plugins read, by the name of the kind; a kind that the cluster does not serve is not
    there."""
    leaving_freely: frozenset[str] = frozenset()
    """Pods (`namespace/name`) that may leave however many Ready pods their controllers have here, such as those whose
    replacements come first; no snapshot that was read has any."""
    read_at: datetime | None = field(default=None, compare=False)
    """When these were read, in a snapshot from a file that says so: their age does not grow with that of the file."""

    def __post_init__(self) -> None:
        """Sort every tuple, and set unreadable objects apart."""
        unreadable = [*self.unreadable]
        for type_, name in _FIELDS.items():
            objects: tuple[Listed, ...] = getattr(self, name)
            if (type_ is Pod or type_ not in STAND_INS) and any(map(_WHY_UNREADABLE, objects)):
                if type_ is Pod:
                    objects = _placed_by_address(self.pods, self.nodes)
                else:
                    unreadable += (listed for listed in objects if listed.metadata.unreadable)
                    objects = tuple(listed for listed in objects if not listed.metadata.unreadable)
            # Each look at a plan's next moves sorts all pods and workloads: no function of ours is called for each.
            object.__setattr__(self, name, tuple(sorted(objects, key=_order_of(type_))))
        object.__setattr__(self, "unreadable", tuple(sorted(unreadable, key=_kind_and_identity)))

    def within(self, own_namespace: str) -> "Snapshot":
        """Return this snapshot as one of a cluster where Berth has another namespace."""
        return self if own_namespace == self.own_namespace else replace(self, own_namespace=own_namespace)

    def replace_in_order(self, **fields: Any) -> "Snapshot":  # noqa: ANN401 - fields of a snapshot
        """Return a copy with other fields, whose objects are in the order of this snapshot already.

        `dataclasses.replace` sorts the objects of all kinds again, for each look at a plan's next moves several times.
        """
        copied = object.__new__(Snapshot)
        for name in self.__dataclass_fields__:  # and of what is cached only what each look asks several times
            object.__setattr__(copied, name, fields[name] if name in fields else getattr(self, name))
        if copied.pods is self.pods and "marked_pods" in vars(self):
            vars(copied)["marked_pods"] = self.marked_pods
        return copied

    def with_pods_in_order(self, pods: tuple[Pod, ...]) -> "Snapshot":
        """Return a copy with other pods, which are in order already."""
        placed = _placed_by_address(pods, self.nodes) if any(map(_WHY_UNREADABLE, pods)) else pods
        return self.replace_in_order(pods=placed)

    def without_marked(self, leaving: Collection[Pod]) -> "Snapshot":
        """Return a copy without some of the marked pods."""
        if not leaving:
            return self
        identities = set(map(id, leaving))
        copied = self.replace_in_order(pods=tuple(pod for pod in self.pods if id(pod) not in identities))
        vars(copied)["marked_pods"] = tuple(pod for pod in self.marked_pods if id(pod) not in identities)
        return copied

    @classmethod
    def empty(cls) -> "Snapshot":
        return cls()

    @classmethod
    def from_api(cls, items: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> "Snapshot":
        """Return the snapshot of API objects, or of a `v1` List.

        Each object has its `apiVersion` and `kind`. Objects outside a List are complete for every kind. Raises
        `InputError` as `from_json` does.
        """
        if isinstance(items, Mapping):
            return cls.from_json(msgspec.json.encode(items))
        return cls.from_json(encode_items(items), SnapshotKind)

    @classmethod
    def from_json(cls, raw: bytes, stated: Iterable[SnapshotKind] = ()) -> "Snapshot":
        """Decode a `v1` List in JSON.

        Kinds that Berth does not read are skipped. Kinds that the caller or the file states are complete even without
        objects. Raises `InputError` with the object, the field and what would be right.
        """
        sorted_out: dict[str, list[Listed]] = {}
        listed = decode_list(raw)
        for obj in listed.objects:
            sorted_out.setdefault(_FIELDS[type(obj)], []).append(obj)
        pods = [listed_pod for listed_pod in listed.objects if isinstance(listed_pod, Pod)]
        stated_kinds = frozenset(stated)
        present = set(map(kind_of, listed.objects))
        known = stated_kinds.union(known_kinds(listed.kinds))
        missing, unread = missing_kinds(pods, present, known), unread_kinds(present, known)
        fields: dict[str, Any] = {name: tuple(objects) for name, objects in sorted_out.items()}
        snapshot = cls(
            missing=missing, unread=unread, stated=stated_kinds, beside=listed.beside, read_at=listed.read_at, **fields
        )
        snapshot.check()
        return snapshot

    def to_json(self) -> bytes:
        """Return the `v1` List in JSON that `from_json` reads; equal snapshots give equal bytes."""
        held = (kind for kind in SnapshotKind if kind not in {*self.missing, *self.unread, *ONLY_FOR_SURGES})
        objects = (listed for name in (*_FIELDS.values(), "unreadable") for listed in getattr(self, name))
        return encode_list(objects, held, self.beside, self.read_at)

    def check(self) -> None:
        """Raise `InputError` for duplicates.

        Pods may name nodes that do not exist: the API server takes any name, and a deleted node leaves its pods behind.
        """
        for name in _FIELDS.values():
            _check_unique(getattr(self, name))

    def all_unreadable(self) -> tuple[Listed, ...]:
        """Return every object that cannot be read, each once."""
        stand_ins = (
            listed for type_ in STAND_INS for listed in getattr(self, _FIELDS[type_]) if listed.metadata.unreadable
        )
        return (*self.unreadable, *stand_ins)

    @cached_property
    def requests(self) -> Mapping[str, ResourceAmounts]:
        """Return each pod's resource requests by its key; raises `InputError`."""
        return {pod.key: _requests(pod) for pod in self.pods}

    @cached_property
    def allocatable(self) -> Mapping[str, ResourceAmounts]:
        """Return what each node offers, by name; raises `InputError`."""
        return {node.metadata.name: _allocatable(node) for node in self.nodes}

    @cached_property
    def queues(self) -> tuple[Queue, ...]:
        """Return the queues of Volcano and Berth by name; guarantees of Berth's that do not count are left out."""
        total = ResourceAmounts.total(self.offered_to_queues.values())
        own = (queue.counted(total) for queue in self.gated_queues)
        if SnapshotKind.NAMESPACES in self.unread:
            own = (replace(queue, unreadable=queue.unreadable or _WITHOUT_NAMESPACES) for queue in own)
        return tuple(sorted((*map(Queue.of, self.queue_objects), *own), key=lambda queue: (queue.name, queue.source)))

    @cached_property
    def offered_to_queues(self) -> Mapping[str, ResourceAmounts]:
        """Return by node the amounts of which Berth's queues have percentages.

        Pods of queues on other nodes do not count.
        """
        return offered_to_queues(self.nodes)

    @cached_property
    def nodes_by_name(self) -> Mapping[str, Node]:
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def workloads_by_name(self) -> Mapping[tuple[str, str, str, str], Workload]:
        """Return the workloads by API group, kind, namespace and name."""
        groups = {version: api_group(version) for version in {workload.api_version for workload in self.workloads}}
        with_metadata = ((workload, workload.metadata) for workload in self.workloads)
        return {
            (groups[workload.api_version], workload.kind, metadata.namespace, metadata.name): workload
            for workload, metadata in with_metadata
        }

    @cached_property
    def marked_pods(self) -> tuple[Pod, ...]:
        """Return the placeholders and the standing fences: few of all pods."""
        return tuple(
            [
                pod
                for pod in self.pods
                if PLACEHOLDER_LABEL in (labels := pod.metadata.labels) or STANDING_FENCE_LABEL in labels
            ]
        )

    def pods_on(self, node_name: str) -> tuple[Pod, ...]:
        """Return the pods that are bound to a node and have not ended."""
        return self._pods_by_node.get(node_name, ())

    @cached_property
    def _pods_by_node(self) -> Mapping[str, tuple[Pod, ...]]:
        pods_by_node: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if pod.spec.node_name and not pod.is_terminal:
                pods_by_node.setdefault(pod.spec.node_name, []).append(pod)
        return {name: tuple(pods) for name, pods in pods_by_node.items()}


def _order_of(type_: type[Listed]) -> Callable[[Any], Any]:
    """Return what objects of a type are sorted by, which no two of them share."""
    return _ORDERS.get(type_, BY_NAME)


def _placed_by_address(pods: Iterable[Pod], nodes: Iterable[Node]) -> tuple[Pod, ...]:
    """Return pods; those whose node name cannot be read are put on the node whose address they report.

    The API server stores only text as a node name, so a name is spoilt by what stands in between. A pod that reports no
    address, or one that several nodes have, is on no node. That costs no move: a move begins only once a scheduler,
    which knows the pod, has found room for a placeholder.
    """
    nodes_by_address: dict[str, set[str]] = {}
    for node in nodes:
        for address in node.status.addresses:
            nodes_by_address.setdefault(address.address, set()).add(node.metadata.name)
    return tuple(
        _placed(pod, nodes_by_address) if pod.metadata.unreadable and not pod.spec.node_name else pod for pod in pods
    )


def _placed(pod: Pod, named: Mapping[str, Collection[str]]) -> Pod:
    names = named.get(pod.status.host_ip, ()) if pod.status.host_ip else ()
    if len(names) != 1:
        return pod
    (name,) = names
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name))


def _kind_and_identity(obj: Listed) -> tuple[str, ...]:
    return (*kind_of(obj), *_order_of(type(obj))(obj))


def _check_unique(objects: tuple[Listed, ...]) -> None:
    """Raise `InputError` if a sorted tuple has an object twice."""
    for first, second in pairwise(objects):
        order = _order_of(type(first))
        if first.metadata.name and first.metadata.name == second.metadata.name and order(first) == order(second):
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
