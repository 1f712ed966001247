"""Claim of a sandbox's folder: two starts under one name never share it."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth_sandbox import processes
from berth_sandbox.errors import SandboxNameError
from berth_sandbox.folders import SandboxFolder, named_folder, temporary_folder
from berth_sandbox.real_nodes.cgroups import SandboxCgroups


@contextmanager
def claim_folder(name: str | None) -> Iterator[SandboxFolder]:
    """Yield an empty folder for a new sandbox, locked while it is filled.

    A dead sandbox's files in it are removed. Raises `SandboxNameError` if the name is taken.
    """
    if name is None:
        folder = SandboxFolder(temporary_folder())
        folder.make()
        yield folder
        return
    folder = SandboxFolder(named_folder(name))
    lock = _lock_folder(folder.root, name)
    try:
        live = processes.find_live(folder)
        if live:
            raise SandboxNameError(
                f"the sandbox {name!r} is already up; use it, or stop it with `berth sandbox down --name {name}`"
            )
        SandboxCgroups(folder.root).remove()
        # Not removed as a whole: the lock is on this very folder, and a new one of its name would have none.
        _empty(folder.root)
        folder.make()
        yield folder
    finally:
        os.close(lock)


def _lock_folder(root: Path, name: str) -> int:
    """Create and lock the folder, again if a process that stops the sandbox removes it meanwhile."""
    while True:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(root, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == root.stat().st_ino:
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise SandboxNameError(f"the sandbox {name!r} is just being started by another process") from error
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _empty(root: Path) -> None:
    """Remove a folder's contents, not the folder."""
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
