"""A run evicts no pod whose next one admission would refuse, or make larger than the place that is held."""

from typing import Any, Final

import pytest

from berth_core.migration_plans import MoveReason, MoveState
from berth_kube.errors import KubeError
from berth_kube.resources import LIMIT_RANGES, PODS, SERVICE_ACCOUNTS
from berth_sandbox.pretended_nodes import NodeShape
from cluster.test_what_cannot_surge import close
from descheduling_stage import MOVERS, Scene

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

CPU: Final = "100m"


def test_a_run_evicts_no_pod_of_which_admission_would_take_no_other(scene: Scene) -> None:
    """Nothing of this is in the plan: what changes is admission, and only after the pods have been made."""
    for name in MOVERS:
        scene.remove(name)
    (third,) = scene.sandbox.add_nodes(1, NodeShape(cpu="8"), prefix=f"{scene.namespace}-third-")
    low = (*scene.low, third)
    scene.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "worker"}}, namespace=scene.namespace)
    specs: dict[str, dict[str, Any]] = {
        "plain": {},
        "orphan": {"serviceAccountName": "worker"},
        "grown": {"containers": [{"name": "main", "image": "pause"}]},
    }
    # Each on a node of its own: where one pod stays, moves of others off the same node are given up.
    for (name, spec), node in zip(specs.items(), low, strict=True):
        scene.cordon(node, closed=False)
        close(scene, *scene.high, *(other for other in low if other != node))
        scene.deploy(name, replicas=1, cpu=CPU, **spec)
        assert [pod.spec.node_name for pod in scene.pods(label_selector=f"app={name}")] == [node]
    scene.cordon(*scene.high, *low, closed=False)
    scene.client.delete(SERVICE_ACCOUNTS, "worker", namespace=scene.namespace)
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]}
    scene.client.create(LIMIT_RANGES, {"metadata": {"name": "defaults"}, "spec": limits}, namespace=scene.namespace)
    scene.wait_for("admission knows both", lambda: is_admission_changed(scene))
    watched = ("orphan", "grown")
    names = {name: pod.metadata.name for name in watched for pod in scene.pods(label_selector=f"app={name}")}

    scene.run("--max-replans=0", "--no-exact")

    moves = {move.pod.rsplit("-", 2)[0]: move for plan in scene.plans() for move in plan.status.moves}
    ends = {name: (move.state, move.reason) for name, move in moves.items() if name in {"plain", *names}}
    assert ends == {
        "plain": (MoveState.LANDED, MoveReason.NONE),
        "orphan": (MoveState.SKIPPED, MoveReason.REPLACEMENT_REFUSED),
        "grown": (MoveState.SKIPPED, MoveReason.REPLACEMENT_DIFFERS),
    }
    assert 'serviceaccount "worker" not found' in moves["orphan"].message
    assert "cpu requested is 2, above 0" in moves["grown"].message
    still = {name: pod.metadata.name for name in names for pod in scene.pods(label_selector=f"app={name}")}
    assert still == names
    scene.client.delete(LIMIT_RANGES, "defaults", namespace=scene.namespace)
    scene.require_peace(pods=len(scene.high) + 3)


def is_admission_changed(scene: Scene) -> bool:
    """Return whether the API server misses the account and knows the defaults, which it reads from caches."""
    spec = {"containers": [{"name": "main", "image": "pause"}]}
    asked = {"metadata": {"name": "asked"}, "spec": spec}
    stored = scene.client.create(PODS, asked, namespace=scene.namespace, dry_run=True)
    of_account = {"metadata": {"name": "asked"}, "spec": {**spec, "serviceAccountName": "worker"}}
    try:
        scene.client.create(PODS, of_account, namespace=scene.namespace, dry_run=True)
    except KubeError:
        return stored["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    return False
