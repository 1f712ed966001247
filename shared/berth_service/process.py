"""Addresses that a process listens on, its open files, and the name under which it holds a Lease."""

import os
import resource
import secrets
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from berth_core import InputError

_LARGEST_PORT: Final = 65535
_IPV6: Final = 6
_OPEN_FILES: Final = 65536


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


def unique_identity() -> str:
    """Return a name that no other process uses."""
    # A pod's host name is its own, but a container that restarts keeps it and is process 1 again: without the token its
    # Lease would look held.
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def allow_many_files() -> None:
    """Allow as many open files as the system lets this process have, but no more than 65,536.

    Runtimes start containers with 1,024 (containerd 2.0), for programs that call `select`; each connection is a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with suppress(ValueError, OSError):  # as on macOS, which allows fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
