"""Programs on a terminal of their own."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

_LEAST_SECONDS: Final = 120.0


class OnTerminal:
    """A program that has a terminal for its input and all its output."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor

    def read_until(self, wanted: str, seconds: float = _LEAST_SECONDS) -> str:
        """Return what it has shown since the last call once something is in it."""
        shown, deadline = b"", time.monotonic() + max(seconds, _LEAST_SECONDS)
        while wanted not in shown.decode(errors="replace"):
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            if select.select([self._descriptor], [], [], 0.2)[0]:
                shown += os.read(self._descriptor, 65536)
        return shown.decode(errors="replace")

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._descriptor, text.encode())


@contextmanager
def on_terminal(
    command: Sequence[str], *, environment: Mapping[str, str], columns: int = 100, lines: int = 30
) -> Iterator[OnTerminal]:
    """Run a program on a terminal; it is killed at the end of the block if it runs then."""
    ours, theirs = pty.openpty()
    size = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": str(lines)}
    try:
        with subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, **size},
            start_new_session=True,
        ) as process:
            os.close(theirs)
            try:
                yield OnTerminal(process, ours)
            finally:
                process.kill()
    finally:
        os.close(ours)
