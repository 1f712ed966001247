"""The service on an API server in memory: policies run, plans that were asked for are made, replicas take turns."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from berth_core.clock import SystemClock, format_timestamp
from berth_core.migration_plans import MigrationPlan, PlanPhase, RunMode
from berth_core.names import LEADER_LEASE, scheduled_plan_name
from berth_core.policies import VALID, DeschedulerPolicy
from berth_descheduler import cycle, picture, run_watch
from berth_descheduler.controller.leader import LeaderElector
from berth_descheduler.controller.store import PolicyStore, ServiceContext, WakeUp
from berth_descheduler.migration.plans import requests as plan_requests
from berth_descheduler.migration.plans.looked_at import LookedAt
from berth_descheduler.picture import Picture
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.parsing import RunDefaults
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_kube.errors import ServerError
from berth_kube.resources import DESCHEDULER_POLICIES, EVENTS, LEASES, MIGRATION_PLANS, NODES
from berth_kube.watching import PROMPT_WATCH
from descheduler.cycle_settings import PLANNER, SETTINGS
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from waiting import eventually, soon

LONG: Final = 60.0
"""Seconds after which what is waited for does not come."""

PROFILE: Final = {"name": "default", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}


class Replica:
    """One replica in a thread."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.stop = threading.Event()
        self.registry = CollectorRegistry()
        self.metrics = PolicyMetrics(self.registry, SystemClock())
        defaults = RunDefaults(replace(SETTINGS, identity=name, lease_seconds=6, approval_seconds=600), PLANNER)
        context = ServiceContext(
            cluster,  # type: ignore[arg-type]
            SystemClock(),
            defaults,
            installed_plugins(),
            plan_retention=timedelta(hours=2),
            picture=Picture(cluster, "berth-system"),  # type: ignore[arg-type]
        )
        self.server = LeaderElector(context, self.metrics, self.stop)
        self.thread = threading.Thread(target=self.server.serve, name=name)

    def is_leading(self) -> bool:
        return bool(self.server.readiness()["leading"])

    def end(self) -> None:
        self.stop.set()
        self.thread.join(LONG)
        assert not self.thread.is_alive()

    def sample(self, metric: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(metric, labels)


@contextmanager
def serving(cluster: FakeCluster, name: str = "first") -> Iterator[Replica]:
    replica = Replica(cluster, name)
    replica.thread.start()
    try:
        yield replica
    finally:
        replica.end()


@pytest.fixture
def cluster() -> FakeCluster:
    return fragmented_cluster()


def put(cluster: FakeCluster, name: str = "p", **spec: object) -> None:
    body = {"profiles": [PROFILE], "limits": {"maxMovesPerController": 5}, **spec}
    metadata = {"name": name, "generation": 1, "creationTimestamp": format_timestamp(SystemClock().now())}
    cluster.add(DESCHEDULER_POLICIES, {"metadata": metadata, "spec": body, "status": {}})


def policy(cluster: FakeCluster, name: str = "p") -> DeschedulerPolicy:
    return DeschedulerPolicy.from_api(cluster.objects[DESCHEDULER_POLICIES.plural]["", name])


def plans(cluster: FakeCluster) -> list[MigrationPlan]:
    return [MigrationPlan.from_api(raw) for raw in cluster.raw(MIGRATION_PLANS)]


def approve(cluster: FakeCluster, name: str) -> None:
    """Approve a plan as it is."""
    plan = cluster.get(MIGRATION_PLANS, name, type=MigrationPlan)
    plan_requests.approve(cluster.as_client(), name, LookedAt.of(plan))


def ask(cluster: FakeCluster, mode: RunMode, name: str = "p") -> str:
    return plan_requests.request_run(cluster, SystemClock(), name, mode=mode).metadata.name  # type: ignore[arg-type]


def is_in(cluster: FakeCluster, plan: str, *phases: PlanPhase) -> Callable[[], bool]:
    return lambda: any(one.phase in phases for one in plans(cluster) if one.metadata.name == plan)


def has_run(cluster: FakeCluster, name: str = "p") -> Callable[[], str]:
    return lambda: policy(cluster, name).status.last_verdict


def test_an_interval_runs_at_once_and_says_so(cluster: FakeCluster) -> None:
    put(cluster, trigger={"interval": "1h"}, mode="Auto")
    with serving(cluster) as replica:
        eventually("it has run", has_run(cluster), seconds=LONG)
        eventually("its metrics say it", lambda: replica.sample("berth_policies", valid="true") == 1, seconds=LONG)
        eventually("and that it leads", lambda: replica.sample("berth_leader") == 1, seconds=LONG)
        ran = {"policy": "p", "verdict": "CarriedOut"}
        eventually("the run is counted", lambda: replica.sample("berth_policy_runs_total", **ran) == 1, seconds=LONG)
    status = policy(cluster).status
    (plan,) = plans(cluster)
    assert (status.last_verdict, status.last_plan) == ("CarriedOut", plan.metadata.name)
    assert plan.phase is PlanPhase.SUCCEEDED
    assert (plan.spec.policy, plan.spec.trigger, plan.spec.mode) == ("p", "Interval", RunMode.AUTO)
    assert status.last_scheduled_time == policy(cluster).metadata.creation_timestamp
    assert status.fragmentation is not None
    assert status.fragmentation.nodes == len(cluster.objects[NODES.plural])
    assert {raw["reason"] for raw in cluster.raw(EVENTS)} >= {"Started", "Finished", "RunEnded"}


class InACycle:
    """Stays in memory until the next full collection."""

    def __init__(self) -> None:
        self.itself = self


def test_what_a_run_has_left_in_memory_is_released_after_it(cluster: FakeCluster) -> None:
    put(cluster, trigger={"interval": "1h"}, mode="Plan")
    left = weakref.ref(InACycle())
    with serving(cluster) as replica:
        eventually("it has run", has_run(cluster), seconds=LONG)
        eventually("nothing is left in a cycle", lambda: left() is None, seconds=LONG)
        eventually("its plan is not kept", lambda: replica.metrics.proposed_plan is None, seconds=LONG)


def test_a_run_leaves_no_idle_connections(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(cluster, "close", lambda: closed.append(policy(cluster).status.last_verdict))
    put(cluster, trigger={"interval": "1h"}, mode="Plan")
    with serving(cluster):
        eventually("they are closed after it has run", lambda: "Planned" in closed, seconds=LONG)


def test_a_run_that_hangs_is_noticed(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, plan_as_usual = threading.Event(), cycle.plan

    def plan_late(*given: Any) -> Any:  # noqa: ANN401 - what the planner takes and returns
        assert goes_on.wait(LONG)
        return plan_as_usual(*given)

    monkeypatch.setattr(cycle, "plan", plan_late)
    monkeypatch.setattr(run_watch, "_STUCK_SECONDS", 0.3)
    put(cluster, trigger={"interval": "1h"}, mode="Plan")
    with serving(cluster) as replica:
        eventually("it is stuck", replica.server.run_watch.is_stuck, seconds=LONG)
        goes_on.set()
        eventually("it has run", has_run(cluster), seconds=LONG)
        assert not replica.server.run_watch.is_stuck()


@pytest.mark.parametrize(("mode", "want"), [(RunMode.PLAN, PlanPhase.PROPOSED), (RunMode.AUTO, PlanPhase.SUCCEEDED)])
def test_a_plan_that_was_asked_for_is_made(cluster: FakeCluster, mode: RunMode, want: PlanPhase) -> None:
    put(cluster)
    with serving(cluster):
        eventually("it is made", is_in(cluster, ask(cluster, mode), want), seconds=LONG)
        eventually("the policy says so", has_run(cluster), seconds=LONG)
    assert policy(cluster).status.last_scheduled_time is None


def test_no_plan_is_made_for_a_policy_whose_deletion_waits_for_a_finalizer(cluster: FakeCluster) -> None:
    put(cluster)
    deleted = {"deletionTimestamp": format_timestamp(SystemClock().now()), "finalizers": ["example.com/waits"]}
    cluster.merge_patch(DESCHEDULER_POLICIES, "p", {"metadata": deleted})
    with serving(cluster):
        eventually("it is aborted", is_in(cluster, ask(cluster, RunMode.AUTO), PlanPhase.ABORTED), seconds=LONG)
    assert cluster.plan()["status"]["message"] == "aborted: the policy p is being deleted"


def test_an_approval_starts_a_plan(cluster: FakeCluster) -> None:
    put(cluster)
    with serving(cluster):
        name = ask(cluster, RunMode.APPROVE)
        eventually("it is proposed", is_in(cluster, name, PlanPhase.PROPOSED), seconds=LONG)
        approve(cluster, name)
        eventually("it is over", is_in(cluster, name, PlanPhase.SUCCEEDED), seconds=LONG)


def test_a_plan_nobody_approves_is_aborted_in_time(cluster: FakeCluster) -> None:
    put(cluster, approval={"timeout": "1s"})
    with serving(cluster):
        name = ask(cluster, RunMode.APPROVE)
        eventually("it is aborted", is_in(cluster, name, PlanPhase.ABORTED), seconds=LONG)
    assert cluster.plan()["status"]["message"] == "aborted: it was not approved in time"


def test_a_bad_policy_is_told_and_keeps_no_other_from_running(cluster: FakeCluster) -> None:
    put(cluster, "bad", trigger={"cron": "never"})
    put(cluster, "good", trigger={"interval": "1h"})
    with serving(cluster):
        eventually("the good one has run", has_run(cluster, "good"), seconds=LONG)
        eventually("the bad one is told", lambda: policy(cluster, "bad").condition(VALID), seconds=LONG)
        told = policy(cluster, "bad").condition(VALID)
        assert told is not None
        assert (told.status, "spec.trigger.cron is 'never'" in told.message) == ("False", True)
        mended = {"metadata": {"generation": 2}, "spec": {"trigger": {"cron": None, "interval": "1h"}}}
        cluster.merge_patch(DESCHEDULER_POLICIES, "bad", mended)
        eventually("mended, it runs", has_run(cluster, "bad"), seconds=LONG)


def test_a_run_that_fails_is_told_and_not_tried_again_at_once(cluster: FakeCluster) -> None:
    put(cluster, trigger={"interval": "1h"})
    tries: list[str] = []

    def out_of_order(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("create", MIGRATION_PLANS.plural):
            tries.append(name)
            raise ServerError(call("create", MIGRATION_PLANS, ""), failure(500, "out of order"))

    cluster.before = out_of_order
    with serving(cluster):
        eventually("it is told", has_run(cluster), seconds=LONG)
        before = len(tries)
        time.sleep(3)
        assert len(tries) == before
    status = policy(cluster).status
    assert (status.last_verdict, "out of order" in status.last_outcome) == ("Failed", True)
    assert status.last_scheduled_time is not None


def test_a_mistake_with_one_policy_ends_no_service(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "read_live_snapshot", mistaken)
    put(cluster, trigger={"interval": "1h"})
    with serving(cluster) as replica:
        eventually("it is told", has_run(cluster), seconds=LONG)
        eventually("it leads on", replica.is_leading, seconds=LONG)
    status = policy(cluster).status
    assert (status.last_verdict, status.last_outcome) == ("Failed", "ZeroDivisionError: a mistake")


def mistaken(*_asked: object) -> None:
    raise ZeroDivisionError("a mistake")


def test_a_run_that_was_made_but_not_noted_is_noted_and_not_made_again(cluster: FakeCluster) -> None:
    put(cluster, trigger={"interval": "1h"})
    one = policy(cluster)
    scheduled = one.metadata.creation_timestamp or ""
    name = scheduled_plan_name("20261121-120000", one.metadata.uid, scheduled)
    body = {"policy": "p", "mode": "Plan", "predicted": {"nodes": 1, "moves": 0, "waves": 0}}
    cluster.add(MIGRATION_PLANS, {"metadata": {"name": name}, "spec": body, "status": {"phase": "Proposed"}})
    with serving(cluster):
        eventually("it is noted", lambda: policy(cluster).status.last_scheduled_time == scheduled, seconds=LONG)
        time.sleep(0.5)
    assert [plan.metadata.name for plan in plans(cluster)] == [name]


def test_only_as_many_plans_are_kept_as_asked_for(cluster: FakeCluster) -> None:
    put(cluster, plansKept=1, limits={"podCoolDown": "0s"})
    with serving(cluster):
        for _ in range(3):
            eventually("it is made", is_in(cluster, ask(cluster, RunMode.PLAN), PlanPhase.PROPOSED), seconds=LONG)
        eventually("one is left", lambda: len(plans(cluster)) == 1, seconds=LONG)


def test_an_old_plan_of_no_policy_is_not_kept(cluster: FakeCluster) -> None:
    for name, hours in (("old", 3), ("young", 1)):
        ended = format_timestamp(SystemClock().now() - timedelta(hours=hours))
        body = {"predicted": {"nodes": 1, "moves": 0, "waves": 0}}
        status = {"phase": "Succeeded", "completionTime": ended}
        cluster.add(MIGRATION_PLANS, {"metadata": {"name": name}, "spec": body, "status": status})
    with serving(cluster):
        eventually("it goes", lambda: [plan.metadata.name for plan in plans(cluster)] == ["young"], seconds=LONG)


def test_one_replica_leads_and_the_other_takes_over_when_it_ends(cluster: FakeCluster) -> None:
    with serving(cluster, "first") as first:
        eventually("the first leads", first.is_leading, seconds=LONG)
        with serving(cluster, "second") as second:
            eventually("the second waits", lambda: second.server.readiness()["state"] == "waiting", seconds=LONG)
            assert second.server.readiness()["ready"]
            assert second.sample("berth_leader") == 0
            first.end()
            eventually("the second leads", second.is_leading, seconds=LONG)
            put(cluster, trigger={"interval": "1h"})
            eventually("it serves", has_run(cluster), seconds=LONG)


def test_a_leader_that_has_lost_its_lease_serves_no_more(cluster: FakeCluster) -> None:
    with serving(cluster) as replica:
        eventually("it leads", replica.is_leading, seconds=LONG)
        taken = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 60}}
        cluster.merge_patch(LEASES, LEADER_LEASE, taken, namespace=SETTINGS.namespace)
        eventually("it waits", lambda: replica.server.readiness()["state"] == "waiting", seconds=LONG)
        put(cluster, trigger={"interval": "1h"})
        time.sleep(0.5)
        assert plans(cluster) == []


def test_a_leader_carries_on_what_another_began(cluster: FakeCluster) -> None:
    put(cluster)
    with serving(cluster):
        name = ask(cluster, RunMode.APPROVE)
        eventually("it is proposed", is_in(cluster, name, PlanPhase.PROPOSED), seconds=LONG)
    begun: dict[str, Any] = {"phase": "Running", "startTime": format_timestamp(SystemClock().now())}
    cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"approved": True}})
    cluster.merge_patch(MIGRATION_PLANS, name, {"status": begun}, subresource="status")
    with serving(cluster, "second"):
        eventually("it is over", is_in(cluster, name, PlanPhase.SUCCEEDED), seconds=LONG)
    assert {raw["reason"] for raw in cluster.raw(EVENTS)} >= {"Adopted", "Finished"}


