"""When a failed call is repeated, and after which wait."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from berth_core import Clock, RetryableError
from berth_kube.errors import (
    EvictionBlockedError,
    EvictionInterceptedError,
    KubeError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
    UntrustedServerError,
)

CHANCE: Final = random.Random()  # noqa: S311 - spreads load, guards nothing
"""Jitter of waits, so that clients do not all retry at once.

Apart from the generator of `random` itself, which callers may seed: threads draw from this one.
"""

T = TypeVar("T")


class Repeatable(Enum):
    """When a call may be repeated."""

    ALWAYS = "always"
    """Executing it twice equals once."""
    UNLESS_ACTED = "unless acted"
    """Only if the server has surely not executed it."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing waits with jitter, each `factor` times longer up to `longest_seconds`."""

    first_seconds: float = 0.1
    factor: float = 2.0
    longest_seconds: float = 5.0
    jitter: float = 0.5
    """Random share of a wait: 0.5 means between half of it and all of it."""

    def wait_seconds(self, failures: int, *, draw: Callable[[], float] = CHANCE.random) -> float:
        """Return the wait after a number of failures in a row, counted from 1."""
        # The exponent is bounded, so that a long outage does not overflow.
        full = min(self.longest_seconds, self.first_seconds * self.factor ** min(failures - 1, 64))
        return full * (1 - self.jitter * draw())


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long a call is repeated."""

    attempts: int = 6
    """Calls in all; 1 means no retry."""
    deadline_seconds: float = 30.0
    """No call begins later than this after the first one."""
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        """Reject a policy without any call."""
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")

    def call(
        self,
        action: Callable[[], T],
        *,
        repeatable: Repeatable,
        clock: Clock,
        is_doubtful: Callable[[KubeError], bool] = lambda _: False,
    ) -> T:
        """Return what `action` returns, with retries; raises its last error.

        An error that `is_doubtful` is no failure yet: the call is repeated until the deadline, however often, unless
        the policy allows one attempt only.
        """
        started = clock.monotonic()
        failures = doubts = 0
        while True:
            try:
                return action()
            except KubeError as error:
                if is_doubtful(error):
                    doubts += 1
                    final, wait_seconds = self.attempts == 1, self._wait_before_next(doubts, error)
                else:
                    failures += 1
                    final = failures == self.attempts or not may_repeat(error, repeatable)
                    wait_seconds = self._wait_before_next(failures, error)
                if final or wait_seconds > self.deadline_seconds - (clock.monotonic() - started):
                    raise
                clock.sleep(wait_seconds)

    def _wait_before_next(self, attempt: int, error: KubeError) -> float:
        """Return the wait after an attempt: the back-off, or the server's Retry-After if that is longer."""
        return max(self.backoff.wait_seconds(attempt), error.retry_after_seconds or 0.0)


NO_RETRIES = RetryPolicy(attempts=1)


def may_repeat(error: KubeError, repeatable: Repeatable) -> bool:
    match error:
        # A budget may forbid for hours, which the caller's own deadline is for; an untrusted certificate stays one.
        case EvictionBlockedError() | EvictionInterceptedError() | UntrustedServerError():
            return False
        # Refused before anything was done: by API Priority and Fairness or by the limit of requests in flight.
        case TooManyRequestsError():
            return True
        case _ if repeatable is Repeatable.ALWAYS:
            return isinstance(error, RetryableError)
        case ServerError():
            # A server that names a time has rejected the call before acting on it.
            return error.retry_after_seconds is not None
        case UnreachableError():
            return not error.acted
        case _:
            return False
