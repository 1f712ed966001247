import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth_sandbox import processes
from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SandboxFolder]:
    made = SandboxFolder(tmp_path / "sandbox")
    made.make()
    yield made
    processes.end(Component, made)


def start(folder: SandboxFolder, component: Component, code: str = SLEEP[2]) -> int:
    processes.spawn(component, (sys.executable, "-c", code, str(folder.root)), folder)
    deadline = time.monotonic() + 10
    while (pid := processes.find_pid(component, folder)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return pid


def wait_until_gone(component: Component, folder: SandboxFolder) -> None:
    deadline = time.monotonic() + 10
    while processes.find_pid(component, folder) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_component_that_was_started_is_found_and_ended(folder: SandboxFolder) -> None:
    pid = start(folder, Component.ETCD)
    assert processes.find_live(folder) == {Component.ETCD: pid}
    processes.end(Component, folder)
    assert processes.find_live(folder) == {}
    assert processes.read_command_line(pid) == ""
    assert not folder.pid_file(Component.ETCD).exists()


def test_a_process_that_got_the_pid_of_a_dead_component_is_left_alone(folder: SandboxFolder) -> None:
    stranger = subprocess.Popen(SLEEP)
    try:
        folder.pid_file(Component.KWOK).write_text(str(stranger.pid))
        assert processes.find_pid(Component.KWOK, folder) is None
        assert not processes.send_signal(Component.KWOK, folder, signal.SIGKILL)
        processes.end(Component, folder)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("text", ["", "no number", "999999999"])
def test_a_pid_file_that_names_nobody_means_that_nothing_runs(folder: SandboxFolder, text: str) -> None:
    folder.pid_file(Component.ETCD).write_text(text)
    assert processes.find_live(folder) == {}


def test_a_component_that_ended_by_itself_is_no_longer_live(folder: SandboxFolder) -> None:
    start(folder, Component.ETCD, "import time; time.sleep(0.3)")
    wait_until_gone(Component.ETCD, folder)


def test_what_a_component_wrote_is_kept_to_its_end(folder: SandboxFolder) -> None:
    code = "import time\nfor n in range(40): print('line', n, flush=True)\ntime.sleep(60)"
    start(folder, Component.ETCD, code)
    deadline = time.monotonic() + 10
    while "line 39" not in (tail := processes.read_log_tail(Component.ETCD, folder)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "line 25" in tail
    assert "line 5\n" not in tail
    assert processes.read_log_tail(Component.KWOK, folder) == ""


def test_components_do_not_see_proxies_or_settings_of_other_control_planes(
    folder: SandboxFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    monkeypatch.setenv("https_proxy", "http://proxy.invalid")
    monkeypatch.setenv("ETCD_NAME", "other")
    monkeypatch.setenv("KUBECONFIG", "/other")
    start(folder, Component.ETCD, "import os, time; print(sorted(os.environ), flush=True); time.sleep(60)")
    deadline = time.monotonic() + 10
    while not (seen := processes.read_log_tail(Component.ETCD, folder)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "PATH" in seen
    for name in ("HTTPS_PROXY", "https_proxy", "ETCD_NAME", "KUBECONFIG"):
        assert name not in seen
