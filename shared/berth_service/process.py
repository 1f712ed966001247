"""Addresses, identity, memory, logs and signals of both programs."""

import ctypes
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from types import FrameType
from typing import Any, Final

import structlog
from structlog.stdlib import ProcessorFormatter

from berth_core import InputError, forget_quantities, printable_text

_LARGEST_PORT: Final = 65535
_IPV6: Final = 6


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`, where an IPv6 address stands in brackets.

    Raises InputError with the option.
    """
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    address = host[1:-1] if is_bracketed else host
    is_usable = _is_ipv6(address) if is_bracketed else bool(host) and ":" not in host
    if not is_usable or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise InputError(option, text, "HOST:PORT, for example 0.0.0.0:8080 or [::]:8080")
    return address, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        return ip_address(text).version == _IPV6
    except ValueError:
        return False


# --- identity --------------------------------------------------------------------------------------------------------
# The name under which a process of Berth holds a Lease.


def unique_identity() -> str:
    """Return a name that no other process uses."""
    # A pod's host name is its own, but a container that restarts keeps it and is process 1 again: without the token its
    # Lease would look held.
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


# --- memory ----------------------------------------------------------------------------------------------------------

_ALLOCATIONS_PER_COLLECTION: Final = 50_000
_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of `mallopt`, as in malloc.h."""
_MAPPED_FROM_BYTES: Final = 128 * 1024
"""The C library's own value at first, which it raises by itself unless it is set."""


def collect_garbage_rarely() -> None:
    """Let the garbage collector run rarely: objects of a cluster live long, or die by reference count.

    With Python's default it takes a tenth of an operator's time, and of the time of a plan of a large cluster.
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
    memory for the process unless `malloc_trim` returns it; musl has no such call. The quantities that were cached of a
    cluster are little, but Python returns only whole mebibytes in which nothing is left.
    """
    forget_quantities()
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


# --- logs ------------------------------------------------------------------------------------------------------------
# Format of logs: JSON lines for a service, a few plain lines for people; always to standard error.

_NOISY: Final = ("aiohttp", "asyncio", "kopf", "kubernetes", "opentelemetry", "urllib3")


def configure_logs(level: str, *, as_json: bool) -> None:
    """Write all logs, ours and the libraries', from this level up."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
    )
    # Standard output is for what a command prints, which may be piped into jq.
    handler = logging.StreamHandler(sys.stderr)
    renderer = _as_json() if as_json else _as_text()
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=shared, processors=renderer))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf logs each event of an object, and urllib3 each connection, at levels that people ask for to see ours.
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _as_json() -> list[Any]:
    return [
        structlog.stdlib.add_logger_name,
        ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]


def _as_text() -> list[Any]:
    return [ProcessorFormatter.remove_processors_meta, structlog.dev.ConsoleRenderer(colors=False), _printable]


def _printable(_logger: Any, _method: str, line: str) -> str:  # noqa: ANN401 - what structlog passes
    """Return a line without control characters, which names and messages of others may contain."""
    return printable_text(line)


# --- signals ---------------------------------------------------------------------------------------------------------
# Stop by signal: a run stops gracefully at the first and ends at the second; a command with clean-up stops at once.

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; a second signal ends the process."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        # A pod gets SIGTERM first and SIGKILL after its grace period; people who press Ctrl-C twice do not want to wait
        # that long.
        stop.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Interrupt the block on SIGTERM and SIGHUP as on Ctrl-C, so that it cleans up.

    The clean-up is not interrupted by another signal. A signal that is ignored from the start stays ignored, as under
    nohup.
    """
    before = {number: signal.getsignal(number) for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
