"""Standard output belongs to the program: what libraries print does not get into it.

A library may print when it is imported, while it works or, from C, when the process ends, with `print` or straight to
the file descriptor. So the entry point of a program first moves standard output to a descriptor of its own, before it
imports any library, and never moves it back. The program itself writes to `own_output()`.
"""

import io
import logging
import os
import sys
from typing import Final, TextIO

_STDOUT: Final = 1
_STDERR: Final = 2

_own: TextIO | None = None


def own_output() -> TextIO:
    """Return the stream for the program's own standard output.

    Without an entry point, as in tests, this is `sys.stdout`.
    """
    return sys.stdout if _own is None else _own


def keep_output_apart() -> None:
    """Send what libraries print to standard error, as a command does; calling it again changes nothing."""
    if _take_over():
        os.dup2(_STDERR, _STDOUT)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # what is printed appears when it is printed


def keep_logs_apart() -> None:
    """Keep what libraries print out of the log, for a service whose standard error is lines of JSON.

    What they print in Python, and Python's warnings, become lines of the log. What they print in C is dropped: only
    another thread could read it, and C code that fills the pipe while it holds the GIL would wait for that thread for
    ever.
    """
    if _take_over():
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
        sys.stdout = _LoggedLines()
        logging.captureWarnings(capture=True)


def give_output_back() -> None:
    """Let descriptor 1 lead to standard output again, before this process executes another program."""
    if _own is not None:
        _own.flush()
        os.dup2(_own.fileno(), _STDOUT)


def discard_output() -> None:
    """Drop buffered and later output once writing has failed: Python would try again at exit."""
    if _own is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _own.fileno())
        os.close(nowhere)


def _take_over() -> bool:
    """Move standard output to a descriptor of its own; return False if that was done before."""
    global _own  # noqa: PLW0603 - a process has one standard output
    if _own is not None:
        return False
    for descriptor in range(_STDERR + 1):
        if not _is_open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # POSIX gives the lowest free number, so no later file gets this one
    old = sys.stdout if isinstance(sys.stdout, io.TextIOWrapper) else None
    own_stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(os.dup(_STDOUT), "w")),
        encoding=old.encoding if old else "utf-8",
        errors=old.errors if old else "replace",
        line_buffering=old.line_buffering if old else False,
        write_through=old.write_through if old else False,
    )
    sys.__stdout__ = own_stdout  # type: ignore[misc] # `shutil.get_terminal_size` asks this stream
    _own = own_stdout
    return True


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class _LoggedLines(io.TextIOBase):
    """A stream whose lines are logged."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(None, lines):
            logging.getLogger(__name__).info("%s", line)
        return len(text)
