"""Clean-up after the starter of a sandbox died without stopping it.

Run as a program with a folder and a pipe as its input, whose other end only the starter holds: the pipe ends when the
starter does, whatever ended it.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from berth_sandbox.folders import SandboxFolder, remove_folder
from berth_sandbox.processes import end_all

_DISMISSED: Final = b"dismissed"
_EXIT_WITHIN_SECONDS: Final = 10.0


class Watchdog:
    """The starter's end of the pipe."""

    def __init__(self, folder: SandboxFolder) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            # Without the current folder on the path: a module of the same name there would be run in place of ours.
            [sys.executable, "-P", "-m", __name__, str(folder.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C goes to every process of the terminal's group, and this one has to outlive the starter.
            start_new_session=True,
        )

    def dismiss(self, *, keep: bool) -> None:
        """End the watchdog; with `keep` the sandbox outlives its starter."""
        try:
            self._process.communicate(_DISMISSED if keep else b"", timeout=_EXIT_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch(folder: SandboxFolder) -> None:
    """Wait until the starter dismisses the watchdog or dies; clean up what a dead starter left."""
    if sys.stdin.buffer.read() != _DISMISSED:
        end_all(folder)
        remove_folder(folder.root)


if __name__ == "__main__":
    watch(SandboxFolder(Path(sys.argv[1])))
