"""Moves of pods that take their time, that cannot start and that do not end, at the pace of real nodes."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core.labels import FREED_TAINT
from berth_core.migration_plans import MigrationPlan, MoveStatus
from berth_kube.resources import DEPLOYMENTS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment
from descheduling_stage import MOVERS, PLANNER, Scene
from service_processes import OperatorProcess, running_operator

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

PREFIX: Final = "sandbox.berth.volcano.sh/"
PATIENT: Final = ("--max-failed-share=1", "--reserve-timeout=3m", "--land-timeout=3m")
"""A busy machine makes moves wait for one another."""


@pytest.fixture(scope="module")
def paced_operator(paced_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    with running_operator(paced_sandbox, tmp_path_factory.mktemp("operator")) as process:
        yield process


@pytest.fixture
def scene(
    paced_sandbox: Sandbox, paced_operator: OperatorProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """Yield half-full nodes, and empty ones for the pods of the test."""
    assert paced_operator.exit_code is None
    name = f"shop-{zlib.crc32(request.node.nodeid.encode()):08x}"
    with paced_sandbox.connect() as client:
        made = Scene(paced_sandbox, client, tmp_path, name, tuple(one for one in PLANNER if "taint-freed" not in one))
        try:
            made.set_up(low=5)
            for mover in MOVERS:
                made.remove(mover)
            yield made
        finally:
            made.clear()


def deploy_apart(scene: Scene, apps: dict[str, dict[str, str]], *, grace_seconds: int = 1, **spec: Any) -> None:  # noqa: ANN401
    """Deploy one pod on each low node, with annotations that say what becomes of it."""
    scene.cordon(*scene.high, *scene.low)
    for (name, notes), node in zip(apps.items(), scene.low, strict=False):
        body = build_deployment(name, replicas=1, cpu="1", terminationGracePeriodSeconds=grace_seconds, **spec)
        body["spec"]["template"]["metadata"]["annotations"] = {PREFIX + key: value for key, value in notes.items()}
        scene.cordon(node, closed=False)
        scene.client.create(DEPLOYMENTS, body, namespace=scene.namespace)
        scene.wait_for(f"{name} is Ready", lambda app=name: is_ready(scene, app))
        scene.cordon(node)
    scene.cordon(*scene.high, *scene.low, closed=False)


def is_ready(scene: Scene, app: str) -> bool:
    return any(pod.is_ready for pod in scene.pods(label_selector=f"app={app}"))


def moves(plan: MigrationPlan) -> dict[str, MoveStatus]:
    """Return the moves of a plan by the Deployments of their pods."""
    return {move.pod.rsplit("-", 2)[0]: move for move in plan.status.moves}


def marked_nodes(scene: Scene) -> list[str]:
    return sorted(node.metadata.name for node in scene.nodes() if any(t.key == FREED_TAINT for t in node.spec.taints))


def test_replacements_get_their_time_and_those_that_cannot_start_are_given_up_by_their_own_words(scene: Scene) -> None:
    elsewhere = {"only-on": f"{scene.namespace}-high-"}
    deploy_apart(
        scene,
        {
            "slow": {**elsewhere, "starts-after-seconds": "15", "ready-after-seconds": "30"},
            "crash": {**elsewhere, "crashes": "always", "starts-after-seconds": "2"},
            "image": {**elsewhere, "start-error": "ErrImagePull"},
            "config": {**elsewhere, "start-error": "CreateContainerConfigError"},
            "refused": {**elsewhere, "start-error": "OutOfcpu"},
        },
    )
    scene.run("--moves=Surge", *PATIENT, "--ready-timeout=3m")

    (plan,) = scene.plans()
    ends = {app: (move.state.value, move.reason) for app, move in moves(plan).items()}
    assert ends == {
        "slow": ("Landed", ""),
        "crash": ("Failed", "CrashLoopBackOff"),
        "image": ("Failed", "ImagePullBackOff"),
        "config": ("Failed", "CreateContainerConfigError"),
        "refused": ("Failed", "RefusedByKubelet"),
    }, plan.status.message
    assert all(move.message for app, move in moves(plan).items() if app != "slow")
    assert "OutOfcpu" in moves(plan)["refused"].message
    scene.wait_for("every pod serves where it was", lambda: all(is_ready(scene, app) for app in ends))
    assert {pod.spec.node_name for pod in scene.pods(label_selector="app in (crash,image,config,refused)")} >= set(
        scene.low[1:]
    )


def test_a_node_is_freed_once_its_pod_has_ended_and_a_pod_that_does_not_end_holds_nothing(scene: Scene) -> None:
    quick = {"only-on": f"{scene.namespace}-", "starts-after-seconds": "2", "ready-after-seconds": "0"}
    deploy_apart(
        scene,
        {
            "lingers": {**quick, "ends-after-seconds": "45"},
            "stuck": {**quick, "ends-after-seconds": "never"},
        },
        grace_seconds=60,
    )
    scene.run("--moves=Surge", *PATIENT, "--end-timeout=5s")

    (plan,) = scene.plans()
    assert {move.state.value for move in moves(plan).values()} == {"Landed"}
    assert plan.status.message.endswith("; 2 will be freed once 2 pods have ended."), plan.status.message
    assert plan.status.achieved is not None
    assert set(plan.status.achieved.freeing_nodes) == set(scene.low[:2])
    assert marked_nodes(scene) == []

    scene.wait_for("one pod has ended", lambda: len(pods_on_their_way_out(scene)) == 1)
    scene.wait_for("the other should have ended", lambda: is_given_up(scene))
    (plan, *_) = scene.plans()
    assert plan.status.achieved is not None
    assert plan.status.achieved.freed_nodes == (scene.low[0],)
    assert (plan.status.achieved.freeing_nodes, plan.status.achieved.stuck_pods) == ((), 1)
    assert (moves(plan)["stuck"].state.value, moves(plan)["stuck"].reason) == ("Landed", "PodStays")
    assert "has not ended" in moves(plan)["stuck"].message
    assert "; 1 node freed in " in plan.status.message
    assert marked_nodes(scene) == [scene.low[0]]


def pods_on_their_way_out(scene: Scene) -> list[str]:
    return [pod.metadata.name for pod in scene.pods() if pod.is_terminating]


def is_given_up(scene: Scene) -> bool:
    """Make another run, which goes on with what the first has left; return whether that has nothing to wait for."""
    scene.run("--moves=Surge", *PATIENT, "--end-timeout=5s")
    achieved = scene.plans()[0].status.achieved
    return achieved is not None and not achieved.freeing_nodes
