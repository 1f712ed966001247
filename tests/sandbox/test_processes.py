import json
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
from berth_sandbox.readiness import wait_for
from waiting import soon

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
UNTIL_TOLD = "import os, sys, time\nwhile not os.path.exists(sys.argv[1] + '/end'): time.sleep(0.01)"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SandboxFolder]:
    made = SandboxFolder(tmp_path / "sandbox")
    made.make()
    yield made
    processes.end(Component, made)


def start(folder: SandboxFolder, component: Component, code: str = SLEEP[2]) -> int:
    processes.spawn(component, (sys.executable, "-c", code, str(folder.root)), folder)
    pid = processes.find_pid(component, folder)
    assert pid is not None
    return pid


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
        soon("it shows its command line", lambda: processes.read_command_line(stranger.pid))
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
    start(folder, Component.ETCD, UNTIL_TOLD)
    (folder.root / "end").touch()
    soon("it has ended", lambda: processes.find_pid(Component.ETCD, folder) is None)


def seeming_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next looks at processes find them without a command line, as at the instant of their start."""
    read, early = processes.read_command_line, [""] * 3
    monkeypatch.setattr(processes, "read_command_line", lambda pid: early.pop() if early else read(pid))


def test_a_component_that_is_just_starting_is_ended_as_well(
    folder: SandboxFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(folder, Component.ETCD)
    seeming_new(monkeypatch)
    processes.end(Component, folder)
    assert not folder.pid_file(Component.ETCD).exists()


def test_a_component_that_is_just_starting_has_not_ended(
    folder: SandboxFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(folder, Component.ETCD)
    seeming_new(monkeypatch)
    answers = iter([False, False, True])
    wait_for(lambda: next(answers), component=Component.ETCD, folder=folder, deadline=time.monotonic() + 600)


def test_what_a_component_wrote_is_kept_to_its_end(folder: SandboxFolder) -> None:
    code = "import time\nfor n in range(40): print('line', n, flush=True)\ntime.sleep(600)"
    start(folder, Component.ETCD, code)
    soon("the last line is there", lambda: "line 39" in processes.read_log_tail(Component.ETCD, folder))
    tail = processes.read_log_tail(Component.ETCD, folder)
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
    monkeypatch.setenv("GOGC", "200")
    code = "import json, os, time; print(json.dumps(list(os.environ)), flush=True); time.sleep(600)"
    start(folder, Component.ETCD, code)
    soon("it has said all", lambda: processes.read_log_tail(Component.ETCD, folder).endswith("]"))
    seen = set(json.loads(processes.read_log_tail(Component.ETCD, folder)))
    assert {"PATH", "GOGC"} <= seen
    assert not seen & {"HTTPS_PROXY", "https_proxy", "ETCD_NAME", "KUBECONFIG"}
