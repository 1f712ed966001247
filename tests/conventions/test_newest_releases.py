"""The newest releases that the project's bounds allow do what those of the lock do.

This asks the package index, and fails with what pip says where there is none.
"""

import json
import random
import subprocess
from pathlib import Path

import pytest

import release
from berth_core.snapshot import Snapshot
from builders import node, pod
from installations import Installation, make_environment


def hard_snapshot() -> Snapshot:
    """Return a cluster of which no bound proves how many nodes can be freed, so that the exact solver is asked."""
    sizes = random.Random(1)  # noqa: S311 - no secret
    pods = tuple(
        pod(f"{name}-{cpu}", node=name, cpu=str(cpu), memory=f"{sizes.choice([4, 9, 14, 20])}Gi")
        for name in map(str, range(8))
        for cpu in sizes.sample([3, 4, 5, 6, 7], 2)
    )
    return Snapshot(nodes=tuple(node(str(index)) for index in range(8)), pods=pods)


def install_newest(folder: Path, extra: str) -> Installation:
    made = make_environment(folder / "environment")
    wheel = release.build_wheel(folder)
    command = [made.program("python"), "-m", "pip", "install", "--quiet", f"{wheel}[{extra}]"]
    installed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1000)
    assert installed.returncode == 0, f"the package index gave no {extra}: {installed.stderr}"
    return made


@pytest.mark.deep
def test_a_plan_by_the_newest_solver_can_be_read(tmp_path: Path) -> None:
    made = install_newest(tmp_path, "optimal")
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(hard_snapshot().to_json())
    planned = made.run("berth", "plan", f"--snapshot={snapshot}", "--strategy=consolidate", "--output=json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["provenBy"] == "Exact"


@pytest.mark.deep
def test_both_services_start_with_the_newest_releases(tmp_path: Path) -> None:
    made = install_newest(tmp_path, "demo")
    for program in ("berth-descheduler", "berth-operator"):
        shown = made.run(program, "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout.startswith(f"Usage: {program} ")
