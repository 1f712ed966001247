"""Memory of a process: how often garbage is collected, and when freed memory goes back to the system."""

import ctypes
import gc
import threading
from contextlib import suppress
from typing import Final

from berth_core import forget_read_texts

RELEASE_SECONDS: Final = 600.0

_ALLOCATIONS_PER_COLLECTION: Final = 50_000
_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of `mallopt`, as in malloc.h."""
_MAPPED_FROM_BYTES: Final = 128 * 1024
"""The C library's own value at first, which it raises by itself unless it is set."""


def collect_garbage_rarely() -> None:
    """Let the garbage collector run rarely: objects of a cluster live long, or die by reference count.

    At Python's default threshold, collections take a tenth of the processor time of an operator, and of planning a
    large cluster.
    """
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)


def share_one_heap() -> None:
    """Let all threads allocate from one heap; call it before there are threads.

    The GNU C library gives threads heaps of their own, and `malloc_trim` does not return the free end of these. Large
    blocks, such as bodies of lists, are mapped one by one, and returned when they are freed. musl has no such call.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)


def release_memory() -> None:
    """Return memory to the system after a long piece of work, such as a plan of a large cluster.

    Objects in cycles would stay until the next full collection, which may be hours away. The C library keeps freed
    memory for the process unless `malloc_trim` returns it; musl has no such call. The texts that were cached of a
    cluster are little, but Python returns only whole mebibytes in which nothing is left.
    """
    forget_read_texts()
    gc.collect()
    return_free_memory()


def return_free_memory() -> None:
    """Return what is free by now to the system, without a collection: a few milliseconds after small pieces of work.

    Between what a large piece of work has left, the C library finds room for the next ones, and keeps their pages.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def release_memory_regularly(stop: threading.Event, seconds: float = RELEASE_SECONDS) -> None:
    """Return memory to the system again and again until `stop` is set, for a program without an end of its work.

    A full collection stops all threads meanwhile: a tenth of a second with thousands of Reservations.
    """
    while not stop.wait(seconds):
        release_memory()
