"""Where a search ends a node short, the repair of over-full packings finds the node."""

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.families import family
from benchmarks.packings import packing
from berth_core import NoDeadline
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Problem, State, plan
from berth_descheduler.planner.problem import find_sources
from berth_descheduler.planner.solver import Candidates, Draining, PackingModel, PackingRepair, build_packing_model
from builders import node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves

SNAPSHOT = family("resources", 24, 5)
OPTIMUM = 12
"""Over final states; proven in minutes. The search and two seconds of the integer program free a node fewer."""


def test_the_optimum_of_nodes_with_several_resources_is_found() -> None:
    model, candidates = asked(SNAPSHOT)
    draining = next(repaired(model, candidates, OPTIMUM))
    assert len(draining.nodes) == OPTIMUM
    assert faults(model, draining) == []


@pytest.mark.deep
def test_the_search_reaches_that_optimum() -> None:
    made = plan(SNAPSHOT, consolidating(exact=False))
    assert made.quality
    assert made.quality.reached == OPTIMUM
    assert replay_steps(api_items(SNAPSHOT), moves_of(made)) == []
    assert replay_waves(api_items(SNAPSHOT), moves_of(made)) == []


@pytest.mark.parametrize("name", ["resources", "gpus", "mixed", "pools", "multi"])
def test_repaired_packings_have_every_pod_where_it_fits(name: str) -> None:
    model, candidates = asked(family(name, 10, 1))
    drainings = [
        draining for freed in range(1, len(candidates.nodes)) for draining in repaired(model, candidates, freed)
    ]
    assert drainings
    for draining in drainings:
        assert faults(model, draining) == []


def test_a_packing_is_repaired_where_one_pod_has_to_change_places_with_two() -> None:
    """The largest first leaves 200m and 300m without a place: 600 + 400, 500 + 300 + 200 fit, 600 + 300 do not."""
    sizes = {"n0": (600, 200), "n1": (500, 300), "n2": (400,)}
    pods = (
        pod(f"p{size}", node=name, cpu=f"{size}m", memory=None, controller=owner(name=f"p{size}"))
        for name, on_node in sizes.items()
        for size in on_node
    )
    model, candidates = asked(Snapshot(nodes=tuple(node(name, cpu="1000m") for name in sizes), pods=tuple(pods)))

    drainings = list(repaired(model, candidates, 1))

    assert {draining.worth for draining in drainings} == {1}
    assert faults(model, drainings[0]) == []
    assert list(repaired(model, candidates, 2)) == []


def test_nothing_is_repaired_in_a_large_cluster() -> None:
    model, candidates = asked(packing(100, 10, 0))
    assert model.nodes > 100
    assert list(repaired(model, candidates, 1)) == []


def test_nothing_is_repaired_in_a_cluster_without_nodes() -> None:
    model, candidates = asked(Snapshot(nodes=(), pods=()))
    assert list(repaired(model, candidates, 1)) == []


def asked(snapshot: Snapshot) -> tuple[PackingModel, Candidates]:
    """Return the packing model of a cluster, and the nodes that may be freed."""
    problem = Problem.from_snapshot(snapshot, consolidating())
    sources = find_sources(problem)
    model = build_packing_model(problem, State(problem.cluster, sources.to_take_from), sources.to_take_from)
    nodes, empty = np.array(sources.to_empty, dtype=np.int64), np.array(sources.empty, dtype=np.int64)
    ones = np.ones(len(nodes), dtype=np.int64)
    counts = np.array([len(sources.pods_of[name]) for name in sources.to_empty], dtype=np.int64)
    return model, Candidates(nodes, sources.pods_of, counts, ones, empty, ones)


def repaired(model: PackingModel, candidates: Candidates, freed: int) -> Iterator[Draining]:
    """Yield the repaired packings that free so many nodes."""
    return PackingRepair(model, candidates, model.takes, seed=0).drainings(freed, NoDeadline())


def faults(model: PackingModel, draining: Draining) -> list[str]:
    """Return what is wrong with where a draining puts pods, by their requests and ties to nodes alone."""
    found, counts = [], np.zeros((model.nodes, model.kinds), dtype=np.int64)
    pods = np.flatnonzero(model.pod_kind >= 0)
    np.add.at(counts, (model.pod_node[pods], model.pod_kind[pods]), 1)
    after = counts.copy()
    after[list(draining.nodes)] = 0
    for kind, place, count in draining.filled.ejections.tolist():
        after[place, kind] -= count
    for kind, place, count in draining.filled.arrivals.tolist():
        after[place, kind] += count
        if place in draining.nodes or not model.allowed(kind)[place] or not model.takes[place]:
            found.append(f"kind {kind} goes to node {place}")
    if (after < 0).any() or (after.sum(axis=0) != counts.sum(axis=0)).any():
        found.append("a pod is missing, or there twice")
    came = after - counts
    grows = came @ model.need > np.maximum(model.room.T, 0)
    found += [f"node {place} is too full" for place in np.flatnonzero((grows & (came @ model.need > 0)).any(axis=1))]
    return found
