"""The bounds that need no solver, against every end that tiny clusters can have, counted without the planner."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import strategies as st

from benchmarks.instances import Recipe, generate
from berth_core.labels import CONTROL_PLANE_KEYS
from berth_core.snapshot import Snapshot
from berth_descheduler.goals.make_room.strategy import MakeRoom
from berth_descheduler.planner import plan
from berth_descheduler.planner.problem import Problem, Sources, find_sources
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.planner.solver.bounds import fewest_moves, most_freed_by_number, most_freed_by_volume
from berth_descheduler.planner.solver.cost_bound import CostBound, bound_by_costs
from berth_descheduler.planner.solver.model import PackingModel, build_packing_model
from berth_descheduler.planner.solver.room_bound import RoomBound, bound_room
from builders import bare_pod, node, owner, pod
from planner.clusters import consolidating, making_room
from planner_settings import args_of
from properties import holds_for

BUDGETS = (0, 1, 2, 3, 5)


@st.composite
def tiny_clusters(draw: st.DrawFn) -> Snapshot:
    """Three or four nodes with up to six large pods; some pods stay, some nodes are closed, over-full or give only."""
    number = draw(st.integers(3, 4))
    nodes = tuple(
        node(
            f"n{index}",
            cpu=str(draw(st.sampled_from((4, 8, 8, 12)))),
            memory=f"{draw(st.sampled_from((8, 32)))}Gi",
            unschedulable=draw(st.integers(0, 9)) == 0,
            labels={CONTROL_PLANE_KEYS[0]: ""} if draw(st.integers(0, 4)) == 0 else {},
        )
        for index in range(number)
    )
    pods = tuple(
        (bare_pod if draw(st.integers(0, 9)) == 0 else pod)(
            f"p{index}",
            node=f"n{draw(st.integers(0, number - 1))}",
            cpu=str(draw(st.sampled_from((0, 1, 1, 2, 3, 4, 6)))),
            memory=f"{draw(st.sampled_from((1, 4)))}Gi",
            controller=owner(name=f"set{index % 2}"),
        )
        for index in range(draw(st.integers(1, 6 if number == 3 else 5)))
    )
    return Snapshot(nodes=nodes, pods=pods)


def read(snapshot: Snapshot) -> tuple[PackingModel, Sources]:
    problem = Problem.from_snapshot(snapshot, consolidating())
    sources = find_sources(problem)
    return build_packing_model(problem, State(problem.cluster), sources.to_take_from), sources


def amounts(of: Mapping[str, object]) -> tuple[int, int]:
    return int(str(of["cpu"])), int(str(of["memory"]).removesuffix("Gi"))


@dataclass(frozen=True)
class End:
    """One way in which pods may lie at the end."""

    moves: int
    on: tuple[int, ...]
    """The node of each pod."""

    free: tuple[tuple[int, int], ...]
    """What is left of each node."""


def closed_nodes(snapshot: Snapshot) -> set[int]:
    return {index for index, one in enumerate(snapshot.nodes) if one.spec.unschedulable}


def never_filled(snapshot: Snapshot) -> set[int]:
    labels = [one.metadata.labels for one in snapshot.nodes]
    return closed_nodes(snapshot) | {index for index, one in enumerate(labels) if CONTROL_PLANE_KEYS[0] in one}


def every_end(snapshot: Snapshot) -> Iterator[End]:
    nodes = range(len(snapshot.nodes))
    has = [amounts(one.status.allocatable) for one in snapshot.nodes]
    closed, kept_out = closed_nodes(snapshot), never_filled(snapshot)
    asks = [amounts(one.spec.containers[0].resources.requests) for one in snapshot.pods]
    homes = [int(one.spec.node_name[1:]) for one in snapshot.pods]
    made = zip(snapshot.pods, homes, strict=True)
    stays = [not one.metadata.owner_references or home in closed for one, home in made]
    choices = [(home,) if stay else nodes for home, stay in zip(homes, stays, strict=True)]
    for ends in product(*choices):
        moved = [(end, ask) for end, home, ask in zip(ends, homes, asks, strict=True) if end != home]
        used = [[sum(ask[r] for ask, end in zip(asks, ends, strict=True) if end == n) for r in (0, 1)] for n in nodes]
        fits = all(used[end][r] <= has[end][r] for end, ask in moved for r in (0, 1) if ask[r])
        if fits and kept_out.isdisjoint(end for end, _ in moved):
            free = tuple((has[n][0] - used[n][0], has[n][1] - used[n][1]) for n in nodes)
            yield End(len(moved), ends, free)


def freed(snapshot: Snapshot, end: End) -> int:
    """Return by how many more nodes than now are empty."""
    homes = {int(one.spec.node_name[1:]) for one in snapshot.pods}
    usable = set(range(len(snapshot.nodes))) - closed_nodes(snapshot)
    return len(usable - set(end.on)) - len(usable - homes)


def fitting(snapshot: Snapshot, end: End, shape: tuple[int, int]) -> int:
    """Return how many pods of a shape fit at the end."""
    fits = (min(have // ask for have, ask in zip(left, shape, strict=True) if ask) for left in end.free)
    return sum(max(0, one) for index, one in enumerate(fits) if index not in never_filled(snapshot))


def bounds_of(packing: PackingModel, sources: Sources, budget: int) -> tuple[int, CostBound]:
    to_empty, empty = np.array(sources.to_empty, dtype=np.int64), np.array(sources.empty, dtype=np.int64)
    counts = np.array([len(sources.pods_of[one]) for one in sources.to_empty], dtype=np.int64)
    by_costs = bound_by_costs(packing, to_empty, empty, budget)
    most = min(
        most_freed_by_volume(packing, sources.to_empty, sources.empty),
        most_freed_by_number(counts, budget),
        by_costs.most_freed(to_empty, empty, budget),
    )
    return most, by_costs


@holds_for(tiny_clusters())
def test_no_end_frees_more_than_the_bounds_say_nor_with_fewer_moves(snapshot: Snapshot) -> None:
    packing, sources = read(snapshot)
    ends = {(end.moves, freed(snapshot, end)) for end in every_end(snapshot)}
    to_empty, empty = np.array(sources.to_empty, dtype=np.int64), np.array(sources.empty, dtype=np.int64)
    counts = np.array([len(sources.pods_of[one]) for one in sources.to_empty], dtype=np.int64)

    for budget in BUDGETS:
        most, by_costs = bounds_of(packing, sources, budget)
        assert max((more for moves, more in ends if moves <= budget), default=0) <= most
        for moves, more in ends:
            if more > 0:
                assert by_costs.fewest_moves(to_empty, empty, more) <= moves
                assert fewest_moves(counts, more) <= moves


@pytest.mark.parametrize(
    ("of_large", "of_small", "want_most"),
    [("8Gi", "1Gi", 1), ("7Gi", "1Gi", 2), ("8Gi", None, 2)],
    ids=["nothing fits beside it", "a small pod fits beside it", "pods without memory fit beside it"],
)
def test_a_pod_that_fills_a_node_counts_as_a_whole_node(of_large: str, of_small: str | None, want_most: int) -> None:
    """Seven cores need two of four nodes, and the pod that fills the memory of a third leaves three cores unused."""
    nodes = tuple(node(f"n{index}", cpu="4", memory="8Gi") for index in range(4))
    large = pod("large", node="n0", cpu="1", memory=of_large, controller=owner(name="large"))
    small = tuple(
        pod(f"p{n}", node=f"n{n}", cpu=cpu, memory=of_small, controller=owner(name="small"))
        for n, cpu in ((1, "3"), (2, "2"), (3, "2"))
    )
    packing, sources = read(Snapshot(nodes=nodes, pods=(large, *small)))

    assert most_freed_by_volume(packing, sources.to_empty, sources.empty) == want_most


@holds_for(tiny_clusters(), st.sampled_from(((1, 0), (2, 0), (2, 4), (3, 2), (4, 4), (5, 1), (6, 0), (8, 8))))
def test_no_end_has_room_for_more_than_the_bounds_say_nor_with_fewer_moves(
    snapshot: Snapshot, shape: tuple[int, int]
) -> None:
    cpu, memory = shape
    asked = f"cpu={cpu}" + (f",memory={memory}Gi" if memory else "")
    ends = {(end.moves, fitting(snapshot, end, shape)) for end in every_end(snapshot)}

    bounds = room_bounds(snapshot, asked)

    for moves, fits in ends:
        assert fits <= min(bound.most(moves) for bound in bounds)
        assert moves >= max(bound.fewest_moves(fits) for bound in bounds)


@pytest.mark.parametrize(("shape", "want_more"), [("cpu=4", 0), ("cpu=4,memory=4Gi", 0), ("cpu=5", 1), ("cpu=6", 0)])
def test_a_large_pod_takes_as_much_room_as_it_leaves(shape: str, want_more: int) -> None:
    """Of 16 cores 8 are free on one node and 9 on the other; a pod of 8 cores leaves the first."""
    pods = (
        pod("large", node="n0", cpu="8", memory="1Gi", controller=owner(name="large")),
        bare_pod("stays", node="n1", cpu="7", memory="1Gi"),
    )
    bounds = room_bounds(Snapshot(nodes=tuple(node(f"n{n}", cpu="16") for n in range(2)), pods=pods), shape)

    assert min(bound.most(1) for bound in bounds) == min(bound.now for bound in bounds) + want_more


def room_bounds(snapshot: Snapshot, shape: str) -> tuple[RoomBound, ...]:
    how = making_room(shapes=[shape])
    strategy = MakeRoom(args_of(how).own)
    problem = Problem.from_snapshot(snapshot, how, strategy.waiting_pods(snapshot))
    sources = find_sources(problem).to_take_from
    packing = build_packing_model(problem, State(problem.cluster), sources)
    may_leave = np.zeros(packing.nodes, dtype=bool)
    may_leave[list(sources)] = True
    (kind,) = packing.wanted.values()
    return bound_room(packing, may_leave, kind)


@pytest.mark.parametrize(("budget", "want_most"), [(1, 1), (3, 1), (6, 2)])
def test_a_large_pod_without_a_hole_costs_the_moves_of_what_has_to_make_room(budget: int, want_most: int) -> None:
    """Two half-empty nodes: one large pod joins the other for a move; for both, four small pods have to go aside."""
    large = [pod(f"large{n}", node=f"n{n}", cpu="8", controller=owner(name="large")) for n in range(2)]
    small = [
        pod(f"small{n}-{i}", node=f"n{n}", cpu="2", controller=owner(name="small"))
        for n in range(2, 6)
        for i in range(6)
    ]
    packing, sources = read(Snapshot(nodes=tuple(node(f"n{n}") for n in range(6)), pods=(*large, *small)))
    counts = np.array([len(sources.pods_of[one]) for one in sources.to_empty], dtype=np.int64)

    most, _ = bounds_of(packing, sources, budget)

    assert most == want_most
    assert most_freed_by_number(counts, budget) == min(budget, 2)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_full_cluster_is_drained_to_nearly_what_costs_allow(seed: int) -> None:
    snapshot = generate(Recipe(nodes=200, requested=0.89, seed=seed))
    _, sources = read(snapshot)
    budget = len(snapshot.pods) // 20
    counts = np.array([len(sources.pods_of[one]) for one in sources.to_empty], dtype=np.int64)

    quality = plan(snapshot, consolidating(max_moves=budget)).quality

    assert quality is not None
    assert quality.upper_bound <= most_freed_by_number(counts, budget)
    assert quality.reached >= 0.9 * quality.upper_bound
