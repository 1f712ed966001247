"""Pods of Deployments move without a gap, and what goes wrong on the way is as if nothing had been."""

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core.labels import RELEASED_HASH, TEMPLATE_HASH_LABEL
from berth_core.migration_plans import MoveStatus
from berth_core.objects import Pod
from berth_descheduler.cli.main import run as berth
from berth_kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    MIGRATION_PLANS,
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
from berth_sandbox.faults import Call, FaultKind, FaultProxy, HoldPlan
from cluster_objects import build_deployment, is_gone, make_namespace, pod_template, pods
from descheduling_stage import MOVERS, PLANNER, Run, Scene
from ready_endpoints import ready_endpoints, watched_endpoints
from service_processes import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

SURGE: Final = "--moves=Surge"
NEVER_READY_SECONDS: Final = 500
"""A replacement that is available only then holds a move where a test wants it."""


def serve(scene: Scene, name: str) -> None:
    """Give a Deployment a Service, and a budget that lets no pod of its own go."""
    chosen = {"app": name}
    head = {"metadata": {"name": name}}
    service = {"apiVersion": "v1", "kind": "Service", **head, "spec": {"selector": chosen, "ports": [{"port": 80}]}}
    budget = {"minAvailable": "100%", "selector": {"matchLabels": chosen}}
    scene.client.create(SERVICES, service, namespace=scene.namespace)
    scene.client.create(
        PDBS,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **head, "spec": budget},
        namespace=scene.namespace,
    )


def deploy_singles(scene: Scene, *names: str) -> None:
    """Replace the movers by Deployments of one replica each, on the low nodes."""
    for name in MOVERS:
        scene.remove(name)
    scene.cordon(*scene.high)
    for name in names:
        scene.deploy(name, replicas=1, cpu="1")
    scene.cordon(*scene.high, closed=False)


def generations(scene: Scene) -> dict[str, int]:
    found = scene.client.list(DEPLOYMENTS, namespace=scene.namespace).items
    return {one["metadata"]["name"]: one["metadata"]["generation"] for one in found}


def released(scene: Scene) -> list[str]:
    """Return the apps of the pods that are let go and that no controller has."""
    found = scene.pods(label_selector=f"{TEMPLATE_HASH_LABEL}={RELEASED_HASH}")
    return sorted(pod.metadata.labels["app"] for pod in found if pod.controller is None)


def patch(scene: Scene, name: str, spec: dict[str, Any]) -> None:
    scene.client.merge_patch(DEPLOYMENTS, name, {"spec": spec}, namespace=scene.namespace)


def moves(scene: Scene) -> dict[str, MoveStatus]:
    """Return the last move of each Deployment."""
    return {move.pod.rsplit("-", 2)[0]: move for plan in scene.plans() for move in plan.status.moves}


def held_in_the_middle(scene: Scene, *names: str) -> Run:
    """Begin a run that waits for the replacements of single pods, with all of them let go."""
    deploy_singles(scene, *names)
    for name in names:
        patch(scene, name, {"minReadySeconds": NEVER_READY_SECONDS})
        scene.wait_for(f"the change of {name} is observed", partial(is_observed, scene, name))
    run = scene.start(SURGE)
    scene.wait_for("all pods are let go", lambda: released(scene) == sorted(names))
    scene.wait_for("their replacements run", lambda: all(count_ready(scene, name) == 2 for name in names))
    return run


def is_observed(scene: Scene, name: str) -> bool:
    found = scene.client.get(DEPLOYMENTS, name, namespace=scene.namespace)
    return bool(found["status"].get("observedGeneration", 0) >= found["metadata"]["generation"])


def count_ready(scene: Scene, name: str) -> int:
    return sum(pod.is_ready and not pod.is_terminating for pod in scene.pods(label_selector=f"app={name}"))


