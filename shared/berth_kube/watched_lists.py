"""Lists that are read once and then kept up to date by watches: a later question costs only what has changed.

An answer is never older than what the same client has written or read of single objects. A kind whose watch is silent,
has failed, or lags behind that for too long is listed again, and raises what a list raises.
"""

# ruff: noqa: A002 - `type` is what a caller passes, as in the client

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final, Generic, Protocol

from berth_core import BerthError, ObjectMeta
from berth_kube.client import KubeClient
from berth_kube.decoding import AS_DICT, ObjectKey, ObjectVersion, T, version_number
from berth_kube.errors import GoneError
from berth_kube.informer import Informer, stop_informers
from berth_kube.list_beside_watch import ListBesideWatch
from berth_kube.listing import Listing, LooseListing
from berth_kube.resources import Resource
from berth_kube.watch_items import Bookmark, Changed, Listed, Removed, WatchItem
from berth_kube.watching import PROMPT_WATCH

_BEHIND_SECONDS: Final = 2.0
"""How long a watch may lag behind what a call has shown, where no list has taken longer than that."""

_RETURN_SECONDS: Final = 11.0
"""Time for a watch that was cut to answer again, beyond its longest silence: 45 s in all."""

_JOIN_SECONDS: Final = 1.0
_STOP_POLL_SECONDS: Final = 0.2


class ListSource(Protocol):
    """A source of whole kinds and single objects."""

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: type[T] = AS_DICT,
    ) -> Listing[T]:
        """Return all objects that the selectors match; raises a KubeError."""

    def get(self, resource: Resource, name: str, *, namespace: str | None = None, type: type[T] = AS_DICT) -> T:
        """Return one object; raises a KubeError."""


