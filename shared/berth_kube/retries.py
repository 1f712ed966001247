"""When a failed call is repeated, and after which wait."""

import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from berth_core import Clock, RetryableError
from berth_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    ForbiddenError,
    GoneError,
    InvalidObjectError,
    KubeError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
    UntrustedServerError,
)

# --- jitter ----------------------------------------------------------------------------------------------------------
# Randomness that spreads waits, so that clients do not all retry at once.
#
# It is separate from the `random` module's generator, which callers may seed: threads draw from this one.

CHANCE: Final = random.Random()  # noqa: S311 - spreads load, guards nothing


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
        case EvictionBlockedError() | EvictionInterceptedError() | UntrustedServerError():
            return False
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


# --- grants ----------------------------------------------------------------------------------------------------------
# Record of what the API server allowed, to distinguish a missing right from one that it has not loaded yet.
#
# Just after its start an API server answers 403 for a moment, before its informers have loaded the roles
# (kubernetes/kubernetes#121635). So a 403 is doubted if the same was allowed before, or if the connection was lost a
# moment ago; a right that never existed is no reason to wait.

AFTER_A_LOSS_SECONDS: Final = 30.0
"""How long after a lost connection every missing right is doubted."""

_PAUSE_SECONDS: Final = 0.5

_BY_AUTHORIZATION: Final = re.compile(r'User ".*" cannot ')
"""The API server's message for missing rights; admission words it differently."""

_ALLOWED: Final = (NotFoundError, ConflictError, AlreadyExistsError, GoneError, InvalidObjectError)
"""Answers that follow a successful authorization."""


class Right(NamedTuple):
    """A request as far as rights distinguish it; `place` is the path without the name."""

    verb: str
    place: str


class Grants:
    """The rights that one identity has used; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: set[Right] = set()
        self._lost_at: float | None = None

    def note_allowed(self, right: Right) -> None:
        """Record that the API server allowed a request."""
        if right not in self._used:
            with self._lock:
                self._used.add(right)

    def note_error(self, right: Right, error: KubeError) -> None:
        """Record what a failed answer says about a right."""
        if isinstance(error, _ALLOWED):
            self.note_allowed(right)

    def note_loss(self, clock: Clock) -> None:
        """Record that the connection was lost just now."""
        with self._lock:
            self._lost_at = clock.monotonic()

    def doubts(self, right: Right, error: KubeError, clock: Clock) -> bool:
        """Return whether a missing right may return within moments; False for any other error."""
        if not is_missing_right(error):
            return False
        with self._lock:
            was_lost = self._lost_at is not None and clock.monotonic() - self._lost_at < AFTER_A_LOSS_SECONDS
            return was_lost or right in self._used

    def give_up(self, right: Right) -> None:
        """Record that a right has not come back."""
        with self._lock:
            self._used.discard(right)


def await_rights(clock: Clock, *reads: Callable[[], object], seconds: float = AFTER_A_LOSS_SECONDS) -> None:
    """Wait until the API server allows these reads; raises no KubeError.

    For a service's start. A read that needs a Role and one that needs a ClusterRole show that both are loaded. Other
    faults, and a right that never comes, show in the calls that follow.
    """
    deadline = clock.monotonic() + seconds
    for read in reads:
        while _lacks_right(read) and clock.monotonic() < deadline:
            clock.sleep(_PAUSE_SECONDS)


def _lacks_right(read: Callable[[], object]) -> bool:
    try:
        read()
    except KubeError as error:
        return is_missing_right(error)
    return False


def is_missing_right(error: KubeError) -> bool:
    """Return whether authorization refused the call, not admission."""
    return isinstance(error, ForbiddenError) and _BY_AUTHORIZATION.search(error.message) is not None


def right_of(verb: str, path: str) -> Right:
    root, _, below_namespaces = path.partition("/namespaces/")
    if not below_namespaces:
        parts = path.split("/")
        collection = 4 if path.startswith("/api/") else 5  # /api/v1/nodes, /apis/group/version/nodes
        return Right(verb, "/".join((*parts[:collection], *parts[collection + 1 :])))
    namespace, *kind = below_namespaces.split("/")
    if not kind:
        return Right(verb, f"{root}/namespaces")
    return Right(verb, "/".join((root, namespace, kind[0], *kind[2:])))
