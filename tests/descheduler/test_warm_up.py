"""The service plans a small made-up cluster before its first run, so that a run's memory can be given back."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from berth_core.clock import SystemClock
from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_descheduler.controller import warm_up as module
from berth_descheduler.controller.store import ServiceContext
from berth_descheduler.controller.warm_up import warm_up
from berth_descheduler.metrics import PHASE_SECONDS, CycleMetrics
from berth_descheduler.outcome import Phase
from berth_descheduler.picture import Picture
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import RunDefaults
from descheduler.fake_cluster import FakeCluster


@dataclass
class Planner:
    """Plans, and notes the plans."""

    plans: list[Plan] = field(default_factory=list)
    error: Exception | None = None

    def plan(self, snapshot: Snapshot, settings: PlannerSettings) -> Plan:
        if self.error is not None:
            raise self.error
        self.plans.append(plan(snapshot, settings))
        return self.plans[-1]


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    planner = Planner()
    monkeypatch.setattr(module, "plan", planner.plan)
    return planner


def context_of(cluster: FakeCluster) -> ServiceContext:
    client = cast("Any", cluster)
    return ServiceContext(client, SystemClock(), RunDefaults(), installed_plugins(), None, Picture(client, "berth"))


def test_a_plan_with_moves_is_made_without_any_call(planner: Planner) -> None:
    cluster = FakeCluster()
    warm_up(context_of(cluster))
    assert [bool(found.moves) for found in planner.plans] == [True]
    assert cluster.calls == []


def test_a_planner_that_refuses_does_not_keep_the_service_from_starting(planner: Planner) -> None:
    planner.error = InputError("nodes", None, "some")
    warm_up(context_of(FakeCluster()))
    assert planner.plans == []


def test_the_times_of_all_phases_are_there_before_the_first_run() -> None:
    registry = CollectorRegistry()
    CycleMetrics(registry, SystemClock())
    assert {registry.get_sample_value(f"{PHASE_SECONDS}_count", {"phase": phase.value}) for phase in Phase} == {0.0}
