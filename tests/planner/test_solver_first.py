"""Where the integer program is small it is asked early: its answer is the plan, or says what the search looks for."""

import numpy as np
import pytest

from benchmarks.families import FAMILIES, family
from berth_core import NoDeadline
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Plan, Quality, plan
from berth_descheduler.planner.problem import Problem, find_sources
from berth_descheduler.planner.simulation import State
from berth_descheduler.planner.solver import Candidates, DrainLimits, ExactDraining, build_packing_model, solve_draining
from builders import node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves


def quality_of(made: Plan) -> Quality:
    assert made.quality is not None
    return made.quality


def solved(snapshot: Snapshot) -> tuple[ExactDraining, list[int]]:
    """Return what the solver says without knowing of any plan, and the nodes that are empty."""
    problem = Problem.from_snapshot(snapshot, consolidating())
    sources = find_sources(problem)
    packing = build_packing_model(problem, State(problem.cluster), sources.to_take_from)
    nodes = np.array(sources.to_empty, dtype=np.int64)
    counts = np.array([len(sources.pods_of[one]) for one in sources.to_empty], dtype=np.int64)
    same = np.ones(len(nodes), dtype=np.int64)
    empty = np.array(sources.empty, dtype=np.int64)
    candidates = Candidates(nodes, sources.pods_of, counts, same, empty, same)
    leaving = np.isin(np.arange(packing.nodes), nodes)
    exact = solve_draining(
        packing,
        candidates,
        DrainLimits(None, len(nodes), NoDeadline()),
        may_take=packing.takes,
        may_leave=leaving,
        worth=0,
        moves=0,
        least_moves=0,
    )
    assert exact is not None
    return exact, [*sources.empty]


def with_an_empty_node() -> Snapshot:
    """One node more can be empty by two moves that fill the empty one, or by three that leave it empty."""
    small = tuple(
        pod(f"small-{index}", node="small", cpu="1", memory=None, controller=owner(name="small")) for index in range(8)
    )
    large = tuple(
        pod(f"large-{name}", node=name, cpu="10", memory=None, controller=owner(name=name)) for name in ("full", "too")
    )
    beside = pod("beside", node="beside", cpu="3", memory=None, controller=owner(name="beside"))
    nodes = (
        *(node(name, cpu="10", memory="64Gi") for name in ("small", "full", "too")),
        node("beside", cpu="12", memory="64Gi"),
        node("empty", cpu="20", memory="64Gi"),
    )
    return Snapshot(nodes=nodes, pods=(*small, *large, beside))


def test_an_answer_that_fills_an_empty_node_is_asked_again_without() -> None:
    exact, empty = solved(with_an_empty_node())

    (draining,) = exact.found
    assert len(empty) == 1
    assert (len(draining.nodes), draining.moves) == (1, 3)
    assert set(empty).isdisjoint(draining.filled.arrivals[:, 1].tolist())
    assert exact.fewest_moves <= 2, "what fills it needs two, and the bound holds for that, too"
    assert exact.most_beside_empty == 1


def test_with_many_kinds_the_most_is_asked_for_first() -> None:
    exact, _ = solved(family("pools", 10, 0))

    assert (exact.most, exact.found[-1].worth, exact.found[-1].moves, exact.fewest_moves) == (4, 4, 9, 9)
    assert len(exact.found) == 1, "not node by node"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name in ("gpus", "multi") else name for name in FAMILIES]
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2))])
def test_with_the_solver_no_less_is_freed_and_every_step_fits(name: str, seed: int) -> None:
    snapshot = family(name, 10, seed)
    searched, made = quality_of(plan(snapshot, consolidating(exact=False))), plan(snapshot, consolidating(exact=True))
    exact = quality_of(made)

    assert (exact.reached, -exact.moves) >= (searched.reached, -searched.moves)
    assert exact.reached <= exact.upper_bound <= searched.upper_bound
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


def test_rules_that_keep_pods_apart_are_in_the_bound() -> None:
    made = quality_of(plan(family("mixed", 10, 0), consolidating(exact=True)))

    assert (made.reached, made.upper_bound) == (5, 5), "six without the pods' rules"
    assert made.moves == made.fewest_moves
