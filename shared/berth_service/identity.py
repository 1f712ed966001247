"""Owns the name under which a process of Berth holds a Lease.

It does not own the Lease.
"""

import os
import secrets
import socket


def unique_identity() -> str:
    """Return a name for this process that no other process uses."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
