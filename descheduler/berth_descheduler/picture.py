"""The cluster as the service sees it: for plans, later looks at them, and the work beside runs."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from berth_core import Snapshot
from berth_core.snapshot import ObjectKind
from berth_descheduler.snapshots import read_capacity, read_live_snapshot
from berth_kube import KubeClient, ListSource, WatchedLists


class Picture:
    """Answers questions about the cluster; thread-safe.

    While someone watches, each kind is listed once, and later answers cost what has changed. Otherwise each question
    lists the cluster anew, and no memory is kept.
    """

    def __init__(self, client: KubeClient, own_namespace: str) -> None:
        """`own_namespace` is Berth's; pods elsewhere are no fences, whatever they are labelled."""
        self._client = client
        self._own_namespace = own_namespace
        self._lock = threading.Lock()
        self._watchers = 0
        self._watched: WatchedLists | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep what is read up to date by watches until all who watch have ended."""
        with self._lock:
            self._watchers += 1
            self._watched = self._watched or WatchedLists(self._client)
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1
                over, self._watched = (None, self._watched) if self._watchers else (self._watched, None)
            if over is not None:
                over.close()

    def snapshot(self, beside: Iterable[ObjectKind] = ()) -> Snapshot:
        """Return what the planner needs, and the kinds `beside` that plugins read; raises `KubeError`."""
        return read_live_snapshot(self._source, self._own_namespace, beside)

    def capacity(self) -> Snapshot:
        """Return nodes, pods and Reservations, and what is guaranteed: what is free; raises `KubeError`."""
        return read_capacity(self._source).within(self._own_namespace)

    @property
    def _source(self) -> ListSource:
        return self._watched or self._client
