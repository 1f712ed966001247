"""Owns the taking of a sandbox's folder: two starts under one name never share it.

It does not own where the folder is: that is `folders`.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth_sandbox import processes
from berth_sandbox.errors import SandboxNameError
from berth_sandbox.folders import SandboxFolder, named_folder, temporary_folder


@contextmanager
def claim_folder(name: str | None) -> Iterator[SandboxFolder]:
    """Yield an empty folder for a new sandbox; raise `SandboxNameError` when one of that name is up or starting.

    The folder itself is locked while it is being filled, and what a dead sandbox left in it is removed.
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
        _empty(folder.root)
        folder.make()
        yield folder
    finally:
        os.close(lock)


def _lock_folder(root: Path, name: str) -> int:
    """Return a locked descriptor of the folder, making it first; whoever stops a sandbox may remove it meanwhile."""
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
    """Remove what is in a folder, not the folder."""
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
