"""A run on a real control plane is safe: pending pods come first, limits hold, no ping-pong."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from berth_core.labels import DRAINING_TAINT, FREED_ANNOTATION, FREED_TAINT, HANDOVER_TAINT
from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_descheduler.cli.main import INTERRUPTED
from berth_descheduler.migration.plans.looked_at import LookedAt
from berth_descheduler.migration.plans.requests import approve
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import CRDS, DAEMON_SETS, DEPLOYMENTS, EVENTS, MIGRATION_PLANS, NODES, PODS, VOLCANO_JOBS
from berth_sandbox.invariants import Invariant
from churn import Churn, soak
from cluster_objects import is_gone, let_the_scheduler_hear, pod_template
from descheduling_stage import MOVERS, PLANNER, PODS_OF_A_MOVER, Scene
from service_processes import script
from terminals import on_terminal
from waiting import eventually

pytestmark = pytest.mark.cluster

REMOVE = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
NO_SCHEDULER = "comes-later"
"""A scheduler that does not run: its pods wait although there is room, as just before scheduling."""


@contextmanager
def volcano_jobs(client: KubeClient) -> Iterator[None]:
    """Have the API server know the Jobs of Volcano, with nothing of Volcano behind them."""
    name = f"{VOLCANO_JOBS.plural}.{VOLCANO_JOBS.group}"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": VOLCANO_JOBS.version, "served": True, "storage": True, "schema": schema}
    names = {"plural": VOLCANO_JOBS.plural, "singular": "job", "kind": VOLCANO_JOBS.kind}
    spec = {"group": VOLCANO_JOBS.group, "scope": "Namespaced", "names": names, "versions": [version]}
    client.create(CRDS, {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": {"name": name}, "spec": spec})
    try:
        eventually("Volcano's Jobs are served", lambda: _is_served(client), seconds=60)
        yield
    finally:
        client.delete(CRDS, name)
        eventually("Volcano's Jobs are gone", lambda: is_gone(client, CRDS, name), seconds=60)


def _is_served(client: KubeClient) -> bool:
    try:
        client.list(VOLCANO_JOBS)
    except NotFoundError:
        return False
    return True


def create_volcano_pod(scene: Scene, node: str) -> str:
    """Create a Job that restarts as a whole, with a pod of it on a node; return the pod's uid."""
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    spec = {"minAvailable": 1, "policies": policies, "tasks": [{"name": "worker", "replicas": 1}]}
    head = {"apiVersion": VOLCANO_JOBS.api_version, "kind": VOLCANO_JOBS.kind}
    job = scene.client.create(
        VOLCANO_JOBS, {**head, "metadata": {"name": "train", "namespace": scene.namespace}, "spec": spec}
    )
    template = pod_template({"app": "train"}, cpu="1", nodeName=node)
    reference = {**head, "name": "train", "uid": job["metadata"]["uid"], "controller": True}
    metadata = {
        **template["metadata"],
        "name": "train-worker-0",
        "annotations": {"volcano.sh/task-spec": "worker"},
        "ownerReferences": [reference],
    }
    body = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
    uid: str = scene.client.create(PODS, body, namespace=scene.namespace)["metadata"]["uid"]
    return uid


@pytest.mark.deep
def test_a_pod_of_a_volcano_job_that_would_restart_stays_and_those_that_go_are_told(scene: Scene) -> None:
    with volcano_jobs(scene.client):
        uid = create_volcano_pod(scene, scene.low[0])
        scene.wait_for("it runs", lambda: [pod.is_ready for pod in scene.pods(label_selector="app=train")] == [True])

        outcome = scene.run()

        assert outcome["verdict"] == "CarriedOut"
        scene.wait_for("the moved pods have ended", lambda: scene.pods_on(scene.low[1]) == [])
        events = scene.client.list(EVENTS, namespace=scene.namespace).items
        about = [one["involvedObject"]["kind"] for one in events if one["reason"] == "EvictedByPlan"]
        assert set(about) == {"Pod", "ReplicaSet"}
        assert [pod.metadata.uid for pod in scene.pods(label_selector="app=train")] == [uid]
        scene.require_peace(pods=7)


def taints_of_runs(scene: Scene) -> dict[str, list[str]]:
    """Return by node what runs put there; the operator takes its guards off a moment after a hand-over."""
    found = {node: [key for key in keys if key != HANDOVER_TAINT] for node, keys in scene.our_taints().items()}
    return {node: keys for node, keys in found.items() if keys}


@pytest.mark.deep
def test_a_run_leaves_a_pod_that_waits_its_room_and_begins_when_it_has_gone(scene: Scene) -> None:
    scene.create_pod("hungry", cpu="5", schedulerName=NO_SCHEDULER)

    outcome = scene.run("--pending-wait=2s")

    assert outcome["verdict"] == "PodsWait"
    assert f"{scene.namespace}/hungry" in outcome["message"]
    assert scene.plans() == ()
    assert taints_of_runs(scene) == {}
    scene.client.delete(PODS, "hungry", namespace=scene.namespace)
    assert scene.run()["achieved"]["landedOnTarget"] == 4
    scene.require_peace()