OPEN_PLAN: Final = {"policy": "p", "mode": "Approve", "predicted": {"nodes": 3, "moves": 1, "waves": 1}}


def test_lost_connections_are_noticed_soon_while_a_plan_is_open() -> None:
    cluster = FakeCluster()
    store = PolicyStore(Replica(cluster, "one").server._context, WakeUp())
    with store:
        soon("nothing is open", lambda: store.is_complete() and store._pace.settings != PROMPT_WATCH)
        cluster.add(MIGRATION_PLANS, {"metadata": {"name": "x"}, "spec": OPEN_PLAN, "status": {"phase": "Proposed"}})
        soon("a plan waits for its approval", lambda: store._pace.settings == PROMPT_WATCH)
        cluster.merge_patch(MIGRATION_PLANS, "x", {"status": {"phase": "Succeeded"}}, subresource="status")
        soon("it is over", lambda: store._pace.settings != PROMPT_WATCH)


def test_what_the_watch_of_policies_sees_changes_no_pace(cluster: FakeCluster) -> None:
    store = PolicyStore(Replica(cluster, "one").server._context, WakeUp())
    with store:
        soon("all is seen", store.is_complete)
        store._pace.change(PROMPT_WATCH)
        put(cluster)
        soon("the policy is seen", store.known)
        assert store._pace.settings == PROMPT_WATCH
