"""Record of what the API server allowed, to distinguish a missing right from one that it has not loaded yet.

Just after its start an API server answers 403 for a moment, before its informers have loaded the roles
(kubernetes/kubernetes#121635). So a 403 is doubted if the same was allowed before, or if the connection was lost a
moment ago; a right that never existed is no reason to wait.
"""

import re
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from berth_core import Clock
from berth_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidObjectError,
    KubeError,
    NotFoundError,
)

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
        # Looked at without the lock, which nearly every call would otherwise wait for; at worst a right is added twice.
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
