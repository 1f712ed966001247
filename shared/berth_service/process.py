"""How an address to listen on is given."""

import os
import secrets
import socket
from typing import Final

from berth_core import InputError

_LARGEST_PORT: Final = 65535


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`; raises InputError that names the option."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise InputError(option, text, "HOST:PORT, for example 0.0.0.0:8080")
    return host, int(port)


# --- identity --------------------------------------------------------------------------------------------------------
# The name under which a process of Berth holds a Lease.


def unique_identity() -> str:
    """Return a name for this process that no other process uses."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