def predicted(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """Return what `berth plan` says of the moves that a run with these options makes: their methods."""
    planner = [one for one in PLANNER if one not in {"--no-taint-freed", "--moves=Evict"}]
    assert berth(["plan", *planner, SURGE, "--output=json", *options]) == 0
    return {move["podUID"]: move["method"] for move in json.loads(capsys.readouterr().out)["moves"]}


def test_pods_move_without_a_gap_under_budgets_that_allow_nothing(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.cordon(*scene.high)
    scene.deploy("solo", replicas=1, cpu="1")
    scene.cordon(*scene.high, closed=False)
    wanted = {"api": 2, "web": 2, "solo": 1}
    for name in wanted:
        serve(scene, name)
    scene.wait_for("all endpoints are ready", lambda: ready_endpoints(scene.client, scene.namespace) == wanted)
    before = generations(scene)
    live, file = f"--kubeconfig={scene.sandbox.kubeconfig}", f"{scene.folder}/{scene.namespace}.json"
    assert berth(["snapshot", live, f"--file={file}"]) == 0
    foreseen = [predicted(capsys, "--per-controller=2", where) for where in (live, f"--snapshot={file}")]

    with watched_endpoints(scene.client, scene.namespace) as endpoints:
        outcome = scene.run(SURGE, "--per-controller=2")

    (plan,) = scene.plans()
    assert foreseen == [{move.pod_uid: "Surge" for move in plan.spec.moves}] * 2
    assert plan.phase == "Succeeded", outcome
    assert [(one.state, one.method, one.method_reason) for one in moves(scene).values()] == [
        ("Landed", "Surge", "") for _ in wanted
    ]
    assert endpoints.fewest == wanted
    assert generations(scene) == before
    scene.wait_until_emptied()
    assert released(scene) == []
    scene.require_peace(pods=7)


def test_a_scale_to_zero_and_a_roll_out_end_the_pods_that_were_let_go(scene: Scene) -> None:
    run = held_in_the_middle(scene, "zero", "rolled")

    patch(scene, "zero", {"replicas": 0})
    note = {"metadata": {"annotations": {"version": "2"}}}
    patch(scene, "rolled", {"minReadySeconds": 0, "template": note})

    run.wait()
    for name in ("zero", "rolled"):
        assert moves(scene)[name].reason == "TakenBack", moves(scene)[name]
    scene.wait_for("nothing of the scaled one is left", lambda: not scene.pods(label_selector="app=zero"))
    scene.wait_for("one pod of the new version runs", lambda: versions(scene) == ["2"])
    assert released(scene) == []
    scene.require_peace(pods=3)


def versions(scene: Scene) -> list[str]:
    return [pod.metadata.annotations.get("version", "1") for pod in scene.pods(label_selector="app=rolled")]


@pytest.mark.parametrize("ending", ["stopped", "aborted"])
def test_a_run_that_ends_in_the_middle_gives_the_pods_back(scene: Scene, ending: str) -> None:
    run = held_in_the_middle(scene, "one", "two")
    before = {pod.metadata.name for pod in scene.pods(label_selector=f"{TEMPLATE_HASH_LABEL}={RELEASED_HASH}")}
    if ending == "stopped":
        run.stop()
    else:
        (found,) = scene.plans()
        scene.client.merge_patch(MIGRATION_PLANS, found.metadata.name, {"spec": {"aborted": True}})
    run.wait()

    assert len(before) == 2
    scene.wait_for("all pods have their controllers", lambda: released(scene) == [])
    assert not scene.has_evicted()
    for name in ("one", "two"):
        patch(scene, name, {"minReadySeconds": 0})
    scene.require_peace(pods=4)


def lets_go(call: Call) -> bool:
    return call.method == "PATCH" and RELEASED_HASH.encode() in call.body


def evicts(call: Call) -> bool:
    return call.method == "POST" and call.path.endswith("/eviction")


def test_a_run_that_is_killed_at_its_decisive_calls_is_continued_without_a_gap(scene: Scene) -> None:
    """Killed when the first pod is let go and it has not heard of that, and before it has one evicted."""
    names = ("one", "two")
    deploy_singles(scene, *names)
    for name in names:
        patch(scene, name, {"minReadySeconds": 2})
        serve(scene, name)
    wanted = dict.fromkeys(names, 1)
    scene.wait_for("all endpoints are ready", lambda: ready_endpoints(scene.client, scene.namespace) == wanted)
    for name in names:
        scene.wait_for(f"the change of {name} is observed", partial(is_observed, scene, name))
    before = generations(scene)

    account = scene.sandbox.service_account_kubeconfig("berth-descheduler")
    with watched_endpoints(scene.client, scene.namespace) as endpoints, FaultProxy(account) as proxy:
        through = proxy.write_kubeconfig(scene.folder / "through.yaml")
        for at, kind in ((lets_go, FaultKind.HOLD_AFTER), (evicts, FaultKind.HOLD_BEFORE)):
            proxy.plan = plan = HoldPlan(at, kind)
            run = scene.start(SURGE, kubeconfig=through)
            scene.wait_for("the call is made", plan.held.reached.is_set)
            scene.wait_for("a pod is let go", lambda: released(scene))
            run.kill()
            plan.held.released.set()
        outcome = scene.run(SURGE)

    assert endpoints.fewest == wanted, outcome
    assert {name: move.state for name, move in moves(scene).items()} == dict.fromkeys(names, "Landed")
    assert {name: move.method for name, move in moves(scene).items()} == dict.fromkeys(names, "Surge")
    scene.wait_until_emptied()
    assert generations(scene) == before
    assert released(scene) == []
    scene.require_peace(pods=4)


def test_an_operator_that_is_killed_in_the_middle_leaves_no_gap(
    scene: Scene, serving_operator: OperatorProcess, tmp_path: Path
) -> None:
    """Killed when a place is held, when the first pod is let go, and when the first is evicted."""
    names = ("one", "two", "three")
    deploy_singles(scene, *names)
    for name in names:
        serve(scene, name)
    wanted = dict.fromkeys(names, 1)
    scene.wait_for("all endpoints are ready", lambda: ready_endpoints(scene.client, scene.namespace) == wanted)
    before = generations(scene)

    serving_operator.stop()
    try:
        with (
            OperatorProcess(scene.sandbox, tmp_path, "--identity=comes-back") as operator,
            watched_endpoints(scene.client, scene.namespace) as endpoints,
        ):
            run = scene.start(SURGE)
            for reached in (scene.has_begun, lambda: released(scene), scene.has_evicted):
                scene.wait_for("it is there or over", lambda: reached() or run.exit_code is not None)  # noqa: B023
                operator.kill()
                operator.start()
            run.wait()
    finally:
        serving_operator.start()

    assert endpoints.fewest == wanted, run.outcome
    assert {move.method for move in moves(scene).values()} == {"Surge"}
    assert generations(scene) == before
    assert released(scene) == []
    scene.require_peace(pods=5)


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

        scene.run(SURGE, "--max-replans=0")

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
