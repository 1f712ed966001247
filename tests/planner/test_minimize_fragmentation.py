"""What `MinimizeFragmentation` lowers, beside all orders of moves on tiny clusters and the measure as reported."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from berth_core import Node, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.goals.lower_fragmentation.strategy import MinimizeFragmentation
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State
from berth_descheduler.planner.stranded_capacity import report_capacity
from builders import node, owner, pod
from planner.clusters import api_items, minimizing, moves_of
from planner.random_clusters import tight_clusters
from planner.replay import replay_steps, replay_waves
from properties import holds_for

GPU = "nvidia.com/gpu"


def fragmented(snapshot: Snapshot, resource: str = "cpu") -> Fraction:
    """What a pod of the workload cannot use, on average, as `berth fragmentation` measures it.

    That is all that is free of what no pod asks for.
    """
    found = report_capacity(snapshot)
    whole = Fraction(sum(one.free for one in found.resources if one.name == resource)) if found.workload.pods else 0
    return found.workload.fragmented.get(resource, Fraction(whole))


def states_of(snapshot: Snapshot, made: Plan) -> Iterator[Snapshot]:
    """The cluster before the plan and after each of its moves."""
    yield snapshot
    for move in made.moves:
        pods = tuple(
            replace(one, spec=replace(one.spec, node_name=move.target))
            if (one.metadata.namespace, one.metadata.name) == (move.namespace, move.pod)
            else one
            for one in snapshot.pods
        )
        snapshot = Snapshot(nodes=snapshot.nodes, pods=pods, workloads=snapshot.workloads)
        yield snapshot


def web(name: str, on: str, cpu: str = "1", gpu: int = 0) -> Pod:
    requests = {GPU: str(gpu)} if gpu else {}
    return pod(name, node=on, cpu=cpu, memory="1Gi", requests=requests, controller=owner(name=name, uid=name))


def small(*names: str, cpu: str = "8", gpu: int = 0) -> tuple[Node, ...]:
    allocatable = {GPU: str(gpu)} if gpu else {}
    return tuple(node(one, cpu=cpu, memory="64Gi", allocatable=allocatable) for one in names)


@st.composite
def tiny_clusters(draw: st.DrawFn) -> Snapshot:
    """Two to four nodes with pods of few sizes, some of which ask for GPUs."""
    names = [f"n{index}" for index in range(draw(st.integers(2, 4)))]
    pods = []
    for name in names:
        sizes = draw(st.lists(st.sampled_from(((1, 0), (2, 0), (3, 1), (4, 0), (1, 2), (2, 1))), max_size=3))
        used = [0, 0]
        for number, (cpu, gpu) in enumerate(sizes):
            if used[0] + cpu <= 8 and used[1] + gpu <= 4:
                used = [used[0] + cpu, used[1] + gpu]
                pods.append(web(f"{name}-{number}", name, str(cpu), gpu))
    return Snapshot(nodes=small(*names, gpu=4), pods=tuple(pods))


def least_in_any_order(snapshot: Snapshot, how: PlannerSettings, moves: int, *, falling: bool) -> Fraction:
    """The least fragmentation after at most so many moves, by trying all; each lowers it, if `falling`."""
    problem = Problem.from_snapshot(snapshot, how)
    state = State(problem.cluster, MinimizeFragmentation().possible_sources(problem))

    def measured() -> Fraction:
        placed = zip(problem.cluster.pods, state.node_of, strict=True)
        on = {one.pod.key: problem.cluster.node_name(at) for one, at in placed}
        pods = tuple(replace(one, spec=replace(one.spec, node_name=on[one.key])) for one in snapshot.pods)
        return fragmented(Snapshot(nodes=snapshot.nodes, pods=pods), how.resource_type)

    def least(left: int, now: Fraction) -> Fraction:
        best = now
        for number in range(len(problem.cluster.pods) if left else 0):
            for target in range(len(problem.cluster.nodes)):
                if state.refusal(PodIndex(number), NodeIndex(target)) is None:
                    mark = state.mark()
                    state.move(PodIndex(number), NodeIndex(target))
                    then = measured()
                    if then < now or not falling:
                        best = min(best, least(left - 1, then))
                    state.undo_to(mark)
        return best

    return least(moves, measured())


resources = st.sampled_from(("cpu", GPU))


@holds_for(tiny_clusters(), resources, quick=4)
def test_one_move_is_the_best_there_is(snapshot: Snapshot, resource: str) -> None:
    how = minimizing(resource, max_moves=1)

    made = plan(snapshot, how)

    assert made.fragmentation
    assert made.fragmentation.fragmented_after == least_in_any_order(snapshot, how, 1, falling=True)


@holds_for(tiny_clusters(), resources, quick=4)
def test_no_order_of_two_moves_goes_below_the_bound(snapshot: Snapshot, resource: str) -> None:
    how = minimizing(resource, max_moves=2)

    made = plan(snapshot, how)

    assert made.fragmentation
    assert made.quality
    least = least_in_any_order(snapshot, how, 2, falling=False)
    free = made.fragmentation.free_before
    assert made.fragmentation.fragmented_after >= least
    assert made.fragmentation.fragmented_before - least <= Fraction(made.quality.upper_bound + 1, 10**6) * free
    assert not made.quality.proven_optimal or made.fragmentation.fragmented_after == least


@holds_for(st.one_of(tiny_clusters(), tight_clusters()), st.sampled_from((None, 1, 4)), st.integers(0, 2), quick=4)
def test_each_step_is_feasible_and_no_pod_moves_twice(snapshot: Snapshot, most: int | None, seed: int) -> None:
    made = plan(snapshot, minimizing(max_moves=most, seed=seed))

    items, moves = api_items(snapshot), moves_of(made)
    assert replay_steps(items, moves) == []
    assert replay_waves(items, moves) == []
    assert most is None or len(moves) <= most
    assert len({(one.namespace, one.pod) for one in made.moves}) == len(moves)
    assert made == plan(snapshot, minimizing(max_moves=most, seed=seed))


@holds_for(tiny_clusters(), resources, st.sampled_from((None, 2)), quick=4)
def test_the_measure_falls_with_every_move_but_those_that_say_so_and_is_as_reported(
    snapshot: Snapshot, resource: str, most: int | None
) -> None:
    made = plan(snapshot, minimizing(resource, max_moves=most))

    measured = [fragmented(one, resource) for one in states_of(snapshot, made)]
    raising = [move.reason.startswith("makes room for moves") for move in made.moves]
    falls = [after < before for before, after in pairwise(measured)]
    assert falls == [not one for one in raising]
    assert not raising or not raising[-1], "such a move is for later ones"
    change = made.fragmentation
    assert change
    assert (change.fragmented_before, change.fragmented_after) == (measured[0], measured[-1])


def full_of_shares(nodes: int, seed: int) -> Snapshot:
    """Nodes whose cores and GPUs are taken by pods of few shapes, each on one of the nodes that had room by chance."""
    chance = Random(seed)  # noqa: S311 - an instance is no secret
    left = {f"n{index}": [64, 16] for index in range(nodes)}
    pods = []
    for number in range(12 * nodes):
        cpu, gpu = chance.choice(((2, 1), (4, 3), (8, 5), (6, 4), (12, 8), (8, 0), (16, 2)))
        fitting = [name for name, (cores, gpus) in left.items() if cores >= cpu and gpus >= gpu]
        if fitting and sum(gpus for _, gpus in left.values()) > 2 * nodes:
            name = chance.choice(fitting)
            left[name] = [left[name][0] - cpu, left[name][1] - gpu]
            pods.append(web(f"p{number:03d}", name, str(cpu), gpu))
    return Snapshot(nodes=small(*left, cpu="64", gpu=16), pods=tuple(pods))


@pytest.mark.parametrize(
    ("seed", "at_minimum"),
    [
        (0, "0.076"),
        *(pytest.param(seed, share, marks=pytest.mark.deep) for seed, share in ((1, "0.218"), (3, "0.352"))),
    ],
)
def test_a_minimum_is_left_by_moves_that_raise_the_measure_for_a_while(seed: int, at_minimum: str) -> None:
    snapshot = full_of_shares(6, seed)

    made = plan(snapshot, minimizing(GPU))

    assert made.fragmentation
    assert made.fragmentation.share_after < Fraction(at_minimum) * Fraction(3, 4), "no single move goes below that"
    assert any(move.reason.startswith("makes room for moves") for move in made.moves)
    assert made.moves[-1].reason.startswith("lowers")
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


def test_sums_of_more_bits_than_a_machine_word_are_exact() -> None:
    sizes = {"a": "500Ti", **{f"b{index}": "375Ti" for index in range(69)}}
    nodes = tuple(node(name, cpu="90", memory=size, pods="1300") for name, size in sizes.items())
    large = tuple(pod(f"web-{one}", node=one, cpu="1", memory="250Ti") for one in sizes)
    small = tuple(pod(f"tiny-{one}", node="b0", cpu="10m", memory="1Ki") for one in range(1_250))
    snapshot = Snapshot(nodes=nodes, pods=(*large, *small))

    made = plan(snapshot, minimizing("memory", max_moves=1))

    assert [move.target for move in made.moves] == ["a"]
    measured = [fragmented(one, "memory") for one in states_of(snapshot, made)]
    assert made.fragmentation
    assert [made.fragmentation.fragmented_before, made.fragmentation.fragmented_after] == measured
