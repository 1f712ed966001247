"""Room where free capacity is in many pieces and no two Deployments ask for the same."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from benchmarks.room_family import ROOM_SHAPES, room_family
from berth_core import NoDeadline
from berth_core.snapshot import Snapshot
from berth_descheduler.goals.make_room.strategy import MakeRoom
from berth_descheduler.planner import plan
from berth_descheduler.planner.problem import Problem, find_sources
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.planner.solver import RoomGoal, build_packing_model, improve_room
from berth_descheduler.planner.solver.room_improving import RoomImproved
from planner.clusters import api_items, making_room, moves_of
from planner.random_clusters import clusters
from planner.replay import replay_steps
from planner_settings import args_of
from properties import holds_for

NODES = 16


@dataclass
class Asked:
    """A deadline that passes once it has been asked so often."""

    times: int

    def remaining_seconds(self) -> float:
        self.times -= 1
        return float(max(0, self.times))


@pytest.mark.parametrize("shape", ROOM_SHAPES)
def test_the_plan_comes_close_to_its_bound_and_every_step_of_it_is_feasible(shape: str) -> None:
    snapshot, budget = room_family(NODES, 0), 8

    made = plan(snapshot, making_room(shapes=[shape], max_moves=budget))

    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert len(made.moves) <= budget
    assert made.quality is not None
    assert made.room[0].fits_before < made.quality.reached <= made.room[0].fits_after
    assert 0.88 * made.quality.upper_bound <= made.quality.reached <= made.quality.upper_bound
    assert made.quality.moves - 2 <= made.quality.fewest_moves <= made.quality.moves


def test_more_time_makes_no_less_room() -> None:
    snapshot = room_family(NODES, 0)
    found = [improved(snapshot, ROOM_SHAPES[0], budget=20, asks=asks) for asks in (0, 1, 20, 80, 400, 2_000)]

    values = [(len(one.places), -one.moves) for one in found]
    assert values == sorted(values)
    assert found[0].moves == 0
    assert [one.out_of_time for one in found[:3]] == [True, True, True]


@holds_for(clusters(), st.sampled_from(("cpu=2", "cpu=4", "memory=6Gi")), st.sampled_from((1, 3, None)))
def test_what_is_improved_leaves_no_node_with_more_than_it_has(
    snapshot: Snapshot, shape: str, budget: int | None
) -> None:
    how = making_room(shapes=[shape], max_moves=budget)
    problem = Problem.from_snapshot(snapshot, how, MakeRoom(args_of(how).own).waiting_pods(snapshot))
    sources = find_sources(problem).to_take_from
    packing = build_packing_model(problem, State(problem.cluster), sources)
    may_leave = np.isin(np.arange(packing.nodes), sources)
    (kind,) = packing.wanted.values()

    found = improve_room(packing, may_leave, RoomGoal(kind, 10_000, 0, budget, NoDeadline()))

    assert found.moves == found.ejections[:, 2].sum() == found.arrivals[:, 2].sum() <= (budget or found.moves)
    room = packing.room.T.copy()
    for one, node, count in found.ejections.tolist():
        room[node] += packing.need[one] * count
    for one, node, count in found.arrivals.tolist():
        assert packing.allowed(one)[node]
        room[node] -= packing.need[one] * count
        assert (room[node][packing.need[one] > 0] >= 0).all()
    for node in found.places:
        assert packing.allowed(kind)[node]
        room[node] -= packing.need[kind]
        assert (room[node][packing.need[kind] > 0] >= 0).all()


def improved(snapshot: Snapshot, shape: str, *, budget: int, asks: int) -> RoomImproved:
    how = making_room(shapes=[shape], max_moves=budget)
    problem = Problem.from_snapshot(snapshot, how, MakeRoom(args_of(how).own).waiting_pods(snapshot))
    sources = find_sources(problem).to_take_from
    packing = build_packing_model(problem, State(problem.cluster), sources)
    may_leave = np.isin(np.arange(packing.nodes), sources)
    (kind,) = packing.wanted.values()
    return improve_room(packing, may_leave, RoomGoal(kind, 10_000, 0, budget, Asked(asks)))
