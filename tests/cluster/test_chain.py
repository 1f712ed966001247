"""The whole chain on a real control plane: every pod lands where it was planned, also when a service is killed."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, PLACEHOLDER_LABEL, PREFIX
from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_core.objects import Node, Pod
from berth_core.reservations import Reservation, ReservationPhase
from berth_kube.client import KubeClient, connect
from berth_kube.resources import DEPLOYMENTS, MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from berth_sandbox.invariants import Invariant
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_fixtures import refuse_other_contexts
from cluster_objects import build_deployment, make_namespace, require_rest
from service_processes import running_operator, script
from waiting import eventually

pytestmark = pytest.mark.cluster

THRESHOLDS = ("--low-threshold=40", "--defragment-threshold=45", "--protection-threshold=95")
PLANNER = ("--whole-nodes", *THRESHOLDS)
SINGLE_PODS = ("--single-pods", "--label-selector=app=web", *THRESHOLDS)
LEASE_SECONDS = 3
NAMESPACE = "shop"
HIGH, LOW = 4, 4
MOVERS = ("api", "cart", "search", "web")
PODS_OF_A_MOVER = 3
Stage = tuple[Sandbox, KubeClient]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Yield a cluster with half-full nodes and nearly empty ones, whose pods fit on the half-full ones."""
    with Sandbox.start(SandboxSettings(nodes=HIGH + LOW), progress=print) as sandbox:
        refuse_other_contexts(sandbox.context)
        with connect(kubeconfig=str(sandbox.kubeconfig)) as client:
            make_namespace(client, NAMESPACE)
            fragment(client)
            yield sandbox, client


def fragment(client: KubeClient) -> None:
    """Fill the high nodes, let the others take the movers, then make room on the high ones."""
    for node in client.list(NODES, type=Node).items[:HIGH]:
        client.merge_patch(NODES, node.metadata.name, {"metadata": {"labels": {"tier": "high"}}})
    for name, cpu in (("base", "8"), ("filler", "7500m")):
        deploy(client, build_deployment(name, replicas=HIGH, cpu=cpu, nodeSelector={"tier": "high"}))
    for name in MOVERS:
        deploy(client, build_deployment(name, replicas=PODS_OF_A_MOVER, cpu="1"))
    client.delete(DEPLOYMENTS, "filler", namespace=NAMESPACE, propagation="Foreground")
    eventually("the filler is gone", lambda: not pods(client, label_selector="app=filler"), seconds=60)


def deploy(client: KubeClient, body: dict[str, Any]) -> None:
    client.create(DEPLOYMENTS, body, namespace=NAMESPACE)
    name, wanted = body["metadata"]["name"], body["spec"]["replicas"]
    selector = f"app={name}"
    ready = lambda: sum(pod.is_ready for pod in pods(client, label_selector=selector)) == wanted  # noqa: E731
    eventually(f"{name} runs", ready, seconds=60)


@contextmanager
def descheduler(sandbox: Sandbox, folder: Path, options: Sequence[str] = PLANNER) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a run of the service under its own account; its log is shown when the test fails."""
    log = folder / "descheduler.log"
    command = [
        script("berth-descheduler"),
        f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}",
        "--once",
        "--health-address=127.0.0.1:0",
        f"--lease-seconds={LEASE_SECONDS}",
        *options,
    ]
    with log.open("ab") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as process:
        try:
            yield process
        except BaseException:
            print("\n".join(log.read_text().splitlines()[-100:]))  # noqa: T201 - pytest shows it with the failure
            raise
        finally:
            if process.poll() is None:
                process.terminate()


def run_to_the_end(sandbox: Sandbox, folder: Path, options: Sequence[str] = PLANNER) -> int:
    with descheduler(sandbox, folder, options) as process:
        return process.wait(300)


def plans(client: KubeClient) -> tuple[MigrationPlan, ...]:
    return client.list(MIGRATION_PLANS, type=MigrationPlan).items


def states(client: KubeClient) -> list[MoveState]:
    return [move.state for plan in plans(client) for move in plan.status.moves]


def assert_all_landed(client: KubeClient, *, phase: PlanPhase = PlanPhase.SUCCEEDED) -> None:
    for plan in plans(client):
        assert plan.phase is phase, plan.status.message
        for move, status in zip(plan.spec.moves, plan.status.moves, strict=True):
            assert (status.state, status.node) == (MoveState.LANDED, move.target), status
            replacement = client.get(PODS, status.replacement, namespace=move.namespace, type=Pod)
            assert replacement.spec.node_name == move.target


def assert_nothing_is_left(client: KubeClient) -> None:
    """Assert that all pods run, and that no trace of a run is on nodes and pods."""
    eventually("all pods are Ready", lambda: running_pods(client) == HIGH + len(MOVERS) * PODS_OF_A_MOVER, seconds=60)
    eventually("no placeholder is left", lambda: not pods(client, label_selector=PLACEHOLDER_LABEL), seconds=60)
    eventually("no taint of ours is left", lambda: not our_taints(client), seconds=60)
    eventually("no place is held", lambda: not live_reservations(client), seconds=60)
    assert not is_handing_over(client)
    require_rest(client, Invariant.PRIORITY_CLASS_LEFT)


def live_reservations(client: KubeClient) -> list[str]:
    return [r.key for r in client.list(RESERVATIONS, type=Reservation).items if not r.phase.terminal]


def pods(client: KubeClient, *, label_selector: str = "", field_selector: str = "") -> tuple[Pod, ...]:
    return client.list(PODS, type=Pod, label_selector=label_selector, field_selector=field_selector).items


def running_pods(client: KubeClient) -> int:
    """Return how many of the workload's pods are Ready; -1 while others are neither that nor gone."""
    ours = [pod for pod in pods(client) if pod.metadata.namespace == NAMESPACE]
    return len(ours) if all(pod.is_ready and not pod.is_terminating for pod in ours) else -1


