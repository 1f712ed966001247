"""Owns the last question before an eviction: what rules and filters say of the pod as it is now, its place being held.

It does not own the filters (`plugins.plugin_set`), the rules (`plugins.movable`, `plugins.gangs`) nor the eviction
(`evictions`).

Plugins are asked one at a time, whichever thread asks, and none is shown a cluster that is older than half a minute.
Of a gang, everything is read anew, and its pods are evicted one after another: no two go on the same look. What cannot
be found out keeps the pod where it is.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import msgspec

from berth_core.clock import Clock
from berth_core.errors import InputError
from berth_core.objects import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.plugins.gangs import Gangs, gangs_of
from berth_descheduler.plugins.movable import wish_refusals
from berth_descheduler.plugins.plugin_set import PluginSet, Refusing
from berth_descheduler.plugins.protocols import ClusterView
from berth_descheduler.refusals import Refusal, RefusalReason

_OLDEST_VIEW_SECONDS: Final = 30.0


class LastWord:
    """Asks the rules that may change at any time, and the pre-eviction filters of one plan.

    `read_gangs` returns the pods of a namespace with their groups, `read_snapshot` the whole cluster.
    """

    def __init__(
        self,
        plugins: PluginSet,
        read_snapshot: Callable[[], Snapshot],
        read_gangs: Callable[[str], Snapshot],
        clock: Clock,
    ) -> None:
        self._plugins = plugins
        self._read_snapshot = read_snapshot
        self._read_gangs = read_gangs
        self._clock = clock
        self._lock = threading.Lock()
        self._gang_lock = threading.Lock()
        self._refusing: Refusing | None = None
        self._made_at = 0.0

    def turn_of(self, raw_pod: dict[str, Any]) -> AbstractContextManager[Any]:
        """Return what to hold from the question to the end of the eviction: no two pods of gangs go at once."""
        try:
            in_gang = bool(gangs_of(msgspec.convert(raw_pod, Pod)))
        except msgspec.ValidationError:
            in_gang = True
        return self._gang_lock if in_gang else nullcontext()

    def refusals(self, raw_pod: dict[str, Any]) -> tuple[Refusal, ...]:
        """Return all that speaks against evicting a pod now; raises `RetryableError` if the cluster cannot be read."""
        try:
            pod = msgspec.convert(raw_pod, Pod)
            of_gang = Gangs(self._read_gangs(pod.metadata.namespace)).refusals(pod) if gangs_of(pod) else ()
            return (*of_gang, *wish_refusals(pod), *self._ask_filters(pod))
        except (InputError, msgspec.ValidationError) as error:
            return (Refusal(RefusalReason.PLUGIN_FAILED, str(error)),)

    def _ask_filters(self, pod: Pod) -> tuple[Refusal, ...]:
        if not self._plugins.pre_eviction_filters:
            return ()
        with self._lock:
            return self._current()(pod)

    def _current(self) -> Refusing:
        """Return the filters on a view that is young enough; the cluster is read only if one of them looks at it."""
        now = self._clock.monotonic()
        if self._refusing is None or now - self._made_at > _OLDEST_VIEW_SECONDS:
            self._refusing = self._plugins.refusing_eviction(ClusterView(self._read_snapshot, self._clock.now()))
            self._made_at = now
        return self._refusing
