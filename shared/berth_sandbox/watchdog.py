"""Clean-up after the starter of a sandbox died without stopping it.

Run as `python -m berth_sandbox.watchdog FOLDER` with a pipe as standard input, whose other end only the starter holds:
the pipe ends when the starter does, whatever ended it.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from berth_sandbox import processes
from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder, remove_folder

_LET_GO: Final = b"let go"
_EXIT_WITHIN_SECONDS: Final = 10.0


class Watchdog:
    """The starter's end of the pipe."""

    def __init__(self, folder: SandboxFolder) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "berth_sandbox.watchdog", str(folder.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self, *, keep: bool) -> None:
        """End the watchdog; with `keep` the sandbox outlives its starter."""
        try:
            self._process.communicate(_LET_GO if keep else b"", timeout=_EXIT_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch(folder: SandboxFolder) -> None:
    """Wait until the starter dismisses it or dies.

    Cleans up what a dead starter left.
    """
    if sys.stdin.buffer.read() != _LET_GO:
        processes.end(Component, folder)
        remove_folder(folder.root)


if __name__ == "__main__":
    watch(SandboxFolder(Path(sys.argv[1])))
