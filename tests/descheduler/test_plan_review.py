"""The look before a wave sees what others did to the cluster, and looks through what the plan itself put there."""

from typing import Any

from msgspec.structs import replace

from berth_core import Node, Pod, Taint
from berth_core.labels import DRAINING_TAINT, MOVE_ANNOTATION, PLACEHOLDER_LABEL, PLAN_LABEL, RESERVATION_LABEL
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, MoveReason, PlannedMove, Predicted
from berth_core.reservations import Reservation
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.validation.pending_pods import names_of
from berth_descheduler.migration.validation.plan_review import PlanValidator, Review
from builders import disruption_budget, meta, node, owner, pod, reservation
from descheduler.cycle_settings import UNPROTECTED
from planner_settings import with_settings

MOVES = tuple(
    PlannedMove(
        namespace="default", pod=name, pod_uid=f"uid-default-{name}", source="source", target="target", wave=wave
    )
    for wave, name in enumerate(("web-1", "web-2"), start=1)
)
PLAN = MigrationPlan(
    metadata=meta("plan-1"),
    spec=MigrationPlanSpec(moves=MOVES, predicted=Predicted(nodes=2, moves=2, waves=2, freed_nodes=("source",))),
)
AHEAD = dict(enumerate(MOVES))


def placed(name: str, on: str, cpu: str = "2") -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, labels={"app": "web"}, controller=owner(name="web"))


def drained(plan: str = "plan-1") -> Node:
    return node("source", cpu="8", taints=[Taint(key=DRAINING_TAINT, value=plan, effect="NoSchedule")])


def place(index: int, plan: str = "plan-1") -> Reservation:
    return reservation(
        f"{plan}-{index}", uid=f"{plan}-{index}", labels={PLAN_LABEL: plan}, annotations={MOVE_ANNOTATION: str(index)}
    )


def holder(index: int, plan: str = "plan-1") -> Pod:
    labels = {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: f"{plan}-{index}"}
    return pod(f"holder-{plan}-{index}", namespace="berth-system", node="target", cpu="2", memory=None, labels=labels)


def look(
    *more: Pod,
    source: Node | None = None,
    target_cpu: str = "4",
    ahead: dict[int, PlannedMove] = AHEAD,
    budgets: bool = False,
    **rest: Any,  # noqa: ANN401 - further objects of the snapshot
) -> Review:
    pods = [placed(move.pod, "source") for move in ahead.values()]
    nodes = (source or drained(), node("target", cpu=target_cpu))
    snapshot = Snapshot(nodes=nodes, pods=(*pods, *more), **rest)
    return PlanValidator(PLAN, UNPROTECTED, lambda: snapshot).review(ahead, [min(ahead)], budgets=budgets)


def hungry(cpu: str) -> Pod:
    return replace(placed("hungry", "", cpu=cpu), status=pod("hungry", phase="Pending", ready=False).status)


def test_the_room_on_the_plans_own_sources_counts_as_the_waiting_pods() -> None:
    assert look(hungry("3"), target_cpu="4").waiting == ("default/hungry",)
    assert look(hungry("3"), source=drained("another-plan"), target_cpu="4").waiting == ("default/hungry",)
    assert look(hungry("4"), target_cpu="5").waiting == ("default/hungry",)
    assert look(hungry("4"), source=drained("another-plan"), target_cpu="2").waiting == ()


def test_places_that_the_plan_holds_for_moves_to_be_made_count_once() -> None:
    assert look(holder(0), reservations=(place(0),)) == Review()
    assert look(holder(0, "other"), reservations=(place(0, "other"),)).invalid


def test_a_place_of_a_move_whose_pod_is_gone_is_taken() -> None:
    ahead = {1: MOVES[1]}
    assert look(holder(0), reservations=(place(0),), ahead=ahead) == Review()
    found = look(holder(0), reservations=(place(0),), ahead=ahead, target_cpu="3")
    assert found.invalid[1].reason is MoveReason.TARGET_UNFIT


def test_a_target_that_is_now_of_the_control_plane_is_left_alone_unless_the_settings_allow_it() -> None:
    target = node("target", cpu="4", labels={"node-role.kubernetes.io/control-plane": ""})
    snapshot = Snapshot(nodes=(drained(), target), pods=tuple(placed(move.pod, "source") for move in MOVES))
    kept = PlanValidator(PLAN, UNPROTECTED, lambda: snapshot).review(AHEAD, [0])
    told = with_settings(UNPROTECTED, control_plane_nodes=True)

    assert kept.invalid[0].reason is MoveReason.TARGET_UNFIT
    assert "control-plane node" in kept.invalid[0].message
    assert PlanValidator(PLAN, told, lambda: snapshot).review(AHEAD, [0]) == Review()


def test_a_later_move_that_does_not_hold_keeps_the_node_whole() -> None:
    found = look(target_cpu="3")
    assert {index: why.reason for index, why in found.invalid.items()} == {
        0: MoveReason.SOURCE_NOT_EMPTIABLE,
        1: MoveReason.TARGET_UNFIT,
    }


def test_a_newcomer_on_the_source_keeps_the_node_whole() -> None:
    found = look(placed("newcomer", "source"))
    assert {why.reason for why in found.invalid.values()} == {MoveReason.SOURCE_NOT_EMPTIABLE}


def test_a_pod_that_has_room_beside_the_next_move_is_not_named() -> None:
    assert look(hungry("3"), target_cpu="7").waiting == ()


def test_a_budget_that_allows_none_just_now_is_left_to_the_eviction() -> None:
    none_now = disruption_budget(match_labels={"app": "web"}, allowed=0)
    assert look(disruption_budgets=(none_now,)) == Review()
    found = look(disruption_budgets=(none_now,), budgets=True)
    assert found.invalid[0].reason is MoveReason.EVICTION_BLOCKED


def test_many_names_are_cut() -> None:
    assert names_of(["b", "a"]) == "a, b"
    assert names_of("gfedcba") == "a, b, c, d, e and 2 more"
