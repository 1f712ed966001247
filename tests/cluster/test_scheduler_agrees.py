"""Where the planner says that a pod fits, kube-scheduler says so, too; where it does not, the reason is a known one."""

# ruff: noqa: S311 - chance here decides about test cases, not about secrets

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from berth_core import Pod
from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.selectors import matches_labels
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PodIndex, PodPresence
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube.client import KubeClient, connect
from berth_kube.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from berth_kube.resources import (
    CSI_NODES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    SERVICE_ACCOUNTS,
    Resource,
)
from berth_sandbox.settings import SandboxSettings
from control_planes import control_plane
from generated_clusters import (
    RUNTIME_CLASSES,
    DrawnCluster,
    DrawnWorkload,
    draw_cluster,
    priority_classes,
    runtime_class,
)
from generated_pods import Body
from scheduler_oracle import Answer, SchedulerOracle

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

NODES_OF_A_CLUSTER = 14
WORKLOADS = 18
DENSITIES = (1.0, 0.4)
"""How full of constraints pods are, seed by seed: with fewer each decides more often."""
SEEDS = int(os.environ.get("BERTH_TEST_SEEDS", "4"))
"""How many clusters are compared; some 480 pairs and six seconds each."""
RESTRICTED_POD = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}}
RESTRICTED_CONTAINER = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
"""What Berth's own namespace asks of its pods."""

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


@dataclass(frozen=True)
class Scene:
    """A control plane without controllers and kubelets: what is written to it stays as it is."""

    client: KubeClient
    oracle: SchedulerOracle


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with (
        control_plane(SandboxSettings(second_scheduler=True)) as sandbox,
        connect(kubeconfig=str(sandbox.kubeconfig)) as client,
    ):
        for component in ("kube-scheduler", "kube-controller-manager", "kwok"):
            sandbox.kill(component)
        client.create(RUNTIME_CLASSES, runtime_class())
        for body in priority_classes():
            client.create(PRIORITY_CLASSES, body)
        with SchedulerOracle(sandbox, client) as oracle:
            yield Scene(client, oracle)


