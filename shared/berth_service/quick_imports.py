"""Imports without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Keep the garbage collector off while modules are imported.

    Imports leave no garbage behind, and the collector takes up to a fifth of the time in which a command starts.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
