"""Watches of a collection.

A watch lists, watches, resumes after a cut and lists again after 410: beside the watch, if the list took longer than
the API server keeps events. Each watch has its own thread for blocking reads, so that the caller's `stop` ends the
iteration at once, whatever state the connection is in.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Generic, Protocol

import msgspec
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from berth_core import PermanentError
from berth_kube.decoding import (
    T,
    decode_error_status,
    decode_event,
    decode_item,
    object_version_of,
    resource_version_of,
    version_number,
)
from berth_kube.errors import Call, GoneError, KubeError, UnreachableError, error_from_status
from berth_kube.list_beside_watch import ListBesideWatch
from berth_kube.listing import Listing, LooseListing
from berth_kube.retries import Backoff
from berth_kube.watch_items import Bookmark, Changed, Listed, Removed, WatchItem

_LOG = logging.getLogger(__name__)
_STOP_POLL_SECONDS: Final = 0.2
_READ_BYTES: Final = 64 * 1024
# A reader that falls behind holds up the connection, rather than have what it has not read fill the memory.
_QUEUED_ITEMS: Final = 1000
_FULL_PAUSE_SECONDS: Final = 0.02
_TOO_SHORT_SECONDS: Final = 1.0
_WORTH_A_WARNING: Final = 3
_BACKOFF: Final = Backoff(first_seconds=0.2, longest_seconds=5.0)


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Settings of a watch."""

    server_seconds: float = 600.0
    """Longest time for which the server keeps one connection: with `spread` five to ten minutes, as in client-go
    (`minWatchTimeout`).

    The API server sends a bookmark (KEP-956) about once a minute, and one two seconds before the end
    (`nextBookmarkTime` in k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go).
    """
    spread: float = 0.5
    """Largest share by which a connection is shorter, at random, so that watches that began together return apart."""
    # A connection that a balancer or firewall has lost brings neither events nor an end (kubernetes/kubernetes#65012).
    silence_seconds: float = 75.0
    """Longest silence before a reconnect."""
    backoff: Backoff = _BACKOFF
    """Waits after failures in a row."""

    @property
    def in_vain_seconds(self) -> float:
        """Return after how long without any event a watch may be waiting for a resourceVersion that is lost.

        An API server whose etcd was restored from a backup accepts a watch from a newer resourceVersion, and says
        nothing until its revisions have come that far (kubernetes/kubernetes#107457).
        """
        return 0.8 * min(self.server_seconds, self.silence_seconds)


PROMPT_WATCH: Final = WatchSettings(server_seconds=30.0, spread=0.1, silence_seconds=34.0)
"""For the objects that hold places: a connection that the network has dropped is noticed in about half a minute.

Each connection ends soon, so that the bookmark before its end comes soon.
"""


class WatchPace:
    """The settings of watches, which may change while these run; thread-safe."""

    def __init__(self, settings: WatchSettings) -> None:
        self._lock = threading.Lock()
        self._settings = settings
        self._reopens: list[Callable[[], None]] = []

    @property
    def settings(self) -> WatchSettings:
        """Return the settings of the next connection of each watch."""
        return self._settings

    def change(self, settings: WatchSettings) -> None:
        """Change the settings; a connection whose silence would be noticed later than they ask is opened anew."""
        with self._lock:
            is_more_prompt = settings.silence_seconds < self._settings.silence_seconds
            self._settings = settings
            reopens = tuple(self._reopens) if is_more_prompt else ()
        for reopen in reopens:
            reopen()

    @contextmanager
    def applied_to(self, reopen: Callable[[], None]) -> Iterator[None]:
        """Call `reopen` on each change that opens connections anew, until the end of the context."""
        with self._lock:
            self._reopens.append(reopen)
        try:
            yield
        finally:
            with self._lock:
                self._reopens.remove(reopen)


