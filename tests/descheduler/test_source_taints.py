"""Which nodes a running plan keeps new pods off."""

import pytest

from berth_core.migration_plans import PlannedMove
from berth_descheduler.source_taints import nodes_to_empty


def move(source: str, target: str) -> PlannedMove:
    return PlannedMove(namespace="default", pod=f"{source}-{target}", source=source, target=target)


@pytest.mark.parametrize(
    ("moves", "want_nodes"),
    [
        pytest.param([], (), id="no move, no node"),
        pytest.param([move("b", "t"), move("a", "t"), move("a", "u")], ("a", "b"), id="each source once, sorted"),
        pytest.param([move("t", "u"), move("a", "t")], ("a",), id="a target that first lets go of a pod stays open"),
    ],
)
def test_a_plan_drains_its_sources_but_no_target(moves: list[PlannedMove], want_nodes: tuple[str, ...]) -> None:
    assert nodes_to_empty(moves) == want_nodes
