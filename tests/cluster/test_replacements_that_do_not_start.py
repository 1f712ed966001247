"""Replacements that run on no other node: each move ends with the kubelet's reason, and the old pods serve on."""

from typing import Final

import pytest

from berth_core.migration_plans import MoveReason, MoveState
from cluster.test_surge_moves import SURGE, moves, released, serve
from descheduling_stage import MOVERS, Scene
from ready_endpoints import ready_endpoints, watched_endpoints

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

ALONE: Final = ("--single-pods", "--low-threshold=40", "--defragment-threshold=45", "--protection-threshold=100")
"""Then no move waits for another that is off the same node."""
TROUBLES: Final[dict[str, tuple[dict[str, str], MoveReason, str]]] = {
    "crashes": ({"crashes": "always"}, MoveReason.CRASH_LOOP_BACK_OFF, "exit code 1 (Error)"),
    "missing": ({"start-error": "ErrImagePull"}, MoveReason.IMAGE_PULL_BACK_OFF, "not found"),
    "unpulled": ({"start-error": "ErrImageNeverPull"}, MoveReason.ERR_IMAGE_NEVER_PULL, "pull policy of Never"),
    "secretless": (
        {"start-error": "CreateContainerConfigError"},
        MoveReason.CREATE_CONTAINER_CONFIG_ERROR,
        'secret "settings" not found',
    ),
}
"""What goes wrong on the high nodes alone, with the reason of the move and a part of its message."""


def test_a_replacement_that_cannot_start_is_given_up_with_its_reason_and_one_that_is_slow_is_not(
    paced_scene: Scene,
) -> None:
    scene = paced_scene
    scene.planner = ALONE
    slow = {**scene.pace, "ready-after-seconds": "20"}
    for name in MOVERS:
        scene.remove(name)
    scene.cordon(*scene.high)
    for name, (trouble, _, _) in TROUBLES.items():
        scene.deploy(name, replicas=1, cpu="1", pace={**scene.pace, **trouble}, wait=False)
    scene.deploy("slow", replicas=1, cpu="1", pace=slow)
    scene.cordon(*scene.high, closed=False)
    wanted = dict.fromkeys((*TROUBLES, "slow"), 1)
    for name in wanted:
        serve(scene, name)
    scene.wait_for("all endpoints are ready", lambda: ready_endpoints(scene.client, scene.namespace) == wanted)

    with watched_endpoints(scene.client, scene.namespace) as endpoints:
        scene.run(SURGE, "--max-failed-share=1", "--max-replans=0")

    ends = moves(scene)
    assert {name: (ends[name].state, ends[name].reason) for name in TROUBLES} == {
        name: (MoveState.FAILED, reason) for name, (_, reason, _) in TROUBLES.items()
    }
    assert [name for name, (_, _, words) in TROUBLES.items() if words not in ends[name].message] == []
    assert (ends["slow"].state, ends["slow"].method) == (MoveState.LANDED, "Surge")
    assert endpoints.fewest == wanted
    assert released(scene) == []
    scene.require_peace(pods=len(scene.high) + len(wanted))
