"""Owns what the interface reads of the cluster: plans, policies, and how fragmented it is.

It does not own what is asked of the service (`plan_requests`), nor the documents. All of it blocks.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core.clock import Clock
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.policies import DeschedulerPolicy
from berth_core.snapshot import Snapshot
from berth_descheduler.api.documents import (
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
from berth_descheduler.planner.asked_shapes import AskedShape
from berth_descheduler.planner.stranded_capacity import report_capacity
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
