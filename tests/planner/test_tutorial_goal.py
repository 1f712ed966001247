"""The page that adds a goal, followed step by step in a copy of the descheduler."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import berth_descheduler
from berth_core.snapshot import Snapshot
from builders import namespace, node, pod
from conventions.pages import blocks_of, console_lines
from conventions.tracked import ROOT

PAGE = ROOT / "descheduler" / "docs" / "planner-internals.md"
PROGRAM = (sys.executable, "-c", "from berth_descheduler.cli.main import main; main()")


def with_additions(text: str, diff: str) -> str:
    """Return a text with the lines that a diff adds, each after the line above it, which stands in the text once."""
    for above, added in re.findall(r"^ (.*)\n\+(.*)$", diff, re.MULTILINE):
        assert text.count(f"{above}\n") == 1, above
        text = text.replace(f"{above}\n", f"{above}\n{added}\n")
    return text


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of programs with a copy of the descheduler that has the goal of the page."""
    folder = tmp_path_factory.mktemp("tutorial")
    package = folder / "berth_descheduler"
    shutil.copytree(Path(berth_descheduler.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    goal = package / "goals" / "one_pod"
    goal.mkdir()
    (goal / "__init__.py").write_text('"""Moves one pod."""\n', encoding="utf-8")
    (goal / "goal.py").write_text("\n\n".join(blocks_of(PAGE, "python")), encoding="utf-8")
    goals = package / "goals" / "__init__.py"
    (diff,) = blocks_of(PAGE, "diff")
    goals.write_text(with_additions(goals.read_text(encoding="utf-8"), diff), encoding="utf-8")
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


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    profile = {
        "name": "tutorial",
        "pluginConfig": [{"name": "Defragmentation", "args": {"strategy": "one-pod", "space": "shop"}}],
        "plugins": {"balance": {"enabled": ["Defragmentation"]}},
    }
    document = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "tutorial"},
        "spec": {"profiles": [profile]},
    }
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def berth(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("snapshot", "policy")
def test_the_commands_of_the_page_print_what_it_shows(environment: dict[str, str], tmp_path: Path) -> None:
    shown = console_lines(PAGE)
    assert len(shown) > 1
    for command, lines in shown.items():
        printed = " ".join(berth(environment, tmp_path, *command.split()[1:]).split())
        assert lines
        assert not [line for line in lines if " ".join(line.split()) not in printed], printed


def test_a_goal_is_seen_in_the_plan_and_its_page(environment: dict[str, str], snapshot: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    answer = berth(
        environment,
        tmp_path,
        "plan",
        "--snapshot",
        str(snapshot),
        "--space",
        "shop",
        "--report",
        str(page),
        "-o",
        "json",
    )

    made = json.loads(answer)
    assert made["summary"].startswith("One pod moves: db.")
    assert (made["objective"]["strategy"], made["objective"]["args"]["space"]) == ("OnePod", "shop")
    assert [(move["pod"], move["target"]) for move in made["moves"]] == [("db", "b")]
    assert "pods that OnePod moved" in page.read_text(encoding="utf-8")
