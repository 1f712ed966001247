"""Blocking reads of plans, policies and fragmentation."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from berth_core import Clock, DeschedulerPolicy, MigrationPlan, PlanPhase, Reservation, Snapshot
from berth_descheduler.api.concurrency import Workers
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.api.ttl_cache import TtlCache
from berth_descheduler.picture import Picture
from berth_descheduler.planner import CapacityShape, report_capacity
from berth_descheduler.report import (
    Capacity,
    HeldCapacityList,
    NodeList,
    PlanDocument,
    PlanHead,
    PlanList,
    PolicyList,
    describe_capacity,
    describe_held_capacity,
    describe_nodes,
    describe_stored_plan,
    list_plan,
    list_policies,
)
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, RESERVATIONS, KubeClient

T = TypeVar("T")

_PLANS_PER_PAGE: Final = 20
"""A plan may take a megabyte, of which a list keeps little."""


def read_plans(
    client: KubeClient, *, policy: str | None, phase: PlanPhase | None, limit: int, before: str | None = None
) -> PlanList:
    """Return the newest plans, of a policy and in a phase if given; `before` is an earlier answer's `continue`."""
    # Not the API server's own `continue` (KEP-365): it has no order by age, and expires with 410 Gone after some
    # minutes.
    last_position = None if before is None else tuple(before.split("/"))
    plan_heads = client.list(MIGRATION_PLANS, type=PlanHead, page_size=_PLANS_PER_PAGE).items
    matching = [head for head in plan_heads if policy in (None, head.spec.policy) and phase in (None, head.phase)]
    matching = sorted(
        (head for head in matching if last_position is None or _position(head) < last_position),
        key=_position,
        reverse=True,
    )
    remaining = max(0, len(matching) - limit)
    go_on = "/".join(_position(matching[limit - 1])) if remaining else ""
    return PlanList(items=tuple(map(list_plan, matching[:limit])), remaining=remaining, go_on=go_on)


def _position(head: PlanHead) -> tuple[str, str]:
    """Return a plan's place in the list, which stays the same whatever is added and deleted."""
    return head.metadata.creation_timestamp or "", head.metadata.name


def read_plan(client: KubeClient, name: str) -> PlanDocument:
    return describe_stored_plan(client.get(MIGRATION_PLANS, name, type=MigrationPlan))


def read_policies(client: KubeClient) -> PolicyList:
    return list_policies(client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items)


def read_held_capacity(client: KubeClient) -> HeldCapacityList:
    return describe_held_capacity(map(Reservation.read, client.list(RESERVATIONS).items))


def read_policy(client: KubeClient, name: str) -> DeschedulerPolicy:
    return client.get(DESCHEDULER_POLICIES, name, type=DeschedulerPolicy)


@dataclass(frozen=True)
class Measurement:
    """The nodes and pods of the cluster at one time."""

    snapshot: Snapshot
    at: datetime


def measure(client: KubeClient, clock: Clock, own_namespace: str) -> Measurement:
    return Measurement(Picture(client, own_namespace).capacity(), clock.now())


def describe_fragmentation(measured: Measurement, shapes: tuple[CapacityShape, ...]) -> Capacity:
    return describe_capacity(report_capacity(measured.snapshot, shapes), measured.at)


_ANSWERS: Final = 64


class FragmentationQueries:
    """Reads the cluster at most once per `capacity_seconds`; counting and other reads have a thread each."""

    def __init__(self, client: KubeClient, clock: Clock, settings: RestSettings) -> None:
        self._client = client
        self._clock = clock
        self._seconds = settings.times.capacity_seconds
        self._own_namespace = settings.namespace
        self._workers = Workers(1, settings.times.request_seconds)
        self._measured: TtlCache[str, Measurement] = TtlCache(clock, 1)
        self._readers = Workers(1, settings.times.request_seconds)
        # Callers choose shapes, which must not push out what capabilities keep.
        self._counted: TtlCache[tuple[str, ...], Capacity] = TtlCache(clock, _ANSWERS)
        self._derived: TtlCache[tuple[str, ...], Any] = TtlCache(clock, _ANSWERS)

    async def fragmentation(self, shapes: tuple[CapacityShape, ...]) -> Capacity:
        key = tuple(shape.name for shape in shapes)
        return await self._counted.answer(
            key,
            lambda: self._work_out(lambda measured: describe_fragmentation(measured, shapes)),
            lambda _: self._seconds,
        )

    async def nodes(self) -> NodeList:
        return await self._work_out(lambda measured: describe_nodes(measured.snapshot, measured.at))

    async def derive(self, key: tuple[str, ...], work_out: Callable[[Measurement], T]) -> T:
        """Return what is worked out of the latest measurement; it is kept under the key for as long as that."""
        derived: T = await self._derived.answer(key, lambda: self._work_out(work_out), lambda _: self._seconds)
        return derived

    async def read(self, key: tuple[str, ...], read: Callable[[], T]) -> T:
        """Return what a call reads of the cluster; it is kept under the key for as long as a measurement."""
        known: T = await self._derived.answer(key, lambda: self._readers.run(read), lambda _: self._seconds)
        return known

    async def _work_out(self, work_out: Callable[[Measurement], T]) -> T:
        measured = await self._measured.answer("", self._measure, lambda _: self._seconds)
        return await self._workers.run(lambda: work_out(measured))

    async def _measure(self) -> Measurement:
        measurement = await self._workers.run(lambda: measure(self._client, self._clock, self._own_namespace))
        # By far the largest object here, and useless once it has expired.
        asyncio.get_running_loop().call_later(self._seconds, self._measured.forget, "")
        return measurement

    def close(self) -> None:
        self._workers.close()
        self._readers.close()
