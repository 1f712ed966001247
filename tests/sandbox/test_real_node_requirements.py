"""Where real nodes cannot be, one sentence says what is missing."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.real_nodes.requirements import Machine, require_folder, require_real_nodes

PROGRAMS = ("containerd", "ctr", "containerd-shim-runc-v2", "runc", "ip", "nsenter", "unshare", "mount")
PLUGINS = ("bridge", "host-local", "loopback")
ALL_CAPABILITIES = "000001ffffffffff"
NOT_SYS_ADMIN = "000001ffffdfffff"


def write_program(file: Path, text: str = "exit 0") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine that has everything: cgroups of version 2 and programs that do nothing."""
    monkeypatch.setattr("berth_sandbox.real_nodes.requirements.SEARCH_PATHS", ())
    for name in PROGRAMS:
        write_program(tmp_path / "bin" / name)
    write_program(tmp_path / "bin" / "containerd", "echo containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20")
    for name in PLUGINS:
        write_program(tmp_path / "cni" / name)
    status, kernel_log, cgroups = tmp_path / "status", tmp_path / "kmsg", tmp_path / "cgroup"
    status.write_text(f"Name:\tpython\nCapEff:\t{ALL_CAPABILITIES}\n")
    kernel_log.write_text("")
    cgroups.mkdir()
    (cgroups / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids")
    return Machine(
        platform="linux",
        user_id=0,
        status=status,
        cgroups=cgroups,
        kernel_log=kernel_log,
        environ={"PATH": str(tmp_path / "bin")},
        network_plugin_folders=(str(tmp_path / "cni"),),
    )


def test_a_machine_that_has_everything_is_taken(machine: Machine) -> None:
    require_real_nodes("1.36", machine)


def without_programs(machine: Machine) -> Machine:
    for name in ("runc", "ip"):
        Path(machine.environ["PATH"], name).unlink()
    Path(machine.network_plugin_folders[0], "bridge").unlink()
    return machine


def without_capability(machine: Machine) -> Machine:
    machine.status.write_text(f"CapEff:\t{NOT_SYS_ADMIN}\n")
    return machine


def without_controllers(machine: Machine) -> Machine:
    (machine.cgroups / "cgroup.controllers").write_text("cpu io memory")
    return machine


def without_cgroups(machine: Machine) -> Machine:
    return replace(machine, cgroups=machine.cgroups / "absent")


def without_kernel_log(machine: Machine) -> Machine:
    machine.kernel_log.unlink()
    return machine


def with_refusing_kernel(machine: Machine) -> Machine:
    write_program(Path(machine.environ["PATH"], "unshare"), "echo unshare failed: Operation not permitted >&2; exit 1")
    return machine


MISSING_PROGRAMS = (
    "not found: runc, ip, the CNI plugins bridge, host-local, loopback in .*cni; on Debian and Ubuntu "
    "`apt-get install --no-install-recommends runc iproute2 containernetworking-plugins` installs them"
)
LACKING: Mapping[str, tuple[Callable[[Machine], Machine], str]] = {
    "macOS": (lambda machine: replace(machine, platform="darwin"), "they need Linux, and this is darwin"),
    "no root": (lambda machine: replace(machine, user_id=1000), "they need root.*with sudo"),
    "an unprivileged container": (without_capability, "lacks CAP_SYS_ADMIN"),
    "no kernel log": (without_kernel_log, "kmsg cannot be read"),
    "programs": (without_programs, MISSING_PROGRAMS),
    "no cgroups": (without_cgroups, "no cgroups are mounted at .*absent"),
    "controllers": (without_controllers, "the cgroup controllers cpuset, pids are missing"),
    "a kernel that refuses": (with_refusing_kernel, "failed with `unshare failed: Operation not permitted`"),
}


@pytest.mark.parametrize("lack", LACKING)
def test_what_a_machine_lacks_is_named_in_one_sentence(machine: Machine, lack: str) -> None:
    change, want_text = LACKING[lack]
    with pytest.raises(SandboxUnavailableError, match=f"^real nodes cannot run here: .*{want_text}") as raised:
        require_real_nodes("1.36", change(machine))
    assert "\n" not in str(raised.value)


def test_cgroups_that_cannot_be_written_are_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.access

    def access(path: str | Path, mode: int) -> bool:
        return allowed(path, mode) and not (mode == os.W_OK and Path(path) == machine.cgroups)

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(SandboxUnavailableError, match="cgroup cannot be written"):
        require_real_nodes("1.36", machine)


@pytest.mark.parametrize(
    "answer",
    [
        "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3",
        "containerd github.com/containerd/containerd 1.7.24 abc",
        "nonsense",
    ],
)
def test_kubernetes_1_37_needs_a_containerd_with_runtime_config(machine: Machine, answer: str) -> None:
    write_program(Path(machine.environ["PATH"], "containerd"), f"echo {answer}")
    with pytest.raises(SandboxUnavailableError, match=r"RuntimeConfig.*containerd 2\.0.*--kubernetes 1\.36"):
        require_real_nodes("1.37", machine)
    require_real_nodes("1.36", machine)


def test_kubernetes_1_37_takes_containerd_2(machine: Machine) -> None:
    answer = "containerd github.com/containerd/containerd/v2 v2.0.2 c507a0257ea6462fbd6f5ba4f5c74facb04021f4"
    write_program(Path(machine.environ["PATH"], "containerd"), f"echo {answer}")
    require_real_nodes("1.37", machine)


def test_a_folder_that_nodes_cannot_see_is_refused() -> None:
    require_folder(Path("/srv/state/berth/sandboxes/default"))
    with pytest.raises(SandboxUnavailableError, match=r"below /var/lib.*XDG_STATE_HOME"):
        require_folder(Path("/var/lib/ci/sandboxes/default"))


def test_a_folder_whose_socket_would_have_too_long_a_path_is_refused() -> None:
    require_folder(Path("/" + "x" * 94))
    with pytest.raises(SandboxUnavailableError, match="too long for a socket in it: 96 bytes at most"):
        require_folder(Path("/" + "x" * 96))
