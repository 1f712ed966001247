"""Which nodes are chosen for slots that take capacity when it is free."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.reservations import ReservationReason
from berth_core.resources import ResourceAmounts
from berth_operator.reservation.node_choice import (
    CandidateNode,
    EndingPod,
    FenceBudget,
    NodeChoice,
    TaskDemand,
    choose_nodes,
    idle_score,
)
from builders import NOON

ONE = ("main", 0)


def amounts(cpu: int, **others: int) -> ResourceAmounts:
    return ResourceAmounts({"cpu": cpu, "pods": 1, **others})


def node(name: str, *pods: EndingPod, cpu: int = 4, claimed: int = 0) -> CandidateNode:
    return CandidateNode(name, ResourceAmounts({"cpu": cpu, "pods": 110}), ResourceAmounts({"cpu": claimed}), pods)


def ending(cpu: int, *, minutes: int | None = None) -> EndingPod:
    return EndingPod(amounts(cpu), None if minutes is None else NOON + timedelta(minutes=minutes))


def choose(*nodes: CandidateNode, cpu: int = 4, slots: int = 1, budget: FenceBudget | None = None) -> NodeChoice:
    candidates = {one.name: one for one in nodes}
    wanted = TaskDemand(tuple(("main", index) for index in range(slots)), amounts(cpu), tuple(candidates))
    return choose_nodes([wanted], candidates, budget)


def test_what_is_free_now_comes_first() -> None:
    assert choose(node("full", ending(4, minutes=1)), node("free")).nodes == {ONE: "free"}


def test_of_full_nodes_the_one_that_ends_soonest_is_chosen() -> None:
    late, soon, never = (
        node(name, ending(4, minutes=end)) for name, end in (("late", 60), ("soon", 5), ("never", None))
    )
    assert choose(never, late, soon).nodes == {ONE: "soon"}


def test_without_known_ends_the_idlest_is_chosen() -> None:
    assert choose(node("a", ending(3)), node("b", ending(1)), node("c", ending(2))).nodes == {ONE: "b"}


def test_a_node_whose_known_ends_do_not_suffice_counts_as_one_without() -> None:
    partly = node("partly", ending(1, minutes=1), ending(3))
    assert choose(partly, node("wholly", ending(4, minutes=90))).nodes == {ONE: "wholly"}


def test_claims_never_end() -> None:
    found = choose(node("claimed", claimed=1))
    assert found.nodes == {}
    assert found.reason is ReservationReason.UNSCHEDULABLE_YET
    assert "1 slot of task main has no node: of 1 node that admits its pods none has enough" in found.message


def test_slots_fill_a_node_before_the_next() -> None:
    full = [node(name, ending(4, minutes=end)) for name, end in (("a", 30), ("b", 10), ("c", 20))]
    assert choose(*full, cpu=2, slots=3).nodes == {("main", 0): "b", ("main", 1): "b", ("main", 2): "c"}


def test_larger_tasks_choose_first() -> None:
    candidates = {one.name: one for one in (node("large", cpu=8), node("small"))}
    demands = [
        TaskDemand((("little", 0),), amounts(4), tuple(candidates)),
        TaskDemand((("big", 0),), amounts(8), tuple(candidates)),
    ]
    assert choose_nodes(demands, candidates).nodes == {("big", 0): "large", ("little", 0): "small"}


BUDGETS = {
    "none is left of the namespace": (FenceBudget(namespace_limit=0), {}, "its namespace may fence 0 nodes"),
    "none is left of the cluster": (FenceBudget(cluster_limit=0), {}, "0 nodes may be fenced in the cluster"),
    "a node that is fenced already costs nothing": (
        FenceBudget(frozenset({"b"}), frozenset({"b"}), 1, 1),
        {ONE: "b"},
        "",
    ),
    "one is left": (FenceBudget(frozenset({"x"}), frozenset({"x"}), 2, 2), {ONE: "a"}, ""),
}


@pytest.mark.parametrize(("budget", "want", "why"), BUDGETS.values(), ids=BUDGETS.keys())
def test_slots_that_wait_go_to_nodes_that_may_be_fenced(
    budget: FenceBudget, want: dict[tuple[str, int], str], why: str
) -> None:
    found = choose(node("a", ending(4, minutes=1)), node("b", ending(4, minutes=2)), budget=budget)
    assert found.nodes == want
    assert found.reason is (ReservationReason.FENCE_LIMIT if why else None)
    assert why in found.message


def test_what_is_free_now_needs_no_fence() -> None:
    assert choose(node("free"), budget=FenceBudget(cluster_limit=0)).nodes == {ONE: "free"}


SCORES = {
    "nothing is idle": (ResourceAmounts({}), amounts(4, memory=8), 0.0),
    "half of the cpu, all of the memory": (ResourceAmounts({"cpu": 2, "memory": 9}), amounts(4, memory=8), 7.5),
    "a scalar resource weighs twice": (ResourceAmounts({"cpu": 4, "memory": 8}), amounts(4, memory=8, gpu=2), 10 / 3),
    "an over-booked node has nothing idle": (ResourceAmounts({"cpu": -4}), amounts(4), 5.0),
}


@pytest.mark.parametrize(("idle", "requests", "want"), SCORES.values(), ids=SCORES.keys())
def test_the_score_of_what_is_idle(idle: ResourceAmounts, requests: ResourceAmounts, want: float) -> None:
    assert idle_score(idle, requests) == pytest.approx(want)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[CandidateNode], int, int]:
    pods = st.builds(ending, st.integers(1, 6), minutes=st.none() | st.integers(1, 90))
    nodes = [
        node(
            f"n{number}",
            *draw(st.lists(pods, max_size=4)),
            cpu=draw(st.integers(1, 12)),
            claimed=draw(st.integers(0, 4)),
        )
        for number in range(draw(st.integers(0, 5)))
    ]
    return nodes, draw(st.integers(1, 8)), draw(st.integers(1, 6))


@given(clusters())
def test_no_node_is_promised_more_than_it_can_ever_hold(case: tuple[list[CandidateNode], int, int]) -> None:
    nodes, slots, cpu = case
    found = choose(*nodes, cpu=cpu, slots=slots)
    holds = {one.name: max(0, one.room_at_the_end().get("cpu")) // cpu for one in nodes}
    given = list(found.nodes.values())
    assert all(given.count(name) <= holds[name] for name in holds)
    assert len(given) == min(slots, sum(holds.values()))
    assert (found.reason is None) is (len(given) == slots)
