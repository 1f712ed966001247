"""Addresses that a process listens on, and the name under which it holds a Lease."""

import os
import secrets
import socket
from ipaddress import ip_address
from typing import Final

from berth_core import InputError

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


def unique_identity() -> str:
    """Return a name that no other process uses."""
    # A pod's host name is its own, but a container that restarts keeps it and is process 1 again: without the token its
    # Lease would look held.
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
