"""Large clusters of tied pods are emptied by placing all pods of a set of nodes together."""

import numpy as np
import pytest

from benchmarks.constrained_instances import generate_constrained
from benchmarks.instances import Recipe
from berth_core import NoDeadline
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import plan
from berth_descheduler.planner.problem import Problem, find_sources
from berth_descheduler.planner.simulation import State
from berth_descheduler.planner.solver import (
    Candidates,
    Draining,
    JointDraining,
    build_packing_model,
    is_mostly_tied,
    joint_draining,
    most_freed_by_volume,
)
from berth_descheduler.planner.solver.model import PackingModel
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps
from planner.test_plans_out_of_time import TimeIsOver


def tied(nodes: int, seed: int = 0, requested: float = 0.8) -> Snapshot:
    return generate_constrained(Recipe(nodes, requested, seed=seed, node_millis=8_000, node_mib=32 * 1024))


def searched(snapshot: Snapshot) -> tuple[Problem, State, PackingModel, JointDraining]:
    problem = Problem.from_snapshot(snapshot, consolidating())
    sources = find_sources(problem)
    state = State(problem.cluster, sources.to_take_from)
    packing = build_packing_model(problem, state, sources.to_take_from)
    nodes, empty = np.array(sources.to_empty, dtype=np.int64), np.array(sources.empty, dtype=np.int64)
    counts = np.array([len(sources.pods_of[node]) for node in sources.to_empty], dtype=np.int64)
    alike = np.ones(len(nodes), dtype=np.int64)
    open_nodes, may_leave = packing.takes.copy(), np.zeros(packing.nodes, dtype=bool)
    open_nodes[empty] = False
    may_leave[np.array(sources.to_take_from, dtype=np.int64)] = True
    search = JointDraining(
        packing,
        state,
        Candidates(nodes, sources.pods_of, counts, alike, empty, alike),
        open_nodes,
        may_leave,
        most=most_freed_by_volume(packing, sources.to_empty, sources.empty),
        deadline=NoDeadline(),
    )
    return problem, state, packing, search


def drained(search: JointDraining) -> Draining:
    draining = search.run()
    assert draining is not None
    return draining


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.deep)])
def test_each_step_fits_as_it_is_made_and_moves_another_pod(seed: int) -> None:
    snapshot = tied(24, seed, requested=0.7)
    problem, state, packing, search = searched(snapshot)

    draining = drained(search)

    assert state.steps == ()
    cluster = problem.cluster
    moves = [
        {
            "namespace": cluster.pods[step.pod].pod.metadata.namespace,
            "pod": cluster.pods[step.pod].pod.metadata.name,
            "source": cluster.node_name(cluster.pods[step.pod].node),
            "target": cluster.node_name(step.target),
        }
        for step in draining.dependent
    ]
    assert replay_steps(api_items(snapshot), moves) == []
    moved = [step.pod for step in draining.dependent]
    assert len(set(moved)) == len(moved) == draining.moves
    assert set(packing.movable_on(np.isin(np.arange(packing.nodes), draining.nodes)).tolist()) <= set(moved)
    assert not set(draining.nodes) & {step.target for step in draining.dependent}


def test_it_finds_the_same_every_time() -> None:
    snapshot = tied(30)

    assert drained(searched(snapshot)[3]).dependent == drained(searched(snapshot)[3]).dependent


def test_a_plan_is_no_worse_for_what_is_placed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tied(100)
    before = plan(snapshot, consolidating()).quality
    monkeypatch.setattr(joint_draining, "_LEAST_CELLS", 0)

    after = plan(snapshot, consolidating()).quality

    assert before is not None
    assert after is not None
    assert before.reached <= after.reached <= after.upper_bound


def test_out_of_time_it_leaves_a_plan_to_the_simple_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_draining, "_LEAST_CELLS", 0)
    snapshot = tied(20, requested=0.6)

    made = plan(snapshot, consolidating(), TimeIsOver())

    assert made.freed_nodes
    assert made.quality is not None
    assert made.quality.out_of_time
    assert replay_steps(api_items(snapshot), moves_of(made)) == []


class TimeForAsking:
    """A deadline that has passed once it was asked so many times."""

    def __init__(self, times: int) -> None:
        self._left = times

    def remaining_seconds(self) -> float:
        self._left -= 1
        return max(0.0, float(self._left))


def test_with_more_time_a_plan_frees_no_fewer_than_the_simple_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_draining, "_LEAST_CELLS", 0)
    snapshot = tied(16, 4, requested=0.5)
    simple = plan(snapshot, consolidating(), TimeIsOver()).quality

    with_some_time = plan(snapshot, consolidating(), TimeForAsking(200)).quality

    assert simple is not None
    assert with_some_time is not None
    assert with_some_time.out_of_time
    assert with_some_time.reached >= simple.reached


def test_small_clusters_and_those_with_few_ties_are_searched_without() -> None:
    problem, _, small, _ = searched(tied(40))

    assert len(problem.cluster.nodes) == 40
    assert not is_mostly_tied(small)


class StepsLeft:
    """A deadline that each look at it brings nearer, so that a plan ends at the same step every time."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def remaining_seconds(self) -> float:
        self._steps = max(0, self._steps - 1)
        return float(self._steps)


def test_a_plan_is_no_worse_with_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_draining, "_LEAST_CELLS", 0)
    snapshot = tied(40, seed=1, requested=0.5)

    plans = [plan(snapshot, consolidating(), StepsLeft(steps)).quality for steps in (0, 275, 358, 465, 800, 5_000)]

    reached = [quality.reached for quality in plans if quality]
    assert len(reached) == len(plans)
    assert reached == sorted(reached)
    assert reached[0] < reached[-1]
