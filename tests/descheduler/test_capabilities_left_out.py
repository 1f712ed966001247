"""Without the folder of a capability, its lines of the registry and its tests, the descheduler is whole."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from berth_descheduler import capabilities, registry
from conventions.tracked import ROOT

PACKAGE: Final = Path("descheduler", "berth_descheduler")
NAMES: Final = sorted(folder.parent.name for folder in Path(capabilities.__path__[0]).glob("*/__init__.py"))
KERNEL_TESTS: Final = (
    "tests/planner/test_draining.py",
    "tests/planner/test_limits_of_a_plan.py",
    "tests/planner/test_make_room.py",
    "tests/planner/test_minimize_fragmentation.py",
    "tests/planner/test_rules.py",
    "tests/planner/test_single_pods.py",
    "tests/planner/test_threshold.py",
    "tests/planner/test_toy_goal.py",
    "tests/plugins/test_profiles.py",
    "tests/descheduler/test_next_step_of_a_move.py",
    "tests/descheduler/test_policy_schedules.py",
    "tests/descheduler/test_revalidation.py",
)
IMPORTED: Final = """
import importlib, pkgutil, berth_descheduler
for module in pkgutil.walk_packages(berth_descheduler.__path__, "berth_descheduler."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
from berth_descheduler.registry import CAPABILITIES
print(berth_descheduler.__path__[0], *(capability.__module__.split(".")[2] for capability in CAPABILITIES))
"""
"""Imports the descheduler whole, and prints where it is and which capabilities it has."""


def copy_without(name: str, to: Path) -> Path:
    """Copy the tree, delete a capability and its tests, and take its lines out of the registry."""
    for folder in (PACKAGE.parts[0], "tests/descheduler"):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (ROOT / "tests").iterdir():
        if folder.name not in {"descheduler", "__pycache__"}:
            (to / "tests" / folder.name).symlink_to(folder)
    for link in ("crds", "helm", "operator", "shared", ".ci", "pyproject.toml"):
        (to / link).symlink_to(ROOT / link)
    shutil.rmtree(to / PACKAGE / "capabilities" / name)
    shutil.rmtree(to / "tests" / "descheduler" / "capabilities" / name)
    listing = to / PACKAGE / "registry.py"
    lines = listing.read_text(encoding="utf-8").splitlines(keepends=True)
    (imported,) = (line for line in lines if f".capabilities.{name}." in line)
    (entry,) = re.findall(r"import (\w+)$", imported)
    listing.write_text("".join(line for line in lines if line not in {imported, f"    {entry},\n"}), encoding="utf-8")
    return to


def run(copy: Path, *arguments: str) -> str:
    """Run Python in a copy of the tree, with the descheduler of the copy; fail with its output if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(copy / PACKAGE.parts[0]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_capability_has_a_folder_and_its_lines() -> None:
    assert sorted(capability.__module__.split(".")[2] for capability in registry.CAPABILITIES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_descheduler_is_imported_without(name: str, tmp_path: Path) -> None:
    copy = copy_without(name, tmp_path)
    where, *left = run(copy, "-c", IMPORTED).split()
    assert Path(where) == copy / PACKAGE
    assert sorted(left) == [other for other in NAMES if other != name]


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_the_kernel_pass_without(name: str, tmp_path: Path) -> None:
    copy = copy_without(name, tmp_path)
    assert " passed" in run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *KERNEL_TESTS)


@pytest.fixture(scope="module")
def types_known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what is known of types: the copies differ in little."""
    return tmp_path_factory.mktemp("types")


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_types_of_the_descheduler_agree_without(name: str, tmp_path: Path, types_known: Path) -> None:
    copy = copy_without(name, tmp_path)
    assert "Success" in run(copy, "-m", "mypy", "--cache-dir", str(types_known), "-p", "berth_descheduler")
