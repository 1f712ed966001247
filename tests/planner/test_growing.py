"""Incomplete sets of nodes are repaired and grown, where requests are of hundreds of kinds."""

from random import Random

import numpy as np
import pytest

from benchmarks.families import family
from berth_core import NoDeadline
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, plan
from berth_descheduler.planner.problem import Problem, find_sources
from berth_descheduler.planner.simulation import State
from berth_descheduler.planner.solver import build_packing_model, filling
from berth_descheduler.planner.solver.growing import NOWHERE, Growing
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves
from planner.test_draining import ManyLooks


def planned(snapshot: Snapshot, max_moves: int | None = None) -> Plan:
    return plan(snapshot, consolidating(max_moves=max_moves))


def test_hundreds_of_kinds_come_close_to_the_bound() -> None:
    quality = planned(family("pairs", 40, 0)).quality

    assert quality is not None
    assert quality.reached >= 0.95 * quality.upper_bound


def test_a_set_that_grows_no_further_is_shaken() -> None:
    quality = planned(family("pools", 24, 3)).quality  # 11 of 12 nodes by growing alone

    assert quality is not None
    assert quality.reached == quality.upper_bound == 12


@pytest.mark.parametrize(
    "name", ["resources", "mixed", *(pytest.param(name, marks=pytest.mark.deep) for name in ("gpus", "pools"))]
)
def test_every_step_of_a_grown_plan_is_feasible(name: str) -> None:
    snapshot = family(name, 9, 1)

    made = planned(snapshot)

    assert made.freed_nodes
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


@pytest.mark.parametrize("name", ["mixed", pytest.param("gpus", marks=pytest.mark.deep)])
def test_on_many_nodes_the_fullest_are_filled_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node counts as one of many from the ninth on, and their order is older than the last pods placed."""
    snapshot = family(name, 24, 1)
    before = planned(snapshot)
    monkeypatch.setattr(filling, "_MANY_NODES", 8)
    monkeypatch.setattr(filling, "_STALE", 4)

    made = planned(snapshot)

    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert len(made.freed_nodes) >= 0.95 * len(before.freed_nodes) > 0


def test_a_grown_plan_is_the_same_every_time_and_keeps_to_its_moves() -> None:
    snapshot = family("pools", 8, 0)

    assert planned(snapshot).moves == planned(snapshot).moves
    assert len(planned(snapshot, max_moves=10).moves) <= 10


def test_a_time_limit_in_the_middle_leaves_a_plan_that_holds() -> None:
    snapshot = family("pairs", 20, 0)

    for looks in (2, 6, 20):
        made = plan(snapshot, consolidating(), ManyLooks(looks))
        assert revalidate(snapshot, made.moves, made.settings, emptied=made.freed_nodes) == {}


def test_the_books_are_as_before_when_every_move_is_taken_back() -> None:
    snapshot, chance = family("mixed", 12, 0), Random(0)  # noqa: S311 - no secret
    problem = Problem.from_snapshot(snapshot, consolidating())
    state, sources = State(problem.cluster), find_sources(problem)
    packing = build_packing_model(problem, state, sources.to_take_from)
    every = np.ones(packing.nodes, dtype=bool)
    growing = Growing(packing, packing.room, every, every, NoDeadline())
    before, loads = [dict(kinds) for kinds in growing.on], [growing.load(node) for node in range(packing.nodes)]

    for _ in range(60):
        source = chance.choice([node for node in range(packing.nodes) if growing.on[node]])
        kind = chance.choice(sorted(growing.on[source]))
        growing.move(kind, source, chance.choice([NOWHERE, *range(packing.nodes)]))
    growing.undo_to(0)

    assert growing.on == before
    assert [growing.load(node) for node in range(packing.nodes)] == loads
    assert not growing.pool
    assert growing.moves == 0
    assert (growing.room == packing.room).all()
    assert not growing.filled(~every).ejected
