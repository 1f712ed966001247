"""Nothing that users or other programs see of Berth changes unnoticed."""

from pathlib import Path

import pytest

from conventions.public_surface import GOLDEN, difference, surface
from conventions.tracked import shown

REWRITE = "python tests/conventions/generate_copies.py"


@pytest.fixture(scope="module")
def wanted() -> dict[Path, str]:
    return surface()


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_the_public_surface_is_as_it_was(wanted: dict[Path, str], name: str) -> None:
    golden = GOLDEN / name
    assert golden in wanted, f"nothing makes {shown(golden)}"
    if golden.read_text(encoding="utf-8") != wanted[golden]:
        changes = "\n".join(difference(golden, wanted[golden]))
        pytest.fail(f"{shown(golden)} says otherwise; if that is meant, run {REWRITE}\n{changes}", pytrace=False)


def test_every_listing_has_its_golden_file(wanted: dict[Path, str]) -> None:
    assert {path.name for path in wanted} == {path.name for path in GOLDEN.iterdir()}
