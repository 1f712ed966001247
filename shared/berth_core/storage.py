"""The parts of the API's storage objects that Berth looks at: claims, volumes and where they are attached."""

from typing import Any

from berth_core.objects import ApiStruct, LabelSelector, NodeSelector, ObjectMeta, PodCondition


class PersistentVolumeClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """What a claim asks for and the volume that it is bound to, "" while it is not."""

    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Where a claim is in its life."""

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
    """Where a volume can be used; of the sources only those that are attached to nodes."""

    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
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
    """How many volumes of a driver can be attached to a node; None where there is no limit."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True, kw_only=True):
    """A driver that is installed on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers that are installed on a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ApiStruct, frozen=True, kw_only=True):
    """What storage drivers say about the node of the same name."""

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
    """A volume that is, or is to be, attached to a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


# --- workloads -------------------------------------------------------------------------------------------------------
# The parts that Berth looks at of the API's objects that make pods: ReplicaSets, StatefulSets, Jobs and others.


class PodFailurePolicyRule(ApiStruct, frozen=True, kw_only=True):
    """What a Job does about pods that failed in some way; a rule without conditions is about exit codes."""

    action: str = ""
    on_pod_conditions: tuple[PodCondition, ...] = ()


class PodFailurePolicy(ApiStruct, frozen=True, kw_only=True):
    """What a Job does about failed pods: the first rule that applies decides."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """The fields that the kinds of workloads share, and those of a Job."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None


class WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    """How many pods of a workload there are."""

    replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    active: int | None = None
    failed: int | None = None


class Workload(ApiStruct, frozen=True, kw_only=True):
    """A ReplicaSet, StatefulSet, Job, Deployment or DaemonSet; lists of one kind leave `kind` empty."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
