"""Waves are planned so that all moves of one may run together."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation.cluster import NodeIndex
from berth_descheduler.planner.simulation.state import State, Step
from berth_descheduler.planner.waves import MOST_NAMED, assign_waves, find_predecessors, longest_chain
from builders import disruption_budget, node, owner, pod
from planner.clusters import ZONE, apart, company, selector, settings, spread, term

WEB = {"app": "web"}


def webs(count: int) -> tuple[Pod, ...]:
    return tuple(pod(f"web-{i:02}", node="low", cpu="100m", memory=None, labels=WEB) for i in range(count))


HALF = settings(low=49, defragment=49, protection=100)


def planned(pods: tuple[Pod, ...], how: PlannerSettings = HALF, **more: Any) -> Plan:  # noqa: ANN401 - as the case says
    nodes = (node("low", cpu="10"), node("high", cpu="10"))
    filled = pod("fill", node="high", cpu="5", memory=None, controller=owner(name="fill"))
    return plan(Snapshot(nodes=nodes, pods=(*pods, filled), **more), how)


def wave_sizes(made: Plan) -> list[int]:
    counts = Counter(move.wave for move in made.moves)
    return [counts[wave] for wave in range(1, len(counts) + 1)]


def test_one_pod_of_a_controller_moves_at_a_time() -> None:
    assert wave_sizes(planned(webs(3))) == [1, 1, 1]


def test_pods_of_different_controllers_move_together() -> None:
    pods = tuple(pod(f"p{i}", node="low", cpu="1", memory=None, controller=owner(name=f"rs-{i}")) for i in range(3))

    assert wave_sizes(planned(pods)) == [3]


def test_more_of_a_controller_move_at_a_time_where_that_is_allowed() -> None:
    how = settings(low=49, defragment=49, protection=100, per_controller=2)

    assert wave_sizes(planned(webs(5), how)) == [2, 2, 1]


def test_a_wave_has_at_most_so_many_moves() -> None:
    pods = tuple(pod(f"p{i}", node="low", cpu="1", memory=None, controller=owner(name=f"rs-{i}")) for i in range(4))
    how = settings(low=49, defragment=49, protection=100, per_wave=3)

    assert wave_sizes(planned(pods, how)) == [3, 1]


def test_a_budget_limits_what_moves_at_a_time() -> None:
    pods = tuple(
        pod(f"p{i}", node="low", cpu="1", memory=None, labels=WEB, controller=owner(name=f"rs-{i}")) for i in range(4)
    )
    budgets = (disruption_budget(match_labels=WEB, allowed=2),)

    assert wave_sizes(planned(pods, disruption_budgets=budgets)) == [2, 2]


def test_a_later_move_goes_to_an_earlier_wave_that_has_room() -> None:
    pods = (
        *webs(3),
        pod("zz", node="low", cpu="50m", memory=None, controller=owner(name="single")),
    )

    made = planned(pods)

    assert [(move.pod, move.wave) for move in made.moves] == [("web-00", 1), ("web-01", 2), ("web-02", 3), ("zz", 1)]


def test_a_large_controller_begins_at_once_though_its_moves_come_last() -> None:
    """Two moves at a time, the small pods last: after four others the three would need three waves more."""
    others = (pod(f"a{i}", node="low", cpu="1", memory=None, controller=owner(name=f"rs-{i}")) for i in range(4))
    how = settings(low=49, defragment=49, protection=100, per_wave=2)

    made = planned((*others, *webs(3)), how)

    assert made.waves == 4
    assert sorted(move.wave for move in made.moves if move.pod.startswith("web")) == [1, 2, 3]


def test_pods_that_constrain_one_another_move_one_by_one() -> None:
    shy = apart(term(ZONE))
    pods = tuple(
        pod(f"p{i}", node="low", cpu="1", memory=None, labels=WEB, controller=owner(name=f"rs-{i}"), affinity=affinity)
        for i, affinity in enumerate((shy, None, None))
    )

    # Nodes without zones: the anti-affinity never bites, but the three are bound up with one another.
    assert wave_sizes(planned(pods)) == [1, 1, 1]


def test_who_needs_company_moves_after_its_company() -> None:
    follower = company(term(select=selector(app="db")))
    pods = (
        pod("friend", node="low", cpu="1", memory=None, labels={"app": "db"}, controller=owner(name="db")),
        pod("follower", node="low", cpu="500m", memory=None, affinity=follower),
        pod("stranger", node="low", cpu="100m", memory=None, controller=owner(name="other")),
    )

    made = planned(pods)

    assert [(move.pod, move.wave) for move in made.moves] == [("friend", 1), ("follower", 2), ("stranger", 1)]


def test_pods_that_are_spread_together_move_one_by_one() -> None:
    even = (spread("kubernetes.io/os", max_skew=5),)
    nodes = tuple(node(name, cpu="10", labels={"kubernetes.io/os": "linux"}) for name in ("low", "high"))
    pods = tuple(
        pod(f"p{i}", node="low", cpu="1", memory=None, labels=WEB, controller=owner(name=f"rs-{i}"), spread=even)
        for i in range(2)
    )
    snapshot = Snapshot(nodes=nodes, pods=(*pods, pod("fill", node="high", cpu="7", memory=None)))

    made = plan(snapshot, HALF)

    assert wave_sizes(made) == [1, 1]


def test_room_is_made_in_an_earlier_wave_than_it_is_used() -> None:
    snapshot = Snapshot(
        nodes=tuple(node(name, cpu="4") for name in ("a", "b", "c")),
        pods=(
            pod("small", node="b", cpu="2", controller=owner(name="s")),
            pod("big", node="a", cpu="4", controller=owner(name="l")),
        ),
    )
    problem = Problem.from_snapshot(snapshot, settings())
    state = State(problem.cluster)
    a, b, c = (NodeIndex(i) for i in range(3))
    big, small = (problem.cluster.pod_numbers["default", name] for name in ("big", "small"))

    steps = (Step(small, b, c), Step(big, a, b))

    assert assign_waves(problem, state, steps) == (0, 1)


def test_a_pod_that_moves_twice_moves_in_two_waves_though_its_controller_may_have_several_in_flight() -> None:
    snapshot = Snapshot(
        nodes=tuple(node(name, cpu="4") for name in ("a", "b", "c")),
        pods=(pod("one", node="a", cpu="1", controller=owner(name="s")),),
    )
    problem = Problem.from_snapshot(snapshot, settings(per_controller=2))
    a, b, c = (NodeIndex(i) for i in range(3))
    one = problem.cluster.pod_numbers["default", "one"]

    waves = assign_waves(problem, State(problem.cluster), (Step(one, a, b), Step(one, b, c)))

    assert waves == (0, 1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 3), st.integers(1, 4))
def test_no_wave_goes_beyond_a_limit(makers: list[int], per_controller: int, per_wave: int) -> None:
    pods = tuple(
        pod(f"p{i:02}", node="low", cpu="100m", memory=None, controller=owner(name=f"rs-{maker}"))
        for i, maker in enumerate(makers)
    )
    how = settings(low=49, defragment=49, protection=100, per_controller=per_controller, per_wave=per_wave)

    made = planned(pods, how)

    assert len(made.moves) == len(makers)
    by_wave = Counter(move.wave for move in made.moves)
    by_maker = Counter((move.wave, move.owner.name) for move in made.moves if move.owner)
    assert max(by_wave.values()) <= per_wave
    assert max(by_maker.values()) <= per_controller
    assert sorted(by_wave) == list(range(1, len(by_wave) + 1))


# --- what has to be over before a move begins ------------------------------------------------------------------------


def named(made: Plan) -> dict[str, list[str] | None]:
    """Return the pods whose moves are over before a pod's begins; None for all of lower waves."""
    return {
        move.pod: None if move.after is None else [made.moves[one].pod for one in move.after] for move in made.moves
    }


