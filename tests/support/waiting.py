"""Waiting for what another thread, another process or the cluster does a moment later."""

import time
from collections.abc import Callable
from typing import Final

_SOON_SECONDS: Final = 30.0
_SOON_PAUSE_SECONDS: Final = 0.02


def eventually(claim: str, check: Callable[[], object], *, seconds: float, pause_seconds: float = 0.1) -> None:
    """Wait until a check returns something true; fail with the claim after a bound."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {claim}"
        time.sleep(pause_seconds)


def soon(claim: str, check: Callable[[], object]) -> None:
    """Wait for what another thread does at once; the bound is no promise, it only ends what never comes."""
    eventually(claim, check, seconds=_SOON_SECONDS, pause_seconds=_SOON_PAUSE_SECONDS)
