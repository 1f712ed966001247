"""Looks for what `berth doctor` finds, as long as anyone asks."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core import Clock
from berth_descheduler.api.concurrency import Workers
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.api.ttl_cache import TtlCache
from berth_descheduler.doctor import look_as_far_as_allowed
from berth_kube import Access, KubeClient
from berth_sandbox.invariants import InvariantMonitor, Violation

_LOOKS_WITHOUT_A_BREAK: Final = 20
"""Looks that are further apart than so many of their intervals do not say that anything lasted meanwhile.

A program that asks every minute or two learns what lasts as well as the page does.
"""


@dataclass(frozen=True)
class Watched:
    """The last look, and what earlier ones say of it."""

    may_pass_by_violation: Mapping[Violation, bool]
    refused: frozenset[Access]
    """The rights that Berth itself lacks."""
    at: datetime


class TroubleWatch:
    """Looks at most once per `findings_seconds`, in its own thread: a look lists most kinds."""

    def __init__(self, client: KubeClient, clock: Clock, settings: RestSettings) -> None:
        self._client = client
        self._clock = clock
        self._seconds = settings.times.findings_seconds
        self._own_namespace = settings.namespace
        self._workers = Workers(1, settings.times.request_seconds)
        self._last: TtlCache[str, Watched] = TtlCache(clock, 1)
        self._monitor = InvariantMonitor()
        self._looked_at = 0.0

    async def watched(self) -> Watched:
        """Return what was found some seconds ago or is found now."""
        return await self._last.answer("", self._ask, lambda _: self._seconds)

    async def _ask(self) -> Watched:
        return await self._workers.run(self._look)

    def _look(self) -> Watched:
        began, now = self._clock.monotonic(), self._clock.now()
        look = look_as_far_as_allowed(self._client, self._own_namespace, now)
        if began - self._looked_at > _LOOKS_WITHOUT_A_BREAK * self._seconds:
            self._monitor = InvariantMonitor()
        self._looked_at = self._clock.monotonic()
        self._monitor.look(look.violations, began)
        may_pass = dict.fromkeys(self._monitor.breaches(), False)
        may_pass |= dict.fromkeys(self._monitor.suspects(), True)
        return Watched(may_pass, look.refused, now)

    def close(self) -> None:
        self._workers.close()
