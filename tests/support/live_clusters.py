"""Drawn clusters as they live on a sandbox: real controllers make their pods, kube-scheduler places them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

from berth_core import Node, Pod
from berth_core.reservations import Reservation, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import (
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    MIGRATION_PLANS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PVCS,
    PVS,
    REPLICA_SETS,
    RESERVATIONS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Resource,
)
from cluster_objects import build_reservation, is_gone, label_owner, pod_template
from generated_clusters import MOUNT, DrawnCluster, DrawnWorkload
from generated_pods import Body
from reservation_stage import delete_all
from waiting import eventually

SETTLE_SECONDS = 180
FINALIZER = "example.com/kept"


@dataclass(frozen=True)
class LiveCluster:
    """A drawn cluster that is up."""

    client: KubeClient
    drawn: DrawnCluster

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces of its workloads."""
        return tuple(one["metadata"]["name"] for one in self.drawn.namespaces)

    def pods(self) -> tuple[Pod, ...]:
        """Return the pods of its workloads."""
        lists = (self.client.list(PODS, namespace=name, type=Pod).items for name in self.namespaces)
        return tuple(chain.from_iterable(lists))


@contextmanager
def live_cluster(client: KubeClient, drawn: DrawnCluster) -> Iterator[LiveCluster]:
    """Yield a cluster in which every pod that stays runs; it is gone at the end, so that another can follow."""
    cluster = LiveCluster(client, drawn)
    try:
        _write_nodes(client, drawn)
        _write_objects(client, drawn)
        _write_oddities(cluster)
        for workload in drawn.workloads:
            _write_workload(client, workload)
        _settle(cluster)
        yield cluster
    finally:
        _clear(cluster)


def _write_nodes(client: KubeClient, drawn: DrawnCluster) -> None:
    for node in drawn.nodes:
        client.create(NODES, node)
    for csi_node in drawn.csi_nodes:
        client.create(CSI_NODES, csi_node)
    eventually("all nodes are ready", lambda: all(_is_usable(one) for one in _nodes(client, drawn)), seconds=90)


def _nodes(client: KubeClient, drawn: DrawnCluster) -> list[Node]:
    return [one for one in client.list(NODES, type=Node).items if one.metadata.name in drawn.node_names]


def _is_usable(node: Node) -> bool:
    return node.ready and not any(taint.key.endswith("not-ready") for taint in node.taints)


def _write_objects(client: KubeClient, drawn: DrawnCluster) -> None:
    for namespace in drawn.namespaces:
        client.create(NAMESPACES, namespace)
    for volume in drawn.volumes:
        client.create(PVS, volume)
    for resource, bodies in ((PVCS, drawn.claims), (PDBS, drawn.budgets)):
        for body in bodies:
            client.create(resource, body, namespace=body["metadata"]["namespace"])
    names = [namespace["metadata"]["name"] for namespace in drawn.namespaces]
    can_start = lambda: not any(is_gone(client, SERVICE_ACCOUNTS, "default", name) for name in names)  # noqa: E731
    eventually("pods can be made", can_start, seconds=60)
    eventually("all claims are bound", lambda: all(_is_bound(client, one) for one in drawn.claims), seconds=90)


def _is_bound(client: KubeClient, claim: Body) -> bool:
    found = client.get(PVCS, claim["metadata"]["name"], namespace=claim["metadata"]["namespace"])
    return bool(found["status"].get("phase") == "Bound")


def _write_workload(client: KubeClient, workload: DrawnWorkload) -> None:
    """Create the controller of a drawn workload: a StatefulSet where each pod has a claim of its own."""
    labels = {"set": workload.name}
    spec: Body = {"replicas": workload.replicas, "selector": {"matchLabels": labels}}
    template = {**workload.template, "spec": workload.pod_spec(0)}
    if workload.claim_of_each:
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        spec |= {"template": workload.template, "serviceName": workload.name, "podManagementPolicy": "Parallel"}
        spec["volumeClaimTemplates"] = [{"metadata": {"name": MOUNT}, "spec": claim}]
    else:
        spec["template"] = template
    body = {"metadata": {"name": workload.name}, "spec": spec}
    client.create(_resource_of(workload), body, namespace=workload.namespace)


def _resource_of(workload: DrawnWorkload) -> Resource:
    if workload.claim_of_each:
        return STATEFUL_SETS
    return DEPLOYMENTS if workload.replicas % 2 else REPLICA_SETS


