"""Waiting for what another thread, another process or the cluster does a moment later."""

import time
from collections.abc import Callable
from typing import Final

_LEAST_SECONDS: Final = 120.0
"""A bound only ends what never comes. What takes a second takes half a minute where others use the machine."""
_SOON_PAUSE_SECONDS: Final = 0.02


def eventually(
    claim: str, check: Callable[[], object], *, seconds: float = _LEAST_SECONDS, pause_seconds: float = 0.1
) -> None:
    """Wait until a check returns something true; fail with the claim after a bound of two minutes or more."""
    bound = max(seconds, _LEAST_SECONDS)
    deadline = time.monotonic() + bound
    while not check():
        assert time.monotonic() < deadline, f"not within {bound:g} s: {claim}"
        time.sleep(pause_seconds)


def soon(claim: str, check: Callable[[], object]) -> None:
    """Wait for what another thread does at once."""
    eventually(claim, check, pause_seconds=_SOON_PAUSE_SECONDS)
