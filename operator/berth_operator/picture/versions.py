"""Owns which version of an object is the newer one, and the memory of objects that are gone.

It does not own the objects. Versions of one kind of object are numbers that grow with every write in the cluster.
"""

import math
import time
from typing import Final

from berth_core.objects import ObjectMeta

_GRAVE_SECONDS: Final = 120.0
"""How long a late answer about an object that is gone may come in."""


def version_number(resource_version: str) -> float:
    """Return a resourceVersion as a number; 0 where there is none."""
    return float(resource_version) if resource_version.isdecimal() else 0.0


def version_of(metadata: ObjectMeta) -> float:
    """Return the version of an object as a number; 0 where it has none."""
    return version_number(metadata.resource_version)


def is_newer(candidate: ObjectMeta, known: ObjectMeta) -> bool:
    """Tell whether a version of an object is newer than another."""
    return version_of(candidate) > version_of(known)


class Graves:
    """Remembers what is gone as of a version, so that a late answer about it does not bring it back."""

    def __init__(self) -> None:
        self._buried: dict[str, tuple[float, float]] = {}
        """Uid to (time of burial, version); in the order of burial."""

    def bury(self, uid: str, version: float = math.inf) -> None:
        """Note that an object is gone as of a version, by default for good."""
        now = time.monotonic()
        _, known = self._buried.pop(uid, (now, -1.0))
        self._buried[uid] = (now, max(version, known))
        while (oldest := next(iter(self._buried))) != uid and self._buried[oldest][0] < now - _GRAVE_SECONDS:
            del self._buried[oldest]

    def hold(self, metadata: ObjectMeta) -> bool:
        """Tell whether a version of an object is one that is gone."""
        _, version = self._buried.get(metadata.uid, (0.0, -1.0))
        return version_of(metadata) <= version