class WatchSource(Protocol[T]):
    """A collection of one type that a watch reads from."""

    @property
    def call(self) -> Call:
        """Return the name of the watch in messages."""

    @property
    def item_type(self) -> type[T]:
        """Return the type to decode objects into."""

    def read_all(self) -> Listing[T]:
        """Return all objects; raises a KubeError."""

    def read_loosely(self, is_wanted: Callable[[], bool]) -> LooseListing[T] | None:
        """Return all objects, however long that takes, None once they are not wanted; raises a KubeError."""

    def read_version(self) -> str:
        """Return the last resourceVersion; raises a KubeError."""

    def open_stream(self, resource_version: str, settings: WatchSettings) -> BaseHTTPResponse:
        """Return the stream of changes since a resourceVersion; raises a KubeError."""

    def broken(self, error: Exception) -> UnreachableError:
        """Return the error of a stream that broke."""


def follow(
    source: WatchSource[T],
    *,
    stop: threading.Event,
    settings: WatchSettings | WatchPace,
    since: Listing[T] | None = None,
    on_answer: Callable[[], object] = lambda: None,
) -> Iterator[WatchItem[T]]:
    """Yield `Listed`, then every change, until `stop` is set; with a list that the caller has, the changes `since` it.

    It ends within a quarter of a second after that. Raises the KubeError of the first list, or of the first connection
    after the caller's list, if it is permanent (no such kind, no right, too old); later errors are retried. Calls
    `on_answer` whenever the server shows that the watch is alive.
    """
    pace = settings if isinstance(settings, WatchPace) else WatchPace(settings)
    feed = _Feed(source, pace, since, on_answer)
    try:
        with pace.applied_to(feed.reopen):
            # A daemon: a read that hangs in the kernel must not keep the process from ending.
            threading.Thread(target=feed.run, name=f"watch {source.call.target}", daemon=True).start()
            while not stop.is_set():
                try:
                    item = feed.items.get(timeout=_STOP_POLL_SECONDS)
                except queue.Empty:
                    continue
                if isinstance(item, BaseException):
                    raise item
                yield item
                del item  # the next may come in a minute, and a list is large
    finally:
        feed.abandon()


