"""The limits of a plan per node and namespace, and pods that rest: they are kept, and what stays says why."""

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.planner.cool_downs import PodCoolDown
from builders import NOON, bare_pod, node, owner, pod
from planner.clusters import consolidating, making_room, settings
from planner.random_clusters import clusters
from planner_settings import planner_settings, with_settings
from properties import holds_for

STRATEGIES = {
    "threshold": settings(low=60, defragment=60, protection=100),
    "threshold, single pods": settings(low=60, defragment=60, protection=100, wholeNodes=False),
    "consolidate": consolidating(),
    "make room": making_room(shapes=("cpu=6",)),
}


def web(name: str, on: str, *, cpu: str = "1", namespace: str = "default") -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, namespace=namespace, controller=owner(name=name))


def single_pods(**limits: int) -> PlannerSettings:
    return with_settings(STRATEGIES["threshold, single pods"], **limits)


def base() -> Pod:
    return bare_pod("base", node="full", cpu="10", memory=None)


def three_low_nodes(*, namespace: str = "default") -> Snapshot:
    """Nodes with one, two and three small pods, and a full one with room for all six."""
    nodes = tuple(node(name, cpu="16") for name in ("full", "one", "three", "two"))
    small = {"one": 1, "two": 2, "three": 3}
    pods = [web(f"{on}-{n}", on, namespace=namespace) for on, count in small.items() for n in range(count)]
    return Snapshot(nodes=nodes, pods=(base(), *pods))


def reasons(found: object) -> dict[str, tuple[Reason, str]]:
    return {one.name: (one.reason, one.constraint) for one in found.refused}  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", [STRATEGIES["threshold"], STRATEGIES["consolidate"]], ids=["threshold", "consolidate"])
def test_a_node_that_more_pods_would_have_to_leave_than_may_is_left_alone(how: PlannerSettings) -> None:
    found = plan(three_low_nodes(), with_settings(how, max_moves_per_node=2))
    assert found.freed_nodes == ("one", "two")
    assert reasons(found)["three"] == (Reason.NODE_LIMIT, "")


def test_single_pods_leave_a_node_up_to_its_limit() -> None:
    found = plan(three_low_nodes(), single_pods(max_moves_per_node=2))

    assert Counter(move.source for move in found.moves) == {"one": 1, "two": 2, "three": 2}
    assert reasons(found)["three"] == (Reason.HOLDS_IMMOVABLE_PODS, Reason.NODE_LIMIT)
    assert reasons(found)["three-2"] == (Reason.NODE_LIMIT, "")


def test_single_pods_leave_nodes_up_to_the_limit_of_the_plan() -> None:
    found = plan(three_low_nodes(), single_pods(max_moves=4))

    assert Counter(move.source for move in found.moves) == {"one": 1, "two": 2, "three": 1}
    messages = {one.name: one.message for one in found.refused}
    assert messages["three"] == "1 of its 3 pods is moved; no more than 4 moves may be made"
    assert reasons(found)["three"] == (Reason.MOVE_LIMIT, "")


def test_single_pods_of_a_namespace_are_moved_up_to_its_limit() -> None:
    found = plan(three_low_nodes(namespace="shop"), single_pods(max_moves_per_namespace=4))

    assert Counter(move.source for move in found.moves) == {"one": 1, "two": 2, "three": 1}


@pytest.mark.parametrize("how", [STRATEGIES["threshold"], STRATEGIES["consolidate"]], ids=["threshold", "consolidate"])
def test_a_namespace_gives_no_more_pods_than_it_may_and_nodes_are_emptied_whole(how: PlannerSettings) -> None:
    found = plan(three_low_nodes(namespace="shop"), with_settings(how, max_moves_per_namespace=3))
    assert len(found.moves) <= 3
    assert found.freed_nodes
    assert {move.source for move in found.moves} == set(found.freed_nodes)
    left = {"one", "two", "three"} - set(found.freed_nodes)
    assert {reasons(found)[name] for name in left} == {(Reason.HOLDS_IMMOVABLE_PODS, Reason.NAMESPACE_LIMIT)}


def test_a_limit_of_one_namespace_does_not_hold_back_the_others() -> None:
    nodes = tuple(node(name, cpu="16") for name in ("a", "b", "c", "full"))
    pods = (web("a", "a", namespace="shop"), web("b", "b", namespace="shop"), web("c", "c", namespace="game"))
    snapshot = Snapshot(nodes=nodes, pods=(base(), *pods))
    found = plan(snapshot, with_settings(consolidating(), max_moves_per_namespace=1))
    assert len(found.freed_nodes) == 2
    assert "c" in found.freed_nodes


def test_a_plan_within_limits_does_not_claim_to_be_the_best_that_they_allow() -> None:
    found = plan(three_low_nodes(namespace="shop"), with_settings(consolidating(), max_moves_per_namespace=2))
    assert found.quality is not None
    assert found.quality.upper_bound >= len(found.freed_nodes)
    assert not found.quality.proven_optimal


def test_room_is_made_without_taking_more_off_a_node_than_is_allowed() -> None:
    pods = (bare_pod("fixed", node="b", cpu="2", memory=None), *(web(f"a-{n}", "a") for n in range(3)))
    snapshot = Snapshot(nodes=(node("a", cpu="4"), node("b", cpu="4")), pods=pods)
    how = making_room(shapes=("cpu=3,count=1",))
    assert [move.source for move in plan(snapshot, how).moves] == ["a", "a"]
    held = plan(snapshot, with_settings(how, max_moves_per_node=1))
    assert held.moves == ()
    assert [room.fitted for room in held.room] == [0]


def test_a_pod_that_a_plan_brought_to_its_node_lately_rests_there() -> None:
    snapshot = three_low_nodes()
    resting = {("default", "two-0"): NOON - timedelta(minutes=5)}
    found = plan(snapshot, consolidating().with_rule(PodCoolDown(resting)))
    assert found.freed_nodes == ("one", "three")
    assert reasons(found)["two"] == (Reason.HOLDS_IMMOVABLE_PODS, Reason.POD_COOLING_DOWN)
    assert "2026-11-21T11:55:00Z" in next(one.message for one in found.refused if one.name == "two-0")


@holds_for(
    snapshot=clusters(), how=st.sampled_from(sorted(STRATEGIES)), node_most=st.integers(1, 4), most=st.integers(1, 5)
)
def test_no_plan_exceeds_its_limits_and_nodes_are_emptied_whole(
    snapshot: Snapshot, how: str, node_most: int, most: int
) -> None:
    limited = with_settings(STRATEGIES[how], max_moves_per_node=node_most, max_moves_per_namespace=most)
    found = plan(snapshot, limited)
    assert max(Counter(move.source for move in found.moves).values(), default=0) <= node_most
    assert max(Counter(move.namespace for move in found.moves).values(), default=0) <= most
    again = plan(snapshot, limited)
    assert again.moves == found.moves


@pytest.mark.parametrize("name", ["max_moves_per_node", "max_moves_per_namespace"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="maxMovesPerN"):
        planner_settings(**{name: 0})  # type: ignore[arg-type]
