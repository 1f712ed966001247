"""Memory of what the API server allowed, to distinguish a missing right from one that it has not read yet.

Just after its start an API server answers 403 for a moment, as it has not read the roles. So a 403 is doubted where the
same was allowed before, or where the connection was lost a moment ago; a right that never was is no reason to wait.
"""

import re
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from berth_core.clock import Clock
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
"""What the API server says where rights are missing; admission (quotas, webhooks) says something else."""

_ALLOWED: Final = (NotFoundError, ConflictError, AlreadyExistsError, GoneError, InvalidObjectError)
"""Answers that come only after the rights were looked at."""


class Right(NamedTuple):
    """What is asked for, as far as rights tell it apart; `place` is the path without the name of an object."""

    verb: str
    place: str


class Grants:
    """Remembers the rights that one identity has made use of; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: set[Right] = set()
        self._lost_at: float | None = None

    def note_allowed(self, right: Right) -> None:
        """Take note that the API server has allowed something."""
        if right not in self._used:
            with self._lock:
                self._used.add(right)

    def note_error(self, right: Right, error: KubeError) -> None:
        """Take note of what an answer that is no success says about a right."""
        if isinstance(error, _ALLOWED):
            self.note_allowed(right)

    def note_loss(self, clock: Clock) -> None:
        """Take note that the connection was lost just now."""
        with self._lock:
            self._lost_at = clock.monotonic()

    def doubts(self, right: Right, error: KubeError, clock: Clock) -> bool:
        """Return whether an error is a missing right that may come back within moments."""
        if not _is_missing_right(error):
            return False
        with self._lock:
            lost = self._lost_at is not None and clock.monotonic() - self._lost_at < AFTER_A_LOSS_SECONDS
            return lost or right in self._used

    def give_up(self, right: Right) -> None:
        """Take note that a right has not come back."""
        with self._lock:
            self._used.discard(right)


def await_rights(clock: Clock, *reads: Callable[[], object], seconds: float = AFTER_A_LOSS_SECONDS) -> None:
    """Wait while the API server does not allow some reads, for the start of a service; raises no KubeError.

    One that needs a Role and one that needs a ClusterRole show that it has read both. Whatever else is amiss, and a
    right that does not come, is for the calls that follow to find out.
    """
    deadline = clock.monotonic() + seconds
    for read in reads:
        while _lacks_right(read) and clock.monotonic() < deadline:
            clock.sleep(_PAUSE_SECONDS)


def _lacks_right(read: Callable[[], object]) -> bool:
    try:
        read()
    except KubeError as error:
        return _is_missing_right(error)
    return False


def _is_missing_right(error: KubeError) -> bool:
    return isinstance(error, ForbiddenError) and _BY_AUTHORIZATION.search(error.message) is not None


def right_of(verb: str, path: str) -> Right:
    """Return the right that a request makes use of."""
    root, _, rest = path.partition("/namespaces/")
    if not rest:
        parts = path.split("/")
        collection = 4 if path.startswith("/api/") else 5  # /api/v1/nodes, /apis/group/version/nodes
        return Right(verb, "/".join((*parts[:collection], *parts[collection + 1 :])))
    namespace, *kind = rest.split("/")
    if not kind:
        return Right(verb, f"{root}/namespaces")
    return Right(verb, "/".join((root, namespace, kind[0], *kind[2:])))
