"""Which nodes a running plan keeps new pods off, and whose taints are whose."""

import pytest

from berth_core import Taint
from berth_core.labels import DRAINING_TAINT, HANDOVER_TAINT, ROOM_TAINT
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, MigrationPlanStatus, PlannedMove
from berth_core.names import room_taint_value
from berth_core.plan_rooms import Room, RoomSlot, RoomState, RoomStatus
from berth_descheduler.migration.nodes.plan_taints import is_taint_of, nodes_of_open_rooms, nodes_to_empty
from builders import meta


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


LONG = "plan-with-a-name-that-is-as-long-as-the-value-of-a-label-may-be"
OURS = {
    "a source of it": (Taint(key=DRAINING_TAINT, value="plan-1"), True),
    "a source of another": (Taint(key=DRAINING_TAINT, value="plan-10"), False),
    "a node where it makes room": (Taint(key=ROOM_TAINT, value=room_taint_value("plan-1", "a")), True),
    "a node where another makes room": (Taint(key=ROOM_TAINT, value=room_taint_value("plan-10", "a")), False),
    "a guard": (Taint(key=HANDOVER_TAINT, value="plan-1"), False),
    "somebody else's": (Taint(key="example.com/x", value="plan-1"), False),
}


@pytest.mark.parametrize(("taint", "want"), OURS.values(), ids=OURS)
def test_a_taint_tells_whose_it_is(taint: Taint, *, want: bool) -> None:
    assert is_taint_of("plan-1", taint) is want


def test_the_value_of_a_taint_is_of_one_node_and_valid_for_any_name() -> None:
    values = {room_taint_value(LONG, node) for node in ("a", "b")}
    assert len(values) == 2
    assert all(len(value) <= 63 for value in values)
    assert all(is_taint_of(LONG, Taint(key=ROOM_TAINT, value=value)) for value in values)


def test_nodes_are_kept_for_the_rooms_that_are_not_over() -> None:
    rooms = tuple(Room(name=name, namespace="shop", slots=(RoomSlot(node=name),)) for name in "abc")
    recorded = (RoomStatus(name="a", state=RoomState.TAKEN), RoomStatus(name="b", state=RoomState.WAITING))
    plan = MigrationPlan(
        metadata=meta("plan-1"), spec=MigrationPlanSpec(rooms=rooms), status=MigrationPlanStatus(rooms=recorded)
    )
    assert nodes_of_open_rooms(plan) == ("b", "c")
