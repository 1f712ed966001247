"""The making of objects for tests: a case says what matters to it, the rest is ordinary."""

# ruff: noqa: ANN401 - a builder passes on what the case says

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from berth_core import (
    Affinity,
    Container,
    ContainerPort,
    LabelSelector,
    Namespace,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodDisruptionBudget,
    PodSpec,
    PodStatus,
    PodTemplate,
    PriorityClass,
    ResourceRequirements,
    SchedulingGate,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from berth_core.gated_queues import GatedQueue
from berth_core.objects.disruption_budgets import PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from berth_core.pod_groups import (
    GangPolicy,
    LifecyclePolicy,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodGroupWorkload,
    PodGroupWorkloadSpec,
    SchedulingPolicy,
    VolcanoJob,
    VolcanoJobSpec,
    VolcanoTask,
    WorkloadPodGroup,
)
from berth_core.queues import QueueObject
from berth_core.reservations import (
    ObjectReference,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationSpec,
    ReservationState,
    ReservationStatus,
    ReservationTask,
)
from berth_core.storage import (
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeAffinity,
    VolumeNodeResources,
)
from berth_core.workloads import Workload, WorkloadSpec

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOON_TEXT = "2026-11-21T12:00:00Z"


class FakeClock:
    """A clock that stands still until it is told otherwise; sleeping moves it and takes no time."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._monotonic = 1_000.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds


def quantities(cpu: str | None = None, memory: str | None = None, **extended: str) -> dict[str, str]:
    """`quantities("1", "2Gi", nvidia_com__gpu="1")`: a double underscore is a slash, a single one a dot."""
    named = {name.replace("__", "/").replace("_", "."): value for name, value in extended.items()}
    return {name: value for name, value in {"cpu": cpu, "memory": memory, **named}.items() if value is not None}


def container(
    name: str = "app",
    *,
    cpu: str | None = None,
    memory: str | None = None,
    requests: Mapping[str, str] | None = None,
    ports: Sequence[ContainerPort] = (),
    restart_policy: str = "",
    image: str = "pause",
) -> Container:
    return Container(
        name=name,
        image=image,
        resources=ResourceRequirements(requests={**quantities(cpu, memory), **(requests or {})}),
        ports=tuple(ports),
        restart_policy=restart_policy,
    )


def sidecar(name: str = "sidecar", **rest: Any) -> Container:
    return container(name, restart_policy="Always", **rest)


def owner(kind: str = "ReplicaSet", name: str = "web", *, uid: str | None = None) -> OwnerReference:
    api_version = {"Job": "batch/v1", "Node": "v1"}.get(kind, "apps/v1")
    uid = f"uid-{kind.lower()}-{name}" if uid is None else uid
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=uid, controller=True)


def meta(
    name: str,
    *,
    namespace: str = "",
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owners: Sequence[OwnerReference] = (),
    created: str | None = NOON_TEXT,
    deleted: str | None = None,
    finalizers: Sequence[str] = (),
) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{namespace}-{name}" if uid is None else uid,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        owner_references=tuple(owners),
        creation_timestamp=created,
        deletion_timestamp=deleted,
        finalizers=tuple(finalizers),
        resource_version="1",
    )


def pod_spec(
    *,
    node: str = "",
    cpu: str | None = "100m",
    memory: str | None = "64Mi",
    requests: Mapping[str, str] | None = None,
    containers: Sequence[Container] | None = None,
    init_containers: Sequence[Container] = (),
    overhead: Mapping[str, str] | None = None,
    pod_level: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    affinity: Affinity | None = None,
    tolerations: Sequence[Toleration] = (),
    scheduler_name: str = "default-scheduler",
    priority: int | None = 0,
    priority_class_name: str = "",
    gates: Sequence[str] = (),
    spread: Sequence[TopologySpreadConstraint] = (),
    volumes: Sequence[Volume] = (),
    host_ports: Sequence[int] = (),
    **rest: Any,
) -> PodSpec:
    ports = tuple(ContainerPort(container_port=port, host_port=port) for port in host_ports)
    if containers is None:
        containers = (container(cpu=cpu, memory=memory, requests=requests, ports=ports),)
    return PodSpec(
        node_name=node,
        scheduler_name=scheduler_name,
        node_selector=dict(node_selector or {}),
        affinity=affinity,
        tolerations=tuple(tolerations),
        containers=tuple(containers),
        init_containers=tuple(init_containers),
        overhead=dict(overhead or {}),
        resources=ResourceRequirements(requests=dict(pod_level)) if pod_level is not None else None,
        priority=priority,
        priority_class_name=priority_class_name,
        scheduling_gates=tuple(SchedulingGate(name=gate) for gate in gates),
        topology_spread_constraints=tuple(spread),
        volumes=tuple(volumes),
        **rest,
    )


def pod(
    name: str = "web-0",
    *,
    namespace: str = "default",
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    controller: OwnerReference | None = None,
    created: str | None = NOON_TEXT,
    deleted: str | None = None,
    phase: str | None = None,
    ready: bool | None = None,
    nominated_node: str = "",
    node: str = "",
    **spec: Any,
) -> Pod:
    """A pod of a ReplicaSet: Running and Ready on its node, Pending without one; `spec` as for `pod_spec`."""
    phase = phase if phase is not None else "Running" if node else "Pending"
    ready = ready if ready is not None else phase == "Running"
    return Pod(
        metadata=meta(
            name,
            namespace=namespace,
            uid=uid,
            labels=labels,
            annotations=annotations,
            owners=(controller or owner(),),
            created=created,
            deleted=deleted,
        ),
        spec=pod_spec(node=node, **spec),
        status=PodStatus(
            phase=phase,
            nominated_node_name=nominated_node,
            conditions=(PodCondition(type="Ready", status="True" if ready else "False"),),
        ),
    )


def bare_pod(name: str = "lonely", **rest: Any) -> Pod:
    """A pod that nothing makes again."""
    made = pod(name, **rest)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=()))


def node(
    name: str = "node-a",
    *,
    cpu: str | None = "16",
    memory: str | None = "64Gi",
    pods: str | None = "110",
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    ready: bool | None = True,
) -> Node:
    """A ready node; `ready=None` is one that says nothing about it."""
    amounts = {**quantities(cpu, memory), **({"pods": pods} if pods is not None else {}), **(allocatable or {})}
    conditions = () if ready is None else (NodeCondition(type="Ready", status="True" if ready else "False"),)
    return Node(
        metadata=meta(name, labels={"kubernetes.io/hostname": name, **(labels or {})}, annotations=annotations),
        spec=NodeSpec(taints=tuple(taints), unschedulable=unschedulable),
        status=NodeStatus(allocatable=amounts, capacity=amounts, conditions=conditions),
    )


def workload(
    kind: str = "ReplicaSet",
    name: str = "web",
    *,
    namespace: str = "default",
    replicas: int | None = 1,
    match_labels: Mapping[str, str] | None = None,
    controller: OwnerReference | None = None,
) -> Workload:
    return Workload(
        api_version="batch/v1" if kind == "Job" else "apps/v1",
        kind=kind,
        metadata=meta(
            name,
            namespace=namespace,
            uid=f"uid-{kind.lower()}-{name}",
            owners=(controller,) if controller else (),
        ),
        spec=WorkloadSpec(replicas=replicas, selector=LabelSelector(match_labels=dict(match_labels or {}))),
    )


def disruption_budget(
    name: str = "web",
    *,
    namespace: str = "default",
    match_labels: Mapping[str, str] | None = None,
    allowed: int = 1,
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=meta(name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(
            selector=LabelSelector(match_labels=dict(match_labels or {})),
            min_available=min_available,
            max_unavailable=max_unavailable,
        ),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def volcano_task(name: str = "worker", *, replicas: int = 1, **rest: Any) -> VolcanoTask:
    return VolcanoTask(name=name, replicas=replicas, **rest)


def volcano_job(
    *tasks: VolcanoTask,
    name: str = "train",
    min_available: int | None = 1,
    policies: Sequence[LifecyclePolicy] = (),
    deleted: str | None = None,
) -> VolcanoJob:
    """A Volcano Job; without tasks it has one, `worker`."""
    spec = VolcanoJobSpec(min_available=min_available, policies=tuple(policies), tasks=tasks or (volcano_task(),))
    uid = volcano_owner(name).uid
    return VolcanoJob(metadata=meta(name, namespace="default", uid=uid, deleted=deleted), spec=spec)


def volcano_owner(name: str = "train", *, uid: str | None = None) -> OwnerReference:
    uid = f"uid-volcano-job-{name}" if uid is None else uid
    return OwnerReference(api_version="batch.volcano.sh/v1alpha1", kind="Job", name=name, uid=uid, controller=True)


def volcano_pod(name: str = "train-worker-0", *, task: str = "worker", **rest: Any) -> Pod:
    """A pod of the Volcano Job `train`, running unless something else is said."""
    notes = {"volcano.sh/task-spec": task, **rest.pop("annotations", {})}
    return pod(name, **{"node": "node-a", "controller": volcano_owner(), "annotations": notes, **rest})


def volcano_pod_group(name: str = "group", *, min_member: int = 1, phase: str = "", **of_task: int) -> PodGroup:
    spec = PodGroupSpec(min_member=min_member, min_task_member=of_task)
    group = _pod_group("scheduling.volcano.sh/v1beta1", name, spec)
    return msgspec.structs.replace(group, status=PodGroupStatus(phase=phase))


def pod_group(
    name: str = "group", *, min_count: int | None = None, disruption_mode: Any = None, version: str = "v1alpha2"
) -> PodGroup:
    """A PodGroup of Kubernetes; without `min_count` each of its pods is scheduled by itself."""
    policy = SchedulingPolicy(gang=None if min_count is None else GangPolicy(min_count=min_count))
    spec = PodGroupSpec(scheduling_policy=policy, disruption_mode=disruption_mode)
    return _pod_group(f"scheduling.k8s.io/{version}", name, spec)


def _pod_group(api_version: str, name: str, spec: PodGroupSpec) -> PodGroup:
    return PodGroup(api_version=api_version, kind="PodGroup", metadata=meta(name, namespace="default"), spec=spec)


def queue(
    name: str = "ml", *, guarantee: Mapping[str, Any] | None = None, state: str = "Open", **spec: Any
) -> QueueObject:
    """A Queue of Volcano; `spec` has the names of its fields."""
    reserved = {} if guarantee is None else {"guarantee": {"resource": dict(guarantee)}}
    return QueueObject.read(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name, "uid": f"uid-queue-{name}"},
            "spec": {"weight": 1, **reserved, **spec},
            "status": {"state": state},
        }
    )


def gated_queue(
    name: str = "ml", *, guarantee: Mapping[str, Any] | None = None, accepted: str = "", **spec: Any
) -> GatedQueue:
    """A Queue of Berth over the namespaces with its name as `team`; `accepted` is what the operator says of it."""
    reserved = {} if guarantee is None else {"guarantee": {"resource": dict(guarantee)}}
    told = {"type": "Accepted", "status": accepted, "message": "as it says", "observedGeneration": 1}
    return GatedQueue.read(
        {
            "metadata": {"name": name, "uid": f"uid-own-queue-{name}", "generation": 1, "creationTimestamp": NOON_TEXT},
            "spec": {"namespaceSelector": {"matchLabels": {"team": name}}, **reserved, **spec},
            "status": {"conditions": [told] if accepted else []},
        }
    )


def pod_group_workload(name: str = "train", **min_counts: int) -> PodGroupWorkload:
    """A Workload with a gang for each of `min_counts`."""
    gangs = {part: SchedulingPolicy(gang=GangPolicy(min_count=count)) for part, count in min_counts.items()}
    groups = tuple(WorkloadPodGroup(name=part, policy=policy) for part, policy in gangs.items())
    return PodGroupWorkload(metadata=meta(name, namespace="default"), spec=PodGroupWorkloadSpec(pod_groups=groups))


def claim(
    name: str = "data", *, namespace: str = "default", volume: str = "", phase: str = "", deleted: str | None = None
) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=meta(name, namespace=namespace, deleted=deleted),
        spec=PersistentVolumeClaimSpec(volume_name=volume),
        status=PersistentVolumeClaimStatus(phase=phase),
    )


def volume(
    name: str = "pv-a",
    *,
    node_affinity: VolumeNodeAffinity | None = None,
    labels: Mapping[str, str] | None = None,
    driver: str = "",
) -> PersistentVolume:
    """A volume; with a `driver` it is attached to nodes."""
    csi = CSIVolumeSource(driver=driver, volume_handle=name) if driver else None
    spec = PersistentVolumeSpec(node_affinity=node_affinity, csi=csi)
    return PersistentVolume(metadata=meta(name, labels=labels), spec=spec)


def csi_node(name: str, **limits: int | None) -> CSINode:
    """What drivers say of a node: how many volumes of each it takes."""
    drivers = (CSINodeDriver(name=name, allocatable=VolumeNodeResources(count=count)) for name, count in limits.items())
    return CSINode(metadata=meta(name), spec=CSINodeSpec(drivers=tuple(drivers)))


def attachment(volume: str, node: str, *, driver: str = "ebs") -> VolumeAttachment:
    spec = VolumeAttachmentSpec(
        attacher=driver, node_name=node, source=VolumeAttachmentSource(persistent_volume_name=volume)
    )
    return VolumeAttachment(metadata=meta(f"{volume}-on-{node}"), spec=spec)


def priority_class(name: str, value: int) -> PriorityClass:
    return PriorityClass(metadata=meta(name), value=value)


def namespace(name: str = "default", *, labels: Mapping[str, str] | None = None) -> Namespace:
    return Namespace(metadata=meta(name, labels={"kubernetes.io/metadata.name": name, **(labels or {})}))


def task(
    name: str = "web", *, replicas: int = 1, nodes: Sequence[str] = (), template: PodTemplate | None = None, **spec: Any
) -> ReservationTask:
    """A task; `spec` as for `pod_spec`."""
    template = template or PodTemplate(spec=pod_spec(**{"scheduler_name": "", "priority": None, **spec}))
    return ReservationTask(name=name, template=template, replicas=replicas, reservation_node_names=tuple(nodes))


def object_owner(kind: str = "ReplicaSet", name: str = "web", *, uid: str = "", **rest: str) -> ReservationOwner:
    return ReservationOwner(object=ObjectReference(kind=kind, name=name, uid=uid, **rest))


def label_owner(**match_labels: str) -> ReservationOwner:
    return ReservationOwner(label_selector=LabelSelector(match_labels=match_labels))


def reservation(
    name: str = "place",
    *,
    namespace: str = "default",
    uid: str | None = None,
    tasks: Sequence[ReservationTask] | None = None,
    owners: Sequence[ReservationOwner] | None = None,
    phase: ReservationPhase | None = None,
    status: ReservationStatus | None = None,
    created: str | None = NOON_TEXT,
    deleted: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    ttl: str | None = "600s",
    **spec: Any,
) -> Reservation:
    """A Reservation of one slot for the ReplicaSet `web`; `spec` are further fields of `ReservationSpec`."""
    state = None if phase is None else ReservationState(phase=phase)
    return Reservation(
        metadata=meta(
            name,
            namespace=namespace,
            uid=uid,
            labels=labels,
            annotations=annotations,
            created=created,
            deleted=deleted,
            finalizers=finalizers,
        ),
        spec=ReservationSpec(
            tasks=(task(),) if tasks is None else tuple(tasks),
            owners=(object_owner(),) if owners is None else tuple(owners),
            ttl=ttl,
            **spec,
        ),
        status=status or ReservationStatus(state=state),
    )


def as_api(body: msgspec.Struct, *, api_version: str = "v1", kind: str = "Pod") -> dict[str, Any]:
    """An object as the API server would serve it."""
    built: dict[str, Any] = msgspec.to_builtins(body)
    return {"apiVersion": api_version, "kind": kind, **built}


def list_file(*items: Any) -> bytes:
    """A `v1` List in JSON of API objects."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


DEEP = "@deep@"
"""What `nested_json` replaces by a value that is nested too deeply for any decoder that calls itself."""


def nested_json(body: Any, *, levels: int = 1_100) -> bytes:
    """Return JSON in which a deeply nested value stands wherever the body says `DEEP`."""
    value = b'{"a":' * levels + b"1" + b"}" * levels
    return json.dumps(body).encode().replace(json.dumps(DEEP).encode(), value)
