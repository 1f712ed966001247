"""`berth sandbox`: how many nodes of which kind it starts, and where it refuses real ones."""

from functools import partial
from pathlib import Path
from typing import Self

import pytest

from berth_descheduler.capabilities.sandbox.cli import command
from berth_descheduler.cli.main import run
from berth_sandbox import sandbox as started_by
from berth_sandbox.real_nodes import requirements
from berth_sandbox.settings import SandboxSettings

Captured = pytest.CaptureFixture[str]


class Started:
    """A sandbox that starts nothing."""

    kubeconfig = Path("/started/kubeconfig.yaml")

    def __init__(self) -> None:
        self.settings: SandboxSettings | None = None

    def start(self, settings: SandboxSettings, **_: object) -> Self:
        self.settings = settings
        return self

    def detach(self) -> None:
        """Do nothing."""


class Up:
    """A sandbox that is up with five nodes and, once they were added, its services."""

    folder = Path("/up")
    settings = SandboxSettings(name="mine", nodes=5)

    def __init__(self) -> None:
        self.added = 0

    def is_up(self, name: str) -> bool:
        return name == self.settings.name

    def find(self, name: str) -> Self:
        assert name == self.settings.name
        return self

    def add_services(self, **_: object) -> bool:
        self.added += 1
        return self.added == 1

    def start(self, *_: object, **__: object) -> None:
        pytest.fail("another one was started")


def test_services_are_added_to_a_sandbox_that_is_up(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    running = Up()
    monkeypatch.setattr(command, "Sandbox", running)
    added = ["sandbox", "up", "--name=mine", "--nodes=5", "--with-services"]
    assert (run(added), running.added) == (0, 1)
    assert "Both services run; policies and Reservations have effect. Logs: /up/logs" in capsys.readouterr().out
    assert (run(added), running.added) == (0, 2)
    shown = capsys.readouterr()
    assert (shown.out, "run already" in shown.err) == ("", True)


def test_nothing_else_of_a_sandbox_that_is_up_can_be_changed(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    running = Up()
    monkeypatch.setattr(command, "Sandbox", running)
    assert run(["sandbox", "up", "--name=mine", "--node-cpu=4", "--with-services"]) == 2
    assert "is up with --node-cpu 16; services alone can be added" in " ".join(capsys.readouterr().err.split())
    assert running.added == 0


@pytest.mark.parametrize(
    ("options", "want_nodes", "want_text"),
    [
        ("", (10, 0), "up with 10 nodes."),
        ("--nodes=3", (3, 0), "up with 3 nodes."),
        ("--real-nodes=3", (0, 3), "up with 3 real nodes."),
        ("--real-nodes=1 --nodes=5", (5, 1), "up with 1 real node and 5 simulated ones."),
    ],
)
def test_real_nodes_are_alone_unless_simulated_ones_are_asked_for(
    options: str,
    want_nodes: tuple[int, int],
    want_text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    started = Started()
    monkeypatch.setattr(command, "Sandbox", started)
    assert run(["sandbox", "up", *options.split()]) == 0
    assert started.settings is not None
    assert (started.settings.nodes, started.settings.real_nodes) == want_nodes
    shown = capsys.readouterr().out
    assert want_text in shown
    assert ("berth sandbox exec -- COMMAND" in shown) == (want_nodes[1] > 0)


@pytest.mark.parametrize(("arguments", "want_code"), [("sandbox up", 1), ("demo", 2)])
def test_real_nodes_without_root_are_refused_before_anything_is_built(
    arguments: str, want_code: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    of_a_user = partial(requirements.Machine, platform="linux", user_id=1000)
    monkeypatch.setattr(requirements, "Machine", of_a_user)
    monkeypatch.setattr(started_by, "find_binaries", lambda *_, **__: pytest.fail("it was built"))
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    assert run([*arguments.split(), "--real-nodes", "3"]) == want_code
    shown = capsys.readouterr()
    assert "real nodes cannot run here: they need root" in " ".join(shown.err.split())
    assert list(tmp_path.iterdir()) == []


def test_more_real_nodes_than_there_are_networks_for_are_refused(capsys: Captured) -> None:
    assert run(["sandbox", "up", "--real-nodes", "101"]) == 2
    assert "real nodes" in capsys.readouterr().err