@pytest.mark.deep
def test_a_run_asks_on_a_terminal_and_ctrl_c_there_leaves_everything_as_it_was(scene: Scene) -> None:
    kubeconfig = scene.sandbox.service_account_kubeconfig("berth-descheduler")
    command = [script("berth"), "run", f"--kubeconfig={kubeconfig}", *PLANNER]
    before = {node: scene.pods_on(node) for node in scene.low}
    with on_terminal(command, environment=os.environ) as asked:
        asked.read_until("Carry this plan out? [y/N]")
        asked.process.send_signal(signal.SIGINT)
        asked.read_until("Asked to stop before anything was moved.")
        assert asked.process.wait(120) == INTERRUPTED
    assert (scene.plans(), {node: scene.pods_on(node) for node in scene.low}) == ((), before)

    with on_terminal(command, environment=os.environ) as asked:
        asked.read_until("Carry this plan out? [y/N]")
        asked.type("y\n")
        asked.read_until("4 of 4 pods landed on their targets")
        assert asked.process.wait(120) == 0
    scene.require_peace()


@pytest.mark.deep
def test_a_wave_leaves_a_pod_that_waits_its_room(scene: Scene) -> None:
    run = scene.start("--pending-wait=2s", "--per-wave=1")
    scene.wait_for("the first wave has begun", scene.has_begun)
    scene.create_pod("hungry", cpu="5", schedulerName=NO_SCHEDULER)
    assert run.wait() == 1

    (plan,) = scene.plans()
    assert plan.phase is PlanPhase.PARTIAL
    reasons = {status.reason for status in plan.status.moves if status.state is MoveState.SKIPPED}
    assert reasons == {"PodsWaiting"}
    assert f"{scene.namespace}/hungry" in plan.status.message
    assert taints_of_runs(scene) == {}
    scene.client.delete(PODS, "hungry", namespace=scene.namespace)
    scene.require_peace()


def test_freed_nodes_are_spared_while_they_can_be_and_given_back_when_they_are_needed(scene: Scene) -> None:
    assert scene.run("--taint-freed", f"--annotate-freed={REMOVE}=false")["achieved"]["landedOnTarget"] == 4
    assert taints_of_runs(scene) == {node: [FREED_TAINT] for node in scene.low}

    let_the_scheduler_hear(scene.client, scene.namespace, scene.high[0])
    scene.deploy("small", replicas=2, cpu="500m")
    assert all(scene.pods_on(node) == [] for node in scene.low), "small pods go where others are"
    scene.require_peace(pods=8)

    scene.deploy("large", replicas=1, cpu="7")
    (used,) = (node for node in scene.low if scene.pods_on(node))
    scene.run()
    (idle,) = set(scene.low) - {used}
    assert taints_of_runs(scene) == {idle: [FREED_TAINT]}
    notes = {node.metadata.name: node.metadata.annotations for node in scene.nodes()}
    assert FREED_ANNOTATION not in notes[used]
    assert REMOVE not in notes[used]
    assert notes[idle][REMOVE] == "false"
    scene.require_peace(pods=9)


@pytest.mark.deep
def test_a_run_whose_gain_was_undone_is_not_begun_again_and_moved_pods_rest(scene: Scene) -> None:
    assert scene.run("--pod-cool-down=1h")["achieved"]["landedOnTarget"] == 4
    scene.cordon(*scene.high)
    let_the_scheduler_hear(scene.client, scene.namespace, scene.low[0])
    scene.deploy("spread", replicas=2, cpu="500m")
    scene.cordon(*scene.high, closed=False)

    again = scene.run("--pod-cool-down=1h")

    assert again["verdict"] == "GainUndone"
    assert scene.low[0] in again["message"]
    assert len(scene.plans()) == 1
    assert scene.run()["verdict"] == "CarriedOut"
    scene.require_peace(pods=8)


def approve_proposed(scene: Scene) -> None:
    name = proposed(scene)
    approve(scene.client, name, LookedAt.of(scene.client.get(MIGRATION_PLANS, name, type=MigrationPlan)))


@pytest.mark.deep
def test_what_others_change_before_an_approval_is_planned_again(scene: Scene) -> None:
    run = scene.start("--wait-for-approval", "--approval-timeout=10m")
    scene.wait_for("a plan waits for its approval", lambda: proposed(scene))
    before = {pod.metadata.uid for pod in scene.pods()}
    scene.cordon(*scene.high)
    for name in MOVERS:
        again = {"spec": {"template": {"metadata": {"annotations": {"berth.example.com/rolled": "once"}}}}}
        scene.client.merge_patch(DEPLOYMENTS, name, again, namespace=scene.namespace)
    scene.wait_for("all pods of both are new", lambda: len(settled_pods(scene) & before) == len(scene.high))
    scene.cordon(*scene.high, closed=False)
    approve_proposed(scene)
    scene.wait_for("its rest waits for one, too", lambda: len(scene.plans()) > 1 and proposed(scene))
    approve_proposed(scene)
    assert run.wait() == 0

    first, second = sorted(scene.plans(), key=lambda plan: plan.status.replanned_as == "")
    assert (first.phase, first.status.replanned_as) == (PlanPhase.ABORTED, second.metadata.name)
    assert (second.phase, second.spec.trigger) == (PlanPhase.SUCCEEDED, "Replan")
    assert not any(scene.pods_on(node) for node in scene.low)
    assert [one["plan"] for one in run.outcome["replanned"]] == [first.metadata.name]
    scene.require_peace()


