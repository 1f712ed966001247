import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conventions.generate_copies import CHART, chart_readme, copies
from conventions.tracked import ROOT, shown


@pytest.mark.parametrize(
    ("path", "want_text"), copies().items(), ids=lambda value: value.name if isinstance(value, Path) else ""
)
def test_a_generated_copy_agrees_with_its_source(path: Path, want_text: str) -> None:
    assert path.exists(), f"{shown(path)} is missing: run python tests/conventions/generate_copies.py"
    assert path.read_text(encoding="utf-8") == want_text, (
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
