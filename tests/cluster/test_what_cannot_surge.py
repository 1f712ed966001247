"""Pods that cannot surge are evicted or stay, and each move says why."""

from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

from berth_core import Pod
from berth_core.labels import TEMPLATE_HASH_LABEL
from berth_kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    NAMESPACES,
    PDBS,
    PODS,
    PVCS,
    PVS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
)
from cluster.test_surge_moves import SURGE, count_ready, is_observed, moves, patch
from cluster_objects import build_deployment, is_gone, make_namespace, pod_template, pods
from descheduling_stage import MOVERS, Scene

pytestmark = [pytest.mark.cluster, pytest.mark.deep]


def test_what_cannot_surge_is_evicted_or_stays_and_says_why(scene: Scene) -> None:
    """With the real objects of each kind; what each says is in the unit tests, with all other cases."""
    for name in MOVERS:
        scene.remove(name)
    with ExitStack() as leaving:
        full = deploy_in_a_full_namespace(scene, leaving)
        scene.cordon(scene.low[0], closed=False)
        close(scene, scene.low[1])
        names = (*deploy_all_that_cannot_surge(scene), *make_other_owners(scene, leaving))
        running = lambda: all(count_ready(scene, name) == 1 for name in (*names, "daemon"))  # noqa: E731
        scene.wait_for("all run", running)
        change_and_select(scene)
        scene.cordon(scene.low[1], *scene.high, closed=False)

        scene.run(SURGE, "--max-replans=0", "--harmless-owner=*")

        found = moves(scene)
        ways = {name: (move.state, move.method) for name, move in found.items()}
        assert ways == {**dict.fromkeys(names, ("Landed", "Evict")), "full": ("Failed", "Evict")}
        assert {name: move.method_reason for name, move in found.items()} == WHY_NOT
        assert "exceeded quota" in found["full"].message
        assert [pod.metadata.labels["app"] for pod in pods(scene.client, full)] == ["full"]
        (daemon,) = scene.pods(label_selector="app=daemon")
        assert scene.pods_on(scene.low[0]) == [daemon.metadata.name]
        scene.require_peace(pods=len(scene.high) + len(names) + 1)


WHY_NOT: Final = {
    "scaled": "the HorizontalPodAutoscaler by-load would count one pod more",
    "recreated": "its Deployment has the strategy Recreate: two of its pods never run at once",
    "exact": "its Deployment allows no pod more: its maxSurge is 0",
    "selected": "the Service blue selects pods by pod-template-hash",
    "guarded": "the PodDisruptionBudget blue selects pods by pod-template-hash",
    "paused": "its Deployment is being rolled out or scaled",
    "mounted": "its volume alone is for one node at a time",
    "port": "it uses a port of its node",
    "gang": "it belongs to a gang, which counts its pods",
    "rollout": "its ReplicaSet belongs to a ConfigMap, not to a Deployment",
    "bare": "its ReplicaSet belongs to no Deployment",
    "numbered": "it belongs to a StatefulSet, not to a Deployment",
    "once": "it belongs to a Job, not to a Deployment",
    "full": "the ResourceQuota as-it-is has no room for one pod more",
}
SMALL: Final = "100m"


def deploy_in_a_full_namespace(scene: Scene, leaving: ExitStack) -> str:
    """Have one pod on the second low node, in a namespace whose quota allows no other."""
    name = make_namespace(scene.client, f"{scene.namespace}-full")
    leaving.callback(scene.client.delete, NAMESPACES, name)
    close(scene, *scene.high, scene.low[0])
    scene.client.create(DEPLOYMENTS, build_deployment("full", replicas=1, cpu=SMALL), namespace=name)
    leaving.callback(
        scene.wait_for, f"the pods of {name} are gone", lambda: not scene.client.list(PODS, namespace=name).items
    )
    leaving.callback(scene.client.delete, DEPLOYMENTS, "full", namespace=name, propagation="Background")
    scene.wait_for("it runs", lambda: any(pod.is_ready for pod in pods(scene.client, name)))
    quota = {"metadata": {"name": "as-it-is"}, "spec": {"hard": {"pods": "1"}}}
    scene.client.create(RESOURCE_QUOTAS, quota, namespace=name)
    used = lambda: scene.client.get(RESOURCE_QUOTAS, "as-it-is", namespace=name).get("status", {}).get("used")  # noqa: E731
    scene.wait_for("the quota counts it", lambda: used() == {"pods": "1"})
    return name


def close(scene: Scene, *nodes: str) -> None:
    """Cordon nodes and wait until the scheduler places no pod on them."""
    scene.cordon(*nodes)
    scene.wait_for("the scheduler knows that they are cordoned", lambda: is_refused(scene, nodes[-1]))


def is_refused(scene: Scene, node: str) -> bool:
    """Return whether the scheduler refuses to place a pod on a node."""
    scene.create_pod("probe", cpu="1m", nodeSelector={"kubernetes.io/hostname": node})
    probe = lambda: scene.client.get(PODS, "probe", namespace=scene.namespace, type=Pod)  # noqa: E731
    scene.wait_for("it is decided", lambda: probe().spec.node_name or probe().condition("PodScheduled") == "False")
    was_placed = bool(probe().spec.node_name)
    scene.client.delete(PODS, "probe", namespace=scene.namespace, grace_seconds=0)
    scene.wait_for("the probe is gone", lambda: is_gone(scene.client, PODS, "probe", scene.namespace))
    return not was_placed


