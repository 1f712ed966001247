"""Clusters that were made from a packing: the optimum is known, and simple drains are never better."""

import pytest

from benchmarks.packings import packing
from berth_descheduler.planner import plan
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves


@pytest.mark.parametrize(
    ("full", "spread", "seed", "want_freed"),
    [(6, 2, 0, 2), (8, 3, 0, 2), pytest.param(12, 4, 0, 4, marks=pytest.mark.deep)],
)
def test_a_known_packing_is_found_or_missed_by_a_node(full: int, spread: int, seed: int, want_freed: int) -> None:
    snapshot = packing(full, spread, seed)

    made = plan(snapshot, consolidating())

    assert made.quality
    assert want_freed <= made.quality.reached <= spread <= made.quality.upper_bound
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []
