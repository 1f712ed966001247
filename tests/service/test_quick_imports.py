import gc
import subprocess
import sys
from importlib import import_module

import pytest

from berth_service.quick_imports import quick_imports


def test_the_collector_is_off_within_and_on_afterwards() -> None:
    assert gc.isenabled()
    with quick_imports():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_on_again_after_an_import_that_failed() -> None:
    with pytest.raises(ModuleNotFoundError), quick_imports():
        import_module("berth_service.none_of_that_name")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "module", ["berth_descheduler.cli.plan", "berth_descheduler.cli.run", "berth_descheduler.server"]
)
def test_the_official_client_is_imported_by_no_command_before_it_connects(module: str) -> None:
    program = f"import sys, {module}; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
