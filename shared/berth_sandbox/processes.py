"""The processes of one sandbox: start, look-up, signals and end, also after their starter died."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.real_nodes.cgroups import SandboxCgroups

_GONE_WITHIN_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_NAMED_WITHIN_SECONDS: Final = 10.0
_NAME_POLL_SECONDS: Final = 0.001
_ENDED_STATES: Final = "ZX"
_TAIL_LINES: Final = 15


def spawn(component: str, command: tuple[str, ...], folder: SandboxFolder, *, search_path: str = "") -> None:
    """Start a component in a session of its own, which Ctrl-C does not reach, and record its pid.

    `search_path` is its PATH where that is not ours.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        command,
        component_environment(search_path),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(folder.log(component)), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # Python ignores SIGPIPE, and a signal that is ignored stays so across exec.
        setsigdef=[signal.SIGPIPE],
    )
    folder.pid_file(component).write_text(str(pid), encoding="ascii")
    wait_until_named(component, folder)


def wait_until_named(component: str, folder: SandboxFolder) -> None:
    """Wait until a new process has a command line, which it lacks until its exec is done."""
    deadline = time.monotonic() + _NAMED_WITHIN_SECONDS
    while find_pid(component, folder) is None and is_present(component, folder) and time.monotonic() < deadline:
        time.sleep(_NAME_POLL_SECONDS)


def component_environment(search_path: str = "") -> dict[str, str]:
    """Return the environment without proxies and variables of Go, Kubernetes and Berth.

    GOGC stays: how much memory may be spent to save processor time depends on the machine, not on the component.
    """
    # Else the same test would run with other settings, or through a proxy, on the machine of its next reader.
    unwanted = (
        "BERTH_",
        "KUBE",
        "ETCD_",
        "KWOK_",
        "GODEBUG",
        "GOMAXPROCS",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    )
    kept_variables = {name: value for name, value in os.environ.items() if not name.upper().startswith(unwanted)}
    return kept_variables | ({"PATH": search_path} if search_path else {})


def find_pid(component: str, folder: SandboxFolder) -> int | None:
    """Return the pid of a live component of this sandbox, else None.

    A recorded pid may belong to another process by now; ours has the sandbox's folder in its command line.
    """
    pid = _read_pid(component, folder)
    if pid is None:
        return None
    _reap(pid)
    return pid if str(folder.root) in read_command_line(pid) else None


def _read_pid(component: str, folder: SandboxFolder) -> int | None:
    try:
        return int(folder.pid_file(component).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def read_command_line(pid: int) -> str:
    """Return the command line of a process, "" if the process is gone or a zombie."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    completed = subprocess.run(  # noqa: S603 - a number is its only argument
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return completed.stdout


def find_children(pid: int) -> tuple[int, ...]:
    """Return the pids of a process' children, on Linux."""
    return tuple(int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _read_parent(entry) == pid)


def _read_parent(process: Path) -> int | None:
    try:
        # The name of the program stands in brackets before the other fields, and may have blanks and brackets itself
        # (proc(5)).
        return int((process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return None


def find_live(folder: SandboxFolder) -> dict[Component, int]:
    """Return the live components of a sandbox and their pids."""
    pids = {component: find_pid(component, folder) for component in Component}
    return {component: pid for component, pid in pids.items() if pid is not None}


def send_signal(component: str, folder: SandboxFolder, number: signal.Signals) -> bool:
    """Send a signal to a component; return whether it was alive to get it."""
    pid = find_pid(component, folder)
    if pid is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end(components: Iterable[str], folder: SandboxFolder) -> None:
    """Kill components and wait until they are gone; they have nothing worth an orderly end."""
    to_end = tuple(components)
    deadline = time.monotonic() + _GONE_WITHIN_SECONDS
    while still_present := [component for component in to_end if is_present(component, folder)]:
        if time.monotonic() > deadline:
            return
        for component in still_present:  # repeatedly: a starting process shows only later that it is ours
            send_signal(component, folder, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    for component in to_end:
        folder.pid_file(component).unlink(missing_ok=True)


def end_all(folder: SandboxFolder) -> None:
    """Kill all processes of a sandbox and wait until they are gone, even those on real nodes without a pid file."""
    try:
        SandboxCgroups(folder.root).remove()
    finally:
        end(Component, folder)


def is_present(component: str, folder: SandboxFolder) -> bool:
    """Return whether a component is alive, starting or dying; a dying one still has its port open.

    A process that starts has no command line for an instant; a process that is ending loses it first and closes its
    sockets later.
    """
    pid = _read_pid(component, folder)
    if pid is None:
        return False
    line = read_command_line(pid)
    return str(folder.root) in line if line else not _has_ended(pid)


def _has_ended(pid: int) -> bool:
    """Return whether a process and all its threads have ended, as those of an unreaped zombie have."""
    if _reap(pid):
        return True
    if sys.platform != "linux":
        return not _exists(pid)
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return True
    return state in _ENDED_STATES and threads <= 1


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def read_log_tail(component: str, folder: SandboxFolder) -> str:
    """Return the last lines of a component's log."""
    try:
        lines = folder.log(component).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-_TAIL_LINES:])


def _reap(pid: int) -> bool:
    """Reap an ended child of ours; return whether there was one."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
