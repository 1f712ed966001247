"""Owns what the interface reads of the cluster: plans, policies, and how fragmented it is.

It does not own what is asked of the service (`plan_requests`), nor the documents. All of it blocks.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core.clock import Clock
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.policies import DeschedulerPolicy
from berth_core.snapshot import Snapshot
from berth_descheduler.api.concurrency import ShortMemory, Workers
from berth_descheduler.api.schemas import (
    Capacity,
    PlanDocument,
    PlanHead,
    PlanList,
    PolicyList,
    describe_measured,
    describe_plan,
    describe_policy,
    list_plan,
)
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.planner.stranded_capacity import AskedShape, report_capacity
from berth_descheduler.snapshots import read_capacity
from berth_kube.client import KubeClient
from berth_kube.resources import DESCHEDULER_POLICIES, MIGRATION_PLANS

_PLANS_PER_PAGE: Final = 20
"""A plan may have a megabyte, of which a list keeps little."""


def read_plans(client: KubeClient, *, policy: str | None, phase: PlanPhase | None, limit: int) -> PlanList:
    """Return the newest plans of a policy and in a phase, where these are given."""
    heads = client.list(MIGRATION_PLANS, type=PlanHead, page_size=_PLANS_PER_PAGE).items
    found = [head for head in heads if policy in (None, head.spec.policy) and phase in (None, head.phase)]
    found.sort(key=lambda head: (head.metadata.creation_timestamp or "", head.metadata.name), reverse=True)
    return PlanList(items=tuple(map(list_plan, found[:limit])), remaining=max(0, len(found) - limit))


def read_plan(client: KubeClient, name: str) -> PlanDocument:
    """Return a plan with its moves."""
    return describe_plan(client.get(MIGRATION_PLANS, name, type=MigrationPlan))


def read_policies(client: KubeClient) -> PolicyList:
    """Return all policies by name."""
    policies = client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items
    return PolicyList(items=tuple(describe_policy(one) for one in sorted(policies, key=lambda one: one.metadata.name)))


def read_policy(client: KubeClient, name: str) -> DeschedulerPolicy:
    """Return a policy."""
    return client.get(DESCHEDULER_POLICIES, name, type=DeschedulerPolicy)


@dataclass(frozen=True)
class Measurement:
    """The cluster's nodes and pods at a time."""

    snapshot: Snapshot
    at: datetime


def measure(client: KubeClient, clock: Clock) -> Measurement:
    """Read the cluster's nodes and pods."""
    return Measurement(read_capacity(client), clock.now())


def describe_fragmentation(measured: Measurement, shapes: tuple[AskedShape, ...]) -> Capacity:
    """Return how fragmented the cluster was."""
    return describe_measured(report_capacity(measured.snapshot, shapes), measured.at)


# --- capacity desk ---------------------------------------------------------------------------------------------------
# Answers about the cluster's fragmentation: one reading and one counting at a time, good for a few seconds.

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
