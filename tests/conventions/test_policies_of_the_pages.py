"""The policies that the pages show can be run as they stand, and the linter finds nothing to warn of."""

import re
from pathlib import Path

import pytest

from berth_descheduler.cli.main import run
from conventions.tracked import ROOT

PAGES = (ROOT / "README.md", ROOT / "descheduler" / "docs" / "policies.md")


def policies(page: Path) -> list[str]:
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if "kind: DeschedulerPolicy" in block and "berth.volcano.sh" in block]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_linter_has_nothing_to_say_of_a_pages_policies(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = policies(page)
    assert shown
    for text in shown:
        file = tmp_path / "policy.yaml"
        file.write_text(text)
        assert run(["policy", "lint", "--strict", str(file)]) == 0, capsys.readouterr().out
