"""Informers: threads that follow a kind of object by a watch, and stores of its objects as they were seen last."""

import threading
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, Self, TypeVar

from berth_core import BerthError, ObjectMeta
from berth_kube.watching import Bookmark, Changed, Listed, Removed, WatchItem

_JOIN_SECONDS: Final = 5.0
"""How long the end of a thread is waited for; it ends sooner unless a call hangs."""


class HasMetadata(Protocol):
    """An object of the API server."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=HasMetadata)
Item = TypeVar("Item")


class Store(Generic[T]):
    """The objects of one watch that `keep` accepts, by UID; thread-safe.

    A change costs the same however many objects there are. An object that `keep` no longer accepts stays as it was
    last, until it is removed or everything is listed again.
    """

    def __init__(self, keep: Callable[[T], bool] = lambda _: True) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._by_uid: dict[str, T] = {}
        self.listed = threading.Event()
        """Set once everything was listed."""

    def apply(self, event: WatchItem[T]) -> bool:
        """Apply an event of the watch; return whether it changed anything that is kept. A list always does."""
        match event:
            case Listed(items):
                self._replace({one.metadata.uid: one for one in items if self._keep(one)})
                return True
            case Changed(changed):
                return self._keep(changed) and self._put(changed)
            case Removed(removed):
                return self._remove(removed.metadata.uid)
            case Bookmark():
                return False

    def objects(self) -> tuple[T, ...]:
        """Return what is kept, in no particular order."""
        with self._lock:
            return tuple(self._by_uid.values())

    def _replace(self, by_uid: dict[str, T]) -> None:
        with self._lock:
            self._by_uid = by_uid
        self.listed.set()

    def _put(self, one: T) -> bool:
        with self._lock:
            self._by_uid[one.metadata.uid] = one
        return True

    def _remove(self, uid: str) -> bool:
        with self._lock:
            return self._by_uid.pop(uid, None) is not None


class Informer(Generic[Item]):
    """Passes the events of a watch to a handler, in a thread of its own; use as a context manager.

    `failed` hears the error that ends the watch, such as a missing right; the watch itself waits out what passes. With
    `retry_seconds` the informer watches again after that time; without, it ends.
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
        """Start to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Have the watch end soon; does not wait for it."""
        self._stopped.set()

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread.is_alive()

    def join(self, seconds: float = _JOIN_SECONDS) -> None:
        """Wait for the thread's end, no longer than some seconds."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                for event in self._watch(self._stopped):
                    self._handle(event)
            except BerthError as error:
                self._failed(error)
            if self._retry_seconds is None:
                return
            self._stopped.wait(self._retry_seconds)
