"""Sandboxes come and go without leaving anything, several at a time."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from berth_core import Node
from berth_descheduler.capabilities.sandbox.cli.command import sandbox as sandbox_commands
from berth_kube.client import connect
from berth_kube.errors import ForbiddenError
from berth_kube.resources import NAMESPACES, NODES, RESERVATIONS
from berth_sandbox.binaries import find_binaries
from berth_sandbox.components import Component
from berth_sandbox.errors import ComponentError, SandboxNameError
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from berth_sandbox.startup import expected_components
from control_planes import control_plane
from sandbox.live_pods import SOON
from waiting import eventually

pytestmark = pytest.mark.cluster

README = Path(__file__).resolve().parents[2] / "operator" / "README.md"

_STARTER = """
import sys, time
from berth_sandbox.sandbox import Sandbox
with Sandbox.start() as sandbox:
    print(sandbox.folder, flush=True)
    time.sleep(300)
"""
_INTERRUPTED_START = """
import time
from berth_sandbox.sandbox import Sandbox
def say(line):
    print(line, flush=True)
    if line.startswith("starting kube-controller-manager"):
        time.sleep(300)
Sandbox.start(progress=say)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep named sandboxes and temporary folders of this test, and of what it starts, in a place of its own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield tmp_path
    for name in Sandbox.names():
        Sandbox.stop_named(name)


def processes_that_mention(text: str) -> list[str]:
    """Return the command lines of live processes that carry a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(entry.parent.name) != os.getpid():
            found.append(line)
    return found


@contextmanager
def ended_at_last(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process with the block, whatever becomes of the test."""
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.deep
def test_a_block_leaves_neither_process_nor_folder(home: Path) -> None:
    settings = SandboxSettings(nodes=2, node_cpu="8", node_memory="16Gi", node_pods=50)
    with control_plane(settings) as started:
        with started.connect() as client:
            sizes = {node.metadata.name: node.status.allocatable for node in client.list(NODES, type=Node).items}
        size = {"cpu": "8", "memory": "16Gi", "pods": "50"}
        assert sizes == {"node-000": size, "node-001": size}
        assert len(processes_that_mention(str(started.folder))) >= 5
    assert not started.folder.exists()
    assert processes_that_mention(str(home)) == []
    started.stop()


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_whatever_ends_the_starter_nothing_is_left(home: Path, number: signal.Signals) -> None:
    starter = subprocess.Popen([sys.executable, "-c", _STARTER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert starter.stdout is not None
    with starter.stdout, ended_at_last(starter):
        folder = Path(starter.stdout.readline().decode().strip())
        assert folder.parent == home / "tmp"
        starter.send_signal(number)
        starter.wait(SOON)
    eventually("no process is left", lambda: not processes_that_mention(str(home)), seconds=SOON)
    eventually("no folder is left", lambda: not list((home / "tmp").iterdir()), seconds=SOON)


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_start_that_is_broken_off_leaves_nothing(home: Path, number: signal.Signals) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED_START], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert starter.stdout is not None
    with starter.stdout, ended_at_last(starter):
        while not (line := starter.stdout.readline()).startswith(b"starting kube-controller-manager"):
            assert line, "it ended before"
        starter.send_signal(number)
        starter.wait(SOON)
    eventually("no process is left", lambda: not processes_that_mention(str(home)), seconds=SOON)
    eventually("no folder is left", lambda: not list((home / "tmp").iterdir()), seconds=SOON)


def test_a_component_that_fails_is_named_with_the_end_of_its_log(home: Path) -> None:
    broken = home / "broken"
    broken.write_text("#!/bin/sh\necho this cannot work\nexit 3\n")
    broken.chmod(0o755)
    binaries = {**find_binaries(print), "kube-apiserver": broken}
    with pytest.raises(ComponentError) as caught:
        Sandbox.start(SandboxSettings(), binaries=binaries)
    assert str(caught.value).startswith("kube-apiserver ended at its start")
    assert "this cannot work" in str(caught.value)
    assert processes_that_mention(str(home / "tmp")) == []
    assert not list((home / "tmp").iterdir())


def test_a_component_that_hangs_is_waited_for_no_longer_than_allowed(home: Path) -> None:
    """The first one hangs, so that no other takes of the time."""
    hanging = home / "hanging"
    python = shlex.quote(sys.executable)
    hanging.write_text(f"#!/bin/sh\nexec {python} -c 'import time; time.sleep(600)' \"$@\"\n")
    hanging.chmod(0o755)
    binaries = {**find_binaries(print), "etcd": hanging, "kube-apiserver": hanging}
    began = time.monotonic()
    with pytest.raises(ComponentError, match="etcd was not ready in time"):
        Sandbox.start(SandboxSettings(timeout_seconds=2), binaries=binaries)
    assert time.monotonic() - began < 300
    assert processes_that_mention(str(home / "tmp")) == []


@pytest.mark.deep
@pytest.mark.usefixtures("home")
def test_two_started_at_once_are_two_clusters() -> None:
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(Sandbox.start, [SandboxSettings(nodes=1), SandboxSettings(nodes=2)])
    with one, two, one.connect() as first, two.connect() as second:
        assert not set(asdict(one.ports).values()) & set(asdict(two.ports).values())
        first.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}})
        assert "only-here" not in {x["metadata"]["name"] for x in second.list(NAMESPACES).items}
        assert (len(first.list(NODES).items), len(second.list(NODES).items)) == (1, 2)
        one.stop()
        assert len(second.list(NODES).items) == 2


