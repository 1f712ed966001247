"""What a plan leaves among much that is freed keeps no memory but its own."""

import os
import platform
import subprocess
import sys

import pytest

KEEPS_FEW_OF_MANY = """
import sys
from berth_service.allocator import use_system_allocator
from berth_service.process import release_memory, share_one_heap

def resident_kilobytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

if sys.argv[1] == "system":
    use_system_allocator()
share_one_heap()
release_memory()
before = resident_kilobytes()
many = [(number,) for number in range(400_000)]
few = many[::2_000]
del many
release_memory()
print(resident_kilobytes() - before, *sys.argv[1:])
"""


def run(*arguments: str, **environment: str) -> list[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"} | environment
    command = [sys.executable, "-c", KEEPS_FEW_OF_MANY, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library returns single pages")
@pytest.mark.parametrize(("allocator", "want_kept"), [("python's", True), ("system", False)])
def test_few_objects_keep_no_memory_beside_them(allocator: str, want_kept: bool) -> None:  # noqa: FBT001 - the case
    kept_kilobytes, *arguments = run(allocator, "--an option", "*")
    assert (int(kept_kilobytes) > 10_000) is want_kept
    assert arguments == [allocator, "--an", "option", "*"]


def test_an_allocator_that_was_chosen_stays() -> None:
    kept_kilobytes, *_ = run("system", PYTHONMALLOC="pymalloc")
    assert int(kept_kilobytes) > 10_000