def our_taints(client: KubeClient) -> list[tuple[str, str]]:
    nodes = client.list(NODES, type=Node).items
    return [(n.metadata.name, t.key) for n in nodes for t in n.spec.taints if t.key.startswith(PREFIX)]


def taints_of_runs(client: KubeClient) -> list[tuple[str, str]]:
    """Return what a run takes off before it ends; the operator takes its guards off a moment after a hand-over."""
    return [(node, key) for node, key in our_taints(client) if key != HANDOVER_TAINT]


def test_every_pod_lands_on_its_planned_node_and_the_sources_are_free(stage: Stage, tmp_path: Path) -> None:
    sandbox, client = stage
    with running_operator(sandbox, tmp_path):
        assert run_to_the_end(sandbox, tmp_path) == 0
        assert_nothing_is_left(client)

    (plan,) = plans(client)
    assert_all_landed(client)
    assert plan.status.achieved is not None
    assert plan.spec.predicted is not None
    assert plan.status.achieved.landed_on_target == len(plan.spec.moves) == len(MOVERS) * PODS_OF_A_MOVER
    assert len(plan.status.achieved.freed_nodes) == LOW
    assert plan.status.achieved.freed_nodes == plan.spec.predicted.freed_nodes
    for node in plan.status.achieved.freed_nodes:
        assert pods(client, field_selector=f"spec.nodeName={node}") == ()
    finished = {r.phase for r in client.list(RESERVATIONS, type=Reservation).items}
    assert finished == {ReservationPhase.SUCCEEDED}


def test_single_pods_leave_nodes_that_keep_others_and_are_open_again_at_the_end(stage: Stage, tmp_path: Path) -> None:
    sandbox, client = stage
    low = pods(client, label_selector="app=web")
    with running_operator(sandbox, tmp_path):
        assert run_to_the_end(sandbox, tmp_path, SINGLE_PODS) == 0
        assert_nothing_is_left(client)

    (plan,) = plans(client)
    assert_all_landed(client)
    assert plan.spec.objective.args["wholeNodes"] is False
    assert {(move.pod, move.source) for move in plan.spec.moves} == {(p.metadata.name, p.spec.node_name) for p in low}
    assert all(move.stands_alone for move in plan.spec.moves)
    kept = {pod.spec.node_name for pod in pods(client) if pod.metadata.namespace == NAMESPACE}
    assert {move.source for move in plan.spec.moves} & kept, "every source is empty: nothing was shown"


def is_reserving(client: KubeClient) -> bool:
    return bool(client.list(RESERVATIONS).items)


def is_handing_over(client: KubeClient) -> bool:
    return any(gate.name == HANDOVER_GATE for pod in pods(client) for gate in pod.spec.scheduling_gates)


def has_landed(client: KubeClient) -> bool:
    return MoveState.LANDED in states(client)


POINTS = {"it reserves": is_reserving, "a pod is handed over": is_handing_over, "a pod has landed": has_landed}


@pytest.mark.parametrize("reached", POINTS.values(), ids=POINTS)
def test_a_killed_descheduler_is_taken_over_from_when(
    stage: Stage, tmp_path: Path, reached: Callable[[KubeClient], bool]
) -> None:
    sandbox, client = stage
    with running_operator(sandbox, tmp_path):
        with descheduler(sandbox, tmp_path) as process:
            wait_for(reached, client)
            process.kill()
            process.wait(30)
        assert run_to_the_end(sandbox, tmp_path) == 0
        assert_nothing_is_left(client)

    assert_all_landed(client)


@pytest.mark.deep
@pytest.mark.parametrize("reached", POINTS.values(), ids=POINTS)
def test_a_killed_operator_only_delays_a_run_when(
    stage: Stage, tmp_path: Path, reached: Callable[[KubeClient], bool]
) -> None:
    sandbox, client = stage
    with running_operator(sandbox, tmp_path) as operator:
        with descheduler(sandbox, tmp_path) as process:
            wait_for(reached, client)
            operator.kill()
            time.sleep(2)
            operator.start()
            process.wait(300)
        assert_nothing_is_left(client)
    assert all(state.terminal for state in states(client))
    assert MoveState.LANDED in states(client)


@pytest.mark.deep
def test_asked_to_stop_a_run_leaves_no_taint_and_holds_no_place(stage: Stage, tmp_path: Path) -> None:
    sandbox, client = stage
    with running_operator(sandbox, tmp_path):
        with descheduler(sandbox, tmp_path) as process:
            wait_for(is_reserving, client)
            process.terminate()
            assert process.wait(120) == 1
        assert taints_of_runs(client) == []
        assert_nothing_is_left(client)
    assert [plan.phase for plan in plans(client)] == [PlanPhase.ABORTED]


def test_a_plan_that_is_deleted_is_aborted_and_releases_everything(stage: Stage, tmp_path: Path) -> None:
    sandbox, client = stage
    with running_operator(sandbox, tmp_path):
        with descheduler(sandbox, tmp_path) as process:
            wait_for(is_reserving, client)
            client.delete(MIGRATION_PLANS, plans(client)[0].metadata.name)
            assert process.wait(120) == 1
        eventually("its Reservations are gone", lambda: not client.list(RESERVATIONS).items, seconds=60)
        assert_nothing_is_left(client)


def wait_for(reached: Callable[[KubeClient], bool], client: KubeClient) -> None:
    eventually("the run came to the point of the kill", lambda: reached(client), seconds=60, pause_seconds=0.02)
