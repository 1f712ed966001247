"""The whole chain on a real control plane: every pod lands where it was planned, also when a service is killed."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from berth_core import Node, Pod
from berth_core.labels import FREED_TAINT, HANDOVER_GATE, HANDOVER_TAINT
from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_core.reservations import Reservation, ReservationPhase
from berth_kube.resources import MIGRATION_PLANS, PODS, RESERVATIONS
from descheduling_stage import LEASE_SECONDS, MOVERS, PODS_OF_A_MOVER, Scene
from service_processes import OperatorProcess, script
from waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def scene(paced_scene: Scene) -> Scene:
    """Yield one whose pods take seconds to start and to end."""
    return paced_scene


THRESHOLDS: Final = ("--low-threshold=40", "--defragment-threshold=45", "--protection-threshold=95")
PLANNER: Final = ("--whole-nodes", "--no-taint-freed", *THRESHOLDS)
SINGLE_PODS: Final = ("--single-pods", "--label-selector=app=web", *THRESHOLDS)


@contextmanager
def descheduler(scene: Scene, options: Sequence[str] = PLANNER) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a run of the service under its own account; its log is shown when the test fails."""
    log = scene.folder / "descheduler.log"
    command = [
        script("berth-descheduler"),
        f"--kubeconfig={scene.sandbox.service_account_kubeconfig('berth-descheduler')}",
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


def run_to_the_end(scene: Scene, options: Sequence[str] = PLANNER) -> int:
    with descheduler(scene, options) as process:
        return process.wait(300)


def assert_all_landed(scene: Scene) -> MigrationPlan:
    """Assert that each replacement is on the planned node, and return the last plan."""
    for plan in scene.plans():
        assert plan.phase is PlanPhase.SUCCEEDED, plan.status.message
        for move, status in zip(plan.spec.moves, plan.status.moves, strict=True):
            assert (status.state, status.node) == (MoveState.LANDED, move.target), status
            replacement = scene.client.get(PODS, status.replacement, namespace=move.namespace, type=Pod)
            assert replacement.spec.node_name == move.target
    return scene.plans()[-1]


def assert_nothing_is_left(scene: Scene) -> None:
    """Assert that all pods run, and that no trace of a run is on nodes and pods."""
    scene.require_peace()
    eventually("no taint of ours is left", lambda: not scene.our_taints(), seconds=60)
    assert not is_handing_over(scene)


def has_handed_over(scene: Scene) -> bool:
    """Return whether a pod is handed over or has been, which a busy machine may see first."""
    return is_handing_over(scene) or MoveState.LANDED in scene.states()


def is_handing_over(scene: Scene) -> bool:
    return any(gate.name == HANDOVER_GATE for pod in scene.pods() for gate in pod.spec.scheduling_gates)


def test_every_pod_lands_on_its_planned_node_and_the_sources_are_free(scene: Scene) -> None:
    assert run_to_the_end(scene) == 0
    assert_nothing_is_left(scene)

    plan = assert_all_landed(scene)
    assert len(scene.plans()) == 1
    assert plan.status.achieved is not None
    assert plan.spec.predicted is not None
    assert plan.status.achieved.landed_on_target == len(plan.spec.moves) == len(MOVERS) * PODS_OF_A_MOVER
    assert set(plan.status.achieved.freed_nodes) == set(scene.low)
    assert plan.status.achieved.freed_nodes == plan.spec.predicted.freed_nodes
    for node in scene.low:
        assert scene.pods_on(node) == []
    made = scene.client.list(RESERVATIONS, namespace=scene.namespace, type=Reservation).items
    assert {one.phase for one in made} == {ReservationPhase.SUCCEEDED}


def test_single_pods_leave_nodes_that_keep_others_and_are_open_again_at_the_end(scene: Scene) -> None:
    low = scene.pods(label_selector="app=web")
    assert run_to_the_end(scene, SINGLE_PODS) == 0
    assert_nothing_is_left(scene)

    plan = assert_all_landed(scene)
    assert len(scene.plans()) == 1
    assert plan.spec.objective.args["wholeNodes"] is False
    assert {(move.pod, move.source) for move in plan.spec.moves} == {(p.metadata.name, p.spec.node_name) for p in low}
    assert all(move.stands_alone for move in plan.spec.moves)
    kept = {pod.spec.node_name for pod in scene.pods()}
    assert {move.source for move in plan.spec.moves} & kept, "every source is empty: nothing was shown"


@pytest.mark.deep
def test_a_killed_descheduler_is_taken_over_from_while_a_pod_is_handed_over(scene: Scene) -> None:
    with descheduler(scene) as process:
        scene.wait_for("a pod is handed over", lambda: has_handed_over(scene))
        process.kill()
        process.wait(30)
    assert run_to_the_end(scene) == 0
    assert_nothing_is_left(scene)
    assert_all_landed(scene)


@pytest.mark.deep
def test_a_node_is_freed_once_its_old_pods_have_ended_and_not_before(scene: Scene) -> None:
    for name in MOVERS:
        scene.remove(name)
    scene.cordon(*scene.high)
    scene.deploy("lingers", replicas=2, cpu="1", pace={**scene.pace, "ends-after-seconds": "15"})
    scene.cordon(*scene.high, closed=False)
    early: list[str] = []

    with descheduler(scene, ("--whole-nodes", *THRESHOLDS)) as process:
        while process.poll() is None:
            nodes = {node.metadata.name for node in scene.nodes() if is_marked_freed(node)}
            early += [pod for node in nodes for pod in scene.pods_on(node)]
            time.sleep(0.1)

    assert process.returncode == 0
    assert early == []
    plan = assert_all_landed(scene)
    assert plan.status.achieved is not None
    assert set(plan.status.achieved.freed_nodes) == {move.source for move in plan.spec.moves}
    assert {node.metadata.name for node in scene.nodes() if is_marked_freed(node)} == {
        move.source for move in plan.spec.moves
    }


def is_marked_freed(node: Node) -> bool:
    return any(taint.key == FREED_TAINT for taint in node.spec.taints)


@pytest.mark.deep
def test_a_killed_operator_only_delays_a_run(scene: Scene, paced_operator: OperatorProcess) -> None:
    with descheduler(scene) as process:
        scene.wait_for("a pod is handed over", lambda: has_handed_over(scene))
        paced_operator.kill()
        time.sleep(2)
        paced_operator.start()
        process.wait(300)
    assert_nothing_is_left(scene)
    assert all(state.terminal for state in scene.states())
    assert MoveState.LANDED in scene.states()


@pytest.mark.deep
def test_asked_to_stop_a_run_leaves_no_taint_and_holds_no_place(scene: Scene) -> None:
    with descheduler(scene) as process:
        scene.wait_for("it reserves", scene.has_begun)
        process.terminate()
        assert process.wait(120) == 1
    assert not [key for keys in scene.our_taints().values() for key in keys if key != HANDOVER_TAINT]
    assert_nothing_is_left(scene)
    assert [plan.phase for plan in scene.plans()] == [PlanPhase.ABORTED]


@pytest.mark.deep
def test_a_plan_that_is_deleted_is_aborted_and_releases_everything(scene: Scene) -> None:
    with descheduler(scene) as process:
        scene.wait_for("it reserves", scene.has_begun)
        scene.client.delete(MIGRATION_PLANS, scene.plans()[0].metadata.name)
        assert process.wait(120) == 1
    gone = lambda: not scene.client.list(RESERVATIONS, namespace=scene.namespace).items  # noqa: E731
    eventually("its Reservations are gone", gone, seconds=60)
    assert_nothing_is_left(scene)
