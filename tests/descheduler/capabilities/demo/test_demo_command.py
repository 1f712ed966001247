"""`berth demo` on a cluster that is there, and what it leaves and says when it is kept."""

import json
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from berth_descheduler.capabilities.demo.cli import command as demo
from berth_descheduler.cli.main import run
from berth_descheduler.report import Terminal
from berth_sandbox.sandbox import EXAMPLE_NAMESPACE
from berth_sandbox.settings import SandboxSettings
from conventions.generate_copies import ROOT
from descheduler.fake_cluster import FakeCluster, fragmented_cluster

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = fragmented_cluster()
    monkeypatch.setattr(demo, "connect", lambda **_: made)
    monkeypatch.setattr(demo.Sandbox, "start", lambda *_, **__: pytest.fail("no cluster is to be started"))
    return made


def test_on_a_cluster_that_is_there_the_demo_only_plans(cluster: FakeCluster, capsys: Captured, tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    assert run(["demo", "--context", "prod", "--report", str(page), "-o", "json"]) == 0

    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["plan_only"], found["nodes"], found["freed_nodes"]) == (True, 4, found["upper_bound"])
    assert "nothing was changed" in shown.err
    assert "Live cluster" in page.read_text(encoding="utf-8")
    assert {call.verb for call in cluster.calls} == {"list"}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("option", [("--keep",), ("--nodes", "9"), ("--seed", "7"), ("--scene", "lent")], ids="".join)
def test_what_is_about_a_cluster_of_its_own_is_refused_there(option: tuple[str, ...], capsys: Captured) -> None:
    assert run(["demo", "--kubeconfig", "prod.yaml", *option]) == 2
    assert f"{option[0]} is only for the demo's own cluster" in capsys.readouterr().err


class Kept:
    """A sandbox of which only is known what became of it."""

    kubeconfig = Path("/kept/kubeconfig.yaml")
    folder = Path("/kept")

    def __init__(self) -> None:
        self.told: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.append("left")

    def start_services(self, _progress: Any) -> None:  # noqa: ANN401 - what takes a line
        self.told.append("services")

    def detach(self) -> None:
        self.told.append("detached")


def test_a_demo_that_is_kept_leaves_both_services_and_says_what_to_try(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    kept = Kept()
    monkeypatch.setattr(demo.Sandbox, "start", lambda *_, **__: kept)
    with demo._own_cluster(SandboxSettings(), Terminal(stderr=True), keep=True):
        kept.told.append("run")

    assert kept.told == ["run", "services", "detached", "left"]
    said = capsys.readouterr().err
    assert "both services run on it" in said
    assert "export KUBECONFIG=/kept/kubeconfig.yaml" in said
    assert "berth sandbox down --name demo" in said


def test_what_to_try_is_what_the_pages_have() -> None:
    reservation, nightly = (
        yaml.safe_load((ROOT / page).read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0])
        for page in ("operator/README.md", "README.md")
    )
    assert reservation["metadata"] == {"name": "room-for-training", "namespace": EXAMPLE_NAMESPACE}
    assert nightly["metadata"]["name"] == "nightly"
