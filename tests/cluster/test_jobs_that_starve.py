"""Jobs that starve: the proposal's own picture, and what becomes of a fence that is of no use any more."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth_core.reservations import ReservationPhase
from berth_kube.resources import DESCHEDULER_POLICIES
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace
from policy_scenes import DeschedulerReplica
from service_processes import OperatorProcess
from starving_gangs import Load, StarvingGangs, starving_policy
from starving_world import World, clear, starving_world
from waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def world(cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path) -> Iterator[World]:
    assert serving_operator.exit_code is None
    with starving_world(cluster, tmp_path, nodes=1) as (made, _):
        yield made


def test_the_picture_of_the_proposal_pod_4_runs_before_pod_6_and_pod_7(world: World) -> None:
    world.starve_pod_4()
    phases = lambda: [one.phase for one in world.reservations()]  # noqa: E731
    eventually("its Reservation waits", lambda: phases() == [ReservationPhase.WAITING], seconds=90)
    eventually("pod-4 hears of it", lambda: "kept for" in world.events("pod-4").get("NodesKept", ""), seconds=90)
    world.create("pod-6")
    world.create("pod-7")
    world.create("best-effort", "0")
    world.await_refused("pod-6", "pod-7")
    world.end("pod-2", "pod-3")
    world.await_running("pod-5", "best-effort")
    eventually("pod-6 is told", lambda: "NodeResourceReserved" in world.events("pod-6"), seconds=90)
    assert world.events("pod-6")["NodeResourceReserved"].startswith("node(s) resource was(were) reserved")
    world.end_pod_5("best-effort")


@pytest.mark.deep
def test_a_fence_goes_when_its_job_or_its_policy_does(world: World) -> None:
    world.create("small")
    world.await_running("small")
    world.create("large", "3", "3Gi")
    world.await_refused("large")
    world.switch_on()
    eventually("the node is kept", lambda: world.fenced() == {world.node}, seconds=90)
    world.switch_off()
    eventually("the policy is gone, and so is the fence", lambda: not world.fenced(), seconds=90)
    eventually("and its Reservation", lambda: world.reservations() == [], seconds=90)

    world.switch_on(giveUpAfter="1h")
    eventually("the node is kept again", lambda: world.fenced() == {world.node}, seconds=90)
    world.end("large")
    eventually("the job is gone, and so is the fence", lambda: not world.fenced(), seconds=90)
    eventually("its Reservation is gone", lambda: world.reservations() == [], seconds=90)


@pytest.mark.deep
def test_gangs_that_starve_beside_small_pods_all_run_within_the_percentage(
    cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path
) -> None:
    """No whole node becomes free by itself; two of twenty may be fenced, so that the second gang has to wait."""
    assert serving_operator.exit_code is None
    mark = f"gangs-{time.monotonic_ns():x}"
    load = Load(nodes=20, gangs=2, gang_seconds=1.0, small_seconds=(2.0, 4.0), hungry_share=1.2)
    nodes = cluster.add_nodes(load.nodes, NodeShape(cpu=str(load.node_cpus), memory="16Gi"), prefix=f"{mark}-")
    with cluster.connect() as client, DeschedulerReplica(cluster, tmp_path):
        gangs = StarvingGangs(client, make_namespace(client, mark), load)
        try:
            with gangs.busy():
                gangs.starve()
                client.create(DESCHEDULER_POLICIES, starving_policy(10, threshold_seconds=6))
                eventually("every gang has run", lambda: gangs.have_all_run, seconds=240)
            assert 0 < gangs.seen.most_fenced <= 2, "one, where its pods end before the other is fenced"
        finally:
            clear(client, mark, nodes)
