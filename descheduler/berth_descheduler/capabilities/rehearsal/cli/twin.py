"""The twin of a snapshot: the bodies of its nodes, pods and their owners, as they are made in an empty sandbox.

Pods that are evicted in the twin are made again by owners like their own.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from berth_core import (
    DEFAULT_NAMESPACE,
    PLACEHOLDER_LABEL,
    TEMPLATE_HASH_LABEL,
    Node,
    Pod,
    PodDisruptionBudget,
    Snapshot,
    count,
)
from berth_kube import DAEMON_SETS, DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS, Resource

OWNER_LABEL: Final = "rehearsal.berth.volcano.sh/owner"
"""On the pods of the twin, by which its owners select them, and on the nodes of a DaemonSet."""

_OWNERS: Final = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, DAEMON_SETS)
OWNER_KINDS: Final[Mapping[str, Resource]] = {resource.kind: resource for resource in _OWNERS}
NODE_LIFECYCLE: Final = "node.kubernetes.io/"
_SECURITY_LABELS: Final = "pod-security.kubernetes.io/"
_PER_POD_LABELS: Final = frozenset(
    {"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", TEMPLATE_HASH_LABEL}
)
_SYSTEM_CLASSES: Final = "system-"
# `HighestUserDefinablePriority`: what is above belongs to the system's classes.
_HIGHEST_PRIORITY: Final = 1_000_000_000
_SCHEDULER: Final = "default-scheduler"
_NEVER_THERE: Final = (
    "admission webhooks, quotas, autoscalers, volumes, and the time that real pods need to start and end"
)


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """An owner in the twin."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TwinObject:
    """An object of the twin, whose owner has its uid only once it is made."""

    body: dict[str, Any]
    owner: OwnerKey | None = None


@dataclass(frozen=True, slots=True)
class Twin:
    """The objects of a twin in the order in which they are made, and what it lacks."""

    namespaces: tuple[dict[str, Any], ...]
    priority_classes: tuple[dict[str, Any], ...]
    nodes: tuple[dict[str, Any], ...]
    owners: Mapping[OwnerKey, TwinObject]
    """Deployments first."""
    pods: tuple[TwinObject, ...]
    budgets: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...] = ()
    """What differs from the snapshot, a sentence each."""


def build_twin(snapshot: Snapshot, deployments: Iterable[Mapping[str, Any]] = ()) -> Twin:
    """Return the objects of a twin; pods that have ended or are ending are left out.

    Without its Deployment a ReplicaSet stands alone in the twin, and its pods do not surge.
    """
    living_pods = [pod for pod in snapshot.pods if not pod.is_terminal and not pod.is_terminating]
    pods_by_owner: defaultdict[OwnerKey, list[Pod]] = defaultdict(list)
    for pod in living_pods:
        if (key := owner_key(pod)) is not None:
            pods_by_owner[key].append(pod)
    names = {key: f"owner-{number}" for number, key in enumerate(pods_by_owner)}
    labels_of_nodes = _labels_of_daemons(pods_by_owner, names)
    owners = {key: TwinObject(_build_owner(key, pods, names[key])) for key, pods in pods_by_owner.items()}
    deployments_of_owners = dict(_find_deployments(snapshot, pods_by_owner, deployments))
    deployment_objects = {
        OwnerKey(DEPLOYMENTS.kind, key.namespace, raw_deployment["metadata"]["name"]): TwinObject(
            _build_deployment(raw_deployment, owners[key].body)
        )
        for key, raw_deployment in deployments_of_owners.items()
    }
    owners |= {
        key: _build_replica_set(owners[key].body, key, raw_deployment)
        for key, raw_deployment in deployments_of_owners.items()
    }
    return Twin(
        namespaces=tuple(_build_namespaces(snapshot, living_pods)),
        priority_classes=tuple(_build_priority_classes(snapshot, living_pods)),
        nodes=tuple(_build_node(node, labels_of_nodes.get(node.metadata.name, {})) for node in snapshot.nodes),
        owners={**deployment_objects, **owners},
        pods=tuple(_build_pod(pod, names, deployments_of_owners) for pod in living_pods),
        budgets=tuple(
            _build_budget(budget) for budget in snapshot.disruption_budgets if not _is_own(budget.metadata.namespace)
        ),
        left_out=tuple(_say_left_out(snapshot, living_pods)),
    )


def owner_key(pod: Pod) -> OwnerKey | None:
    """Return the owner of a pod in the twin: another kind than it can have is played by a ReplicaSet."""
    owner = pod.controller
    if owner is None or owner.kind == "Node" or _is_kept_apart(pod):
        return None
    owner_resource = OWNER_KINDS.get(owner.kind)
    if owner_resource is not None and owner_resource.api_version == owner.api_version:
        return OwnerKey(owner.kind, pod.metadata.namespace, owner.name)
    return OwnerKey(REPLICA_SETS.kind, pod.metadata.namespace, f"{owner.kind.lower()}-{owner.name}")


