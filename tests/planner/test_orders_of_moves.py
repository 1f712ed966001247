"""Where the moves of a wished set of nodes have no order, the plan empties as many of these nodes as have one."""

from collections.abc import Callable, Collection
from random import Random

import numpy as np
import pytest

from berth_core import EarlierDeadline, NoDeadline
from berth_core.snapshot import Snapshot
from berth_descheduler.goals.free_nodes.ordered_sets import OrderedSets
from berth_descheduler.planner import NodeIndex, plan
from berth_descheduler.planner.simulation import PodIndex
from berth_descheduler.planner.solver import Candidates, Draining, Filled
from builders import node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves
from planner.test_plans_out_of_time import TimeForAsks

Nodes = Collection[int]


def large_pods(nodes: int, seed: int) -> Snapshot:
    """Nodes with few pods of many sizes, whose last free cores are too few to let them step aside."""
    chance = Random(seed)  # noqa: S311 - an instance is no secret
    free, pods = [150] * nodes, []
    for index in range(2 * nodes):
        cores = chance.randint(20, 100)
        if fitting := [number for number in range(nodes) if free[number] >= cores]:
            place = chance.choice(fitting)
            free[place] -= cores
            controller = owner(name=f"i{index}")
            pods.append(pod(f"i{index}", node=f"n{place}", cpu=str(cores), memory=None, controller=controller))
    return Snapshot(nodes=tuple(node(f"n{number}", cpu="150") for number in range(nodes)), pods=tuple(pods))


@pytest.mark.parametrize(("nodes", "seed", "asks", "want_freed"), [(20, 1, 4, 3), (20, 3, 4, 1), (12, 12, 4, 1)])
def test_without_time_for_another_search_nodes_leave_the_set_until_its_moves_have_an_order(
    nodes: int, seed: int, asks: int, want_freed: int
) -> None:
    snapshot = large_pods(nodes, seed)

    made = plan(snapshot, consolidating(exact=False), TimeForAsks(asks))

    assert len(made.freed_nodes) >= want_freed, "direct drains free 1, 0 and 0"
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


class AsksLeft:
    """A deadline that is over once it was asked so many times; other than `TimeForAsks` it says how many are left."""

    def __init__(self, asks: int) -> None:
        self.left = asks

    def remaining_seconds(self) -> float:
        self.left -= 1
        return float(max(0, self.left))


def candidates(pods: dict[int, int], worth: dict[int, int] | None = None) -> Candidates:
    """Nodes by number with so many pods each."""
    numbers = np.array(sorted(pods), dtype=np.int64)
    pods_of = {NodeIndex(number): tuple(map(PodIndex, range(pods[number]))) for number in sorted(pods)}
    counts, nothing = np.array([pods[number] for number in sorted(pods)]), np.empty(0, dtype=np.int64)
    worth_of = np.array([(worth or {}).get(number, 1) for number in sorted(pods)])
    return Candidates(numbers, pods_of, counts, counts, nothing, worth_of)


def draining(nodes: Nodes, worth: int | None = None) -> Draining:
    """A draining of nodes with a move each."""
    no_cells, no_kinds = np.empty((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)
    filled = Filled(no_cells, no_cells, no_kinds, no_kinds, no_kinds)
    chosen = tuple(map(NodeIndex, sorted(nodes)))
    return Draining(chosen, (), filled, len(chosen), len(chosen) if worth is None else worth, 0)


def find_largest(
    cluster: Candidates, wished: Nodes, has_order: Callable[[set[int]], bool], *, asks: int = 1000, least_worth: int = 0
) -> tuple[int, ...] | None:
    def drain(nodes: Nodes) -> Draining:
        return draining(nodes, cluster.worth_of(nodes))

    sets = OrderedSets(cluster, drain, lambda tried: has_order(set(tried.nodes)), AsksLeft(asks), size=1)
    found = sets.largest_within(drain(wished), least_worth)
    return None if found is None else found.nodes


FIVE_NODES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}


@pytest.mark.parametrize(
    ("has_order", "want_nodes"),
    [
        (lambda nodes: 1 not in nodes, (0, 2)),
        (lambda nodes: len(nodes) < 2, (0,)),
        (lambda nodes: not {0, 1, 2} & nodes, None),
    ],
    ids=["one node is in the way", "two are one too many", "none has an order"],
)
def test_nodes_leave_a_set_one_by_one(has_order: Callable[[set[int]], bool], want_nodes: tuple[int, ...]) -> None:
    three = candidates({node_number: FIVE_NODES[node_number] for node_number in (0, 1, 2)})

    assert find_largest(three, {0, 1, 2}, has_order) == want_nodes


def test_another_node_comes_in_for_one_that_left_that_with_the_fewest_pods_first() -> None:
    assert find_largest(candidates(FIVE_NODES), {0, 1, 2}, lambda nodes: 1 not in nodes) == (0, 2, 3)


def test_of_nodes_with_prices_the_cheapest_leaves_first() -> None:
    priced = candidates({0: 5, 1: 1, 2: 5}, worth={0: 9, 1: 2, 2: 9})

    assert find_largest(priced, {0, 1, 2}, lambda nodes: len(nodes) < 3) == (0, 2)


def test_nothing_is_found_that_is_no_better_than_what_is_known() -> None:
    assert find_largest(candidates(FIVE_NODES), {0, 1, 2}, lambda nodes: len(nodes) < 2, least_worth=1) is None


def test_after_the_time_limit_a_few_parts_of_the_set_are_tried() -> None:
    assert find_largest(candidates(FIVE_NODES), set(FIVE_NODES), lambda nodes: len(nodes) < 4, asks=1) == (0, 1)
    assert find_largest(candidates(FIVE_NODES), set(FIVE_NODES), lambda nodes: len(nodes) < 1, asks=1) is None


@pytest.mark.parametrize("part", [0.25, 0.5])
def test_a_deadline_leaves_a_part_of_what_is_left_of_another(part: float) -> None:
    whole = AsksLeft(101)

    earlier = EarlierDeadline(whole, part)  # 100 are left

    assert earlier.remaining_seconds() == 99 - 100 * part
    whole.left = int(100 * part)
    assert earlier.remaining_seconds() == 0


def test_a_deadline_without_a_limit_has_no_earlier_one() -> None:
    assert EarlierDeadline(NoDeadline(), 0.5).remaining_seconds() is None
