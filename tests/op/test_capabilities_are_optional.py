"""Without the folder of a capability, its lines of the registry and its tests, the operator is whole."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import berth_core
from berth_operator.runtime import registry
from conventions.tracked import ROOT
from programs_without_parts import Program

PACKAGE: Final = Path("operator", "berth_operator")
OPERATOR: Final = Program(PACKAGE, PACKAGE / "runtime" / "registry.py", Path("tests", "op"))
NAMES: Final = OPERATOR.capabilities
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
CONTRACTS: Final = {
    *("cron_schedules", "gated_queues", "queue_shares", "queues"),
    *("revocable_zones", "window_schedules", "windows", "zone_schedules"),
}
"""Modules of `berth_core` on which programs agree for one capability."""


def test_each_capability_has_a_folder_and_its_lines() -> None:
    assert sorted(capability.__module__.split(".")[2] for capability in registry.CAPABILITIES) == NAMES


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_operator_is_imported_without(name: str, tmp_path: Path) -> None:
    copy = OPERATOR.copy_without(name, tmp_path)
    where, left = OPERATOR.import_whole(copy)
    assert where == copy / PACKAGE
    assert left == [other for other in NAMES if other != name]


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
    copy = OPERATOR.copy_without(name, tmp_path)
    assert " passed" in OPERATOR.run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *KERNEL_TESTS)


@pytest.fixture(scope="module")
def types_known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what is known of types: the copies differ in little."""
    return tmp_path_factory.mktemp("types")


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_types_of_the_operator_agree_without(name: str, tmp_path: Path, types_known: Path) -> None:
    copy = OPERATOR.copy_without(name, tmp_path)
    assert "Success" in OPERATOR.run(copy, "-m", "mypy", "--cache-dir", str(types_known), "-p", "berth_operator")