def _write_oddities(cluster: LiveCluster) -> None:
    """Add what no plan may move: a DaemonSet, a pod without a controller, one that is being deleted, a held place."""
    client, namespace = cluster.client, cluster.namespaces[0]
    everywhere = pod_template({"app": "agent"}, cpu="100m", tolerations=[{"operator": "Exists"}])
    daemons = {"selector": {"matchLabels": {"app": "agent"}}, "template": everywhere}
    client.create(DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": daemons}, namespace=namespace)
    for name, finalizers in (("bare", []), ("leaving", [FINALIZER])):
        spec = pod_template({"app": name}, cpu="250m")["spec"]
        client.create(PODS, {"metadata": {"name": name, "finalizers": finalizers}, "spec": spec}, namespace=namespace)
    held = build_reservation("held", cpu="1", owners=label_owner(app="nobody"))
    client.create(RESERVATIONS, held, namespace=namespace)


def _settle(cluster: LiveCluster) -> None:
    """Wait until every pod runs or waits in vain, take away those that wait, and begin the deletion of one."""
    tried = lambda: all(_is_tried(one) for one in _expected(cluster))  # noqa: E731
    eventually("every pod has been tried", tried, seconds=SETTLE_SECONDS)
    waiting = {pod.metadata.labels.get("set") for pod in cluster.pods() if not pod.spec.node_name}
    for workload in cluster.drawn.workloads:
        if workload.name in waiting:
            resource = _resource_of(workload)
            cluster.client.delete(resource, workload.name, namespace=workload.namespace, propagation="Foreground")
    try:
        eventually("all pods run", lambda: not _unsettled(cluster), seconds=SETTLE_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {_unsettled(cluster)}") from error
    cluster.client.delete(PODS, "leaving", namespace=cluster.namespaces[0])
    eventually("the place is held", lambda: _is_held(cluster), seconds=SETTLE_SECONDS)


def _expected(cluster: LiveCluster) -> tuple[Pod | None, ...]:
    """Return the pods, and None for each that the controllers have yet to make."""
    found = cluster.pods()
    wanted = sum(workload.replicas for workload in cluster.drawn.workloads)
    made = sum("set" in pod.metadata.labels for pod in found)
    return (*found, *(None for _ in range(wanted - made)))


def _is_tried(pod: Pod | None) -> bool:
    if pod is None or pod.is_ready:
        return pod is not None
    return any(one.type == "PodScheduled" and one.reason == "Unschedulable" for one in pod.status.conditions)


def _unsettled(cluster: LiveCluster) -> list[str]:
    return [pod.key for pod in cluster.pods() if not pod.is_ready or pod.is_terminating]


def _is_held(cluster: LiveCluster) -> bool:
    held = cluster.client.get(RESERVATIONS, "held", namespace=cluster.namespaces[0], type=Reservation)
    return held.phase is ReservationPhase.AVAILABLE


def _clear(cluster: LiveCluster) -> None:
    """Take everything away; a namespace that is ending gets no new pods."""
    client = cluster.client
    for plan in client.list(MIGRATION_PLANS).items:
        client.delete(MIGRATION_PLANS, plan["metadata"]["name"])
    for name in cluster.namespaces:
        delete_all(client, RESERVATIONS, name)  # or a placeholder stays until the namespace controller comes to it
        with suppress(NotFoundError):
            client.delete(NAMESPACES, name)
    eventually("its pods are gone", lambda: _remove_pods(cluster), seconds=180)
    for resource in (NODES, CSI_NODES, PVS):
        for one in client.list(resource).items:
            with suppress(NotFoundError):  # a node takes its CSINode along
                client.delete(resource, one["metadata"]["name"])


def _remove_pods(cluster: LiveCluster) -> bool:
    """Remove its pods, and return whether none was left, nor a placeholder; controllers may still replace some."""
    for pod in cluster.pods():
        _remove(cluster.client, pod)
    return not cluster.client.list(PODS).items


def _remove(client: KubeClient, pod: Pod) -> None:
    name, namespace = pod.metadata.name, pod.metadata.namespace
    with suppress(NotFoundError):
        if pod.metadata.finalizers:
            client.merge_patch(PODS, name, {"metadata": {"finalizers": None}}, namespace=namespace)
        client.delete(PODS, name, namespace=namespace, grace_seconds=0)
