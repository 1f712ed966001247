"""What both services do alike: how they are named, where they listen, how they log."""

import gc
import json
import logging
import platform
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

import log_lines
from berth_core import shared_parts
from berth_core.errors import BerthError, InputError, PermanentError, RetryableError
from berth_core.objects.metadata import LabelSelectorRequirement
from berth_core.resources import ResourceAmounts, parse_quantity
from berth_kube.errors import (
    Call,
    Failure,
    ForbiddenError,
    NotFoundError,
    ServerError,
    UnauthorizedError,
    UnreachableError,
)
from berth_service.logs import configure_logs
from berth_service.memory import release_memory, release_memory_regularly
from berth_service.process import parse_address, unique_identity
from waiting import soon

CALL = Call("list", "nodes")
FAILURE = Failure(500, "Odd", "so it is")


class InACycle:
    def __init__(self) -> None:
        self.itself = self


def test_released_memory_has_no_cycles_left() -> None:
    gc.disable()
    try:
        left = weakref.ref(InACycle())
        assert left() is not None
        release_memory()
        assert left() is None
    finally:
        gc.enable()


def test_released_memory_has_no_quantities_of_a_cluster_left() -> None:
    assert ResourceAmounts.from_quantities({"cpu": "1500m"}) == ResourceAmounts.from_quantities({"cpu": "1.5"})
    assert parse_quantity.cache_info().currsize > 0
    release_memory()
    assert parse_quantity.cache_info().currsize == 0
    assert ResourceAmounts.from_quantities({"cpu": "1500m"}).get("cpu") == 1500


def caches_of_texts() -> Iterator[tuple[str, Any]]:
    """Yield all caches of functions that read texts, also those of classes."""
    for module_name, module in [*sys.modules.items()]:
        if module_name.startswith("berth_core."):
            for owner in (module, *(kind for kind in vars(module).values() if isinstance(kind, type))):
                for name, cached in vars(owner).items():
                    function = getattr(cached, "__func__", cached)
                    if hasattr(function, "cache_info") and function.__module__ == module_name:
                        yield name, function


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "is_valid": (LabelSelectorRequirement(key="app", operator="Exists"),),
    "_read": ((("cpu", "1"),),),
    "_readable": (ResourceAmounts.from_quantities({"cpu": "1"}),),
    "_cached_amount": ("1",),
    "parse_timestamp": ("2026-11-30T00:00:00Z",),
    "_format_to_seconds": (datetime(2026, 11, 30, tzinfo=UTC),),
    "parse_duration": ("1h",),
}
OF_TYPES = frozenset({"_cached", "_type_info"})


def test_released_memory_has_no_texts_of_a_cluster_left() -> None:
    """One text of each object that was read keeps a mebibyte."""
    caches = {name: cache for name, cache in caches_of_texts() if name not in OF_TYPES}
    assert {"parse_timestamp", "parse_quantity", "is_qualified_name", "from_annotation", *ARGUMENTS} <= caches.keys()
    for name, cache in caches.items():
        options = {"in_millis": True} if name == "_cached_amount" else {}
        cache(*ARGUMENTS.get(name, ("1",)), **options)
        assert cache.cache_info().currsize > 0
    release_memory()
    assert {name: cache.cache_info().currsize for name, cache in caches.items()} == dict.fromkeys(caches, 0)
    assert not any(shared_parts._parts.values())


def test_memory_is_released_again_and_again_until_the_end() -> None:
    stop = threading.Event()
    releasing = threading.Thread(target=release_memory_regularly, args=(stop, 0.01))
    releasing.start()
    try:
        for text in ("1500m", "2500m"):
            parse_quantity(text)
            soon("it is forgotten", lambda: parse_quantity.cache_info().currsize == 0)
    finally:
        stop.set()
        releasing.join(60)
    assert not releasing.is_alive()


