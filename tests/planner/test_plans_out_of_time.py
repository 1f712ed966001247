"""A time limit that is over before the search has begun still leaves what a simple pass finds."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st

from benchmarks.constrained_instances import generate_constrained
from benchmarks.families import family
from benchmarks.instances import Recipe
from berth_core import Deadline
from berth_core.labels import TEMPLATE_HASH_LABEL
from berth_core.snapshot import Snapshot
from berth_descheduler.framework import RefusalReason
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.goals.free_nodes.consolidate import Consolidate
from berth_descheduler.planner import NodeIndex, Plan, PodIndex, Problem, State, plan, plan_surges
from berth_descheduler.planner.problem import SPARED, find_sources
from berth_descheduler.planner.solver import Filled, draining
from builders import disruption_budget, node, owner, pod
from planner.clusters import api_items, consolidating, making_room, moves_of
from planner.random_clusters import clusters
from planner.replay import replay_steps, replay_waves
from properties import holds_for

LABELS = {"app": "web", TEMPLATE_HASH_LABEL: "5d4f"}
OF_WEB = owner("ReplicaSet", "web-5d4f")


class TimeIsOver:
    """A deadline that has passed."""

    def remaining_seconds(self) -> float:
        return 0.0


class TimeLeft:
    """A deadline in ten seconds, of which so many are left once it was first asked."""

    def __init__(self, seconds: float) -> None:
        self._left = iter((10.0,))
        self._seconds = seconds

    def remaining_seconds(self) -> float:
        return next(self._left, self._seconds)


def half_empty(number: int, cpu: str = "2") -> Snapshot:
    """Nodes of four cores with one small pod each."""
    return Snapshot(
        nodes=tuple(node(f"n{index:02}", cpu="4") for index in range(number)),
        pods=tuple(
            pod(f"p{index:02}", node=f"n{index:02}", cpu=cpu, memory=None, controller=owner(name=f"p{index:02}"))
            for index in range(number)
        ),
    )


@pytest.mark.parametrize(("number", "freed"), [(2, 1), (3, 1), (10, 5)])
def test_consolidate_frees_what_a_pass_over_the_nodes_frees(number: int, freed: int) -> None:
    made = plan(half_empty(number), consolidating(), TimeIsOver())

    assert len(made.freed_nodes) == freed
    assert made.quality is not None
    assert (made.quality.reached, made.quality.out_of_time) == (freed, True)


@pytest.mark.parametrize(("seconds", "is_over"), [(0.9, True), (1.1, False)])
def test_a_tenth_of_the_time_is_left_for_what_follows_the_search(seconds: float, *, is_over: bool) -> None:
    quality = plan(half_empty(10), consolidating(), TimeLeft(seconds)).quality

    assert quality is not None
    assert quality.out_of_time is is_over


class TimeForAsks:
    """A deadline that is over once it was asked so many times."""

    def __init__(self, asks: int) -> None:
        self._left = asks

    def remaining_seconds(self) -> float:
        self._left -= 1
        return 60.0 if self._left >= 0 else 0.0


@pytest.mark.parametrize(
    ("kind", "nodes", "seed"), [("pairs", 16, 0), ("pairs", 16, 2), ("resources", 24, 0), ("pools", 16, 2)]
)
def test_more_time_never_makes_a_plan_worse(kind: str, nodes: int, seed: int) -> None:
    snapshot = family(kind, nodes, seed)
    results = []
    for asks in (1, 3, 8, 20, 100, 400):
        quality = plan(snapshot, consolidating(exact=False), TimeForAsks(asks)).quality
        assert quality is not None
        results.append((quality.reached, -quality.moves))
    assert results == sorted(results)
    assert results[0] < results[-1], "time makes a difference at all"


class SecondsByWork:
    """A deadline by how often pods were tried to place: a second each."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds_left = seconds
        fill = draining.fill

        def filling(*given: Any, **named: Any) -> Filled:  # noqa: ANN401 - as `fill` is called
            self.seconds_left -= 1
            return fill(*given, **named)

        monkeypatch.setattr(draining, "fill", filling)

    def remaining_seconds(self) -> float:
        return max(0.0, self.seconds_left)