def _is_own(namespace: str) -> bool:
    return namespace == DEFAULT_NAMESPACE


def _is_kept_apart(pod: Pod) -> bool:
    """Return whether a pod only takes up room: Berth's own ones, for which other rules are."""
    return _is_own(pod.metadata.namespace) or PLACEHOLDER_LABEL in pod.metadata.labels


def _labels_of_daemons(
    members: Mapping[OwnerKey, Sequence[Pod]], names: Mapping[OwnerKey, str]
) -> Mapping[str, dict[str, str]]:
    """Return the labels by which the DaemonSets of the twin select the nodes that have their pods."""
    labels_by_node: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for key, pods in members.items():
        if key.kind == DAEMON_SETS.kind:
            for pod in pods:
                labels_by_node[pod.spec.node_name][_daemon_label(names[key])] = ""
    return labels_by_node


def _daemon_label(name: str) -> str:
    return f"{OWNER_LABEL}-{name}"


def _build_namespaces(snapshot: Snapshot, living: Iterable[Pod]) -> Iterator[dict[str, Any]]:
    """Yield the namespaces with their labels, but for those that would refuse plain pods."""
    labels = {namespace.metadata.name: namespace.metadata.labels for namespace in snapshot.namespaces}
    for name in sorted({_namespace_in_twin(pod) for pod in living} | labels.keys()):
        namespace_labels = {
            key: value for key, value in labels.get(name, {}).items() if not key.startswith(_SECURITY_LABELS)
        }
        if not _is_own(name):
            yield {"metadata": {"name": name, "labels": namespace_labels}}


def _namespace_in_twin(pod: Pod) -> str:
    return "rehearsal-room" if _is_kept_apart(pod) else pod.metadata.namespace


def _build_priority_classes(snapshot: Snapshot, living: Iterable[Pod]) -> Iterator[dict[str, Any]]:
    known_names = {priority_class.metadata.name for priority_class in snapshot.priority_classes}
    for known_class in snapshot.priority_classes:
        # The API server makes system-node-critical and system-cluster-critical itself, and refuses other names with
        # that prefix (`AddSystemPriorityClasses`, `ValidatePriorityClass`).
        if not known_class.metadata.name.startswith(_SYSTEM_CLASSES):
            built = _plain(known_class)
            yield {**built, "value": known_class.value, "metadata": {"name": known_class.metadata.name}}
    lacking_classes = {
        _priority_class(pod): pod.spec.priority or 0 for pod in living if _priority_class(pod) not in known_names
    }
    for class_name, priority in lacking_classes.items():
        if class_name and not class_name.startswith(_SYSTEM_CLASSES):
            # Above HighestUserDefinablePriority only the system's own classes are accepted.
            yield {"metadata": {"name": class_name}, "value": min(priority, _HIGHEST_PRIORITY)}


def _priority_class(pod: Pod) -> str:
    """Return the name of a pod's class; one with a priority alone has a class of the twin's own."""
    if pod.spec.priority_class_name or not pod.spec.priority:
        return pod.spec.priority_class_name
    return f"rehearsal-{'minus-' if pod.spec.priority < 0 else ''}{abs(pod.spec.priority)}"


