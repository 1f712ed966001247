"""Places on a node that has not been ready for long are held elsewhere, or are lost if they are tied to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth_core.reservations import ReservationPhase, ReservationReason
from berth_kube.resources import NODES
from berth_sandbox.sandbox import Sandbox
from reservation_stage import Stage, stage
from service_processes import running_operator
from waiting import eventually

__all__ = ["stage"]

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def operator(sandbox: Sandbox, tmp_path: Path) -> Iterator[None]:
    """Have an operator that waits two seconds for a node, until the stage is cleared."""
    with running_operator(sandbox, tmp_path, "--node-lost-seconds=2"):
        yield


def test_a_place_leaves_a_node_that_is_away_unless_it_is_tied_to_it(sandbox: Sandbox, stage: Stage) -> None:
    first, second = stage.nodes
    half = stage.template(cpu="1")
    stage.client.merge_patch(NODES, second, {"spec": {"unschedulable": True}})
    stage.reserve("free", template=half)
    stage.reserve("tied", template=half, nodes=[first])
    for name in ("free", "tied"):
        held = stage.wait_for(ReservationPhase.AVAILABLE, name)
        assert [slot.node for slot in held.status.slots] == [first]
    stage.client.merge_patch(NODES, second, {"spec": {"unschedulable": None}})
    sandbox.suspend("kwok")  # it would mend the node
    try:
        unready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        stage.client.merge_patch(NODES, first, {"status": {"conditions": [unready]}}, subresource="status")
        lost = stage.wait_for(ReservationPhase.FAILED, "tied")
        eventually(
            "another place is bound", lambda: [pod.spec.node_name for pod in stage.placeholders("free")] == [second]
        )
    finally:
        sandbox.resume("kwok")
    assert lost.status.state is not None
    assert lost.status.state.reason == ReservationReason.NODE_LOST
    assert f"node {first} has not been ready" in lost.status.state.message
    held = stage.wait_for(ReservationPhase.AVAILABLE, "free")
    assert [slot.node for slot in held.status.slots] == [second]
