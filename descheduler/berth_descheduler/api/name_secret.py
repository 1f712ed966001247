"""The secret from which the names of plans with an Idempotency-Key are derived.

All replicas have the same one, without a right to any Secret, as it is derived from the certificate's key. It changes
when that key is replaced.
"""

import hashlib
from pathlib import Path
from typing import Final

from berth_descheduler.api.problems import unavailable

_PURPOSE: Final = b"berth: names of plans with an Idempotency-Key\0"


def read_name_secret(key: Path | None) -> bytes:
    """Return the secret, b"" without a certificate; raises `ProblemError` while the key cannot be read."""
    if key is None:
        return b""
    try:
        return hashlib.sha256(_PURPOSE + key.read_bytes()).digest()
    except OSError as error:
        raise unavailable("the key of the certificate cannot be read, from which names of plans follow") from error