def deploy_all_that_cannot_surge(scene: Scene) -> tuple[str, ...]:
    """Deploy one pod of each kind, for whatever reason it cannot surge; return the names."""
    container = pod_template({}, cpu=SMALL)["spec"]["containers"][0]
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "alone"}}
    bodies = {
        name: build_deployment(name, replicas=1, cpu=SMALL)
        for name in ("scaled", "recreated", "exact", "selected", "guarded", "paused", "gang")
    }
    bodies["mounted"] = build_deployment("mounted", replicas=1, cpu=SMALL, volumes=[claim])
    ports = [{"containerPort": 80, "hostPort": 8080}]
    bodies["port"] = build_deployment("port", replicas=1, cpu=SMALL, containers=[{**container, "ports": ports}])
    bodies["recreated"]["spec"]["strategy"] = {"type": "Recreate"}
    bodies["exact"]["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    bodies["gang"]["spec"]["template"]["metadata"]["labels"]["scheduling.k8s.io/group-name"] = "three"
    claimed = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    volume = f"{scene.namespace}-alone"
    chosen = {"metadata": {"name": "alone"}, "spec": {**claimed, "volumeName": volume}}
    scene.client.create(PVCS, chosen, namespace=scene.namespace)
    source = {"nfs": {"server": "192.0.2.9", "path": "/data"}, "capacity": {"storage": "1Gi"}}
    held = {"accessModes": ["ReadWriteOnce"], "claimRef": {"namespace": scene.namespace, "name": "alone"}}
    kept = {"persistentVolumeReclaimPolicy": "Retain", "storageClassName": ""}
    scene.client.create(PVS, {"metadata": {"name": volume}, "spec": {**source, **held, **kept}})
    for body in bodies.values():
        scene.client.create(DEPLOYMENTS, body, namespace=scene.namespace)
    return tuple(bodies)


def make_other_owners(scene: Scene, leaving: ExitStack) -> tuple[str, ...]:
    """Have one pod of each other controller; return the names of those that may move.

    They are taken away at the end, as is the volume: else they make the pods again that the scene takes away.
    """
    kinds = {"rollout": REPLICA_SETS, "bare": REPLICA_SETS, "numbered": STATEFUL_SETS, "once": JOBS}
    made = scene.client.create(CONFIG_MAPS, {"metadata": {"name": "rollout"}}, namespace=scene.namespace)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "rollout", "uid": made["metadata"]["uid"]}
    leaving.callback(take_the_volume_away, scene)
    leaving.callback(
        scene.wait_for, "their pods are gone", lambda: not any(count_all(scene, name) for name in (*kinds, "daemon"))
    )
    for name, kind in {**kinds, "daemon": DAEMON_SETS}.items():
        labels = {"app": name} | ({TEMPLATE_HASH_LABEL: "5d4f8c7b9"} if name == "rollout" else {})
        template = pod_template(labels, cpu=SMALL)
        spec = {"selector": {"matchLabels": labels}, "template": template}
        if kind is JOBS:
            spec = {"template": template}
            template["spec"]["restartPolicy"] = "Never"
        elif kind is DAEMON_SETS:
            template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": scene.low[0]}
        elif kind is STATEFUL_SETS:
            spec["serviceName"] = name
        body = {"metadata": {"name": name}, "spec": spec}
        if name == "rollout":
            body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        scene.client.create(kind, body, namespace=scene.namespace)
        leaving.callback(scene.client.delete, kind, name, namespace=scene.namespace, propagation="Background")
    return tuple(kinds)


def count_all(scene: Scene, name: str) -> int:
    return len(scene.pods(label_selector=f"app={name}"))


def take_the_volume_away(scene: Scene) -> None:
    scene.remove("mounted")
    scene.client.delete(PVCS, "alone", namespace=scene.namespace)
    volume = f"{scene.namespace}-alone"
    scene.wait_for("its claim is gone", lambda: is_gone(scene.client, PVCS, "alone", scene.namespace))
    scene.client.delete(PVS, volume)
    scene.wait_for("the volume is gone", lambda: is_gone(scene.client, PVS, volume))


def change_and_select(scene: Scene) -> None:
    """Begin a roll-out that does not go on; have a Service, a budget and an autoscaler choose pods."""
    patch(scene, "paused", {"paused": True})
    patch(scene, "paused", {"template": {"metadata": {"annotations": {"version": "2"}}}})
    scene.wait_for("the change of paused is observed", partial(is_observed, scene, "paused"))
    by_hash = {}
    for name in ("selected", "guarded"):
        (pod,) = scene.pods(label_selector=f"app={name}")
        by_hash[name] = {TEMPLATE_HASH_LABEL: pod.metadata.labels[TEMPLATE_HASH_LABEL]}
    scaled = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}, "maxReplicas": 3}
    for resource, name, spec in (
        (HORIZONTAL_POD_AUTOSCALERS, "by-load", scaled),
        (SERVICES, "blue", {"selector": by_hash["selected"], "ports": [{"port": 80}]}),
        (PDBS, "blue", {"maxUnavailable": 1, "selector": {"matchLabels": by_hash["guarded"]}}),
    ):
        scene.client.create(resource, {"metadata": {"name": name}, "spec": spec}, namespace=scene.namespace)
    allowed = lambda: scene.client.get(PDBS, "blue", namespace=scene.namespace)["status"].get("disruptionsAllowed")  # noqa: E731
    scene.wait_for("the budget allows one", lambda: allowed() == 1)