@pytest.mark.parametrize("seconds", [1.5, 2.5, 3.9])
def test_no_trial_begins_for_which_there_is_too_little_time(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = family("mixed", 10, 0)
    deadline = SecondsByWork(seconds, monkeypatch)
    problem = Problem.from_snapshot(snapshot, consolidating(exact=False))

    Consolidate(deadline).propose(problem, State(problem.cluster))

    assert 0 < deadline.seconds_left < 1.0


def test_which_nodes_may_be_emptied_is_found_out_once() -> None:
    problem = Problem.from_snapshot(half_empty(4), consolidating())

    assert find_sources(problem) is find_sources(problem)
    assert find_sources(problem.keeping({PodIndex(0): SPARED})).refusals.keys() == {NodeIndex(0)}


class OneClock:
    """A deadline that counts down by hand."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def remaining_seconds(self) -> float:
        return self.seconds


@pytest.mark.parametrize(("allowed", "want_left"), [(0, [60.0, 30.0]), (1, [90.0])], ids=["may be stuck", "cannot be"])
def test_both_tries_of_a_plan_that_surges_share_one_time_limit(allowed: int, want_left: list[float]) -> None:
    alike = half_empty(4)
    pods = tuple(
        pod(f"p{index}", node=f"n{index:02}", cpu="2", memory=None, labels=LABELS, controller=OF_WEB)
        for index in range(4)
    )
    budgets = (disruption_budget(match_labels={"app": "web"}, allowed=0),) if not allowed else ()
    snapshot = Snapshot(nodes=alike.nodes, pods=pods, disruption_budgets=budgets)
    clock, seconds_left = OneClock(90.0), []

    def make(cluster: Snapshot, deadline: Deadline) -> Plan:
        seconds_left.append(deadline.remaining_seconds())
        made = plan(cluster, consolidating())
        clock.seconds = 30.0
        return made

    plan_surges(snapshot, make, lambda stuck: {stuck_pod.key: "no surge" for stuck_pod in stuck}, clock)

    assert seconds_left == want_left


def test_the_pass_keeps_the_limit_on_moves() -> None:
    made = plan(half_empty(10), consolidating(max_moves=3), TimeIsOver())

    assert (len(made.freed_nodes), len(made.moves)) == (3, 3)


def test_the_pass_says_that_the_time_limit_keeps_the_other_nodes() -> None:
    made = plan(half_empty(8, cpu="1"), consolidating(), TimeIsOver())

    assert len(made.freed_nodes) == 4
    assert {one.reason for one in made.refused} == {RefusalReason.TIME_LIMIT}


def test_little_is_asked_after_the_time_limit_and_the_nodes_left_out_say_so() -> None:
    number = 70
    alike = half_empty(number)
    pods = tuple(
        pod(f"p{index:02}", node=f"n{index:02}", cpu=f"{2_100 + index}m", memory=None, controller=owner(name="set"))
        for index in range(number)
    )
    # Without a pod that fits beside those, the bound alone proves that no node can be emptied.
    beside = pod("small", node="n00", cpu="100m", memory=None, controller=owner(name="set"))

    made = plan(Snapshot(nodes=alike.nodes, pods=(*pods, beside)), consolidating(), TimeIsOver())

    reasons = Counter(one.reason for one in made.refused if one.kind is RefusedKind.NODE)
    late = [one.message for one in made.refused if one.reason is RefusalReason.TIME_LIMIT]
    assert reasons.keys() == {RefusalReason.NO_TARGET, RefusalReason.TIME_LIMIT}
    assert reasons.total() == number
    assert set(late) == {"the time limit ended before it was asked where all of its pods fit"}


@pytest.mark.parametrize("shape", ["cpu=4,memory=1Gi", "cpu=4,memory=1Gi,count=1"])
def test_make_room_makes_what_its_first_filling_finds(shape: str) -> None:
    made = plan(half_empty(2), making_room(shapes=(shape,)), TimeIsOver())

    assert len(made.moves) == 1
    assert made.quality is not None
    assert (made.quality.reached, made.quality.out_of_time) == (1, True)


def test_a_cluster_with_ties_is_planned_on_step_by_step_without_any_time() -> None:
    made = generate_constrained(Recipe(nodes=40, requested=0.6, node_millis=8_000, node_mib=32 * 1024))
    found = plan(made, consolidating(), TimeIsOver())

    assert found.freed_nodes
    assert replay_steps(api_items(made), moves_of(found)) == []


@holds_for(clusters(), st.sampled_from((None, 1, 3)), deep=40)
def test_every_plan_out_of_time_is_feasible_and_within_its_bound(snapshot: Snapshot, budget: int | None) -> None:
    made = plan(snapshot, consolidating(max_moves=budget), TimeIsOver())

    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []
    assert budget is None or len(made.moves) <= budget
    assert made.quality is not None
    assert len(made.freed_nodes) == made.quality.reached <= made.quality.upper_bound
