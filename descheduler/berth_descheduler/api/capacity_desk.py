"""Owns answers about the cluster's fragmentation: one reading and one counting at a time, good for a few seconds.

It does not own the numbers.
"""

import asyncio
from typing import Final

from berth_core.clock import Clock
from berth_descheduler.api.background import Workers
from berth_descheduler.api.documents import Capacity
from berth_descheduler.api.reading import Measurement, describe_fragmentation, measure
from berth_descheduler.api.remembering import ShortMemory
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.planner.asked_shapes import AskedShape
from berth_kube.client import KubeClient

_ANSWERS: Final = 64


class CapacityDesk:
    """Reads the cluster at most once in a while, however many ask; counting has a thread of its own."""

    def __init__(self, client: KubeClient, clock: Clock, settings: RestSettings) -> None:
        self._client = client
        self._clock = clock
        self._seconds = settings.times.capacity_seconds
        self._workers = Workers(1, settings.times.request_seconds)
        self._measured: ShortMemory[str, Measurement] = ShortMemory(clock, 1)
        self._counted: ShortMemory[tuple[str, ...], Capacity] = ShortMemory(clock, _ANSWERS)

    async def fragmentation(self, shapes: tuple[AskedShape, ...]) -> Capacity:
        """Return how fragmented the cluster is; raises what reading it raises."""
        key = tuple(shape.name for shape in shapes)
        return await self._counted.answer(key, lambda: self._count(shapes), lambda _: self._seconds)

    async def _count(self, shapes: tuple[AskedShape, ...]) -> Capacity:
        measured = await self._measured.answer("", self._measure, lambda _: self._seconds)
        return await self._workers.run(lambda: describe_fragmentation(measured, shapes))

    async def _measure(self) -> Measurement:
        found = await self._workers.run(lambda: measure(self._client, self._clock))
        # It is by far the largest thing here, and of no use to anybody later.
        asyncio.get_running_loop().call_later(self._seconds, self._measured.forget, "")
        return found

    def close(self) -> None:
        """Take nothing more on."""
        self._workers.close()
