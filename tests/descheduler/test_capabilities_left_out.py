"""Without the folder of a capability, its lines of the registry and its tests, the descheduler is whole."""

from pathlib import Path
from typing import Final

import pytest

from berth_descheduler import registry
from programs_without_parts import Program

PACKAGE: Final = Path("descheduler", "berth_descheduler")
DESCHEDULER: Final = Program(PACKAGE, PACKAGE / "registry.py", Path("tests", "descheduler"))
NAMES: Final = DESCHEDULER.capabilities
KERNEL_TESTS: Final = (
    "tests/planner/test_draining.py",
    "tests/planner/test_limits_of_a_plan.py",
    "tests/planner/test_make_room.py",
    "tests/planner/test_minimize_fragmentation.py",
    "tests/planner/test_rules.py",
    "tests/planner/test_single_pods.py",
    "tests/planner/test_threshold.py",
    "tests/planner/test_tutorial_goal.py",
    "tests/plugins/test_profiles.py",
    "tests/descheduler/test_next_step_of_a_move.py",
    "tests/descheduler/test_policy_schedules.py",
    "tests/descheduler/test_revalidation.py",
)


def test_each_capability_has_a_folder_and_its_lines() -> None:
    assert sorted(capability.__module__.split(".")[2] for capability in registry.CAPABILITIES) == NAMES


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_descheduler_is_imported_without(name: str, tmp_path: Path) -> None:
    copy = DESCHEDULER.copy_without(name, tmp_path)
    where, left = DESCHEDULER.import_whole(copy)
    assert where == copy / PACKAGE
    assert left == [other for other in NAMES if other != name]


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_the_kernel_pass_without(name: str, tmp_path: Path) -> None:
    copy = DESCHEDULER.copy_without(name, tmp_path)
    assert " passed" in DESCHEDULER.run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *KERNEL_TESTS)


@pytest.fixture(scope="module")
def types_known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what is known of types: the copies differ in little."""
    return tmp_path_factory.mktemp("types")


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_types_of_the_descheduler_agree_without(name: str, tmp_path: Path, types_known: Path) -> None:
    copy = DESCHEDULER.copy_without(name, tmp_path)
    assert "Success" in DESCHEDULER.run(copy, "-m", "mypy", "--cache-dir", str(types_known), "-p", "berth_descheduler")
