"""Sightings: what calls for single objects show, reported to copies of collections that must not be older.

A watch brings a change a moment after the call that made or saw it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from berth_kube.resources import Resource


class Witness(Protocol):
    """Keeps a copy of the objects of one kind."""

    resource: Resource

    def await_version(self, resource_version: str) -> None:
        """Record that an object of the kind was written under a resourceVersion."""

    def await_change(self, namespace: str | None, name: str) -> None:
        """Record that an object is gone or changed: it was deleted, evicted or not found."""


class Sightings:
    """Reports what single calls show to those who keep copies; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._witnesses: tuple[Witness, ...] = ()

    @property
    def are_awaited(self) -> bool:
        return bool(self._witnesses)

    @contextmanager
    def shown_to(self, witness: Witness) -> Iterator[None]:
        """Report to a witness, within the block, what calls show of its kind."""
        with self._lock:
            # A new tuple each time: readers go through the old one without a lock.
            self._witnesses = (*self._witnesses, witness)
        try:
            yield
        finally:
            with self._lock:
                self._witnesses = tuple(other for other in self._witnesses if other is not witness)

    def note_version(self, resource: Resource, resource_version: str) -> None:
        """Record the resourceVersion of an object that was read or written."""
        for witness in self._witnesses:
            if witness.resource == resource:
                witness.await_version(resource_version)

    def note_change(self, resource: Resource, namespace: str | None, name: str) -> None:
        """Record that an object is gone or changed."""
        for witness in self._witnesses:
            if witness.resource == resource:
                witness.await_change(namespace, name)
