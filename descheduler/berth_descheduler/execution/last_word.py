"""Owns the last question before an eviction: what the filters say of the pod as it is now, when its place is held.

It does not own the filters (`plugins.plugin_set`) nor the eviction (`evictions`).

Plugins are asked one at a time, whichever thread asks, and none is shown a cluster that is older than half a minute.
What cannot be found out keeps the pod where it is.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from berth_core.clock import Clock
from berth_core.errors import InputError
from berth_core.objects import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.plugins.plugin_set import PluginSet, Refusing
from berth_descheduler.plugins.protocols import ClusterView
from berth_descheduler.refusals import Refusal, RefusalReason

_OLDEST_VIEW_SECONDS: Final = 30.0


class LastWord:
    """Asks the pre-eviction filters of one plan."""

    def __init__(self, plugins: PluginSet, read_snapshot: Callable[[], Snapshot], clock: Clock) -> None:
        self._plugins = plugins
        self._read_snapshot = read_snapshot
        self._clock = clock
        self._lock = threading.Lock()
        self._refusing: Refusing | None = None
        self._made_at = 0.0

    @property
    def is_asked(self) -> bool:
        """Tell whether there is any filter."""
        return bool(self._plugins.pre_eviction_filters)

    def refusals(self, raw_pod: dict[str, Any]) -> tuple[Refusal, ...]:
        """Return all that speaks against evicting a pod now; raises `RetryableError` if the cluster cannot be read."""
        try:
            pod = msgspec.convert(raw_pod, Pod)
            with self._lock:
                return self._current()(pod)
        except (InputError, msgspec.ValidationError) as error:
            return (Refusal(RefusalReason.PLUGIN_FAILED, str(error)),)

    def _current(self) -> Refusing:
        """Return the filters on a view that is young enough; the cluster is read only if one of them looks at it."""
        now = self._clock.monotonic()
        if self._refusing is None or now - self._made_at > _OLDEST_VIEW_SECONDS:
            self._refusing = self._plugins.refusing_eviction(ClusterView(self._read_snapshot, self._clock.now()))
            self._made_at = now
        return self._refusing
