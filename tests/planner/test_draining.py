"""The search for nodes to empty goes on to others where the first ones cannot be emptied."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.snapshot import Snapshot
from berth_descheduler.goals.free_nodes import consolidate
from berth_descheduler.goals.free_nodes.consolidate import Consolidate
from berth_descheduler.planner import plan
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.planner.solver.draining import DrainSearch
from berth_descheduler.planner.solver.filling import smallest
from builders import bare_pod, node, owner, pod
from planner.clusters import apart, consolidating, term

WEB = {"app": "web"}
SHY = {"pool": "shy"}


@dataclass
class ManyLooks:
    """A deadline that is over when it has been asked so many times."""

    left: int

    def remaining_seconds(self) -> float:
        self.left -= 1
        return float(max(0, self.left))


def shy_pods(number: int) -> Snapshot:
    """Nodes with a pod each that goes to no node with its like, so to empty ones only; three with two small pods."""
    shy = (node(f"shy-{i:03}", cpu="16", labels=SHY) for i in range(number))
    easy = (node(f"easy-{i}", cpu="16") for i in range(3))
    empty = (node(f"empty-{i}", cpu="16", labels=SHY) for i in range(2))
    alone = apart(term())
    pods = [
        pod(f"web-{i:03}", node=f"shy-{i:03}", cpu="1", memory=None, labels=WEB, affinity=alone, node_selector=SHY)
        for i in range(number)
    ]
    small = (pod(f"s-{i}-{j}", node=f"easy-{i}", cpu="1", memory=None) for i in range(3) for j in range(2))
    return Snapshot(nodes=(*shy, *easy, *empty), pods=(*pods, *small))


@pytest.mark.parametrize("number", [12, 200])
@pytest.mark.parametrize(("budget", "want"), [(2, 1), (4, 2), (6, 3), (None, 3)])
def test_nodes_whose_pods_fit_only_on_empty_ones_keep_no_others_from_being_freed(
    number: int, budget: int | None, want: int
) -> None:
    made = plan(shy_pods(number), consolidating(max_moves=budget))

    assert made.freed_nodes == tuple(f"easy-{i}" for i in range(want))


def large_pods(number: int, easy: int) -> Snapshot:
    """Nodes with a pod each for which only empty nodes have a hole, others with three small pods, and full ones."""
    kept, empty = (node(f"kept-{i}", cpu="16") for i in range(10)), (node(f"empty-{i}", cpu="16") for i in range(2))
    nodes = (node(f"large-{i}", cpu="16") for i in range(number))
    more = (node(f"easy-{i}", cpu="16") for i in range(easy))
    large = (pod(f"w-{i}", node=f"large-{i}", cpu="9", memory=None, controller=owner(name="w")) for i in range(number))
    small = (pod(f"s-{i}-{j}", node=f"easy-{i}", cpu="500m", memory=None) for i in range(easy) for j in range(3))
    fixed = (bare_pod(f"k-{i}", node=f"kept-{i}", cpu="8", memory=None) for i in range(10))
    return Snapshot(nodes=(*nodes, *more, *kept, *empty), pods=(*large, *small, *fixed))


def test_a_set_of_nodes_that_fails_is_not_tried_over_and_over() -> None:
    problem = Problem.from_snapshot(large_pods(2, 1), consolidating())

    proposal = Consolidate(ManyLooks(10)).propose(problem, State(problem.cluster))

    assert proposal.quality is not None
    assert proposal.quality.reached == 1


@pytest.mark.parametrize(("number", "easy"), [(1, 2), (3, 3), (6, 2), (10, 3)])
def test_what_can_be_emptied_is_found_among_nodes_with_large_pods(number: int, easy: int) -> None:
    made = plan(large_pods(number, easy), consolidating())

    assert len(made.freed_nodes) == easy, "each of them, or a node with a large pod that takes its place"
    assert len(made.moves) <= 3 * easy


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(0, 60))
def test_the_smallest_come_first_and_of_equal_ones_the_first(values: list[int], count: int) -> None:
    found = smallest(np.array(values, dtype=np.int64), count).tolist()

    assert found[:count] == sorted(range(len(values)), key=lambda one: (values[one], one))[:count]


class RecordedSearch(DrainSearch):
    """A search that can be asked afterwards what it found."""

    made: ClassVar[list[DrainSearch]] = []

    def run(self) -> None:
        super().run()
        self.made.append(self)


@pytest.mark.parametrize(
    "snapshot", [shy_pods(12), shy_pods(200), large_pods(12, 4)], ids=["few nodes", "many nodes", "large pods"]
)
def test_each_set_that_a_search_finds_is_better_than_the_one_before(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidate, "DrainSearch", RecordedSearch)
    monkeypatch.setattr(RecordedSearch, "made", [])

    plan(snapshot, consolidating())

    assert any(search.found for search in RecordedSearch.made)
    for search in RecordedSearch.made:
        merits = [draining.merit for draining in search.found]
        assert merits == sorted(set(merits))