@dataclass
class Writer:
    """Writes a drawn cluster with its pods, each on a node drawn at random, whether it fits there or not."""

    client: KubeClient
    cluster: DrawnCluster
    chance: Random
    written: dict[str, Body] = field(default_factory=dict)
    """The pods by their key, as they were created."""
    resizes: dict[str, Body] = field(default_factory=dict)
    """What a kubelet says of pods that are resized in place, by their key."""

    def write_ground(self) -> None:
        """Write all but the pods."""
        for space in (*(one["metadata"]["name"] for one in self.cluster.namespaces), DEFAULT_NAMESPACE):
            self._namespace(space)
        for node in self.cluster.nodes:
            self._node(node)
        for csi_node in self.cluster.csi_nodes:
            self.client.create(CSI_NODES, csi_node)
        for volume in self.cluster.volumes:
            self.client.create(PVS, volume)
        for claim in self.cluster.claims:
            self._claim(claim)

    def write_pods(self) -> None:
        for workload in self.cluster.workloads:
            for number in range(workload.replicas):
                self._replica(workload, number)
        for number in range(3):
            self._placeholder(f"{self.cluster.seed}-{number}", pending=number == 0)

    def clear(self) -> None:
        for pod in self.client.list(PODS, type=Pod).items:
            name, namespace = pod.metadata.name, pod.metadata.namespace
            with suppress(NotFoundError):
                if pod.metadata.finalizers:
                    self.client.merge_patch(PODS, name, {"metadata": {"finalizers": None}}, namespace=namespace)
                self.client.delete(PODS, name, namespace=namespace, grace_seconds=0)
        for resource in (NODES, CSI_NODES):
            for one in self.client.list(resource).items:
                self.client.delete(resource, one["metadata"]["name"])

    def _namespace(self, name: str) -> None:
        labels: Body = next(
            (one["metadata"]["labels"] for one in self.cluster.namespaces if one["metadata"]["name"] == name), {}
        )
        self._create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        self._create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=name)

    def _create(self, resource: Resource, body: Body, namespace: str | None = None) -> None:
        with suppress(AlreadyExistsError):
            self.client.create(resource, body, namespace=namespace)

    def _node(self, body: Body) -> None:
        ready = self.chance.random() > 0.06
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "reason": "Drawn"}]
        self.client.create(NODES, {**body, "status": {**body["status"], "conditions": conditions}})
        taints = list(body["spec"]["taints"])
        if not ready:
            taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
        if body["spec"].get("unschedulable"):
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        self.client.merge_patch(NODES, body["metadata"]["name"], {"spec": {"taints": taints}})

    def _claim(self, body: Body) -> None:
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        life = self.chance.choice(("bound",) * 16 + ("unbound", "half bound", "being deleted", "of one pod"))
        spec = dict(body["spec"])
        if life == "unbound":
            del spec["volumeName"]
        if life == "of one pod":
            spec["accessModes"] = ["ReadWriteOncePod"]
        annotations = BOUND if life in {"bound", "being deleted", "of one pod"} else {}
        metadata = {**body["metadata"], "annotations": annotations}
        self.client.create(PVCS, {**body, "metadata": metadata, "spec": spec}, namespace=namespace)
        if annotations:
            self.client.merge_patch(
                PVCS, name, {"status": {"phase": "Bound"}}, namespace=namespace, subresource="status"
            )
        if life == "being deleted":
            self.client.delete(PVCS, name, namespace=namespace)

    def _replica(self, workload: DrawnWorkload, number: int) -> None:
        name = f"{workload.name}-{number}"
        life = self.chance.choice(("runs",) * 30 + ("leaves", "leaves", "comes", "ended", "waits"))
        node = self.chance.choice(self.cluster.node_names)
        metadata: Body = {
            "name": name,
            "namespace": workload.namespace,
            "labels": workload.template["metadata"]["labels"],
            "ownerReferences": [_owner(workload.name)],
        }
        spec = dict(workload.pod_spec(number))
        if life in {"runs", "leaves", "ended"}:
            spec["nodeName"] = node
        if life == "leaves":
            metadata["finalizers"] = ["example.com/kept"]
        if life == "comes":
            spec["schedulingGates"] = [{"name": "example.com/later"}]
        if life in {"runs", "leaves"} and (resize := draw_resize(Random(f"{self.cluster.seed}/{name}"), spec)):
            self.resizes[f"{workload.namespace}/{name}"] = resize
        self.create_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        if life == "leaves":
            self.client.delete(PODS, name, namespace=workload.namespace)
        if life in {"comes", "ended"}:
            status = {"nominatedNodeName": node} if life == "comes" else {"phase": "Succeeded"}
            self.client.merge_patch(PODS, name, {"status": status}, namespace=workload.namespace, subresource="status")

    def _placeholder(self, name: str, *, pending: bool) -> None:
        node = self.chance.choice(self.cluster.node_names)
        pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
        requests = {"cpu": self.chance.choice(("1", "2")), "memory": "1Gi"}
        container = {"name": "main", "image": "pause", "resources": {"requests": requests}, **RESTRICTED_CONTAINER}
        spec: Body = {"containers": [container], **RESTRICTED_POD}
        spec |= {"affinity": {"nodeAffinity": required}} if pending else {"nodeName": node}
        metadata = {"name": f"held-{name}", "namespace": DEFAULT_NAMESPACE, "labels": {PLACEHOLDER_LABEL: "true"}}
        self.create_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def create_pod(self, body: Body) -> None:
        """Create a pod and keep its body; admission may not yet have heard of what was just created."""
        namespace = body["metadata"]["namespace"]
        deadline = time.monotonic() + 120
        while True:
            try:
                self.client.create(PODS, body, namespace=namespace)
                break
            except ForbiddenError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        name = body["metadata"]["name"]
        if (resize := self.resizes.get(f"{namespace}/{name}")) is not None:
            self.client.merge_patch(PODS, name, {"status": resize}, namespace=namespace, subresource="status")
        self.written[f"{namespace}/{name}"] = body


RESIZED: Final = 0.4
"""How many of the running pods are in the middle of a resize, or of one that can never be."""


def draw_resize(chance: Random, spec: Body) -> Body | None:
    """Return the status that a kubelet writes of a pod that is resized in place, None for most pods."""
    if chance.random() > RESIZED:
        return None

    def amounts() -> Body:
        return {"cpu": chance.choice(("250m", "1", "2500m", "4")), "memory": chance.choice(("64Mi", "1Gi", "3Gi"))}

    def status_of(container: Body) -> Body:
        made = {"name": container["name"], "image": "pause", "imageID": "", "ready": True, "restartCount": 0}
        if chance.random() < 0.7:
            made["resources"] = {"requests": amounts()} if chance.random() < 0.8 else {}
        if chance.random() < 0.6:
            made["allocatedResources"] = amounts()
        return made

    status: Body = {"containerStatuses": [status_of(container) for container in spec["containers"]]}
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [status_of(container) for container in spec["initContainers"]]
    if chance.random() < 0.5:
        status |= {"resources": {"requests": amounts()}, "allocatedResources": amounts()}
    reason = chance.choice(("", "", "Infeasible", "Deferred"))
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def _owner(name: str) -> Body:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}


def scheduler_says(scene: Scene, writer: Writer, body: Body) -> Answer:
    """Return the nodes that take the replacement of a pod both while it is being deleted and once it is gone."""
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    spec = {key: value for key, value in body["spec"].items() if key != "nodeName"}
    replacement = {**body, "metadata": {**body["metadata"], "name": f"{name}-new"}, "spec": spec}
    scene.client.delete(PODS, name, namespace=namespace, grace_seconds=30)
    while_there = scene.oracle.nodes_for(replacement)
    scene.client.delete(PODS, name, namespace=namespace, grace_seconds=0)
    afterwards = scene.oracle.nodes_for(replacement)
    writer.create_pod(body)
    message = f"while it is there: {while_there.message}; afterwards: {afterwards.message}"
    return Answer(while_there.nodes & afterwards.nodes, message)


