"""Requirements of real nodes on the machine, and the refusal that names what is missing."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.real_nodes.cgroups import CGROUP_ROOT, missing_controllers
from berth_sandbox.real_nodes.namespaces import HIDDEN_FOLDERS

SEARCH_PATHS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Beside the PATH, which in a plain `su` has none of them."""

_PACKAGES: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "util-linux",
}
"""The programs, each with the package of Debian that brings it."""
_NETWORK_PLUGINS: Final = ("bridge", "host-local", "loopback")
_NETWORK_PLUGINS_PACKAGE: Final = "containernetworking-plugins"
_NETWORK_PLUGIN_FOLDERS: Final = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_SYS_ADMIN: Final = 21
"""CAP_SYS_ADMIN's bit."""
_NEEDS_RUNTIME_CONFIG: Final = (1, 37)
"""From this Kubernetes on a kubelet refuses a container runtime that lacks the call RuntimeConfig."""
_FIRST_WITH_RUNTIME_CONFIG: Final = (2, 0)
_ANSWER_WITHIN_SECONDS: Final = 30
# Of the 108 bytes of `sun_path` the last is zero (unix(7)).
_LONGEST_SOCKET_PATH: Final = 107
_TRIAL: Final = """set -e
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/lower /run/upper /run/work /run/merged
ip link set lo up
ip link add trial-bridge type bridge
ip link add trial-0 type veth peer name trial-1
echo 1 > /proc/sys/net/ipv4/ip_forward
"""
"""A part of what nodes need of the kernel, in namespaces that end with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts about this machine that decide whether real nodes can run on it."""

    platform: str = sys.platform
    user_id: int = field(default_factory=os.geteuid)
    status: Path = Path("/proc/self/status")
    cgroups: Path = CGROUP_ROOT
    kernel_log: Path = Path("/dev/kmsg")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    network_plugin_folders: tuple[str, ...] = _NETWORK_PLUGIN_FOLDERS

    @property
    def search_path(self) -> str:
        """Where programs are searched."""
        return os.pathsep.join((self.environ.get("PATH", ""), *SEARCH_PATHS))

    def find_program(self, name: str) -> str | None:
        return shutil.which(name, path=self.search_path)

    def network_plugin_folder(self) -> str | None:
        """Return the folder with the network plugins, None where none has them all."""
        for folder in self.network_plugin_folders:
            if all(os.access(Path(folder, name), os.X_OK) for name in _NETWORK_PLUGINS):
                return folder
        return None


def require_real_nodes(kubernetes: str, machine: Machine | None = None) -> None:
    """Raise `SandboxUnavailableError`, which says what is missing, where real nodes cannot run."""
    machine = machine or Machine()
    refusal = refusal_of_machine(machine) or _refusal_of_programs(machine)
    refusal = refusal or _refusal_of_runtime(machine, kubernetes) or _refusal_of_kernel(machine)
    if refusal:
        raise SandboxUnavailableError(f"real nodes cannot run here: {refusal}")


def refusal_of_machine(machine: Machine | None = None) -> str:
    """Return why real nodes cannot run here, whatever is installed; "" where they can."""
    machine = machine or Machine()
    return _refusal_of_platform(machine) or _refusal_of_cgroups(machine)


def require_folder(folder: Path) -> None:
    """Raise `SandboxUnavailableError` where the nodes could not see the sandbox's folder, or reach its socket."""
    for hidden in HIDDEN_FOLDERS:
        if folder.is_relative_to(hidden):
            raise SandboxUnavailableError(
                f"the sandbox's folder {folder} is below {hidden}, which real nodes replace with an empty folder; "
                "set XDG_STATE_HOME and XDG_CACHE_HOME to folders elsewhere"
            )
    longest = _LONGEST_SOCKET_PATH - len("/relay.sock")
    if len(os.fsencode(folder)) > longest:
        raise SandboxUnavailableError(
            f"the path of the sandbox's folder {folder} is too long for a socket in it: {longest} bytes at most"
        )


def _refusal_of_platform(machine: Machine) -> str:
    if machine.platform != "linux":
        return f"they need Linux, and this is {machine.platform}"
    if machine.user_id != 0:
        return "they need root, since they make namespaces, mounts and cgroups; run the same command with sudo"
    if not _read_capabilities(machine.status) >> _SYS_ADMIN & 1:
        return "root lacks CAP_SYS_ADMIN here, as in a container that is not privileged"
    if not os.access(machine.kernel_log, os.R_OK):
        return f"a kubelet reads the kernel's log, and {machine.kernel_log} cannot be read"
    return ""


def _read_capabilities(status: Path) -> int:
    """Return the effective capabilities of this process, one bit each."""
    for line in status.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _refusal_of_programs(machine: Machine) -> str:
    missing = {name: package for name, package in _PACKAGES.items() if machine.find_program(name) is None}
    parts = list(missing)
    packages = dict.fromkeys(missing.values())
    if machine.network_plugin_folder() is None:
        parts.append(f"the CNI plugins {', '.join(_NETWORK_PLUGINS)} in {' or '.join(machine.network_plugin_folders)}")
        packages[_NETWORK_PLUGINS_PACKAGE] = None
    if not parts:
        return ""
    install = f"apt-get install --no-install-recommends {' '.join(packages)}"
    return f"not found: {', '.join(parts)}; on Debian and Ubuntu `{install}` installs them"


def _refusal_of_cgroups(machine: Machine) -> str:
    if not machine.cgroups.is_dir() or not any(machine.cgroups.iterdir()):
        return f"no cgroups are mounted at {machine.cgroups}"
    missing = missing_controllers(machine.cgroups)
    if missing:
        return f"the cgroup controllers {', '.join(missing)} are missing at {machine.cgroups}"
    hierarchies = [path.parent for path in machine.cgroups.glob("*/cgroup.procs")] or [machine.cgroups]
    closed_paths = [str(path) for path in hierarchies if not os.access(path, os.W_OK)]
    return (
        f"{', '.join(sorted(closed_paths))} cannot be written, as in a container that is not privileged"
        if closed_paths
        else ""
    )


def _refusal_of_runtime(machine: Machine, kubernetes: str) -> str:
    if tuple(int(part) for part in kubernetes.split(".")) < _NEEDS_RUNTIME_CONFIG:
        return ""
    text = _output_of(machine, "containerd", "--version")
    version = re.search(r"\bv?(\d+)\.(\d+)\.\d+", text)
    if version is not None and (int(version[1]), int(version[2])) >= _FIRST_WITH_RUNTIME_CONFIG:
        return ""
    return (
        f"the kubelet of Kubernetes {kubernetes} refuses a containerd without the call RuntimeConfig, which came with "
        f"containerd 2.0, and this machine has `{text.strip() or 'an unknown one'}`; an older Kubernetes takes it, as "
        "in `--kubernetes 1.36`"
    )


def _refusal_of_kernel(machine: Machine) -> str:
    command = ("unshare", "--mount", "--net", "--pid", "--fork", "--propagation=private", "/bin/sh", "-c", _TRIAL)
    refused = _output_of(machine, *command, only_if_failed=True)
    return f"a trial of namespaces, mounts and network interfaces failed with `{refused.strip()}`" if refused else ""


def _output_of(machine: Machine, *command: str, only_if_failed: bool = False) -> str:
    """Return the last line that a command wrote, or why it did not run."""
    try:
        answer = subprocess.run(  # noqa: S603 - fixed commands
            command,
            env={**machine.environ, "PATH": machine.search_path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_ANSWER_WITHIN_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if only_if_failed and answer.returncode == 0:
        return ""
    return (answer.stdout.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