# --- commands ---


def run(*arguments: str) -> Result:
    return CliRunner().invoke(sandbox_commands, arguments, catch_exceptions=False)


@pytest.mark.deep
@pytest.mark.usefixtures("home")
def test_a_sandbox_of_the_command_line_stays_up_until_it_is_taken_down() -> None:
    assert json.loads(run("status", "--output", "json").stdout) == []
    up = run("up", "--name", "mine", "--nodes", "2", "--node-cpu", "24", "--scoring", "MostAllocated")
    assert up.exit_code == 0
    assert "2 nodes" in up.stdout
    added = run("up", "--name", "mine", "--with-services")
    assert added.exit_code == 0
    assert "Both services run" in added.stdout
    assert "berth sandbox down --name mine" in up.stdout

    (described,) = json.loads(run("status", "--output", "json").stdout)
    assert described["name"] == "mine"
    assert described["state"] == "up"
    assert (described["nodes"], described["readyNodes"]) == (2, 2)
    assert described["scoring"] == "MostAllocated"
    assert set(described["components"]) == {c.value for c in expected_components(SandboxSettings(services=True))}
    assert described["context"] == "berth-sandbox-mine"
    assert "mine: up, 2 of 2 nodes ready" in run("status").stdout

    admin = run("kubeconfig", "--name", "mine").stdout.strip()
    with connect(kubeconfig=admin) as client:
        assert client.list(NODES).items[0]["status"]["allocatable"]["cpu"] == "24"
        body = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0])
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        client.create(RESERVATIONS, body)

        def is_available() -> bool:
            found = client.get(RESERVATIONS, name, namespace=namespace).get("status", {})
            return any((one["type"], one["status"]) == ("Available", "True") for one in found.get("conditions", ()))

        eventually("the Reservation of the page is Available", is_available, seconds=120)
    service = run("kubeconfig", "--name", "mine", "--service-account", "berth-descheduler").stdout.strip()
    with connect(kubeconfig=service) as client, pytest.raises(ForbiddenError):
        client.delete(NODES, "node-000")

    with pytest.raises(SandboxNameError, match="already up"):
        run("up", "--name", "mine")
    found = Sandbox.find("mine")
    assert "stopped and removed" in run("down", "--name", "mine").stderr
    assert processes_that_mention(str(found.folder)) == []
    assert not found.folder.exists()
    assert "no sandbox 'mine' is up" in run("down", "--name", "mine").stderr


@pytest.mark.deep
@pytest.mark.usefixtures("home")
def test_a_sandbox_that_lost_a_component_is_shown_as_broken() -> None:
    with Sandbox.start(SandboxSettings(name="mine")) as started:
        started.kill("kube-apiserver")
        eventually("it is gone", lambda: Component.API_SERVER not in started.live_components(), seconds=SOON)
        (described,) = json.loads(run("status", "--output", "json").stdout)
        assert described["state"] == "broken"
        assert described["readyNodes"] == 0