@dataclass
class Comparison:
    """What both said about the pairs of a cluster."""

    counts: Counter[str] = field(default_factory=Counter)
    too_bold: list[str] = field(default_factory=list)
    too_careful: list[str] = field(default_factory=list)
    """Where only the scheduler said yes, for no documented reason."""


def compare(scene: Scene, seed: int) -> Comparison:
    density = DENSITIES[seed % len(DENSITIES)]
    drawn = draw_cluster(seed, nodes=NODES_OF_A_CLUSTER, workloads=WORKLOADS, density=density)
    writer = Writer(scene.client, drawn, Random(seed))
    try:
        writer.write_ground()
        scene.oracle.start_anew()  # it hears of each kind through a watch of its own, of all pods through the same
        writer.write_pods()
        cluster = Cluster.from_snapshot(read_live_snapshot(scene.client))
        return _compare_pods(scene, writer, cluster)
    finally:
        writer.clear()


def _compare_pods(scene: Scene, writer: Writer, cluster: Cluster) -> Comparison:
    found = Comparison()
    state = State(cluster, maybe_sources=())
    for index, placed in enumerate(cluster.pods):
        body = writer.written[placed.pod.key]
        if placed.presence is not PodPresence.SETTLED or placed.pod.metadata.namespace == DEFAULT_NAMESPACE:
            continue
        found.counts["resized"] += is_resized(placed.pod)
        answer = scheduler_says(scene, writer, body)
        for number in range(len(cluster.nodes)):
            if number != placed.node:
                note(found, state, PodIndex(index), NodeIndex(number), answer)
    return found


def note(found: Comparison, state: State, pod: PodIndex, node: NodeIndex, answer: Answer) -> None:
    refusal = state.refusal(pod, node)
    cluster = state.cluster
    said_yes = cluster.node_name(node) in answer.nodes
    pair = f"{cluster.pods[pod].pod.key} to {cluster.node_name(node)}"
    found.counts["pairs"] += 1
    if refusal is None:
        found.counts["both yes" if said_yes else "only we say yes"] += 1
        if not said_yes:
            found.too_bold.append(f"{pair}: {answer.message}")
    elif not said_yes:
        found.counts["both no"] += 1
    else:
        found.counts[f"only the scheduler says yes: {refusal.reason}"] += 1
        if not is_documented(cluster, pod, node, refusal.reason):
            found.too_careful.append(f"{pair}: {refusal.message}")


ALWAYS = frozenset({Reason.NODE_NOT_READY, Reason.NODE_UNSCHEDULABLE, Reason.NODE_DRAINING, Reason.UNKNOWN_VOLUME})
"""Reasons for which the planner is always more careful than the scheduler."""

BY_WHO_COMES_HERE = frozenset({Reason.INSUFFICIENT_RESOURCES, Reason.HOST_PORT})
BY_WHO_COMES_ANYWHERE = frozenset({Reason.POD_ANTI_AFFINITY, Reason.OTHERS_ANTI_AFFINITY, Reason.TOPOLOGY_SPREAD})


def is_documented(cluster: Cluster, pod: PodIndex, node: NodeIndex, reason: Reason) -> bool:
    """Return whether a reason is one of those of "Where the planner is more careful than the scheduler"."""
    unsure = {other.presence for other in cluster.pods}
    beside = (cluster.pods[other].pod for other in (pod, *cluster.pods_on[node]))
    if reason is Reason.INSUFFICIENT_RESOURCES and any(map(is_resized, beside)):
        return True  # of what versions of Kubernetes count, the most counts
    if reason in BY_WHO_COMES_HERE:
        return any(cluster.pods[other].presence is PodPresence.EXPECTED for other in cluster.pods_on[node])
    if reason in BY_WHO_COMES_ANYWHERE:
        return PodPresence.EXPECTED in unsure
    if reason is Reason.POD_AFFINITY:
        return wants_its_like(cluster.pods[pod].pod) or unsure != {PodPresence.SETTLED}
    return reason in ALWAYS


def is_resized(pod: Pod) -> bool:
    """Return whether a kubelet has said what a pod or its containers have."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any((pod.status.resources, pod.status.allocated_resources, *(one.resources for one in statuses))) or any(
        one.allocated_resources for one in statuses
    )


def wants_its_like(pod: Pod) -> bool:
    """Return whether a pod's required affinity selects the pod itself."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else ()
    return any(matches_labels(term.label_selector, pod.metadata.labels) for term in terms)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_node_is_thought_to_take_a_pod_that_the_scheduler_would_not_put_there(scene: Scene, seed: int) -> None:
    found = compare(scene, seed)
    print(dict(found.counts))  # noqa: T201 - figures for people, shown with -s
    assert not found.too_bold, "\n".join(found.too_bold)
    assert not found.too_careful, "\n".join(found.too_careful)
    assert found.counts["resized"] > 0
    assert found.counts["both yes"] > 0
    assert found.counts["both no"] > 0
