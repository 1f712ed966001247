"""The used parts of the storage API: claims, volumes and attachments."""

from typing import Any

from berth_core.objects.metadata import ApiStruct, ObjectMeta
from berth_core.objects.scheduling import NodeSelector


class PersistentVolumeClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """Request of a claim; `volume_name` is "" while it is unbound."""

    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Phase of a claim."""

    phase: str = ""


class PersistentVolumeClaim(ApiStruct, frozen=True, kw_only=True):
    """A claim as the API server holds it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class CSIVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """The driver that attaches a volume, and the volume's name there."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True, kw_only=True):
    """Where a volume can be used; only sources that are attached to nodes, or lie on one, are decoded."""

    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    local: dict[str, Any] | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()


class PersistentVolume(ApiStruct, frozen=True, kw_only=True):
    """A volume as the API server holds it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class StorageClass(ApiStruct, frozen=True, kw_only=True):
    """How claims of a class are bound."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = ""


class VolumeNodeResources(ApiStruct, frozen=True, kw_only=True):
    """Number of a driver's volumes that a node can attach; None without a limit."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True, kw_only=True):
    """A driver that is installed on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers that are installed on a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ApiStruct, frozen=True, kw_only=True):
    """The storage drivers on the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(ApiStruct, frozen=True, kw_only=True):
    """The PersistentVolume that is attached."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(ApiStruct, frozen=True, kw_only=True):
    """What is attached to which node by which driver."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(ApiStruct, frozen=True, kw_only=True):
    """A volume that is attached to a node or about to be."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
