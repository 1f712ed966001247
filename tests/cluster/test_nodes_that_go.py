"""Nodes that others are about to take, or have not finished: as targets and as sources, on a real control plane."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import Pod
from berth_core.migration_plans import MoveReason, MoveState
from berth_kube.resources import NODES
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace
from descheduling_stage import Scene, scene_name, set_up
from service_processes import OperatorProcess, script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

MAINTENANCE: Final = {"key": "maint", "value": "now", "effect": "NoExecute"}
CLOSED: Final[dict[str, dict[str, str]]] = {
    "scaled-down": {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"},
    "disrupted": {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
    "shut-down": {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
    "new-in-cloud": {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
    "new-of-karpenter": {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
}
"""By name of a node the taint that closes it, whatever a pod tolerates."""
SOFT: Final[dict[str, dict[str, str]]] = {
    "candidate": {"key": "DeletionCandidateOfClusterAutoscaler", "value": "1", "effect": "PreferNoSchedule"},
    "in-maintenance": MAINTENANCE,
}
"""By name of a node the taint because of which it takes pods last; those that tolerate it for seconds never."""
FINALIZER: Final = "example.com/kept"
TOLERATING_ALL: Final = [{"operator": "Exists"}]
FOR_A_MINUTE: Final = [{"key": "maint", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
BOLD: Final = 4
"""Pods that tolerate everything; the one node without a mark has room for as many pods in all."""


class Cluster(Scene):
    """A node whose pods are to go, and others, of which only one has no mark."""

    def set_up(self, **_: Any) -> None:  # noqa: ANN401 - of the scene that it stands for
        make_namespace(self.client, self.namespace)
        self.low = self.sandbox.add_nodes(1, NodeShape(cpu="8", memory="64Gi"), prefix=f"{self.namespace}-low-")
        self._let_the_scheduler_hear()

    def clear(self) -> None:
        for node in self.nodes():
            if node.metadata.finalizers:
                self.client.merge_patch(NODES, node.metadata.name, {"metadata": {"finalizers": None}})
        super().clear()

    def add(self, name: str, *, cpu: str = "8", taint: dict[str, str] | None = None, **labels: str) -> str:
        """Add a node, whose taint it gets once it is ready."""
        shape = NodeShape(cpu=cpu, memory="64Gi", labels={key.replace("_", "/"): labels[key] for key in labels})
        (node,) = self.sandbox.add_nodes(1, shape, prefix=f"{self.namespace}-high-{name}-")
        if taint is not None:
            self.taint(node, taint)
        return node

    def create_base(self, node: str, *, cpu: str) -> None:
        """Have a pod that stays on a node, so that it is in use."""
        self.create_pod("base", cpu=cpu, nodeName=node)
        eventually("the base runs", lambda: any(pod.is_ready for pod in self.alive("base")), seconds=60)

    def taint(self, node: str, taint: dict[str, str]) -> None:
        self.client.merge_patch(NODES, node, {"spec": {"taints": [taint]}})

    def delete_slowly(self, node: str) -> None:
        """Have a node carry its deletionTimestamp."""
        self.client.merge_patch(NODES, node, {"metadata": {"finalizers": [FINALIZER]}})
        self.client.delete(NODES, node)

    def places(self, app: str) -> list[str]:
        return [pod.spec.node_name for pod in self.alive(app)]

    def alive(self, app: str) -> list[Pod]:
        return [pod for pod in self.pods(label_selector=f"app={app}") if not pod.is_terminating]

    def plan(self, *options: str) -> dict[str, Any]:
        """Return what a plan for this cluster is, and why it is no larger."""
        command = [script("berth"), "plan", f"--kubeconfig={self.sandbox.kubeconfig}", "--output=json", *options]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        plan: dict[str, Any] = json.loads(answer.stdout)
        return plan


@pytest.fixture
def scene(
    paced_sandbox: Sandbox, paced_operator: OperatorProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    assert paced_operator.exit_code is None
    with (
        paced_sandbox.connect() as client,
        set_up(Cluster(paced_sandbox, client, tmp_path, scene_name(request))) as made,
    ):
        yield made


def test_a_drain_passes_nodes_that_go_over_and_fills_unwanted_ones_last(scene: Cluster) -> None:
    scene.deploy("bold", replicas=BOLD, cpu="1", tolerations=TOLERATING_ALL)
    scene.deploy("minute", replicas=1, cpu="1", tolerations=FOR_A_MINUTE)
    closed = [scene.add(name, taint=taint) for name, taint in CLOSED.items()]
    closed.append(scene.add("unfinished", **{"karpenter.sh_nodepool": "a"}))
    closed.append(scene.add("deleted"))
    scene.delete_slowly(closed[-1])
    soft = {name: scene.add(name, taint=taint) for name, taint in SOFT.items()}
    plain = scene.add("plain", cpu=str(BOLD + 1))
    scene.create_base(plain, cpu="500m")

    drained = scene.start_drain(*scene.low)

    assert drained.wait() == 0, drained.tail(100)
    places = [*scene.places("bold"), *scene.places("minute")]
    assert len(places) == BOLD + 1
    assert [node for node in places if node in closed] == []
    assert places.count(plain) == BOLD
    assert scene.places("minute")[0] != soft["in-maintenance"]
    assert {move.state for plan in scene.plans() for move in plan.status.moves} == {MoveState.LANDED}
    scene.require_peace(pods=BOLD + 1)


def test_emptying_a_node_that_goes_anyway_is_no_gain(scene: Cluster) -> None:
    scene.deploy("bold", replicas=1, cpu="1", tolerations=TOLERATING_ALL)
    (source,) = scene.low
    target = scene.add("plain")
    scene.create_base(target, cpu="4")
    assert [move["source"] for move in scene.plan()["moves"]] == [source]

    for name, taint in CLOSED.items():
        scene.taint(source, taint)
        plan = scene.plan()
        assert plan["moves"] == [], name
        assert taint["key"] in json.dumps(plan), name
    scene.client.merge_patch(NODES, source, {"spec": {"taints": None}})
    scene.delete_slowly(source)
    plan = scene.plan()
    assert plan["moves"] == []
    assert "the node is being deleted" in json.dumps(plan)


@pytest.mark.parametrize(("method", "want"), [("Surge", MoveState.SKIPPED), ("Evict", MoveState.FAILED)])
def test_no_move_has_landed_where_its_pod_has_seconds_to_live(scene: Cluster, method: str, want: MoveState) -> None:
    """A surge is taken back, so that the old pod serves on."""
    slow = {"starts-after-seconds": "0", "ready-after-seconds": "30", "only-on": f"{scene.namespace}-high-"}
    scene.deploy("minute", replicas=1, cpu="1", tolerations=FOR_A_MINUTE, pace=slow)
    target = scene.add("plain")
    scene.create_base(target, cpu="4")

    run = scene.start(f"--moves={method}", "--max-replans=0")
    scene.wait_for("the replacement has begun to start", lambda: target in scene.places("minute"))
    scene.taint(target, MAINTENANCE)
    run.wait()

    (move,) = scene.plans()[-1].status.moves
    assert (move.state, move.reason) == (want, MoveReason.TARGET_UNFIT)
    assert "taint maint=now:NoExecute ends the pod after 60 s" in move.message
    assert (scene.low[0] in scene.places("minute")) is (method == "Surge")
