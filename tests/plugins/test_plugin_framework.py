"""The one place from which the authors of plugins import, and that it is enough for them."""

import ast
import dataclasses
import subprocess
import sys
import typing
from collections.abc import Iterator

import pytest

from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler import framework
from conventions.pages import blocks_of
from conventions.tracked import ROOT
from third_party import SOURCE

FACE = "berth_descheduler.framework"
EXAMPLES = {
    "the page": "\n".join(blocks_of(ROOT / "descheduler" / "docs" / "plugins.md", "python")),
    "the distribution": (SOURCE / "example_berth_plugins.py").read_text(encoding="utf-8"),
}


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Module and name of everything that a program imports from Berth."""
    for one in ast.walk(ast.parse(code)):
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("berth"):
            yield from ((one.module or "", name.name) for name in one.names)
        elif isinstance(one, ast.Import):
            yield from ((name.name, "") for name in one.names if name.name.startswith("berth"))


@pytest.mark.parametrize("code", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_a_plugin_imports_from_the_framework_alone(code: str) -> None:
    found = set(imported(code))
    assert found
    assert {module for module, _ in found} == {FACE}
    assert {name for _, name in found} <= set(framework.__all__)


def test_all_that_a_plugin_is_shown_of_a_cluster_has_a_name_there() -> None:
    hints = typing.get_type_hints(Snapshot)
    typed = (hints[field.name] for field in dataclasses.fields(Snapshot))
    kinds = [typing.get_args(hint) for hint in typed if typing.get_origin(hint) is tuple]
    shown = {member for kind in kinds if kind for member in typing.get_args(kind[0]) or kind[:1]} - {SnapshotKind}
    assert shown
    assert shown <= {getattr(framework, name) for name in framework.__all__}


def test_it_brings_neither_the_planner_nor_a_plugin_of_berths_own() -> None:
    told = f"import sys, {FACE}; print(*(one for one in sys.modules if one.startswith('berth_descheduler.')))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=300)
    assert {name.removeprefix(FACE) for name in done.stdout.split()} == {
        "",
        ".enabled_plugins",
        ".interfaces",
        ".refusals",
        ".rules",
    }