class WatchedLists:
    """A `ListSource` that keeps each kind that is listed as a whole, until it is closed; thread-safe."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._kinds: dict[tuple[Resource, Any], _WatchedKind[Any]] = {}
        self._kind_locks: dict[tuple[Resource, Any], threading.Lock] = {}
        self._slow: set[tuple[Resource, Any]] = set()
        """The kinds that took longer to list than the API server kept events, so that they could not be watched."""
        self._is_closed = False

    def get(self, resource: Resource, name: str, *, namespace: str | None = None, type: type[T] = AS_DICT) -> T:
        """Return one object as it is now; raises a KubeError."""
        return self._client.get(resource, name, namespace=namespace, type=type)

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: type[T] = AS_DICT,
    ) -> Listing[T]:
        """Return all objects of a kind, in no particular order; raises a KubeError.

        A list with a selector or a namespace is read from the server.
        """
        # A watch per selection would cost the API server as much as one for the kind, and be used once.
        if namespace or label_selector or field_selector:
            return self._client.list(
                resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector, type=type
            )
        key = (resource, type)
        with self._lock:
            kind_lock = self._kind_locks.setdefault(key, threading.Lock())
        # One list at a time of each kind: threads that ask together share it.
        with kind_lock:
            if (kind := self._kinds.get(key)) is not None:
                if (items := kind.current_items()) is not None:
                    return Listing(items, "")
                self._drop(key)
                if kind.was_too_slow:
                    self._slow.add(key)
            kind, listing = self._begin(key)
            with self._lock:
                if not self._is_closed:
                    self._kinds[key] = kind
                    return listing
            kind.stop()
            return listing

    def watch(self, resource: Resource, *, stop: threading.Event, type: type[T] = AS_DICT) -> Iterator[WatchItem[T]]:
        """Yield `Listed` and then every change until `stop` is set, out of what is kept of a kind.

        Goes on with a watch of its own once nothing is kept of it; raises what that raises.
        """
        if (kind := self._kind_of(resource, type)) is not None:
            yield from kind.follow(stop)
        if not stop.is_set():
            yield from self._client.watch(resource, stop=stop, type=type, settings=PROMPT_WATCH)

    def kept(self, resource: Resource, type: type[T] = AS_DICT) -> Listing[T] | None:
        """Return what is kept of a kind now, None if nothing is; a watch can go on from its resourceVersion."""
        kind = self._kind_of(resource, type)
        return None if kind is None else kind.kept()

    def keeps(self, resource: Resource, type: type[Any] = AS_DICT) -> bool:
        """Return whether a kind has been read and is watched, so that another look at it costs no list."""
        kind = self._kind_of(resource, type)
        return kind is not None and not kind.has_failed

    def _kind_of(self, resource: Resource, type: type[T]) -> "_WatchedKind[T] | None":
        with self._lock:
            return self._kinds.get((resource, type))

    def _begin(self, key: tuple[Resource, type[T]]) -> "tuple[_WatchedKind[T], Listing[T]]":
        """List a kind and begin to watch it: before its list, if that takes longer than the API server keeps events."""
        if key not in self._slow:
            kind = _WatchedKind(self._client, *key)
            try:
                return kind, kind.begin()
            except GoneError:
                self._slow.add(key)
        kind = _WatchedKind(self._client, *key)
        return kind, kind.begin_before_its_list()

    def close(self) -> None:
        """Stop all watches, and forget what they have brought."""
        with self._lock:
            kinds, self._kinds, self._is_closed = tuple(self._kinds.values()), {}, True
        for kind in kinds:
            kind.ask_to_stop()
        for kind in kinds:
            kind.stop()

    def _drop(self, key: tuple[Resource, Any]) -> None:
        with self._lock:
            kind = self._kinds.pop(key, None)
        if kind is not None:
            kind.stop()


class _WatchedKind(Generic[T]):
    """All objects of one kind since one list."""

    def __init__(self, client: KubeClient, resource: Resource, item_type: type[T]) -> None:
        self.resource = resource
        self._client = client
        self._item_type = item_type
        self._is_current = threading.Condition()
        self._items: dict[ObjectKey, T] = {}
        self._is_listed = False
        self._version = 0
        """The highest resourceVersion that the list and the watch have brought."""
        self._awaited_version = 0
        self._outdated: dict[ObjectKey, str] = {}
        """By object the resourceVersion that calls have shown to be outdated; "" before the list is there."""
        self._answered_at = time.monotonic()
        self._list_seconds = 0.0
        """How long the list took: to avoid another one, as long a wait is worth it."""

        self._has_failed = False
        self.was_too_slow = False
        """Whether the API server no longer kept the events since the list."""
        self._followers: list[queue.SimpleQueue[WatchItem[T] | None]] = []
        """What those get who follow it, None at its end."""
        self._informer: Informer[T] | None = None
        self._until_stopped = ExitStack()

    def begin(self) -> Listing[T]:
        """List all objects and begin to watch them; raises a KubeError, GoneError where the list takes too long."""
        self._until_stopped.enter_context(self._client.sightings.shown_to(self))
        began_at = time.monotonic()
        try:
            listing = self._client.list_pages(self.resource, type=self._item_type)
        except BaseException:
            self._until_stopped.close()
            raise
        self._put_all(listing.items, listing.resource_version)
        self._list_seconds = time.monotonic() - began_at
        self._answered()
        self._watch_since(listing.resource_version, self._apply)
        return listing

    def begin_before_its_list(self) -> Listing[T]:
        """Begin to watch all objects and list them; raises a KubeError."""
        self._until_stopped.enter_context(self._client.sightings.shown_to(self))
        beside: ListBesideWatch[T] = ListBesideWatch(self._apply)

        def apply_beside(event: WatchItem[T]) -> None:
            match event:
                case Changed(item) | Removed(item):
                    version = ObjectVersion(_key_of(item), "", version_number(_version_of(item)))
                    beside.put_change(version, event)  # by name only, as what is kept here
                case Listed():
                    if not beside.put_later_list(event):
                        self._give_up()  # the list that is read is older
                case Bookmark():
                    beside.put_bookmark(event)

        try:
            self._watch_since(self._client.last_version(self.resource), apply_beside)
            loose = self._read_loosely()
        except BaseException:
            self.stop()
            raise
        self._answered()
        beside.put_list(loose)
        return loose.listing if loose.is_whole else self._whole_since(loose.last_version)

    def _read_loosely(self) -> LooseListing[T]:
        with suppress(GoneError):
            if (loose := self._client.list_loosely(self.resource, type=self._item_type)) is not None:
                return loose
        listing = self._client.list(self.resource, type=self._item_type)
        return LooseListing(listing, {}, listing.resource_version)

    def _whole_since(self, resource_version: str) -> Listing[T]:
        """Return all objects once the watch has come to a version; in vain, lists them in one piece."""
        self.await_version(resource_version)
        items = self.current_items(_longest_silence_seconds())
        return self._client.list(self.resource, type=self._item_type) if items is None else Listing(items, "")

    def _watch_since(self, resource_version: str, handle: Callable[[WatchItem[T]], object]) -> None:
        since: Listing[T] = Listing((), resource_version)  # the watch's threads outlive `stop` a little
        self._informer = Informer(
            self.resource.plural,
            lambda stop: self._client.watch(
                self.resource,
                type=self._item_type,
                stop=stop,
                # Also of what changes rarely: a plan must not be based on what a dead connection would still show.
                settings=PROMPT_WATCH,
                since=since,
                on_answer=self._answered,
            ),
            handle,
            self._fail,
        )
        self._informer.start()

    def ask_to_stop(self) -> None:
        if self._informer is not None:
            self._informer.stop()

    def stop(self) -> None:
        self._until_stopped.close()
        if self._informer is not None:
            stop_informers((self._informer,), _JOIN_SECONDS)
        self._give_up()
        with self._is_current:
            self._items = {}

    @property
    def has_failed(self) -> bool:
        with self._is_current:
            return self._has_failed

    def kept(self) -> Listing[T] | None:
        """Return all objects by what the watch has brought, None after its end."""
        with self._is_current:
            return None if self._has_failed else Listing(tuple(self._items.values()), str(self._version))

    def follow(self, stop: threading.Event) -> Iterator[WatchItem[T]]:
        """Yield all objects and then what the watch brings, until it or `stop` ends that."""
        changes: queue.SimpleQueue[WatchItem[T] | None] = queue.SimpleQueue()
        with self._is_current:
            if self._has_failed:
                return
            self._followers.append(changes)
            changes.put(Listed(tuple(self._items.values()), str(self._version)))
        try:
            while not stop.is_set():
                try:
                    item = changes.get(timeout=_STOP_POLL_SECONDS)
                except queue.Empty:
                    continue
                if item is None:
                    return
                yield item
                del item  # the next may come in a minute, and a list is large
        finally:
            with self._is_current:
                self._followers.remove(changes)

    def current_items(self, behind_seconds: float | None = None) -> tuple[T, ...] | None:
        """Return all objects, None if they have to be listed again because one's own change has not come in time.

        It may take `_BEHIND_SECONDS`, or as long as the list took. `behind_seconds` is a longer time for changes that
        may wait for the next bookmark.
        """
        seconds = behind_seconds
        if seconds is None:
            # A busy API server is late with watches, and a list, which costs it and us most, would make it later.
            seconds = max(_BEHIND_SECONDS, min(self._list_seconds, _longest_silence_seconds()))
        with self._is_current:
            is_current = self._is_current.wait_for(lambda: self._has_failed or self._is_up_to_date(), seconds)
            silent_seconds = time.monotonic() - self._answered_at
            is_watched = self._informer is not None and self._informer.is_alive
            if self._has_failed or not is_current or not is_watched or silent_seconds > _longest_silence_seconds():
                return None
            return tuple(self._items.values())

    def _is_up_to_date(self) -> bool:
        if self._version < self._awaited_version:
            return False
        for key, version in tuple(self._outdated.items()):
            item = self._items.get(key)
            if item is not None and _version_of(item) == version:
                return False
            del self._outdated[key]
        return True

    def await_version(self, resource_version: str) -> None:
        with self._is_current:
            self._awaited_version = max(self._awaited_version, version_number(resource_version))

    def await_change(self, namespace: str | None, name: str) -> None:
        key = ObjectKey(namespace or "", name)
        with self._is_current:
            item = self._items.get(key)
            if item is not None or not self._is_listed:
                self._outdated[key] = "" if item is None else _version_of(item)

    def _apply(self, event: WatchItem[T]) -> None:
        with self._is_current:
            match event:
                case Listed(items, resource_version):
                    self._put_all(items, resource_version)
                case Changed(item):
                    self._items[_key_of(item)] = item
                    self._version = max(self._version, version_number(_version_of(item)))
                case Removed(item):
                    # The object of a DELETED event has the resourceVersion of its deletion, not of its last change.
                    self._items.pop(_key_of(item), None)
                    self._version = max(self._version, version_number(_version_of(item)))
                case Bookmark(resource_version):
                    self._version = max(self._version, version_number(resource_version))
            for changes in self._followers:
                changes.put(event)
            self._is_current.notify_all()

    def _put_all(self, items: tuple[T, ...], resource_version: str) -> None:
        with self._is_current:
            self._items = {_key_of(item): item for item in items}
            self._is_listed = True
            self._version = version_number(resource_version)
            for key, version in self._outdated.items():
                if not version and key in self._items:
                    self._outdated[key] = _version_of(self._items[key])

    def _answered(self) -> None:
        self._answered_at = time.monotonic()

    def _fail(self, error: BerthError) -> None:
        # 410 right after a list: etcd has compacted its version meanwhile, by default every 5 minutes
        # (`--etcd-compaction-interval`, kubernetes/kubernetes#72187).
        self.was_too_slow = isinstance(error, GoneError)
        self._give_up()

    def _give_up(self) -> None:
        with self._is_current:
            self._has_failed = True
            for changes in self._followers:
                changes.put(None)
            self._is_current.notify_all()


def _longest_silence_seconds() -> float:
    return PROMPT_WATCH.silence_seconds + _RETURN_SECONDS


def _key_of(item: object) -> ObjectKey:
    if isinstance(item, Mapping):
        return ObjectKey(item["metadata"].get("namespace") or "", item["metadata"]["name"])
    metadata = _metadata_of(item)
    return ObjectKey(metadata.namespace, metadata.name)


def _version_of(item: object) -> str:
    if isinstance(item, Mapping):
        return item["metadata"].get("resourceVersion") or ""
    return _metadata_of(item).resource_version


def _metadata_of(item: object) -> ObjectMeta:
    metadata: ObjectMeta = item.metadata  # type: ignore[attr-defined]  # every object has it
    return metadata
