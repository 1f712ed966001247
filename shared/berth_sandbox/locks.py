"""Locks between processes: the holder of a file's lock works, the others wait."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a file's lock, creating the file; `on_wait` is called once if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # This releases the lock. The file stays: of two processes one could lock the old and one a new file of its
        # name.
        os.close(descriptor)
