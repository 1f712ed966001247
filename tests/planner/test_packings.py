"""Clusters that were made from a packing: the optimum is known, and simple drains are never better."""

import numpy as np
import pytest

from benchmarks.packings import packing
from berth_core import NoDeadline
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Problem, State, plan
from berth_descheduler.planner.problem import find_sources
from berth_descheduler.planner.solver import Candidates, build_packing_model, pack_fully
from builders import node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves


@pytest.mark.parametrize(
    ("full", "spread", "seed"),
    [
        (6, 2, 0),
        (8, 3, 0),
        pytest.param(12, 4, 0, marks=pytest.mark.deep),
        pytest.param(12, 4, 1, marks=pytest.mark.deep),
    ],
)
def test_a_known_packing_is_found_without_the_exact_solver(full: int, spread: int, seed: int) -> None:
    snapshot = packing(full, spread, seed)

    made = plan(snapshot, consolidating(exact=False))

    assert made.quality
    assert made.quality.reached == spread <= made.quality.upper_bound
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


@pytest.mark.parametrize(("full", "spread", "seed"), [(6, 2, 4), pytest.param(12, 4, 1, marks=pytest.mark.deep)])
def test_the_exact_solver_finds_the_known_packing(full: int, spread: int, seed: int) -> None:
    """Of the small one the search alone frees one node."""
    snapshot = packing(full, spread, seed)

    made = plan(snapshot, consolidating(exact=True))

    assert made.quality
    assert made.quality.proven_optimal
    assert made.quality.reached == spread
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


@pytest.mark.parametrize("exact", [True, False])
def test_without_anything_to_waste_every_pod_finds_its_place(*, exact: bool) -> None:
    """Nothing may be left free on the nodes that keep pods, and one filling is not that of the largest pods first."""
    sizes = (600, 300, 100, 500, 400, 500, 400, 200)
    nodes = tuple(node(f"n{number}", cpu="1000m") for number in range(4))
    pods = tuple(
        pod(f"p{number}", node=f"n{number % 4}", cpu=f"{size}m", memory=None, controller=owner(name=f"p{number}"))
        for number, size in enumerate(sizes)
    )
    problem = Problem.from_snapshot(Snapshot(nodes=nodes, pods=pods), consolidating())
    sources = find_sources(problem)
    packing = build_packing_model(problem, State(problem.cluster, sources.to_take_from), sources.to_take_from)
    numbers, ones = np.array(sources.to_empty), np.ones(len(nodes), dtype=np.int64)
    candidates = Candidates(numbers, sources.pods_of, 2 * ones, ones, np.empty(0, dtype=np.int64), ones)

    draining = next(pack_fully(packing, candidates, [1], NoDeadline(), exact=exact), None)

    assert draining is not None
    assert (len(draining.nodes), draining.worth) == (1, 1)
    assert next(pack_fully(packing, candidates, [2], NoDeadline(), exact=exact), None) is None
