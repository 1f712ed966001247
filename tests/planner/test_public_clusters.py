"""Plans for clusters as real schedulers leave them."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import plan
from berth_descheduler.snapshots import read_snapshot_file
from planner.clusters import api_items, consolidating, settings
from planner.replay import replay_steps

DATA = Path(__file__).parents[1] / "data"


def read(name: str) -> Snapshot:
    return read_snapshot_file(str(DATA / name / "snapshot.json.gz"))


@pytest.mark.parametrize(("threshold", "want_freed"), [(40, 21), (46, 31), (50, 29)])
def test_a_cluster_as_a_stock_scheduler_leaves_it_is_consolidated(threshold: int, want_freed: int) -> None:
    snapshot = read("spread60")

    made = plan(snapshot, settings(threshold, threshold, 100))

    assert len(made.freed_nodes) == want_freed
    assert revalidate(snapshot, made.moves, made.settings) == {}


@pytest.mark.deep
def test_each_step_of_it_is_feasible() -> None:
    snapshot = read("spread60")
    made = plan(snapshot, settings(46, 46, 100, max_moves=60))

    assert 0 < len(made.moves) <= 60
    assert replay_steps(api_items(snapshot), [msgspec.to_builtins(move) for move in made.moves[:40]]) == []


def test_nothing_is_proven_of_a_cluster_whose_budgets_and_controllers_are_not_known() -> None:
    snapshot = read("spread60")

    made = plan(snapshot, consolidating())

    assert made.missing_kinds == (SnapshotKind.DISRUPTION_BUDGETS, SnapshotKind.REPLICA_SETS)
    assert made.quality is not None
    assert not made.quality.proven_optimal
    assert plan(replace(snapshot, missing=()), consolidating()).quality == replace(
        made.quality, is_snapshot_incomplete=False
    )


def test_a_cluster_that_is_full_is_left_alone() -> None:
    made = plan(read("vmr_m"), settings())

    assert made.moves == ()
    assert len(made.before.nodes) == 279
    assert sum(node.pods for node in made.before.nodes) == 2089