class _Feed(Generic[T]):
    """Reads a collection in a thread and puts items, and the error that ends it, into `items`."""

    def __init__(
        self,
        source: WatchSource[T],
        pace: WatchPace,
        since: Listing[T] | None = None,
        on_answer: Callable[[], object] = lambda: None,
    ) -> None:
        # A `Queue` would cost more for each item than its decoding: its locks and conditions are written in Python.
        self.items: queue.SimpleQueue[WatchItem[T] | BaseException] = queue.SimpleQueue()
        self._source = source
        self._pace = pace
        self._abandoned = threading.Event()
        self._stream_lock = threading.Lock()
        self._stream: BaseHTTPResponse | None = None
        self._stream_silence_seconds = 0.0
        """Longest silence of the open connection before a reconnect."""
        self._is_cut = False
        """Whether `reopen` has cut the connection, whose end is then no failure."""
        self._on_answer = on_answer
        self._resource_version = "" if since is None else since.resource_version  # "": list first
        self._highest_version = version_number(self._resource_version)
        self._in_vain_seconds = 0.0
        """How long watches in a row were open that brought nothing."""
        self._ends_at_once = False
        """Whether the last connection ended before it brought anything, so that the next is no sign of life."""
        self._begun = False
        """Whether the server has let it list or watch."""
        self._heard_since_list = False
        self._is_list_too_slow = False
        """Whether the server no longer kept the events since a list when that was read."""
        self._beside: ListBesideWatch[T] | None = None
        self._failures = 0

    def run(self) -> None:
        """Read until abandoned, or until an error that the caller must see."""
        try:
            while not self._abandoned.is_set():
                self._read_once()
        except BaseException as error:  # noqa: BLE001 - the thread's boundary: the caller's thread raises it
            self._emit(error)
        finally:
            self._drop_list_beside()

    def abandon(self) -> None:
        """End the reading; a blocked read is cut off."""
        self._abandoned.set()
        with self._stream_lock:
            self._cut_off()

    def reopen(self) -> None:
        """Cut off a connection whose silence would be noticed too late, so that the next has the present settings."""
        with self._stream_lock:
            self._cut_off_if_too_patient()

    def _cut_off_if_too_patient(self) -> None:
        if self._stream_silence_seconds > self._pace.settings.silence_seconds:
            self._is_cut = self._stream is not None  # before the reader can see it
            self._cut_off()

    def _cut_off(self) -> None:
        """Cut off the connection if there is one."""
        if self._stream is None:
            return
        with suppress(OSError, RuntimeError, ValueError):  # closed by itself meanwhile
            # `close` alone would wait for the lock that the blocked read holds.
            self._stream.shutdown()

    def _read_once(self) -> None:
        """List if needed, then follow one connection to its end; wait after a failure."""
        try:
            if self._in_vain_seconds >= self._pace.settings.in_vain_seconds:
                self._look_back()
            if not self._resource_version:
                self._begin_list_beside() if self._is_list_too_slow else self._list()
            self._follow_stream()
        except KubeError as error:
            if self._abandoned.is_set():
                return
            if isinstance(error, PermanentError):
                if not self._begun:
                    raise
                self._resource_version = ""
            if isinstance(error, GoneError) and not self._heard_since_list:
                self._is_list_too_slow = True
            self._failures += 1
            self._wait_after(error, self._failures)

    def _wait_after(self, error: KubeError, failures: int) -> None:
        """Wait before the next try, longer after each failure and at least as long as the server asks."""
        wait_seconds = max(self._pace.settings.backoff.wait_seconds(failures), error.retry_after_seconds or 0.0)
        level = logging.WARNING if failures >= _WORTH_A_WARNING else logging.DEBUG
        _LOG.log(level, "%s; failure %d in a row, next try in %.1f s", error, failures, wait_seconds)
        self._abandoned.wait(wait_seconds)

    def _look_back(self) -> None:
        """List again if the collection's resourceVersion has gone back.

        Neither a quiet cluster nor a restored one sends a bookmark, so only the version tells them apart.
        """
        if version_number(self._source.read_version()) < self._highest_version:
            self._resource_version = ""
        self._in_vain_seconds = 0.0

    def _list(self) -> None:
        listing = self._source.read_all()
        is_restored = self._begin_from(listing.resource_version)
        self._emit(Listed(listing.items, listing.resource_version, listing.began, is_restored))
        self._begun = True

    def _begin_from(self, resource_version: str) -> bool:
        """Begin to watch from a version of a list; return whether versions went back."""
        version = version_number(resource_version)
        is_restored, self._highest_version = version < self._highest_version, version
        self._resource_version = resource_version
        self._heard_since_list = False
        return is_restored

    def _begin_list_beside(self) -> None:
        """Begin to watch from now on, and to list in a thread of its own."""
        version = self._source.read_version()
        dropped = self._beside
        # Nothing has been passed on since versions went back, so the next list is the one that says so.
        is_yet_to_say = dropped is not None and dropped.is_restored and not dropped.is_listed
        self._drop_list_beside()
        is_restored = self._begin_from(version) or is_yet_to_say
        beside = self._beside = ListBesideWatch(self._emit, restored=is_restored)
        name = f"list {self._source.call.target}"
        threading.Thread(target=self._list_beside, args=(beside,), name=name, daemon=True).start()

    def _drop_list_beside(self) -> None:
        if self._beside is not None:
            self._beside.close()
        self._beside = None

    def _list_beside(self, beside: ListBesideWatch[T]) -> None:
        """List, again after a failure: the watch keeps what changes meanwhile."""
        failures = 0
        try:
            while self._is_wanted(beside):
                try:
                    loose = self._source.read_loosely(lambda: self._is_wanted(beside))
                    if loose is not None:
                        beside.put_list(loose)
                except KubeError as error:
                    failures += 1
                    self._wait_after(error, failures)
        except BaseException as error:  # noqa: BLE001 - the thread's boundary: the caller's thread raises it
            self._emit(error)

    def _is_wanted(self, beside: ListBesideWatch[T]) -> bool:
        return not (self._abandoned.is_set() or beside.is_listed or beside.is_closed)

    def _follow_stream(self) -> None:
        """Follow one connection until the server ends it; raises a KubeError after any other end."""
        stream = self._open()
        if not self._ends_at_once:
            self._on_answer()
        started, items_seen = time.monotonic(), 0
        try:
            for line in self._lines(stream):
                self._on_answer()
                self._handle(line)
                self._begun = True
                self._failures = 0
                items_seen += 1
        finally:
            seconds = time.monotonic() - started
            self._in_vain_seconds = 0.0 if items_seen else self._in_vain_seconds + seconds
            self._ends_at_once = items_seen == 0 and seconds < _TOO_SHORT_SECONDS and not self._is_cut
        # A proxy that ends watches at once, or an API server that shuts down: without a pause this would be a busy
        # loop.
        if self._ends_at_once and not self._abandoned.is_set():
            raise self._source.broken(HTTPError("the server ended the watch at once"))

    def _handle(self, line: bytes) -> None:
        """Pass on one event and record its resourceVersion."""
        call = self._source.call
        event = decode_event(call, line)
        # The status line was 200 long ago, so errors such as 410 come as an event with a Status.
        if event.type == "ERROR":
            self._resource_version = ""
            status = decode_error_status(call, event.object)
            raise error_from_status(call, status, status.code)
        self._heard_since_list = True
        resource_version = resource_version_of(call, event.object)
        if event.type == "BOOKMARK":
            bookmark = Bookmark(resource_version)
            self._emit(bookmark) if self._beside is None else self._beside.put_bookmark(bookmark)
        else:
            item = decode_item(call, event.object, self._source.item_type)
            self._put(event.object, Removed(item) if event.type == "DELETED" else Changed(item, event.type == "ADDED"))
        self._resource_version = resource_version or self._resource_version
        self._highest_version = max(self._highest_version, version_number(self._resource_version))

    def _put(self, raw_object: msgspec.Raw, change: Changed[T] | Removed[T]) -> None:
        """Pass on a change, once the list is there that is read beside the watch."""
        if self._beside is None:
            self._emit(change)
        else:
            self._beside.put_change(object_version_of(self._source.call, raw_object), change)

    def _emit(self, item: WatchItem[T] | BaseException) -> None:
        """Put an item into the queue unless abandoned; wait while the caller is behind."""
        while not self._abandoned.is_set():
            if self.items.qsize() < _QUEUED_ITEMS:
                self.items.put(item)
                return
            self._abandoned.wait(_FULL_PAUSE_SECONDS)

    def _open(self) -> BaseHTTPResponse:
        """Open a connection, which `abandon` can cut off from now on."""
        settings = self._pace.settings
        stream = self._source.open_stream(self._resource_version, settings)
        with self._stream_lock:
            self._stream, self._stream_silence_seconds, self._is_cut = stream, settings.silence_seconds, False
            self._cut_off_if_too_patient()  # a change while it was being opened found nothing to cut off
        return stream

    def _lines(self, stream: BaseHTTPResponse) -> Iterator[bytes]:
        """Yield the lines of one connection; a truncated line is dropped, because its event comes again."""
        try:
            pending = b""
            while not self._abandoned.is_set() and (chunk := stream.read1(_READ_BYTES)):
                if self._is_cut:
                    break  # it may be what is encrypted, and events come again
                # Events are separated by newlines, and chunks end anywhere.
                *lines, pending = (pending + chunk).split(b"\n")
                yield from filter(None, lines)
        except (HTTPError, OSError, ValueError) as error:
            # `SSLSocket.shutdown` takes the encryption away from under a read, which raises a ValueError then.
            if not self._is_cut:
                raise self._source.broken(error) from error
        finally:
            with self._stream_lock:
                self._stream = None
            stream.close()
