"""Of a StatefulSet whose other pods are not Ready, the last one that is stays, on a real control plane."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import Pod
from berth_core.migration_plans import MoveReason, MoveState
from berth_core.names import DESCHEDULER_LEASE
from berth_kube.errors import NotFoundError
from berth_kube.resources import LEASES, PODS, STATEFUL_SETS
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace, pod_template
from descheduling_stage import Scene, scene_name, set_up
from service_processes import OperatorProcess
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

REPLICAS: Final = 3
ARGUMENTS: Final = ("--whole-nodes", "--evict-timeout=5s", "--max-replans=0")


class Database(Scene):
    """A StatefulSet of three on the low nodes, and half-full nodes with room for it."""

    def set_up(self, **_: Any) -> None:  # noqa: ANN401 - of the scene that it stands for
        make_namespace(self.client, self.namespace)
        shape = NodeShape(cpu="8", memory="64Gi")
        self.high = self.sandbox.add_nodes(2, shape, prefix=f"{self.namespace}-high-")
        for node in self.high:
            self.create_pod(f"base-{node}", cpu="4", nodeName=node)
        self.cordon(*self.high)
        self.low = self.sandbox.add_nodes(2, shape, prefix=f"{self.namespace}-low-")
        self._let_the_scheduler_hear()
        labels = {"app": "db"}
        spec = {
            "replicas": REPLICAS,
            "serviceName": "db",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": pod_template(labels, cpu="100m"),
        }
        body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
        self.client.create(STATEFUL_SETS, body, namespace=self.namespace)
        eventually("the database runs", lambda: len(ready(self)) == REPLICAS, seconds=90)
        assert {pod.spec.node_name for pod in database(self)} <= set(self.low)
        self.cordon(*self.high, closed=False)

    def clear(self) -> None:
        """Take away what makes its pods anew first."""
        with suppress(NotFoundError):
            self.client.delete(STATEFUL_SETS, "db", namespace=self.namespace, propagation="Background")
        super().clear()


@pytest.fixture
def scene(
    cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Database]:
    assert serving_operator.exit_code is None
    with cluster.connect() as client, set_up(Database(cluster, client, tmp_path, scene_name(request))) as made:
        yield made


def ready(scene: Scene) -> dict[str, str]:
    """Return the Ready pods of the StatefulSet by name, each with its uid."""
    return {pod.metadata.name: pod.metadata.uid for pod in database(scene) if pod.is_ready and not pod.is_terminating}


def database(scene: Scene) -> tuple[Pod, ...]:
    return scene.pods(label_selector="app=db")


def set_ready(scene: Scene, *names: str, status: str) -> None:
    """Write what a kubelet writes of a pod whose readiness probe fails, or passes again."""
    for name in names:
        conditions = scene.client.get(PODS, name, namespace=scene.namespace)["status"]["conditions"]
        changed: list[dict[str, Any]] = [
            {**condition, "status": status} if condition["type"] == "Ready" else condition for condition in conditions
        ]
        body = {"status": {"conditions": changed}}
        scene.client.merge_patch(PODS, name, body, namespace=scene.namespace, subresource="status")


def is_held(scene: Scene) -> bool:
    """Return whether a run has the descheduler's Lease."""
    leases = scene.client.list(LEASES, field_selector=f"metadata.name={DESCHEDULER_LEASE}").items
    return any(lease["spec"].get("holderIdentity") for lease in leases)


def test_a_drain_leaves_the_last_ready_pod_and_goes_on_once_its_siblings_are_ready(scene: Scene) -> None:
    before = ready(scene)
    set_ready(scene, "db-1", "db-2", status="False")

    refused = scene.start_drain(*scene.low, "--timeout=3s")

    assert refused.wait() == 1, refused.tail(100)
    outcome = refused.outcome
    assert [(pod["pod"], pod["reason"]) for pod in outcome["plan"]["refused"]] == [("db-0", "TooFewReady")]
    assert "its StatefulSet db wants 3 pods and has 1 Ready" in outcome["plan"]["refused"][0]["message"]
    assert outcome["runs"][-1]["verdict"] == "PodsStay"
    assert {pod.metadata.name: pod.metadata.uid for pod in database(scene)} == before

    set_ready(scene, "db-1", "db-2", status="True")
    drained = scene.start_drain(*scene.low)

    assert drained.wait() == 0, drained.tail(100)
    assert {pod.spec.node_name for pod in database(scene)} <= set(scene.high)
    assert sorted(ready(scene)) == ["db-0", "db-1", "db-2"]


def test_a_pod_stays_whose_sibling_is_lost_between_the_plan_and_the_eviction(
    scene: Scene, serving_operator: OperatorProcess
) -> None:
    before = ready(scene)
    run = scene.start(*ARGUMENTS)
    scene.wait_for("the run has begun", lambda: is_held(scene))  # it still finds an operator that has just renewed
    os.kill(serving_operator.pid, signal.SIGSTOP)  # no place is held before it goes on
    try:
        scene.wait_for("a place is asked for", scene.has_begun)
        first = scene.plans()[-1].spec.moves[0].pod
        lost = next(name for name in sorted(before) if name != first)
        set_ready(scene, lost, status="False")
    finally:
        os.kill(serving_operator.pid, signal.SIGCONT)

    run.wait()

    (moved,) = [status for status in scene.plans()[-1].status.moves if status.pod == first]
    assert (moved.state, moved.reason) == (MoveState.FAILED, MoveReason.EVICTION_BLOCKED)
    assert "its StatefulSet db wants 3 pods and has 2 Ready, and no more than 1 may be gone at once" in moved.message
    assert before[first] in {pod.metadata.uid for pod in database(scene)}
