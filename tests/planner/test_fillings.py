"""Whole fillings of nodes decide how few nodes hold all pods, where hardly anything may be left free."""

from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import strategies as st

from benchmarks.families import family
from berth_core import Affinity, LabelSelector, NoDeadline, PodAffinity, PodAffinityTerm
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import plan
from berth_descheduler.planner.solver.fillings import MOST_FILLINGS, NodeType, fewest_kept
from builders import node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves
from properties import holds_for

_NEEDS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=3)
_TYPES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 2), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=3,
)


def ends(need: list[tuple[int, int]], totals: list[int], types: list[NodeType]) -> Iterator[int]:
    """Yield how many of the nodes that may be empty have pods, for every way to place all pods."""
    places = [node_type for node_type in types for _ in range(node_type.nodes)]
    pods = [kind for kind, total in enumerate(totals) for _ in range(total)]
    for on in product(range(len(places)), repeat=len(pods)):
        filled = list(zip(on, pods, strict=True))
        counts = [[filled.count((place, kind)) for kind in range(len(need))] for place in range(len(places))]
        fits = all(
            all(count <= most for count, most in zip(row, place.most.tolist(), strict=True))
            and all(
                sum(count * ask[column] for count, ask in zip(row, need, strict=True)) <= place.limit[column]
                for column in (0, 1)
            )
            for row, place in zip(counts, places, strict=True)
        )
        if fits:
            yield sum(place.may_be_empty and any(row) for row, place in zip(counts, places, strict=True))


@holds_for(_NEEDS, st.data(), _TYPES)
def test_no_fewer_nodes_are_kept_than_hold_all_pods(
    need: list[tuple[int, int]], data: st.DataObject, drawn: list[tuple[int, int, int, bool, int]]
) -> None:
    totals = data.draw(st.lists(st.integers(0, 2), min_size=len(need), max_size=len(need)))
    types = [
        NodeType(np.array([cores, memory]), np.full(len(need), most), nodes, may_be_empty=may_be_empty)
        for cores, memory, nodes, may_be_empty, most in drawn
    ]
    fewest = min(ends(need, totals, types), default=None)

    kept = fewest_kept(np.array(need), np.array(totals), types, MOST_FILLINGS, NoDeadline())

    assert fewest is None or kept.fewest <= fewest
    if kept.fillings is not None:
        assert kept.fewest == fewest
        placed = np.concatenate(kept.fillings)
        assert placed.sum(axis=0).tolist() == totals
        for node_type, fillings in zip(types, kept.fillings, strict=True):
            assert len(fillings) <= node_type.nodes
            assert (fillings @ np.array(need) <= node_type.limit).all()
            assert (fillings <= node_type.most).all()


def test_more_fillings_than_are_listed_prove_no_more_than_the_volume() -> None:
    need, totals = np.array([[1, 1], [2, 1]]), np.array([9, 9])
    types = [NodeType(np.array([20, 20]), totals, 4, may_be_empty=True)]

    kept = fewest_kept(need, totals, types, 3, NoDeadline())

    assert (kept.fewest, kept.fillings) == (2, None)


def test_as_many_fillings_as_may_be_listed_decide() -> None:
    need, totals = np.array([[1, 1], [2, 1]]), np.array([9, 9])
    types = [NodeType(np.array([20, 20]), totals, 4, may_be_empty=True)]
    wasted = 2 * 20 - 9 - 2 * 9
    listed = sum(20 - wasted <= first + 2 * second <= 20 for first, second in product(range(10), repeat=2))

    decided = fewest_kept(need, totals, types, listed, NoDeadline())
    open_still = fewest_kept(need, totals, types, listed - 1, NoDeadline())

    assert decided.fewest == open_still.fewest == 2
    assert decided.fillings is not None
    assert open_still.fillings is None


def test_nodes_that_would_have_to_be_full_to_the_last_are_proven_to_be_kept() -> None:
    """By volume four nodes of ten hold all pods, with one hundredth of their memory to spare."""
    snapshot = family("resources", 10, 5)

    made = plan(snapshot, consolidating(exact=True))

    assert made.quality is not None
    assert (made.quality.reached, made.quality.upper_bound) == (5, 5)
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


def test_pods_that_shun_each_other_need_a_node_each() -> None:
    term = PodAffinityTerm(
        topology_key="kubernetes.io/hostname", label_selector=LabelSelector(match_labels={"app": "apart"})
    )
    apart = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    pods = [
        pod(
            f"apart-{number}",
            node=f"n{number}",
            cpu="1",
            memory=None,
            labels={"app": "apart"},
            controller=owner(name="apart"),
            affinity=apart,
        )
        for number in range(3)
    ]
    other = pod("other", node="n3", cpu="1", memory=None, controller=owner(name="other"))
    nodes = tuple(
        node(f"n{number}", cpu="10", memory="64Gi", labels={"kubernetes.io/hostname": f"n{number}"})
        for number in range(4)
    )

    made = plan(Snapshot(nodes=nodes, pods=(*pods, other)), consolidating(exact=True))

    assert made.quality is not None
    assert (made.quality.reached, made.quality.upper_bound) == (1, 1)
