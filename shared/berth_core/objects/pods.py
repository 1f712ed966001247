"""Pods, their containers and volumes, and their priorities."""

from typing import Any, Final

import msgspec

from berth_core.objects.metadata import ApiStruct, ObjectMeta, OwnerReference, Quantities
from berth_core.objects.scheduling import Affinity, PodAffinityTerm, Toleration, TopologySpreadConstraint

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
DAEMONSET_POD_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
"""With the value `true`, the cluster autoscaler counts a pod of any controller as one of a DaemonSet."""


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """Requests and limits of a container or a whole pod."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port of a container; `host_port` None or 0 takes no port of the node."""

    container_port: int | None = None
    host_port: int | None = None
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared, not bound
"""`hostIP` of a port on all addresses of its node, as none is."""


class Probe(ApiStruct, frozen=True, kw_only=True):
    """When the kubelet probes a container; the defaults are Kubernetes' own."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container; an init container with `restart_policy` Always is a sidecar (KEP-753)."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None


class SchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """A gate that must be removed before a pod is scheduled."""

    name: str = ""


class PersistentVolumeClaimSource(ApiStruct, frozen=True, kw_only=True):
    """A claim that a pod mounts, by name in the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class Volume(ApiStruct, frozen=True, kw_only=True):
    """A volume of a pod.

    Sources that do not matter here stay undecoded: what the kubelet writes anew wherever the pod is, images, and
    network file systems that every node reaches (nfs, glusterfs, cephfs, azureFile, quobyte).
    """

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: dict[str, Any] | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    fc: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    photon_persistent_disk: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    scale_io: dict[str, Any] | None = msgspec.field(name="scaleIO", default=None)
    storageos: dict[str, Any] | None = None
    flex_volume: dict[str, Any] | None = None
    flocker: dict[str, Any] | None = None

    @property
    def is_attached(self) -> bool:
        """Return whether the volume is a disk attached to one node, which may not be reachable from others."""
        return any(getattr(self, source) is not None for source in _ATTACHED_SOURCES)


_ATTACHED_SOURCES: Final = (
    *("csi", "gce_persistent_disk", "aws_elastic_block_store", "azure_disk", "iscsi", "rbd", "fc", "cinder"),
    *("vsphere_volume", "photon_persistent_disk", "portworx_volume", "scale_io", "storageos", "flex_volume"),
    "flocker",
)
"""Sources in a pod's own spec that are attached to its node: nothing says which other nodes can have them.

Claims are looked up, `ephemeral` goes with the pod, a policy decides about `emptyDir` and `hostPath`, and others are
reached from every node.
"""


class SchedulingGroup(ApiStruct, frozen=True, kw_only=True):
    """The PodGroup that a pod is scheduled with."""

    pod_group_name: str = ""


class WorkloadReference(ApiStruct, frozen=True, kw_only=True):
    """The pod group of a Workload that a pod is scheduled with; each replica key is a group of its own."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSystem(ApiStruct, frozen=True, kw_only=True):
    """The operating system of a pod's containers, linux or windows."""

    name: str = ""


