"""Pods of Deployments move without a gap, and what goes wrong on the way is as if nothing had been."""

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core.labels import RELEASED_HASH, TEMPLATE_HASH_LABEL
from berth_core.migration_plans import MoveStatus
from berth_descheduler.cli.main import run as berth
from berth_kube.resources import DEPLOYMENTS, MIGRATION_PLANS, PDBS, PODS, SERVICES
from descheduling_stage import MOVERS, PLANNER, Run, Scene
from fault_proxy import FaultProxy
from faults import Call, FaultKind, HoldPlan
from ready_endpoints import ready_endpoints, watched_endpoints
from service_processes import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.deep]


@pytest.fixture
def scene(paced_scene: Scene) -> Scene:
    """Yield one whose pods take seconds to start and to end."""
    return paced_scene


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
    scene.deploy("solo", replicas=1, cpu="1", pace={**scene.pace, "ready-after-seconds": "20"})
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


def test_a_surge_lands_although_its_deployment_is_scaled_up_and_a_sibling_is_deleted(scene: Scene) -> None:
    """The replacement becomes available only after the siblings have run for longer than watches may be behind."""
    deploy_singles(scene, "one")
    patch(scene, "one", {"minReadySeconds": 30})
    scene.wait_for("the change is observed", lambda: is_observed(scene, "one"))
    run = scene.start(SURGE)
    scene.wait_for("the pod is let go", lambda: released(scene) == ["one"])
    scene.wait_for("its replacement runs", lambda: count_ready(scene, "one") == 2)
    before = {pod.metadata.uid for pod in scene.pods(label_selector="app=one")}
    patch(scene, "one", {"replicas": 3})
    siblings = partial(ready_pods_beside, scene, before)
    scene.wait_for("two siblings run", lambda: len(siblings()) == 2)
    scene.client.delete(PODS, siblings()[0], namespace=scene.namespace)
    assert run.wait() == 0

    assert {name: move.state for name, move in moves(scene).items()} == {"one": "Landed"}
    assert released(scene) == []


def ready_pods_beside(scene: Scene, uids: set[str]) -> list[str]:
    """Return the names of the Ready pods of the Deployment `one` that have other uids."""
    pods = scene.pods(label_selector="app=one")
    return [pod.metadata.name for pod in pods if pod.is_ready and pod.metadata.uid not in uids]


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
    scene: Scene, paced_operator: OperatorProcess, tmp_path: Path
) -> None:
    """Killed when a place is held, when the first pod is let go, and when the first is evicted."""
    names = ("one", "two", "three")
    deploy_singles(scene, *names)
    for name in names:
        serve(scene, name)
    wanted = dict.fromkeys(names, 1)
    scene.wait_for("all endpoints are ready", lambda: ready_endpoints(scene.client, scene.namespace) == wanted)
    before = generations(scene)

    paced_operator.stop()
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
            run.wait(600)
    finally:
        paced_operator.start()

    assert endpoints.fewest == wanted, run.outcome
    assert {move.method for move in moves(scene).values()} == {"Surge"}
    assert generations(scene) == before
    assert released(scene) == []
    scene.require_peace(pods=5)
