"""The policies that the pages show can be run as they stand, and the linter finds nothing to warn of."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from berth_descheduler.cli.main import run
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import RunDefaults, read_policy
from berth_descheduler.policy.decoding import decode_policy
from berth_descheduler.policy.lint import lint_document
from builders import NOON
from conventions.pages import ROOT, blocks
from planner_settings import with_settings
from small_cluster import small_cluster

PLUGIN_OF_A_TUTORIAL: Final = "name: NewNodes"
"""Its own test installs it before it uses its policy."""


def policies_of_pages() -> list[str]:
    policies = [text for text in blocks("yaml") if "kind: DeschedulerPolicy" in text and "berth.volcano.sh" in text]
    return [text for text in policies if PLUGIN_OF_A_TUTORIAL not in text]


def test_the_linter_has_nothing_to_say_of_the_pages_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = policies_of_pages()
    assert len(policies) > 1
    for text in policies:
        file = tmp_path / "policy.yaml"
        file.write_text(text)
        assert run(["policy", "lint", "--strict", str(file)]) == 0, capsys.readouterr().out


def first_policies() -> dict[str, object]:
    """The policy of the first day as its page and the chart's example have it."""
    (of_page,) = (raw for raw in map(yaml.safe_load, policies_of_pages()) if raw["metadata"]["name"] == "first")
    example = yaml.safe_load((ROOT / "helm/berth/examples/first-policy.yaml").read_text())
    head = {name: of_page[name] for name in ("apiVersion", "kind", "metadata")}
    return {"the page": of_page, "the chart's example": {**head, "spec": example["policies"]["first"]}}


def settings_of(raw: object) -> PlannerSettings:
    found = read_policy(decode_policy(raw), RunDefaults(), installed_plugins())
    return with_settings(found.planner_at(NOON), exact=False)


@pytest.mark.parametrize("where", first_policies())
def test_the_policy_of_the_first_day_moves_pods_on_a_small_cluster_of_one_namespace(where: str) -> None:
    raw = first_policies()[where]
    assert len(plan(small_cluster(), settings_of(raw)).moves) > 0
    (linted,) = lint_document(raw, installed_plugins(), small_cluster())
    assert linted.findings == ()
