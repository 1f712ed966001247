"""Order of an object's versions, and deleted objects."""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from berth_core import ObjectMeta
from berth_kube import HasMetadata, Listed, version_number

T = TypeVar("T", bound=HasMetadata)

_TOMBSTONE_SECONDS: Final = 120.0
"""How late an answer about a deleted object may arrive."""


def version_of(metadata: ObjectMeta) -> int:
    """Return an object's resourceVersion as a number; 0 without one."""
    return version_number(metadata.resource_version)


def was_due(metadata: ObjectMeta, version: str) -> bool:
    """Return whether a list of this version must contain the object."""
    return version_of(metadata) <= version_number(version)


def is_newer(candidate: ObjectMeta, known: ObjectMeta) -> bool:
    return version_of(candidate) > version_of(known)


def supersedes(candidate: ObjectMeta, known: ObjectMeta | None, listed: Listed[Any] | None = None) -> bool:
    """Return whether a version replaces the known one, None for none, also as an item of the list `listed`."""
    if known is None:
        return True
    # Versions are in the order of time only until etcd is restored from a backup: then watches report nothing until
    # its revisions have come as far as before (kubernetes/kubernetes#107457). So what a list has counts instead of
    # every version that it must know of, be that lower or higher.
    if listed is not None and must_have(listed, known):
        return listed.restored or version_of(candidate) != version_of(known)
    return is_newer(candidate, known)


def must_have(listed: Listed[Any], known: ObjectMeta) -> bool:
    """Return whether a list must contain an object: if it lacks the object, that is gone."""
    return listed.restored or was_due(known, listed.resource_version)


def put_all(
    listed: Listed[T], put: Callable[[T, Listed[T]], object], known: Callable[[], Iterable[T]]
) -> tuple[T, ...]:
    """Put the objects of a complete list, and return the known ones that are gone because it lacks them."""
    listed_by_uid = {obj.metadata.uid: obj for obj in listed.items}
    for obj in listed_by_uid.values():
        put(obj, listed)
    return tuple(obj for obj in known() if obj.metadata.uid not in listed_by_uid and must_have(listed, obj.metadata))


class Tombstones:
    """Deleted objects, so that a late answer does not restore one."""

    def __init__(self) -> None:
        self._removed: dict[str, tuple[float, float]] = {}
        """Uid to (time of removal, version), in order of removal."""

    def add(self, uid: str, version: float = math.inf) -> None:
        """Record that an object is gone as of a version, by default for good."""
        now = time.monotonic()
        _, known_version = self._removed.pop(uid, (now, -1.0))
        self._removed[uid] = (now, max(version, known_version))
        # The dict is in the order of removal, so the oldest is first and a look at one entry is enough.
        while (oldest := next(iter(self._removed))) != uid and self._removed[oldest][0] < now - _TOMBSTONE_SECONDS:
            del self._removed[oldest]

    def end_refuted(self, listed: Listed[Any]) -> None:
        """Forget the deletions that a list refutes: it began later, and has the object.

        With another history of etcd all deletions are forgotten.
        """
        if listed.restored:
            self._removed.clear()
            return
        for obj in listed.items:
            if self.is_refuted(obj.metadata, listed):
                del self._removed[obj.metadata.uid]

    def is_refuted(self, metadata: ObjectMeta, listed: Listed[Any]) -> bool:
        """Return whether a list that has an object began after it was recorded as gone."""
        removed_at, _ = self._removed.get(metadata.uid, (math.inf, 0.0))
        return removed_at < listed.began and not metadata.deletion_timestamp

    def takes(self, candidate: ObjectMeta, known: HasMetadata | None, listed: Listed[Any] | None = None) -> bool:
        """Return whether a version counts: the object is not gone, and it takes the place of the known one, if any."""
        known_metadata = None if known is None else known.metadata
        return not self.covers(candidate) and supersedes(candidate, known_metadata, listed)

    def covers(self, metadata: ObjectMeta) -> bool:
        """Return whether this version of an object is gone."""
        _, version = self._removed.get(metadata.uid, (0.0, -1.0))
        return version_of(metadata) <= version
