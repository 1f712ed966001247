"""Owns what is seen of a kind of object: a copy of all of them that a watch keeps up to date.

It does not own what follows from a change: whoever waits is only woken.
"""

import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, Self, TypeVar

import structlog

from berth_core.errors import BerthError
from berth_core.objects import ObjectMeta
from berth_descheduler import log_keys
from berth_kube.client import KubeClient
from berth_kube.resources import Resource
from berth_kube.watching import Changed, Listed, Removed, WatchItem

_LOG = structlog.get_logger(__name__)
_AGAIN_SECONDS: Final = 5.0
_JOIN_SECONDS: Final = 5.0


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_HasMetadata)


class Mirror(Generic[T]):
    """All objects of one kind of the cluster, by name; use as a context manager."""

    def __init__(self, client: KubeClient, resource: Resource, kind: type[T], wake: Callable[[], None]) -> None:
        self._client = client
        self._resource = resource
        self._kind = kind
        self._wake = wake
        self._stop = threading.Event()
        self._objects: dict[str, T] = {}
        self._thread = threading.Thread(target=self._keep, name=f"mirror-{resource.plural}", daemon=True)
        self.listed = threading.Event()
        """Set once everything has been seen."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_SECONDS)

    def objects(self) -> tuple[T, ...]:
        """Return all objects as they were seen last, in the order of their names."""
        seen = self._objects
        return tuple(seen[name] for name in sorted(seen))

    def _keep(self) -> None:
        """Follow the objects until told to stop; what does not pass by itself is tried again, and told."""
        while not self._stop.is_set():
            try:
                for event in self._client.watch(self._resource, type=self._kind, stop=self._stop):
                    self._take_in(event)
            except BerthError as error:
                _LOG.error(log_keys.WATCH_FAILED, **{log_keys.KEY_ERROR: str(error)})
                self._stop.wait(_AGAIN_SECONDS)

    def _take_in(self, event: WatchItem[T]) -> None:
        match event:
            case Listed(items=items):
                self._objects = {one.metadata.name: one for one in items}
                self.listed.set()
            case Changed(item=changed):
                self._objects = {**self._objects, changed.metadata.name: changed}
            case Removed(item=removed):
                self._objects = {name: one for name, one in self._objects.items() if name != removed.metadata.name}
            case _:
                return
        self._wake()