FREES_IN_LIVING_THREADS = """
import sys, threading
from berth_service.memory import release_memory, share_one_heap

def resident_kilobytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

if sys.argv[1] == "shared":
    share_one_heap()
large = b"x" * (16 << 20)
del large  # from now on the C library keeps as much at the end of each heap
release_memory()
freed, end = threading.Barrier(9), threading.Event()

def work():
    blocks = [b"x" * 10_000 for _ in range(400)]
    freed.wait()
    del blocks
    freed.wait()
    end.wait()

before = resident_kilobytes()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
freed.wait()
freed.wait()
release_memory()
print(resident_kilobytes() - before)
end.set()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library has a heap for each thread")
@pytest.mark.parametrize(("heaps", "want_kept"), [("one each", True), ("shared", False)])
def test_what_living_threads_have_freed_is_returned_where_threads_share_a_heap(heaps: str, want_kept: bool) -> None:  # noqa: FBT001 - the case
    command = [sys.executable, "-c", FREES_IN_LIVING_THREADS, heaps]
    kept_kilobytes = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (kept_kilobytes > 5_000) is want_kept


FREES_BELOW_WHAT_STAYS = """
from berth_service.memory import return_free_memory, share_one_heap

def resident_kilobytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

share_one_heap()
blocks = [b"x" * 5_000 for _ in range(4_000)]
stays = b"x" * 5_000
del blocks
before = resident_kilobytes()
return_free_memory()
print(before - resident_kilobytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such call")
def test_what_is_free_below_what_stays_is_returned() -> None:
    command = [sys.executable, "-c", FREES_BELOW_WHAT_STAYS]
    assert int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) > 10_000


def test_no_two_processes_have_one_name() -> None:
    assert unique_identity() != unique_identity()


@pytest.mark.parametrize(("text", "want"), [("127.0.0.1:0", ("127.0.0.1", 0)), ("any:65535", ("any", 65535))])
def test_an_address_is_a_host_and_a_port(text: str, want: tuple[str, int]) -> None:
    assert parse_address("--at", text) == want


@pytest.mark.parametrize("text", ["", "localhost", ":80", "localhost:", "localhost:http", "localhost:65536", "h:-1"])
def test_no_address_is(text: str) -> None:
    with pytest.raises(InputError, match=r"--at is .*expected HOST:PORT"):
        parse_address("--at", text)


@pytest.mark.parametrize(
    ("error", "want_code"),
    [
        (InputError("x", 1, "2"), 2),
        (UnauthorizedError(CALL, FAILURE), 2),
        (ForbiddenError(CALL, FAILURE), 2),
        (UnreachableError(CALL, FAILURE, url="https://cluster", acted=False), 2),
        (NotFoundError(CALL, FAILURE), 1),
        (ServerError(CALL, FAILURE), 1),
        (RetryableError("later"), 1),
        (PermanentError("never"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BerthError) else "",
)
def test_a_program_ends_with_two_where_its_user_can_mend_the_cause(error: BerthError, want_code: int) -> None:
    assert error.exit_code == want_code


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    with log_lines.as_before():
        yield


@pytest.mark.usefixtures("logging_as_before")
def test_a_service_logs_ours_and_the_libraries_lines_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", as_json=True)
    structlog.get_logger("ours").info("begun", pod="web-0")
    logging.getLogger("theirs").warning("odd: %s", 1)
    logging.getLogger("urllib3").info("chatter")
    structlog.get_logger("ours").debug("detail")
    ours, theirs = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (ours["event"], ours["pod"], ours["level"], ours["logger"]) == ("begun", "web-0", "info", "ours")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("odd: 1", "warning", "theirs")
    assert ours["timestamp"].endswith("Z")


@pytest.mark.usefixtures("logging_as_before")
def test_a_service_logs_an_exception_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", as_json=True)
    try:
        [].pop()
    except IndexError:
        structlog.get_logger("ours").exception("crashed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "IndexError: pop from empty list" in json.loads(line)["exception"]


@pytest.mark.usefixtures("logging_as_before")
def test_people_get_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", as_json=False)
    structlog.get_logger("ours").info("begun", pod="web-0")
    (line,) = capsys.readouterr().err.splitlines()
    assert "begun" in line
    assert "pod=web-0" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(("soft", "hard", "want"), [(256, 2000, 2000), (2000, 2000, 2000)])
def test_a_service_may_open_as_many_files_as_the_system_lets_it(soft: int, hard: int, want: int) -> None:
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
    asked = (
        "from berth_service.process import allow_many_files; allow_many_files();"
        " print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    run = subprocess.run([sys.executable, "-c", f"{limits}; {asked}"], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [f"({want},", f"{hard})"]
