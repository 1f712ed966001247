"""The policies that the pages show can be run as they stand, and the linter finds nothing to warn of."""

from pathlib import Path

import pytest

from berth_descheduler.cli.main import run
from conventions.pages import blocks


def test_the_linter_has_nothing_to_say_of_the_pages_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = [text for text in blocks("yaml") if "kind: DeschedulerPolicy" in text and "berth.volcano.sh" in text]
    assert len(policies) > 1
    for text in policies:
        file = tmp_path / "policy.yaml"
        file.write_text(text)
        assert run(["policy", "lint", "--strict", str(file)]) == 0, capsys.readouterr().out
