import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conventions.generate_copies import CHART, chart_readme, copied_files, copies
from conventions.tracked import ROOT, shown


def test_every_generated_file_is_listed() -> None:
    assert set(copied_files()) == copies().keys()


@pytest.mark.parametrize("path", copied_files(), ids=lambda path: path.name)
def test_a_generated_copy_agrees_with_its_source(path: Path) -> None:
    assert path.exists(), f"{shown(path)} is missing: run python tests/conventions/generate_copies.py"
    assert path.read_text(encoding="utf-8") == copies()[path], (
        f"{shown(path)} is stale: run python tests/conventions/generate_copies.py"
    )


def test_the_chart_has_the_crds_and_nothing_else() -> None:
    assert {path.name for path in (CHART / "crds").iterdir()} == {path.name for path in (ROOT / "crds").iterdir()}


FREE_MAPS = {"resources", "labels", "podSecurityContext", "securityContext"}


def leaves(values: dict[str, Any], *parents: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in FREE_MAPS:
            yield from leaves(value, *parents, key)
        else:
            yield ".".join((*parents, key))


def test_every_value_of_the_chart_is_explained() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([\w.]+)` \|", chart_readme(text), re.MULTILINE))
    assert set(leaves(yaml.safe_load(text))) == explained