class PodSpec(ApiStruct, frozen=True, kw_only=True, dict=True, gc=True):
    """The spec of a pod; `resources` are its pod-level requests, and `berth_core.matching` caches results on it."""

    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    os: PodSystem | None = None
    restart_policy: str = ""
    runtime_class_name: str = ""
    service_account_name: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    resource_claims: tuple[dict[str, Any], ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None

    @property
    def required_affinity(self) -> tuple[PodAffinityTerm, ...]:
        terms = self.affinity.pod_affinity if self.affinity else None
        return terms.required_during_scheduling_ignored_during_execution if terms else ()

    @property
    def required_anti_affinity(self) -> tuple[PodAffinityTerm, ...]:
        terms = self.affinity.pod_anti_affinity if self.affinity else None
        return terms.required_during_scheduling_ignored_during_execution if terms else ()


DISRUPTION_TARGET: Final = "DisruptionTarget"
"""The condition of a pod that is ended from outside: by an eviction, preemption or a taint (KEP-3329)."""


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    """A condition of a pod; `status` is True, False or Unknown."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class WaitingContainer(ApiStruct, frozen=True, kw_only=True):
    """Why a container does not run yet, or not again."""

    reason: str = ""
    message: str = ""


class TerminatedContainer(ApiStruct, frozen=True, kw_only=True):
    """How a container has ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """State of a container; with neither it runs, or nothing is known of it."""

    waiting: WaitingContainer | None = None
    terminated: TerminatedContainer | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """State and resources of a container, with those that the kubelet granted."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """Phase and conditions of a pod."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    host_ip: str = msgspec.field(name="hostIP", default="")
    """The address of the node that the pod is on, as its kubelet reports it."""

    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    """What the pod as a whole has, as its cgroup says."""
    allocated_resources: Quantities = {}
    """What the kubelet granted the pod as a whole."""
    extended_resource_claim_status: dict[str, Any] | None = None
    """The claim that the scheduler made for extended resources which a driver of devices serves."""


class PodTemplate(ApiStruct, frozen=True, kw_only=True):
    """Template of pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A pod as the API server holds it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """Return the reference to the pod's controller, None without one."""
        for owner in self.metadata.owner_references:  # no generator: plans ask ten times for every pod
            if owner.controller:
                return owner
        return None

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod has ended and holds nothing of its node."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def is_terminating(self) -> bool:
        """Return whether the pod's deletion has begun."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_mirror(self) -> bool:
        """Return whether the pod mirrors a static pod of a kubelet."""
        # The kubelet makes it from a file on its node. Through the API the copy can be deleted, the containers cannot:
        # an eviction would free nothing (kubernetes/kubernetes#79147).
        return MIRROR_ANNOTATION in self.metadata.annotations

    @property
    def is_daemon(self) -> bool:
        """Return whether a DaemonSet controls the pod."""
        controller = self.controller
        # Not compared with the API group: OpenKruise and others have a DaemonSet of their own, which is bound to its
        # nodes, too.
        return controller is not None and controller.kind == "DaemonSet"

    @property
    def disruption(self) -> PodCondition | None:
        """Return the condition by which the pod is ended from outside, None if it is not."""
        conditions = (condition for condition in self.status.conditions if condition.type == DISRUPTION_TARGET)
        return next((condition for condition in conditions if condition.status == "True"), None)

    @property
    def claim_names(self) -> tuple[str, ...]:
        """Return the names of the PersistentVolumeClaims that the pod mounts, sorted."""
        claims = (volume.persistent_volume_claim for volume in self.spec.volumes)
        return tuple(sorted({claim.claim_name for claim in claims if claim is not None}))

    @property
    def belongs_to_node(self) -> bool:
        """Return whether the pod comes and goes with its node, as DaemonSet and mirror pods do."""
        return self.is_daemon or self.is_mirror

    @property
    def occupies_node(self) -> bool:
        """Return whether the pod keeps its node from being free.

        DaemonSet, mirror and ended pods do not, nor pods with the annotation that declares them to be like DaemonSet
        pods.
        """
        return not self.belongs_to_node and not self.is_terminal and not self.counts_as_daemon

    @property
    def counts_as_daemon(self) -> bool:
        """Return whether an annotation declares that the pod is to its node what a DaemonSet's pod is.

        Users write it, so no right may depend on it, and `belongs_to_node` ignores it.
        """
        return self.metadata.annotations.get(DAEMONSET_POD_ANNOTATION) == "true"

    @property
    def is_gated(self) -> bool:
        return bool(self.spec.scheduling_gates)

    @property
    def is_ready(self) -> bool:
        return self.condition("Ready") == "True"

    @property
    def is_unschedulable(self) -> bool:
        """Return whether a scheduler has tried the pod and found no place."""
        # Other reasons of PodScheduled=False say nothing about room: SchedulingGated (KEP-3521) was never tried, and
        # SchedulerError will be tried again at once.
        refusal = ("PodScheduled", "False", "Unschedulable")
        return any(
            (condition.type, condition.status, condition.reason) == refusal for condition in self.status.conditions
        )

    def condition(self, type_: str) -> str:
        """Return the status of a condition, "" if it is not set."""
        return next((condition.status for condition in self.status.conditions if condition.type == type_), "")


class PriorityClass(ApiStruct, frozen=True, kw_only=True):
    """A named priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""
