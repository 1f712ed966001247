"""A goal that is added as one folder and one entry of the list of goals, as a program sees it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import berth_descheduler
from berth_core.snapshot import Snapshot
from builders import namespace, node, pod

TOY = Path(__file__).parents[1] / "data" / "toy_goal" / "one_pod"
PROGRAM = (sys.executable, "-c", "from berth_descheduler.cli.main import main; main()")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of programs with a copy of the descheduler that has one goal more."""
    folder = tmp_path_factory.mktemp("toy")
    package = folder / "berth_descheduler"
    shutil.copytree(Path(berth_descheduler.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TOY, package / "goals" / TOY.name)
    (package / "goals" / TOY.name / "__init__.py").write_text('"""Moves one pod."""\n')  # which no folder of tests has
    goals = package / "goals" / "__init__.py"
    entry, toy = "    MovePodsGoal(),\n", "    OnePodGoal(),\n"
    text = goals.read_text(encoding="utf-8")
    assert text.count(entry) == 1
    imported = "from berth_descheduler.goals.one_pod.goal import OnePodGoal\n"
    first = "from berth_descheduler.goals.move_pods.goal import MovePodsGoal\n"
    goals.write_text(text.replace(entry, entry + toy).replace(first, first + imported), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "120"}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    cluster = Snapshot(
        nodes=(node("a"), node("b")),
        pods=(pod("web", node="a"), pod("db", namespace="shop", node="a")),
        namespaces=(namespace("default"), namespace("shop")),
    )
    path = tmp_path / "snapshot.json"
    path.write_bytes(cluster.to_json())
    return path


def berth(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_goal_is_planned_for_by_its_option_and_is_seen_in_the_plan_and_its_page(
    environment: dict[str, str], snapshot: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"

    answer = berth(
        environment, "plan", "--snapshot", str(snapshot), "--space", "shop", "--report", str(page), "-o", "json"
    )

    made = json.loads(answer)
    assert made["summary"].startswith("One pod moves: db.")
    assert (made["objective"]["strategy"], made["objective"]["args"]["space"]) == ("OnePod", "shop")
    assert [(move["pod"], move["target"]) for move in made["moves"]] == [("db", "b")]
    assert "pods that moved by a toy" in page.read_text(encoding="utf-8")


def test_lint_says_what_a_goal_finds(environment: dict[str, str], tmp_path: Path) -> None:
    profile = {
        "name": "toy",
        "pluginConfig": [{"name": "Defragmentation", "args": {"strategy": "one-pod", "space": "shop"}}],
        "plugins": {"balance": {"enabled": ["Defragmentation"]}},
    }
    policy = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "toy"},
        "spec": {"profiles": [profile]},
    }
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy))

    assert "only one pod of shop moves in each run" in " ".join(berth(environment, "policy", "lint", str(path)).split())