def _build_node(node: Node, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a node; one that is not ready takes no pods in the twin."""
    # Taints such as node.kubernetes.io/unreachable follow from conditions: the node controller of the twin would take
    # them off, as its nodes are ready (`doNoScheduleTaintingPass` in `pkg/controller/nodelifecycle`).
    taints = [_plain(taint) for taint in node.taints if not taint.key.startswith(NODE_LIFECYCLE)]
    return {
        "metadata": {"name": node.metadata.name, "labels": {**node.metadata.labels, **labels}},
        "spec": {"taints": taints, "unschedulable": node.spec.unschedulable or not node.ready},
        "status": {
            "allocatable": _plain(node.status.allocatable),
            "capacity": _plain(node.status.capacity or node.status.allocatable),
        },
    }


def _find_deployments(
    snapshot: Snapshot, members: Mapping[OwnerKey, Sequence[Pod]], deployments: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[OwnerKey, Mapping[str, Any]]]:
    """Yield the ReplicaSets that are the only ones of their Deployment to have pods, with the Deployment."""
    deployments_by_name = {
        (deployment["metadata"]["namespace"], deployment["metadata"]["name"]): deployment for deployment in deployments
    }
    replica_sets: defaultdict[tuple[str, str], list[OwnerKey]] = defaultdict(list)
    for workload in snapshot.workloads:
        key = OwnerKey(workload.kind, workload.metadata.namespace, workload.metadata.name)
        owner = next((reference for reference in workload.metadata.owner_references if reference.controller), None)
        if owner is not None and owner.kind == DEPLOYMENTS.kind and key in members:
            replica_sets[workload.metadata.namespace, owner.name].append(key)
    for identity, keys in replica_sets.items():
        if len(keys) == 1 and identity in deployments_by_name:
            yield keys[0], deployments_by_name[identity]


def _build_deployment(raw: Mapping[str, Any], replica_set: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Deployment whose ReplicaSet is up to date, with the strategy that it has in the snapshot."""
    deployment_spec = raw.get("spec") or {}
    strategy_fields = {
        field_name: deployment_spec[field_name]
        for field_name in ("strategy", "paused")
        if field_name in deployment_spec
    }
    metadata = {"name": raw["metadata"]["name"], "namespace": raw["metadata"]["namespace"]}
    return {"metadata": metadata, "spec": {**replica_set["spec"], **strategy_fields}}


def _build_replica_set(body: Mapping[str, Any], key: OwnerKey, raw: Mapping[str, Any]) -> TwinObject:
    """Return the ReplicaSet of a Deployment, by the hash of its template."""
    spec, label = body["spec"], {TEMPLATE_HASH_LABEL: _template_hash(key)}
    template = spec["template"]
    metadata = {**template["metadata"], "labels": {**template["metadata"]["labels"], **label}}
    selector = {"matchLabels": {**spec["selector"]["matchLabels"], **label}}
    # The Deployment controller finds its newest ReplicaSet by a template that is equal but for this hash label
    # (`EqualIgnoreHash`); another template would begin a rollout in the middle of the rehearsal.
    annotations = {"deployment.kubernetes.io/revision": "1"}
    return TwinObject(
        {
            "metadata": {**body["metadata"], "labels": metadata["labels"], "annotations": annotations},
            "spec": {**spec, "selector": selector, "template": {**template, "metadata": metadata}},
        },
        OwnerKey(DEPLOYMENTS.kind, key.namespace, raw["metadata"]["name"]),
    )


def _template_hash(key: OwnerKey) -> str:
    return key.name.rpartition("-")[2]


def _build_pod(pod: Pod, names: Mapping[OwnerKey, str], with_deployment: Collection[OwnerKey]) -> TwinObject:
    key = owner_key(pod)
    metadata: dict[str, Any] = {"name": pod.metadata.name, "namespace": _namespace_in_twin(pod)}
    if not _is_kept_apart(pod):
        metadata["labels"] = {**pod.metadata.labels, **({OWNER_LABEL: names[key]} if key is not None else {})}
        metadata["annotations"] = dict(pod.metadata.annotations)
    spec = _build_spec(pod)
    if key in with_deployment and key is not None:
        metadata["labels"][TEMPLATE_HASH_LABEL] = _template_hash(key)
    if pod.spec.node_name:
        # Bound at its creation: the pods have to stand as in the snapshot, and a scheduler would place them its own
        # way.
        spec["nodeName"] = pod.spec.node_name
    return TwinObject({"metadata": metadata, "spec": spec}, key)


def _build_owner(key: OwnerKey, pods: Sequence[Pod], name: str) -> dict[str, Any]:
    """Return an owner that makes pods like its first one, as many as there are."""
    first_pod = pods[0]
    pod_labels = {label: value for label, value in first_pod.metadata.labels.items() if label not in _PER_POD_LABELS}
    template_spec = _build_spec(first_pod)
    template = {
        "metadata": {"labels": {**pod_labels, OWNER_LABEL: name}, "annotations": dict(first_pod.metadata.annotations)},
        "spec": template_spec,
    }
    spec: dict[str, Any] = {"selector": {"matchLabels": {OWNER_LABEL: name}}, "template": template}
    match key.kind:
        case JOBS.kind:
            # manualSelector: the selector that is generated for a Job is its own uid, which its pods could not know
            # before it was made.
            # backoffLimit: by default it counts evicted pods too (kubernetes.io/docs/tasks/job/pod-failure-policy), and
            # the Job has to make each of them again.
            spec |= {"parallelism": len(pods), "backoffLimit": _HIGHEST_PRIORITY, "manualSelector": True}
            if template_spec.get("restartPolicy") not in {"Never", "OnFailure"}:
                template_spec["restartPolicy"] = "Never"
        case DAEMON_SETS.kind:
            # The affinity of a daemon's pod pins it to its node by name (`ReplaceDaemonSetPodNodeNameNodeAffinity`): as
            # a template it would keep the daemon off all others.
            template_spec.pop("affinity", None)
            template_spec["nodeSelector"] = {_daemon_label(name): ""}
            spec["updateStrategy"] = {"type": "OnDelete"}
        case STATEFUL_SETS.kind:
            ordinals = (pod.metadata.name.rpartition("-")[2] for pod in pods)
            highest_ordinal = max((int(ordinal) for ordinal in ordinals if ordinal.isdecimal()), default=0)
            spec |= {"replicas": max(len(pods), highest_ordinal + 1), "serviceName": key.name}
            # OrderedReady would make no pod before those with lower ordinals are ready, which may be missing in the
            # snapshot (`processReplica` in `pkg/controller/statefulset`).
            spec |= {"podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}
        case _:
            spec["replicas"] = len(pods)
    if key.kind != JOBS.kind:
        # The only policy that templates of other controllers may have (`pkg/apis/apps/validation`).
        template_spec["restartPolicy"] = "Always"
    return {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}


def _build_spec(pod: Pod) -> dict[str, Any]:
    """Return what the scheduler looks at in a pod, without what the sandbox has no objects for."""
    spec = pod.spec
    built = {
        "schedulerName": _SCHEDULER,
        "nodeSelector": spec.node_selector,
        "affinity": spec.affinity,
        "tolerations": spec.tolerations,
        "containers": [*map(_build_container, spec.containers), *_overhead(pod)],
        "initContainers": [_build_container(container) for container in spec.init_containers],
        "resources": spec.resources,
        "priorityClassName": _priority_class(pod),
        "topologySpreadConstraints": spec.topology_spread_constraints,
        "hostNetwork": spec.host_network,
        "restartPolicy": spec.restart_policy,
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "schedulingGates": spec.scheduling_gates,
    }
    return {field_name: value for field_name, value in _plain(built).items() if value not in (None, "", [], {}, False)}


def _overhead(pod: Pod) -> Iterator[dict[str, Any]]:
    if pod.spec.overhead:
        # A pod with an overhead of its own is refused unless its RuntimeClass says the same (admission plugin
        # RuntimeClass), and the twin has no RuntimeClasses. A container requests as much.
        yield {"name": "overhead", "image": "pause", "resources": _resources(_plain(pod.spec.overhead), {})}


def _build_container(container: Any) -> dict[str, Any]:  # noqa: ANN401 - a container of `berth_core.objects`
    built: dict[str, Any] = _plain(container)
    resources = built.get("resources", {})
    ports = [
        {**port, "containerPort": port.get("containerPort") or port["hostPort"]}
        for port in built.get("ports", [])
        if port.get("hostPort")
    ]
    return {
        **built,
        "image": built.get("image") or "pause",
        "ports": ports,
        "resources": _resources(resources.get("requests", {}), resources.get("limits", {})),
    }


def _resources(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return resources with limits where the API server asks for them: extended ones and huge pages."""
    resources_with_limits = {
        resource: amount
        for resource, amount in requests.items()
        # Neither can be over-committed: validation wants a limit equal to the request.
        if "/" in resource or resource.startswith("hugepages-")
    }
    return {"requests": dict(requests), "limits": {**limits, **resources_with_limits}}


def _build_budget(budget: PodDisruptionBudget) -> dict[str, Any]:
    metadata = {"name": budget.metadata.name, "namespace": budget.metadata.namespace}
    return {"metadata": metadata, "spec": _plain(budget.spec)}


def _plain(value: object) -> Any:  # noqa: ANN401 - as the API has it
    return msgspec.to_builtins(value)


def _say_left_out(snapshot: Snapshot, living: Sequence[Pod]) -> Iterator[str]:
    """Yield what the twin lacks or has otherwise."""
    yield f"not rehearsed: {_NEVER_THERE}"
    kinds = Counter(owner.kind for pod in living if (owner := pod.controller) and _is_played(pod))
    for kind, pod_count in sorted(kinds.items()):
        yield f"{count(pod_count, 'pod')} of {kind} objects made again by ReplicaSets"
    pods_of_other_schedulers = sum(pod.spec.scheduler_name not in {"", _SCHEDULER} for pod in living)
    if pods_of_other_schedulers:
        yield f"{count(pods_of_other_schedulers, 'pod')} of other schedulers placed by kube-scheduler"
    claims = sum(any(volume.persistent_volume_claim for volume in pod.spec.volumes) for pod in living)
    if claims:
        yield f"{count(claims, 'pod')} with claims made without them"
    pods_with_claims = sum(bool(pod.spec.resource_claims) for pod in living)
    if pods_with_claims:
        yield f"{count(pods_with_claims, 'pod')} with resourceClaims made without them"
    gangs = sum(bool(pod.spec.scheduling_group or pod.spec.workload_ref) for pod in living)
    if gangs:
        yield f"{count(gangs, 'pod')} of groups scheduled one by one"
    if snapshot.reservations:
        yield f"{count(len(snapshot.reservations), 'Reservation')} left out; pods without an owner keep what they hold"


def _is_played(pod: Pod) -> bool:
    owner, key = pod.controller, owner_key(pod)
    return key is not None and owner is not None and (key.kind, key.name) != (owner.kind, owner.name)
