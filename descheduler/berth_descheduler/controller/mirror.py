"""Owns what is seen of a kind of object: a copy of all of them that a watch keeps up to date.

It does not own what follows from a change: whoever waits is only woken.
"""

import threading
from collections.abc import Callable
from typing import Final, Generic, Self, TypeVar

import structlog

from berth_core.errors import BerthError
from berth_descheduler import telemetry
from berth_descheduler.seen_objects import HasMetadata, SeenObjects
from berth_kube.client import KubeClient
from berth_kube.resources import Resource

_LOG = structlog.get_logger(__name__)
_AGAIN_SECONDS: Final = 5.0
_JOIN_SECONDS: Final = 5.0

T = TypeVar("T", bound=HasMetadata)


class Mirror(Generic[T]):
    """All objects of one kind of the cluster; use as a context manager."""

    def __init__(self, client: KubeClient, resource: Resource, kind: type[T], wake: Callable[[], None]) -> None:
        self._client = client
        self._resource = resource
        self._kind = kind
        self._wake = wake
        self._stop = threading.Event()
        self._seen: SeenObjects[T] = SeenObjects()
        self._thread = threading.Thread(target=self._keep, name=f"mirror-{resource.plural}", daemon=True)
        self.listed = self._seen.listed
        """Set once everything has been seen."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_SECONDS)

    def objects(self) -> tuple[T, ...]:
        """Return all objects as they were seen last, in the order of their names."""
        return tuple(sorted(self._seen.objects(), key=lambda one: one.metadata.name))

    def _keep(self) -> None:
        """Follow the objects until told to stop; what does not pass by itself is tried again, and told."""
        while not self._stop.is_set():
            try:
                for event in self._client.watch(self._resource, type=self._kind, stop=self._stop):
                    if self._seen.take_in(event):
                        self._wake()
            except BerthError as error:
                _LOG.error(telemetry.WATCH_FAILED, **{telemetry.KEY_ERROR: str(error)})
                self._stop.wait(_AGAIN_SECONDS)
