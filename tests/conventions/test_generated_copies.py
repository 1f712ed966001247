from pathlib import Path

import pytest
import yaml

from conventions.generate_copies import CHART, chart_readme, copies
from conventions.tracked import ROOT, shown


@pytest.mark.parametrize(
    ("path", "want_text"), copies().items(), ids=lambda value: value.name if isinstance(value, Path) else ""
)
def test_a_generated_copy_agrees_with_its_source(path: Path, want_text: str) -> None:
    assert path.exists(), f"{shown(path)} is missing: run python tests/conventions/generate_copies.py"
    assert path.read_text() == want_text, f"{shown(path)} is stale: run python tests/conventions/generate_copies.py"


def test_the_chart_has_the_crds_and_nothing_else() -> None:
    assert {path.name for path in (CHART / "crds").iterdir()} == {path.name for path in (ROOT / "crds").iterdir()}


def test_every_value_of_the_chart_is_explained() -> None:
    readme = chart_readme((CHART / "values.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for section, inner in values.items():
        keys = [f"{section}.{key}" for key in inner] if isinstance(inner, dict) else [section]
        for key in keys:
            assert f"| `{key}` |" in readme


def test_every_value_of_the_chart_is_used() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for section, inner in values.items():
        for key in inner if isinstance(inner, dict) else [""]:
            assert f".Values.{section}.{key}".rstrip(".") in templates