def before(made: Plan, index: int) -> set[int]:
    """Return the moves that are over before one begins, also those that they wait for."""
    move = made.moves[index]
    lower = [other for other, one in enumerate(made.moves) if one.wave < move.wave]
    own = lower if move.after is None else move.after
    assert set(own) <= set(lower)
    return {*own, *(one for direct in own for one in before(made, direct))}


def test_a_pod_waits_for_those_of_its_controller_and_for_no_others() -> None:
    made = planned((*webs(3), pod("zz", node="low", cpu="50m", memory=None, controller=owner(name="single"))))

    assert named(made) == {"web-00": [], "web-01": ["web-00"], "web-02": ["web-01"], "zz": []}


def test_a_full_wave_is_nothing_to_wait_for() -> None:
    pods = tuple(pod(f"p{i}", node="low", cpu="1", memory=None, controller=owner(name=f"rs-{i}")) for i in range(3))
    how = settings(low=49, defragment=49, protection=100, per_wave=1)

    assert named(planned(pods, how)) == {"p0": [], "p1": [], "p2": []}


def test_a_pod_waits_for_those_of_its_budget() -> None:
    pods = tuple(
        pod(f"p{i}", node="low", cpu="1", memory=None, labels=WEB, controller=owner(name=f"rs-{i}")) for i in range(4)
    )
    budgets = (disruption_budget(match_labels=WEB, allowed=2),)

    found = named(planned(pods, disruption_budgets=budgets))

    assert found == {"p0": [], "p1": [], "p2": ["p0", "p1"], "p3": ["p0", "p1"]}


