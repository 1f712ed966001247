"""Informers, each a thread that watches a kind of object, and stores of the latest versions."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from berth_core import BerthError, ObjectMeta
from berth_kube.watch_items import Bookmark, Changed, Listed, Removed, WatchItem

_JOIN_SECONDS: Final = 5.0
"""Maximum wait for a thread's end, which is reached only if a call hangs."""


class HasMetadata(Protocol):
    """An object of the API server."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=HasMetadata)
Item = TypeVar("Item")


class Store(Generic[T]):
    """The objects of one watch that `keep` accepts, by UID; thread-safe.

    The cost of a change does not depend on the number of objects. An object that `keep` no longer accepts stays as it
    was last, until it is removed or everything is listed again.
    """

    def __init__(self, keep: Callable[[T], bool] = lambda _: True) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._by_uid: dict[str, T] = {}
        self.listed = threading.Event()
        """Set after the first list."""

    def apply(self, event: WatchItem[T]) -> bool:
        """Apply an event of the watch; return whether it changed the store, as a list always does."""
        match event:
            case Listed(items):
                self._replace({obj.metadata.uid: obj for obj in items if self._keep(obj)})
                return True
            case Changed(changed):
                return self._keep(changed) and self._put(changed)
            case Removed(removed):
                return self._remove(removed.metadata.uid)
            case Bookmark():
                return False

    def objects(self) -> tuple[T, ...]:
        """Return the stored objects, in no particular order."""
        with self._lock:
            return tuple(self._by_uid.values())

    def by_uid(self) -> dict[str, T]:
        """Return a copy of the store, by UID."""
        with self._lock:
            return dict(self._by_uid)

    def _replace(self, by_uid: dict[str, T]) -> None:
        with self._lock:
            self._by_uid = by_uid
        self.listed.set()

    def _put(self, obj: T) -> bool:
        with self._lock:
            self._by_uid[obj.metadata.uid] = obj
        return True

    def _remove(self, uid: str) -> bool:
        with self._lock:
            return self._by_uid.pop(uid, None) is not None


class Informer(Generic[Item]):
    """Passes a watch's events to a handler in its own thread; a context manager.

    `failed` gets the error that ends the watch, such as a missing right; the watch itself retries transient errors.
    With `retry_seconds` the informer watches again after that time; without, it ends.
    """

    def __init__(
        self,
        name: str,
        watch: Callable[[threading.Event], Iterable[WatchItem[Item]]],
        handle: Callable[[WatchItem[Item]], object],
        failed: Callable[[BerthError], object],
        *,
        retry_seconds: float | None = None,
    ) -> None:
        self._watch = watch
        self._handle = handle
        self._failed = failed
        self._retry_seconds = retry_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the watch to end; does not wait for it."""
        self._stopped.set()

    @property
    def is_alive(self) -> bool:
        """Whether the thread was started and has not ended."""
        return self._thread.is_alive()

    def join(self, seconds: float = _JOIN_SECONDS) -> None:
        """Wait up to `seconds` for the thread's end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                for event in self._watch(self._stopped):
                    self._handle(event)
                    del event  # the next may come in a minute, and a list is large
            except BerthError as error:
                self._failed(error)
            if self._retry_seconds is None:
                return
            self._stopped.wait(self._retry_seconds)


def stop_informers(informers: Sequence[Informer[Any]], seconds: float = _JOIN_SECONDS) -> None:
    """Stop informers at once, then wait up to `seconds` for each."""
    for informer in informers:
        informer.stop()
    for informer in informers:
        informer.join(seconds)
