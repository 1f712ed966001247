"""Owns when a failed call is made again and how long to wait before it.

It does not own the calls, nor the patience of callers who repeat a whole step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from berth_core.clock import Clock
from berth_core.errors import RetryableError
from berth_kube.errors import (
    EvictionBlockedError,
    EvictionInterceptedError,
    KubeError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
    UntrustedServerError,
)
from berth_kube.jitter import CHANCE

T = TypeVar("T")


class Repeatable(Enum):
    """When a call may be made again."""

    ALWAYS = "always"
    """Carrying it out twice is the same as once."""
    UNLESS_ACTED = "unless acted"
    """Only where the server has surely not carried it out."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing waits with jitter: `first_seconds`, each `factor` times longer, none above `longest_seconds`."""

    first_seconds: float = 0.1
    factor: float = 2.0
    longest_seconds: float = 5.0
    jitter: float = 0.5
    """Share of a wait that is random: 0.5 means between half of it and all of it."""

    def wait_seconds(self, failures: int, *, draw: Callable[[], float] = CHANCE.random) -> float:
        """Return how long to wait after the given number of failures in a row, counted from 1."""
        # The exponent is bounded, so that a long outage does not overflow.
        full = min(self.longest_seconds, self.first_seconds * self.factor ** min(failures - 1, 64))
        return full * (1 - self.jitter * draw())


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long a call is made again."""

    attempts: int = 6
    """Calls in all; 1 means never again."""
    deadline_seconds: float = 30.0
    """No call begins later than this after the first one."""
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        """Refuse a policy under which nothing would be called."""
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
        """Return what `action` returns, calling it again after failures that allow it; raises its last error.

        What `is_doubtful` is no failure yet: it is asked again until the deadline, however often that is, unless the
        policy knows one attempt only.
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
        """Return the wait after an attempt: what the server asks for, if that is longer than the back-off."""
        return max(self.backoff.wait_seconds(attempt), error.retry_after_seconds or 0.0)


NO_RETRIES = RetryPolicy(attempts=1)


def may_repeat(error: KubeError, repeatable: Repeatable) -> bool:
    """Tell whether a call that failed with this error may be made again."""
    match error:
        case EvictionBlockedError() | EvictionInterceptedError() | UntrustedServerError():
            return False
        case TooManyRequestsError():
            return True
        case _ if repeatable is Repeatable.ALWAYS:
            return isinstance(error, RetryableError)
        case ServerError():
            # A server that names a time has turned the call away before acting on it.
            return error.retry_after_seconds is not None
        case UnreachableError():
            return not error.acted
        case _:
            return False
