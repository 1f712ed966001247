"""Nodes whose pods take long to end, or never do: what counts as freed, and what nothing waits for."""

from typing import Final

import pytest

from berth_core.labels import FREED_TAINT
from berth_core.migration_plans import Achieved, MoveStatus
from berth_kube.resources import DEPLOYMENTS, PODS
from cluster_objects import build_deployment
from descheduling_stage import AT_ONCE, MOVERS, PLANNER, Scene

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

GRACE_SECONDS: Final = 600
"""Longer than any run takes, and no longer than what may move by default."""
NEVER_ENDING: Final = {**AT_ONCE, "ends-after-seconds": "never"}


def deploy_on(scene: Scene, app: str, node: str) -> None:
    """Deploy one pod onto a node whose pods never end by themselves."""
    body = scene.paced(build_deployment(app, replicas=1, cpu="1"), NEVER_ENDING)
    body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    scene.cordon(node, closed=False)
    scene.client.create(DEPLOYMENTS, body, namespace=scene.namespace)
    scene.wait_for(f"{app} is Ready", lambda: any(pod.is_ready for pod in scene.pods(label_selector=f"app={app}")))
    scene.cordon(node)


def run(scene: Scene) -> None:
    """Make a run, which goes on first with what an earlier one has left."""
    scene.run("--moves=Surge", "--end-timeout=5s")


def is_given_up(scene: Scene) -> bool:
    """Make a run; return whether nothing is left that another would have to wait for."""
    run(scene)
    return not achieved(scene).freeing_nodes


def achieved(scene: Scene) -> Achieved:
    """Return what the first plan has achieved by now."""
    counts = scene.plans()[0].status.achieved
    assert counts is not None
    return counts


def move_of(scene: Scene, app: str) -> MoveStatus:
    (move,) = (move for move in scene.plans()[0].status.moves if move.pod.startswith(f"{app}-"))
    return move


def ending_pods(scene: Scene) -> set[str]:
    return {pod.metadata.name for pod in scene.pods() if pod.is_terminating}


def marked_nodes(scene: Scene) -> list[str]:
    nodes = (node for node in scene.nodes() if any(taint.key == FREED_TAINT for taint in node.spec.taints))
    return sorted(node.metadata.name for node in nodes)


def test_a_node_is_freed_once_its_pod_has_ended_and_a_pod_that_does_not_end_holds_nothing(paced_scene: Scene) -> None:
    scene = paced_scene
    scene.planner = tuple(option for option in PLANNER if option not in {"--no-taint-freed", "--moves=Evict"})
    for mover in MOVERS:
        scene.remove(mover)
    scene.cordon(*scene.high, *scene.low)
    for app, node in zip(("lingers", "stuck"), scene.low, strict=True):
        deploy_on(scene, app, node)
    (stuck,) = (pod.metadata.name for pod in scene.pods(label_selector="app=stuck"))
    scene.cordon(*scene.high, *scene.low, closed=False)

    run(scene)
    (plan,) = scene.plans()
    assert {move.state.value for move in plan.status.moves} == {"Landed"}
    assert plan.status.message.endswith("; 2 will be freed once 2 pods have ended."), plan.status.message
    assert set(achieved(scene).freeing_nodes) == set(scene.low)
    assert marked_nodes(scene) == []

    (lingering,) = ending_pods(scene) - {stuck}
    scene.client.delete(PODS, lingering, namespace=scene.namespace, grace_seconds=0)
    scene.wait_for("the first pod has ended", lambda: ending_pods(scene) == {stuck})
    run(scene)
    assert marked_nodes(scene) == [scene.low[0]]

    # A shorter grace period also holds for a pod that is on its way out.
    scene.client.delete(PODS, stuck, namespace=scene.namespace, grace_seconds=1)
    scene.wait_for("the second pod is given up", lambda: is_given_up(scene))
    assert achieved(scene).freed_nodes == (scene.low[0],)
    assert achieved(scene).stuck_pods == 1
    assert (move_of(scene, "stuck").state.value, move_of(scene, "stuck").reason) == ("Landed", "PodStays")
    assert "has not ended" in move_of(scene, "stuck").message
    assert "; 1 node freed in " in scene.plans()[0].status.message
    assert marked_nodes(scene) == [scene.low[0]]
