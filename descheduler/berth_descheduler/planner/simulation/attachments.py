"""How many volumes can be attached to each node, and how many each class of pods needs to have attached.

Both are columns like those of other resources, one per storage driver that has a limit on some node. kube-scheduler
counts a volume once per node; here it counts for every pod that mounts it, so that the columns can be added up.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from berth_core import CSINode, Node, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Snapshot, Volume
from berth_descheduler.planner.simulation.pod_classes import PodClass

COLUMN_PREFIX: Final = "attachable-volumes-csi-"

_IN_TREE: Final = {
    "gce_persistent_disk": "pd.csi.storage.gke.io",
    "aws_elastic_block_store": "ebs.csi.aws.com",
    "azure_disk": "disk.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "vsphere_volume": "csi.vsphere.vmware.com",
}
"""In-tree kinds of volumes, and the CSI drivers to which they have migrated (KEP-625)."""

# StorageClasses from before the migration still name the in-tree provisioner.
_PROVISIONERS: Final = {
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}


@dataclass(frozen=True, slots=True)
class AttachColumns:
    """Columns of a cluster, one per limited driver."""

    names: tuple[str, ...]
    capacity: tuple[tuple[int, ...], ...]  # (nodes, drivers)
    requests: tuple[tuple[int, ...], ...]  # (classes, drivers)


def attach_columns(
    snapshot: Snapshot, nodes: Sequence[Node], classes: Sequence[PodClass], pods: Sequence[tuple[Pod, int]]
) -> AttachColumns:
    """Return the attach columns of nodes and pod classes.

    `pods` are the placed pods with the numbers of their classes. A volume that is attached to a node although no pod
    there mounts it takes of the node's capacity. A node without a limit can attach all volumes that there are.
    """
    limits = {csi_node.metadata.name: _limits(csi_node) for csi_node in snapshot.csi_nodes}
    drivers = sorted({driver for of_node in limits.values() for driver in of_node})
    if not drivers:
        return AttachColumns((), ((),) * len(nodes), ((),) * len(classes))
    driver_index = _DriverIndex(snapshot)
    needs = [Counter(driver_index.drivers_of(pod_class.example)) for pod_class in classes]
    everything = sum((needs[number] for _, number in pods), Counter[str]())
    lingering = driver_index.lingering([pod for pod, _ in pods])

    def capacity(name: str, driver: str) -> int:
        """Return how many volumes a driver can attach to a node."""
        limit = limits.get(name, {}).get(driver)
        # kube-scheduler counts attached volumes by VolumeAttachments, too, and not by pods alone
        # (`getNodeVolumeAttachmentInfo` in nodevolumelimits/csi.go): a volume stays attached for a while after its last
        # pod has gone.
        # A driver that reports no count has no limit (`VolumeNodeResources` in storage/v1/types.go); a number that all
        # volumes fit under stands for that in a column.
        return everything[driver] if limit is None else max(0, limit - lingering[name, driver])

    return AttachColumns(
        names=tuple(f"{COLUMN_PREFIX}{driver}" for driver in drivers),
        capacity=tuple(tuple(capacity(node.metadata.name, driver) for driver in drivers) for node in nodes),
        requests=tuple(tuple(need[driver] for driver in drivers) for need in needs),
    )


def _limits(node: CSINode) -> dict[str, int]:
    driver_limits = ((driver.name, driver.allocatable) for driver in node.spec.drivers)
    return {
        name: allocatable.count
        for name, allocatable in driver_limits
        if allocatable is not None and allocatable.count is not None
    }


class _DriverIndex:
    """Knows which driver attaches the volumes of a pod."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        claims = snapshot.persistent_volume_claims
        self._claims = {(claim.metadata.namespace, claim.metadata.name): claim for claim in claims}
        self._volumes = {volume.metadata.name: volume for volume in snapshot.persistent_volumes}
        self._provisioners = {
            storage_class.metadata.name: storage_class.provisioner for storage_class in snapshot.storage_classes
        }

    def drivers_of(self, pod: Pod) -> Iterator[str]:
        """Yield the driver of each attachable volume of a pod."""
        claims = {claim.metadata.name: claim for claim in self._claims_of(pod)}
        yield from filter(None, map(self._driver_of_claim, claims.values()))
        yield from filter(None, map(_driver_in_tree, pod.spec.volumes))

    def lingering(self, pods: Sequence[Pod]) -> Counter[tuple[str, str]]:
        """Return the number of attached volumes that no pod on their node mounts, per node and driver."""
        if not self._snapshot.volume_attachments:
            return Counter()
        mounted = {(pod.spec.node_name, claim.spec.volume_name) for pod in pods for claim in self._claims_of(pod)}
        drivers_attached = {
            (attachment.spec.node_name, attachment.spec.source.persistent_volume_name): attachment.spec.attacher
            for attachment in self._snapshot.volume_attachments
        }
        return Counter(
            (node, driver) for (node, volume), driver in drivers_attached.items() if (node, volume) not in mounted
        )

    def _claims_of(self, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        for volume in pod.spec.volumes:
            name = _claim_name(pod, volume)
            claim = self._claims.get((pod.metadata.namespace, name)) if name else None
            if claim is not None:
                yield claim

    def _driver_of_claim(self, claim: PersistentVolumeClaim) -> str:
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is None:
            provisioner = self._provisioners.get(claim.spec.storage_class_name, "")
            return _PROVISIONERS.get(provisioner, provisioner)
        return volume.spec.csi.driver if volume.spec.csi is not None else _driver_in_tree(volume.spec)


def _claim_name(pod: Pod, volume: Volume) -> str:
    """Return the name of a pod volume's claim, "" without one.

    The claim of an ephemeral volume is named after the pod and the volume.
    """
    # Named as by `VolumeClaimName` in component-helpers/storage/ephemeral (KEP-1698).
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def _driver_in_tree(source: Volume | PersistentVolumeSpec) -> str:
    """Return the driver of an in-tree volume, "" for other kinds."""
    return next((driver for kind, driver in _IN_TREE.items() if getattr(source, kind, None) is not None), "")
