"""The demo does what the README says: every pod lands where it was planned, and nodes are freed."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from background_runs import LONGEST_SECONDS
from berth_descheduler.capabilities.demo.cli.scenes import SCENES
from demo_runs import LARGE, Demos, run_demo
from service_processes import script

pytestmark = pytest.mark.cluster

LEAST_UPPER_BOUND = 20


@pytest.mark.deep
@pytest.mark.timeout(LONGEST_SECONDS + 60)
@pytest.mark.parametrize("demo", [LARGE])
def test_the_demo_frees_what_the_bound_allows_and_every_pod_lands_on_its_planned_node(demos: Demos, demo: str) -> None:
    done = demos[demo].result()
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert numbers["nodes"] == 60
    assert numbers["proven_optimal"] is True
    assert numbers["freed_nodes"] == numbers["upper_bound"] >= LEAST_UPPER_BOUND
    assert numbers["landed_on_target"] == numbers["moves"] > 0
    assert numbers["pending"] == numbers["lost"] == 0
    assert "before:" in done.stderr
    assert "after:" in done.stderr


@pytest.mark.deep
@pytest.mark.timeout(LONGEST_SECONDS + 60)
@pytest.mark.parametrize("demo", SCENES)
def test_a_scene_shows_what_it_is_about(demos: Demos, demo: str) -> None:
    done = demos[demo].result()
    assert done.returncode == 0, done.stderr + done.stdout
    shown = json.loads(done.stdout)
    assert shown["shown"] is True
    assert shown["sentence"].endswith(".")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scene", "moon"), "is not one of 'consolidate'"),
        (("--scene", "window", "--seed", "7"), "--seed is for the scene consolidate"),
    ],
)
def test_a_scene_that_cannot_be_played_so_is_refused(options: tuple[str, ...], words: str) -> None:
    done = run_demo(*options)
    assert done.returncode == 2
    assert words in done.stderr


def test_the_demo_without_binaries_plans_on_the_bundled_snapshot_and_says_so(tmp_path: Path) -> None:
    offline = {"GOPROXY": "off", "GOMODCACHE": str(tmp_path / "modules"), "GOCACHE": str(tmp_path / "builds")}
    environment = {"PATH": "", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), **offline}
    command = [script("berth"), "demo", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert numbers["plan_only"] is True
    assert numbers["moves"] > 0
    assert numbers["freed_nodes"] == numbers["upper_bound"] > 0
    assert "planning on the bundled snapshot instead" in done.stderr
    first_look, _, build = done.stderr.partition("next the control plane is built from source")
    page = tmp_path / "berth" / "first-look.html"
    assert "27 of 60 nodes are empty" in first_look
    assert f"wrote {page}" in first_look
    assert re.search(r"about \d+ minutes?\s+on \d+ cores?", build)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
