"""Berth works with each version of Kubernetes that the page names, and the chart is for no other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from berth_sandbox.go_modules import DEFAULT_KUBERNETES, OTHER_KUBERNETES

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = sorted((*OTHER_KUBERNETES, DEFAULT_KUBERNETES))
LONGEST_SECONDS = 7200.0
"""For a version that has to be built."""


def rows() -> dict[str, str]:
    page = ROOT.joinpath("shared", "docs", "kubernetes.md").read_text(encoding="utf-8")
    return {found[1]: found[0] for found in re.finditer(r"^\| (1\.\d+) .*", page, re.MULTILINE)}


def test_the_chart_is_for_the_versions_that_were_seen_and_a_release_tries_all() -> None:
    chart = yaml.safe_load(ROOT.joinpath("helm", "berth", "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">={min(rows())}.0-0"
    assert set(rows()) <= set(VERSIONS)
    release = yaml.safe_load(ROOT.joinpath(".github", "workflows", "release.yml").read_text(encoding="utf-8"))
    assert release["jobs"]["versions"]["strategy"]["matrix"]["kubernetes"] == VERSIONS
    assert not [row for row in rows().values() if "**no**" in row]


@pytest.mark.cluster
@pytest.mark.versions
@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_hand_overs_consolidation_chart_and_policies_work_with(version: str) -> None:
    command = [sys.executable, ROOT / "tests" / "benchmarks" / "kubernetes_versions.py", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