def test_pods_that_constrain_one_another_wait_for_one_another() -> None:
    shy = apart(term(ZONE))
    pods = tuple(
        pod(f"p{i}", node="low", cpu="1", memory=None, labels=WEB, controller=owner(name=f"rs-{i}"), affinity=affinity)
        for i, affinity in enumerate((shy, None, None))
    )

    assert named(planned(pods)) == {"p0": [], "p1": ["p0"], "p2": ["p1"]}


def of_its_own(name: str, on: str, cpu: str) -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name))


def test_who_needs_room_waits_for_those_that_make_it() -> None:
    leavers = [of_its_own(f"s{i:02}", "b", "100m") for i in range(MOST_NAMED + 1)]
    for count, want in ((MOST_NAMED, tuple(range(MOST_NAMED))), (MOST_NAMED + 1, None)):
        pods = (*leavers[:count], of_its_own("big", "a", "4"), of_its_own("late", "a", "100m"))
        problem = Problem.from_snapshot(Snapshot(nodes=tuple(node(name, cpu="9") for name in "abc"), pods=pods), HALF)
        state, (a, b, c) = State(problem.cluster), (NodeIndex(i) for i in range(3))
        numbers = problem.cluster.pod_numbers
        steps = [Step(numbers["default", one.metadata.name], b, c) for one in leavers[:count]]
        steps += [Step(numbers["default", "big"], a, b), Step(numbers["default", "late"], a, c)]

        found = find_predecessors(problem, state, steps, assign_waves(problem, state, steps))

        assert found == (*((),) * count, want, ())


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_what_is_in_flight_of_a_controller_or_a_budget_is_of_one_wave(
    makers: list[int], per_controller: int, per_wave: int, allowed: int
) -> None:
    pods = tuple(
        pod(
            f"p{i:02}",
            node="low",
            cpu="100m",
            memory=None,
            labels=WEB if maker % 2 else {"app": "db"},
            controller=owner(name=f"rs-{maker}"),
        )
        for i, maker in enumerate(makers)
    )
    how = settings(low=49, defragment=49, protection=100, per_controller=per_controller, per_wave=per_wave)

    moves = planned(pods, how, disruption_budgets=(disruption_budget(match_labels=WEB, allowed=allowed),))

    labels = {one.metadata.name: one.metadata.labels for one in pods}
    for late, move in enumerate(moves.moves):
        for early, other in enumerate(moves.moves):
            tied = move.owner == other.owner or labels[move.pod] == labels[other.pod] == WEB
            if tied and other.wave < move.wave:
                assert early in before(moves, late)


# --- how many moves wait for one another ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waves", "predecessors", "longest"),
    {
        "no moves": ([], [], 0),
        "all at once": ([0, 0, 0], [(), (), ()], 1),
        "waves in which nothing waits": ([0, 1, 2], [(), (), ()], 1),
        "one after the other": ([0, 1, 2], [(), (0,), (1,)], 3),
        "two chains": ([0, 0, 1, 1, 2], [(), (), (0,), (1,), (3,)], 3),
        "all of the waves before": ([0, 1, 1, 2], [(), (0,), (), None], 3),
        "not in the order of waves": ([1, 0], [(1,), ()], 2),
    }.values(),
    ids=str,
)
def test_the_longest_chain_counts_moves_that_wait_for_one_another(
    waves: list[int], predecessors: list[tuple[int, ...] | None], longest: int
) -> None:
    assert longest_chain(waves, predecessors) == longest
