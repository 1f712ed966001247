"""Jobs that starve: the proposal's own picture, and what becomes of a fence that is of no use any more."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth_core import POLICY_API_VERSION, POLICY_KIND, STANDING_FENCE_LABEL, STARVING_JOB_LABEL, Node, Pod, Reservation
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.resources import DESCHEDULER_POLICIES, EVENTS, MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from berth_sandbox.bootstrap import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace, pod_template
from policy_scenes import DeschedulerReplica
from reservation_stage import delete_all, delete_if_there
from service_processes import OperatorProcess
from starving_gangs import Load, StarvingGangs, starving_policy
from waiting import eventually

pytestmark = pytest.mark.cluster

POLICY = "starving-jobs"


class World:
    """One node of 3 cpu and 3Gi, and a service with a policy for starving jobs."""

    def __init__(self, client: KubeClient, namespace: str, node: str) -> None:
        self.client = client
        self.namespace = namespace
        self.node = node

    def create(self, name: str, cpu: str = "1", memory: str = "1Gi", **metadata: Any) -> None:  # noqa: ANN401 - of a pod
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": name}, cpu=cpu)}
        requests = {"cpu": cpu, "memory": memory} if cpu != "0" else {}
        for one in body["spec"]["containers"]:
            one["resources"] = {"requests": requests}
        body["spec"]["restartPolicy"] = "Never"
        body["metadata"] |= {"name": name, **metadata}
        self.client.create(PODS, body, namespace=self.namespace)

    def end(self, *names: str) -> None:
        for name in names:
            self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=0)

    def on_the_node(self) -> set[str]:
        found = self.client.list(PODS, namespace=self.namespace, type=Pod).items
        return {pod.metadata.name for pod in found if pod.spec.node_name and pod.status.phase == "Running"}

    def await_running(self, *names: str) -> None:
        eventually(f"{names} run, and no others", lambda: self.on_the_node() == set(names), seconds=90)

    def await_refused(self, *names: str) -> None:
        pods = lambda: [self.client.get(PODS, name, namespace=self.namespace, type=Pod) for name in names]  # noqa: E731
        refused = lambda: all(pod.condition("PodScheduled") == "False" for pod in pods())  # noqa: E731
        eventually(f"the scheduler finds no place for {names}", refused, seconds=90)

    def reservations(self) -> list[Reservation]:
        found = self.client.list(RESERVATIONS, namespace=self.namespace, label_selector=STARVING_JOB_LABEL).items
        return [Reservation.read(one) for one in found]

    def fenced(self) -> set[str]:
        found = self.client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod).items
        return {pod.spec.node_name for pod in found if not pod.is_terminating}

    def events(self, pod: str) -> dict[str, str]:
        found = self.client.list(EVENTS, namespace=self.namespace).items
        return {one["reason"]: one["message"] for one in found if one["involvedObject"]["name"] == pod}

    def switch_on(self, **args: Any) -> None:  # noqa: ANN401 - arguments of the plugin
        asked = {"starvingJobTimeThreshold": 0, "reservedNodePercent": 50, "moves": "Never", **args}
        profile = {
            "name": "default",
            "pluginConfig": [{"name": "StarvingJobs", "args": asked}],
            "plugins": {"balance": {"enabled": ["StarvingJobs"]}},
        }
        spec = {"trigger": {"interval": "10s"}, "mode": "Auto", "profiles": [profile]}
        body = {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": POLICY}, "spec": spec}
        self.client.create(DESCHEDULER_POLICIES, body)

    def switch_off(self) -> None:
        self.client.delete(DESCHEDULER_POLICIES, POLICY)


def clear(client: KubeClient, namespace: str, nodes: Iterable[str]) -> None:
    for resource in (DESCHEDULER_POLICIES, MIGRATION_PLANS, RESERVATIONS):
        for item in client.list(resource).items:
            delete_if_there(client, resource, item["metadata"]["name"], item["metadata"].get("namespace"))
    delete_all(client, PODS, namespace)
    delete_all(client, PODS, DEFAULT_NAMESPACE)
    eventually("all pods are gone", lambda: not client.list(PODS, type=Pod).items, seconds=180)
    for node in nodes:
        delete_if_there(client, NODES, node)


@pytest.fixture
def world(cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path) -> Iterator[World]:
    assert serving_operator.exit_code is None
    (node,) = cluster.add_nodes(1, NodeShape(cpu="3", memory="3Gi"), prefix=f"starve-{time.monotonic_ns():x}-")
    with cluster.connect() as client, DeschedulerReplica(cluster, tmp_path):
        made = World(client, make_namespace(client, f"starve-{time.monotonic_ns():x}"), node)
        eventually("the node is ready", lambda: client.get(NODES, node, type=Node).ready, seconds=60)
        try:
            yield made
        finally:
            clear(client, made.namespace, [node])


def test_the_picture_of_the_proposal_pod_4_runs_before_pod_6_and_pod_7(world: World) -> None:
    for number in (1, 2, 3):
        world.create(f"pod-{number}")
    world.await_running("pod-1", "pod-2", "pod-3")
    world.create("pod-4", "3", "3Gi")
    world.await_refused("pod-4")
    world.end("pod-1")
    world.create("pod-5")
    world.await_running("pod-2", "pod-3", "pod-5")

    world.switch_on()
    eventually("the node is kept for pod-4", lambda: world.fenced() == {world.node}, seconds=90)
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
    world.end("pod-5")
    world.await_running("pod-4", "best-effort")

    world.end("pod-4")
    world.await_running("pod-6", "pod-7", "best-effort")
    eventually("no fence is left", lambda: not world.fenced(), seconds=90)


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
