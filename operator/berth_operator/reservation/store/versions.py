"""Order of an object's versions, and deleted objects."""

import math
import time
from typing import Final

from berth_core import ObjectMeta

_TOMBSTONE_SECONDS: Final = 120.0
"""How late an answer about a deleted object may arrive."""


def version_number(resource_version: str) -> float:
    """Return a resourceVersion as a number; 0 without one."""
    return float(resource_version) if resource_version.isdecimal() else 0.0


def version_of(metadata: ObjectMeta) -> float:
    """Return an object's resourceVersion as a number; 0 without one."""
    return version_number(metadata.resource_version)


def was_due(metadata: ObjectMeta, version: str) -> bool:
    """Return whether a list of this version must contain the object."""
    return version_of(metadata) <= version_number(version)


def is_newer(candidate: ObjectMeta, known: ObjectMeta) -> bool:
    return version_of(candidate) > version_of(known)


class Tombstones:
    """Deleted objects, so that a late answer does not restore one."""

    def __init__(self) -> None:
        self._removed: dict[str, tuple[float, float]] = {}
        """Uid to (time of removal, version), in order of removal."""

    def add(self, uid: str, version: float = math.inf) -> None:
        """Record that an object is gone as of a version.

        By default it is gone for good.
        """
        now = time.monotonic()
        _, known_version = self._removed.pop(uid, (now, -1.0))
        self._removed[uid] = (now, max(version, known_version))
        while (oldest := next(iter(self._removed))) != uid and self._removed[oldest][0] < now - _TOMBSTONE_SECONDS:
            del self._removed[oldest]

    def covers(self, metadata: ObjectMeta) -> bool:
        """Return whether this version of an object is gone."""
        _, version = self._removed.get(metadata.uid, (0.0, -1.0))
        return version_of(metadata) <= version
