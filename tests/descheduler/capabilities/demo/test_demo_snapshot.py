"""The cluster that comes with the program."""

import gzip
from importlib.resources import files

from berth_descheduler.capabilities.demo.cli.scenario import PLANNER_OPTIONS, PLANNER_SETTINGS
from berth_descheduler.options.running import run_planner_settings
from berth_descheduler.planner import plan
from berth_descheduler.plugins import Defragmentation, default_plugins
from berth_descheduler.server import serve
from demo_snapshot import make_demo_snapshot
from planner_settings import with_settings


def test_the_bundled_file_is_what_its_maker_makes() -> None:
    bundled = (files("berth_descheduler.capabilities.demo") / "data" / "demo-snapshot.json.gz").read_bytes()

    assert gzip.decompress(bundled) == make_demo_snapshot().to_json()


def test_the_bundled_cluster_is_fragmented_and_can_be_mended() -> None:
    snapshot = make_demo_snapshot()
    snapshot.check()

    made = plan(snapshot, PLANNER_SETTINGS)

    assert len(made.before.nodes) == 60
    assert made.before.empty_nodes == ()
    assert made.quality is not None
    assert len(made.freed_nodes) == made.quality.upper_bound >= 20


def test_the_demos_services_plan_as_the_demo_says() -> None:
    context = serve.make_context("berth-descheduler", ["--once", *PLANNER_OPTIONS])

    said = run_planner_settings(context.params)

    # What a person types has to exist; the demo types nothing.
    balance = said.plugins.balance.plugin
    assert isinstance(balance, Defragmentation)
    plugins = default_plugins(balance.args)
    assert with_settings(said, now=None, names_must_exist=False, plugins=plugins) == PLANNER_SETTINGS


def test_another_seed_makes_another_cluster() -> None:
    assert make_demo_snapshot(seed=1) != make_demo_snapshot(seed=2)
    assert make_demo_snapshot(nodes=4) == make_demo_snapshot(nodes=4)
