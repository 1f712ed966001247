"""The cluster that comes with the program."""

import gzip
from importlib.resources import files

from berth_descheduler.demo.run import Thresholds
from berth_descheduler.demo_snapshots import make_demo_snapshot
from berth_descheduler.planner import plan


def test_the_bundled_file_is_what_its_maker_makes() -> None:
    bundled = (files("berth_descheduler") / "data" / "demo-snapshot.json.gz").read_bytes()

    assert gzip.decompress(bundled) == make_demo_snapshot().to_json()


def test_the_bundled_cluster_is_fragmented_and_can_be_mended() -> None:
    snapshot = make_demo_snapshot()
    snapshot.check()

    made = plan(snapshot, Thresholds.best_for(snapshot).to_settings())

    assert len(made.before.nodes) == 60
    assert made.before.empty_nodes == ()
    assert len(made.freed_nodes) >= 15


def test_another_seed_makes_another_cluster() -> None:
    assert make_demo_snapshot(seed=1) != make_demo_snapshot(seed=2)
    assert make_demo_snapshot(nodes=4) == make_demo_snapshot(nodes=4)
