"""The cgroups of real nodes, on folders that look like both versions of the kernel's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from berth_sandbox.errors import SandboxError
from berth_sandbox.real_nodes.cgroups import SandboxCgroups, missing_controllers

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Return a root like that of version 1, with a version 2 beside it."""
    root = tmp_path / "one"
    for name in (*CONTROLLERS, "systemd", "unified"):
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").write_text("1\n")
    (root / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (root / "cpuset" / "cpuset.mems").write_text("0\n")
    return root


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Return a root like that of version 2."""
    root = tmp_path / "two"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma\n")
    (root / "cgroup.subtree_control").write_text("cpu memory\n")
    (root / "cgroup.procs").write_text("1\n")
    return root


def test_each_hierarchy_of_version_1_gets_cgroups_for_daemons_and_nodes(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def mkdir(path: Path, *, exist_ok: bool = False) -> None:
        """Make a folder as the kernel does: a cpuset has its files, empty."""
        make(path, exist_ok=exist_ok)
        if "cpuset" in path.parts:
            (path / "cpuset.cpus").write_text("")
            (path / "cpuset.mems").write_text("")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    cgroups = SandboxCgroups(tmp_path / "sandbox", first)
    cgroups.make(("real-1", "real-2"))
    for name in (*CONTROLLERS, "systemd"):
        below = sorted(path.name for path in (first / name / cgroups.name).iterdir() if path.is_dir())
        assert below == ["daemons", "real-1", "real-2"]
    assert not (first / "unified" / cgroups.name).exists()
    node = first / "cpuset" / cgroups.name / "real-2"
    assert ((node / "cpuset.cpus").read_text(), (node / "cpuset.mems").read_text()) == ("0-1\n", "0\n")
    assert cgroups.node_path("real-2") == f"/{cgroups.name}/real-2"


def test_version_2_enables_only_what_kubelets_need_and_is_not_enabled(
    second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def mkdir(path: Path, *, exist_ok: bool = False) -> None:
        make(path, exist_ok=exist_ok)
        (path / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids")
        (path / "cgroup.subtree_control").write_text("")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    cgroups = SandboxCgroups(tmp_path / "sandbox", second)
    cgroups.make(("real-1",))
    assert (second / "cgroup.subtree_control").read_text() == "+cpuset +io +hugetlb +pids"
    everything = "+cpuset +cpu +io +memory +hugetlb +pids"
    assert (second / cgroups.name / "cgroup.subtree_control").read_text() == everything
    assert (second / cgroups.name / "real-1" / "cgroup.subtree_control").read_text() == everything
    assert (second / cgroups.name / "daemons" / "cgroup.subtree_control").read_text() == "", "it holds processes"
    assert (second / "cgroup.procs").read_text() == "1\n", "no process of others is moved"


def test_a_cgroup_that_may_not_be_changed_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    root = tmp_path / "two"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu memory pids")
    (root / "cgroup.subtree_control").mkdir()
    with pytest.raises(SandboxError, match="cgroups of the real nodes cannot be made"):
        SandboxCgroups(tmp_path, root).make(("real-1",))


def test_controllers_are_missed_in_both_versions(first: Path, second: Path, tmp_path: Path) -> None:
    assert missing_controllers(first) == missing_controllers(second) == []
    (first / "pids" / "cgroup.procs").unlink()
    (second / "cgroup.controllers").write_text("cpu pids")
    assert missing_controllers(first) == ["pids"]
    assert missing_controllers(second) == ["cpuset", "memory"]
    assert missing_controllers(tmp_path / "absent") == list(CONTROLLERS)


def test_joint_controllers_of_version_1_count_each(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "cpuset", "memory", "pids"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("")
    assert missing_controllers(tmp_path) == []


def test_a_command_enters_every_hierarchy_before_it_runs(first: Path, tmp_path: Path) -> None:
    cgroups = SandboxCgroups(tmp_path / "sandbox", first)
    for name in (*CONTROLLERS, "systemd"):
        (first / name / cgroups.name / "daemons").mkdir(parents=True)
    answer = subprocess.run(cgroups.wrap(("echo", "two words", "$1")), capture_output=True, text=True, check=True)
    assert answer.stdout == "two words $1\n"
    for name in (*CONTROLLERS, "systemd"):
        assert (first / name / cgroups.name / "daemons" / "cgroup.procs").read_text() == "0\n"


def test_a_command_that_cannot_enter_does_not_run(first: Path, tmp_path: Path) -> None:
    answer = subprocess.run(
        SandboxCgroups(tmp_path, first).wrap(("echo", "ran")), capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout) == (1, "")


def test_removal_ends_every_process_and_then_removes_every_cgroup(first: Path, tmp_path: Path) -> None:
    cgroups = SandboxCgroups(tmp_path / "sandbox", first)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    own = first / "memory" / cgroups.name
    (own / "real-1" / "kubepods").mkdir(parents=True)
    (first / "unified" / cgroups.name).mkdir()
    other = first / "memory" / "berth-sandbox-of-another"
    other.mkdir()
    listed = own / "real-1" / "kubepods" / "cgroup.procs"
    listed.write_text(f"{sleeper.pid}\n")
    assert cgroups.pids() == {sleeper.pid}
    seen: list[int] = []
    really_kill = os.kill

    def kill(pid: int, number: int) -> None:
        """End a process as the kernel does: its cgroup no longer lists it."""
        seen.append(pid)
        listed.unlink()
        really_kill(pid, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "kill", kill)
        cgroups.remove()
    assert seen == [sleeper.pid]
    assert not own.exists()
    assert not (first / "unified" / cgroups.name).exists()
    assert other.exists()
    sleeper.wait(30)


def test_each_sandbox_has_cgroups_of_its_own(tmp_path: Path) -> None:
    names = {SandboxCgroups(tmp_path / name).name for name in ("one", "two")}
    assert len(names) == 2
    assert SandboxCgroups(tmp_path / "one").name in names, "it follows from the folder alone"


def test_where_there_are_no_cgroups_there_is_nothing_to_remove(tmp_path: Path) -> None:
    cgroups = SandboxCgroups(tmp_path, tmp_path / "absent")
    cgroups.remove()
    assert cgroups.pids() == set()
