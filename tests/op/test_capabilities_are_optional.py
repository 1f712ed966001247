"""Without the folder of a capability, its lines of the registry and its tests, the operator is whole."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import berth_core
from berth_operator import capabilities
from berth_operator.runtime import registry
from conventions.tracked import ROOT

PACKAGE: Final = Path("operator", "berth_operator")
NAMES: Final = sorted(folder.parent.name for folder in Path(capabilities.__path__[0]).glob("*/__init__.py"))
KERNEL_TESTS: Final = tuple(
    f"tests/op/test_{name}.py"
    for name in (
        "carrying_out",
        "clearing_away",
        "decisions",
        "fences",
        "operator_cache",
        "operator_command",
        "operator_engine",
        "readiness_answers",
        "rules_of_capabilities",
        "standing_fences",
        "webhook_server",
        "work_queue",
    )
)
CONTRACTS: Final = {"queue_shares", "queues", "revocable_zones", "schedules", "windows"}
"""Modules of `berth_core` on which programs agree for one capability."""
IMPORTED: Final = """
import importlib, pkgutil, berth_operator
for module in pkgutil.walk_packages(berth_operator.__path__, "berth_operator."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
from berth_operator.runtime.registry import CAPABILITIES
print(berth_operator.__path__[0], *(capability.__module__.split(".")[2] for capability in CAPABILITIES))
"""
"""Imports the operator whole, and prints where it is and which capabilities it has."""


def copy_without(name: str, to: Path) -> Path:
    """Copy the tree, delete a capability and its tests, and take its lines out of the registry."""
    for folder in (PACKAGE.parts[0], "tests/op", "tests/support"):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (to / "tests" / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (to / "tests" / "conventions").symlink_to(ROOT / "tests" / "conventions")
    for link in ("crds", "descheduler", "helm", "shared", ".ci", "pyproject.toml"):
        (to / link).symlink_to(ROOT / link)
    shutil.rmtree(to / PACKAGE / "capabilities" / name)
    shutil.rmtree(to / "tests" / "op" / "capabilities" / name)
    listing = to / PACKAGE / "runtime" / "registry.py"
    lines = listing.read_text(encoding="utf-8").splitlines(keepends=True)
    (imported,) = (line for line in lines if f".capabilities.{name}." in line)
    (entry,) = re.findall(r"import (\w+)$", imported)
    listing.write_text("".join(line for line in lines if line not in {imported, f"    {entry},\n"}), encoding="utf-8")
    return to


def run(copy: Path, *arguments: str) -> str:
    """Run Python in a copy of the tree, with the operator of the copy; fail with its output if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(copy / PACKAGE.parts[0]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_capability_has_a_folder_and_its_lines() -> None:
    assert sorted(one.__module__.split(".")[2] for one in registry.CAPABILITIES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_is_imported_without(name: str, tmp_path: Path) -> None:
    copy = copy_without(name, tmp_path)
    where, *left = run(copy, "-c", IMPORTED).split()
    assert Path(where) == copy / PACKAGE
    assert sorted(left) == [one for one in NAMES if one != name]


def names_defined_in(module: Path) -> Iterator[str]:
    """Yield the names of a module's classes, functions and constants."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def test_the_kernel_uses_no_contract_of_a_capability() -> None:
    contracts = [module for module in Path(berth_core.__path__[0]).rglob("*.py") if module.stem in CONTRACTS]
    assert {module.stem for module in contracts} == CONTRACTS
    theirs = {name for module in contracts for name in names_defined_in(module)}
    kernel = [module for module in (ROOT / PACKAGE).rglob("*.py") if "capabilities" not in module.parts]
    assert kernel
    used = {
        f"{module.relative_to(ROOT)}: {alias.name}"
        for module in kernel
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("berth_core")
        for alias in node.names
        if alias.name in theirs
    }
    assert not used


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
def test_the_types_of_the_operator_agree_without(name: str, tmp_path: Path, types_known: Path) -> None:
    copy = copy_without(name, tmp_path)
    assert "Success" in run(copy, "-m", "mypy", "--cache-dir", str(types_known), "-p", "berth_operator")
