"""The allocator of a program that holds a large cluster for a while."""

import os
import sys
from typing import Final

_VARIABLE: Final = "PYTHONMALLOC"
_OF_GLIBC: Final = "CS_GNU_LIBC_VERSION"


def use_system_allocator() -> None:
    """Begin the process anew with its arguments, on the C library's allocator; call it before there are threads.

    Python's own allocator returns memory by the mebibyte (`ARENA_SIZE` in Objects/obmalloc.c): a few objects that
    outlive a plan keep all that was allocated beside them. `malloc_trim` of the GNU C library returns each free page.
    Does nothing where `PYTHONMALLOC` names an allocator, or with another C library.
    """
    if not os.environ.get(_VARIABLE) and _OF_GLIBC in os.confstr_names and os.confstr(_OF_GLIBC):
        os.environ[_VARIABLE] = "malloc"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program
