"""The cgroups of one sandbox: its real nodes' processes are in them from their first instruction on.

Whatever started them and whatever became of that, these processes can be found and ended here. Below the cgroup of a
sandbox are one for its daemons and one for each node, below which the kubelet makes those of the pods. With version 1
there is a hierarchy for every controller, with version 2 a single one, in which a cgroup with children that have
controllers cannot hold processes itself.
"""

import hashlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_sandbox.errors import SandboxError

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")

_DAEMONS: Final = "daemons"
_HASH_LENGTH: Final = 12
_PROCESSES: Final = "cgroup.procs"
_CONTROLLERS: Final = "cgroup.controllers"
_ENABLED: Final = "cgroup.subtree_control"
_CPUSET: Final = ("cpuset.cpus", "cpuset.mems")
_NEEDED: Final = ("cpu", "cpuset", "memory", "pids")
"""Controllers without which a kubelet does not start."""
_GONE_WITHIN_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class SandboxCgroups:
    """The cgroups of the sandbox whose folder this is."""

    sandbox: Path
    root: Path = CGROUP_ROOT

    @property
    def name(self) -> str:
        """The name of the sandbox's cgroup, which follows from its folder alone."""
        return f"berth-sandbox-{hashlib.sha256(str(self.sandbox).encode()).hexdigest()[:_HASH_LENGTH]}"

    def node_path(self, node: str) -> str:
        """Return a node's cgroup as the kubelet names it."""
        return f"/{self.name}/{node}"

    def make(self, nodes: Iterable[str]) -> None:
        """Make the cgroups; raises `SandboxError` where the machine does not let that happen."""
        try:
            if self._is_unified:
                enable_controllers(self.root)
            for hierarchy in self._hierarchies():
                own_cgroup = hierarchy / self.name
                self._make_cgroup(own_cgroup, inherits=True)
                for name in nodes:
                    self._make_cgroup(own_cgroup / name, inherits=True)
                self._make_cgroup(own_cgroup / _DAEMONS, inherits=False)
        except OSError as error:
            raise SandboxError(f"the cgroups of the real nodes cannot be made: {error}") from error

    def _make_cgroup(self, cgroup: Path, *, inherits: bool) -> None:
        """Make one cgroup, with the controllers of its parent where it has children itself."""
        cgroup.mkdir(exist_ok=True)
        if self._is_unified:
            if inherits:
                enable_controllers(cgroup)
            return
        for name in _CPUSET:  # of version 1: empty in a new cgroup, which then takes no process
            file = cgroup / name
            if file.exists():
                file.write_text((cgroup.parent / name).read_text(encoding="ascii"), encoding="ascii")

    @property
    def _is_unified(self) -> bool:
        return (self.root / _CONTROLLERS).exists()

    def _hierarchies(self) -> list[Path]:
        """Return the folder of each hierarchy that processes are put into."""
        return [self.root] if self._is_unified else [path for path in self._every_hierarchy() if path.name != "unified"]

    def _every_hierarchy(self) -> list[Path]:
        """Return the folder of each hierarchy; runc makes cgroups also in a version 2 that stands beside version 1."""
        if self._is_unified:
            return [self.root]
        folders = sorted(self.root.iterdir()) if self.root.is_dir() else []
        return [path for path in folders if not path.is_symlink() and (path / _PROCESSES).exists()]

    def wrap(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command that enters the daemons' cgroup before it becomes the given one."""
        files = [str(hierarchy / self.name / _DAEMONS / _PROCESSES) for hierarchy in self._hierarchies()]
        # 0 is whichever process writes it, here the shell, whose id does not change by its exec.
        script = f'n={len(files)}; while [ $n -gt 0 ]; do echo 0 > "$1" || exit 1; shift; n=$((n-1)); done; exec "$@"'
        return ("/bin/sh", "-c", script, str(self.sandbox), *files, *command)

    def pids(self) -> set[int]:
        """Return the processes in the sandbox's cgroups, as this process sees them."""
        pids: set[int] = set()
        for cgroup in self._own():  # every process is in all of them, but for the instant in which it enters
            pids = {int(pid) for file in cgroup.rglob(_PROCESSES) for pid in _read_lines(file)}
            if pids:
                break
        return pids

    def remove(self) -> None:
        """Kill all processes in the sandbox's cgroups and remove the cgroups, if there are any.

        Raises `SandboxError` if a process does not end.
        """
        own_cgroups = self._own()
        deadline = time.monotonic() + _GONE_WITHIN_SECONDS
        while own_cgroups:
            pids = self.pids()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            for cgroup in () if pids else own_cgroups:
                _remove_tree(cgroup)
            own_cgroups = self._own()
            if own_cgroups and time.monotonic() > deadline:
                raise SandboxError(f"processes {sorted(self.pids())} of {own_cgroups[0]} do not end")
            if own_cgroups:
                time.sleep(_POLL_SECONDS)

    def _own(self) -> list[Path]:
        return [cgroup for path in self._every_hierarchy() if (cgroup := path / self.name).is_dir()]


def missing_controllers(root: Path = CGROUP_ROOT) -> list[str]:
    """Return the controllers that kubelets need and this machine does not have."""
    if (root / _CONTROLLERS).exists():
        controllers = set((root / _CONTROLLERS).read_text(encoding="ascii").split())
    else:
        controllers = {path.name for path in root.iterdir() if (path / _PROCESSES).exists()} if root.is_dir() else set()
        controllers |= {name for entry in controllers for name in entry.split(",")}
    return [name for name in _NEEDED if name not in controllers]


def enable_controllers(cgroup: Path) -> None:
    """Enable the controllers that kubelets need for the children of a cgroup of version 2.

    Raises OSError where the cgroup holds processes, which are never moved: version 2 has no processes in inner cgroups.
    """
    available = (cgroup / _CONTROLLERS).read_text(encoding="ascii").split()
    enabled = (cgroup / _ENABLED).read_text(encoding="ascii").split()
    missing = [name for name in available if name not in enabled and (name in _NEEDED or name in ("io", "hugetlb"))]
    if missing:
        (cgroup / _ENABLED).write_text(" ".join(f"+{name}" for name in missing), encoding="ascii")


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:  # the cgroup has just been removed
        return []


def _remove_tree(cgroup: Path) -> None:
    """Remove a cgroup and those below it, as far as they are empty."""
    # The deepest first: a cgroup with children cannot be removed.
    cgroups_below = sorted((path for path in cgroup.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
    for path in (*cgroups_below, cgroup):
        with suppress(OSError):  # a process that is just ending, or another one that removes it, too
            path.rmdir()