def proposed(scene: Scene) -> str:
    """Return the name of the plan that waits for its approval, "" without one."""
    return next((plan.metadata.name for plan in scene.plans() if plan.phase is PlanPhase.PROPOSED), "")


def settled_pods(scene: Scene) -> set[str]:
    """Return the uids of the pods once there are as many as there should be, and all are Ready."""
    found = scene.pods()
    is_settled = len(found) == len(scene.high) + len(MOVERS) * PODS_OF_A_MOVER and all(pod.is_ready for pod in found)
    return {pod.metadata.uid for pod in found} if is_settled else set()


@pytest.mark.deep
def test_a_roll_out_of_a_daemon_set_in_the_middle_of_a_plan_completes_afterwards(scene: Scene) -> None:
    nodes = {*scene.high, *scene.low}
    labels = {"app": "agent"}
    spec = {"selector": {"matchLabels": labels}, "template": pod_template(labels, cpu="100m")}
    scene.client.create(DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": spec}, namespace=scene.namespace)
    agents = lambda label: {p.spec.node_name for p in scene.pods(label_selector=label) if p.is_ready}  # noqa: E731
    scene.wait_for("each node has one", lambda: agents("app=agent") == nodes)
    try:
        run = scene.start()
        scene.wait_for("the first wave has begun", scene.has_begun)
        renewed = {"spec": {"template": {"metadata": {"labels": {**labels, "release": "next"}}}}}
        scene.client.merge_patch(DAEMON_SETS, "agent", renewed, namespace=scene.namespace)
        assert run.wait() == 0

        scene.wait_for("each node has a new one", lambda: agents("release=next") == nodes)
        scene.require_peace(pods=len(nodes) + 6)
    finally:
        scene.client.delete(DAEMON_SETS, "agent", namespace=scene.namespace, propagation="Background")


@pytest.mark.deep
def test_a_limit_per_namespace_holds(scene: Scene) -> None:
    scene.run("--max-moves-per-namespace=2")
    (plan,) = scene.plans()
    assert len(plan.spec.moves) == 2
    assert len({move.source for move in plan.spec.moves}) == 1
    scene.require_peace()


@pytest.mark.deep
def test_a_plan_that_is_aborted_in_its_middle_leaves_nothing(scene: Scene) -> None:
    run = scene.start("--taint-freed", "--per-wave=1")
    scene.wait_for("a pod is evicted", scene.has_evicted)
    scene.client.merge_patch(MIGRATION_PLANS, scene.plans()[0].metadata.name, {"spec": {"aborted": True}})
    assert run.wait() == 1

    (plan,) = scene.plans()
    assert plan.phase is PlanPhase.ABORTED
    found = {status.state for status in plan.status.moves}
    assert found <= {MoveState.LANDED, MoveState.SKIPPED}
    assert {status.reason for status in plan.status.moves if status.state is MoveState.SKIPPED} == {"Aborted"}
    assert taints_of_runs(scene) == {}
    scene.require_peace()


@pytest.mark.deep
def test_a_run_that_is_killed_leaves_to_the_next_what_freed_nodes_carry(scene: Scene) -> None:
    run = scene.start("--taint-freed")
    scene.wait_for("a pod has landed", lambda: MoveState.LANDED in scene.states())
    run.kill()
    scene.run("--taint-freed")
    assert DRAINING_TAINT not in str(taints_of_runs(scene))
    assert taints_of_runs(scene) == {node: [FREED_TAINT] for node in scene.low}
    scene.require_peace()


@pytest.mark.deep
def test_a_taint_of_a_freed_node_that_nobody_explains_is_swept(scene: Scene) -> None:
    stale = {"key": FREED_TAINT, "value": "plan-gone", "effect": "PreferNoSchedule"}
    scene.client.merge_patch(NODES, scene.high[0], {"spec": {"taints": [stale]}})
    scene.run("--low-threshold=0", "--defragment-threshold=0")
    assert taints_of_runs(scene) == {}
    scene.require_peace(Invariant.POD_PENDING)


@pytest.mark.deep
def test_runs_on_a_cluster_with_churn_never_send_a_pod_back(scene: Scene) -> None:
    found = soak(scene, Churn(seed=7), runs=4, options=("--taint-freed", "--pod-cool-down=1h"))
    assert (found.counted, found.ping_pong) == (0, 0), found
    assert found.moves > 0
    scene.require_peace(pods=found.pods)
