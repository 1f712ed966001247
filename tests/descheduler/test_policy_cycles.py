"""Cycles for a policy on an API server in memory: how far each mode goes, and what becomes of what was asked for."""

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from berth_core.clock import SystemClock, format_timestamp, parse_timestamp
from berth_core.labels import POLICY_LABEL
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, PlannedMove, PlanPhase, RunMode
from berth_core.names import DESCHEDULER_LEASE, OPERATOR_LEASE
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.goals import goal_named
from berth_descheduler.migration.manifests.plans import build_plan
from berth_descheduler.migration.plans.history import find_last_moves
from berth_descheduler.migration.plans.requests import build_requested_plan
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Verdict
from berth_descheduler.settings import Approval, CycleSettings
from berth_kube.resources import LEASES, MIGRATION_PLANS, NODES, PODS, REPLICA_SETS
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock
from descheduler.fake_cluster import FakeCluster, fragmented_cluster, node, replica_set
from descheduler.fake_cluster import pod as web_pod
from planner_settings import with_args, with_settings

NOT_SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


@pytest.fixture
def cluster() -> FakeCluster:
    return fragmented_cluster()


def settings(mode: RunMode) -> CycleSettings:
    approval = Approval.AUTO if mode is RunMode.AUTO else Approval.APPROVE
    return replace(SETTINGS, policy="nightly", mode=mode, approval=approval, trigger="Cron", approval_seconds=3600)


def cycle(cluster: FakeCluster, mode: RunMode) -> Cycle:
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    return Cycle(around, settings(mode), PLANNER)


def ask(cluster: FakeCluster, mode: RunMode, **changes: Any) -> MigrationPlan:  # noqa: ANN401 - fields of the spec
    spec = MigrationPlanSpec(policy="nightly", trigger="Request", mode=mode, requested_by="ada", **changes)
    return MigrationPlan.from_api(cluster.add(MIGRATION_PLANS, build_requested_plan("asked", spec)))


def stored(cluster: FakeCluster) -> MigrationPlan:
    return MigrationPlan.from_api(cluster.plan())


def test_a_plan_that_is_only_shown_touches_nothing(cluster: FakeCluster) -> None:
    outcome = cycle(cluster, RunMode.PLAN).run()
    plan = stored(cluster)
    assert outcome.verdict is Verdict.PLANNED
    assert outcome.clean
    assert outcome.sentence.startswith(f"Planned only, as {plan.metadata.name}: ")
    assert (plan.spec.mode, plan.spec.policy, plan.spec.trigger) == (RunMode.PLAN, "nightly", "Cron")
    assert (plan.phase, plan.spec.approved, plan.spec.approve_before) == (PlanPhase.PROPOSED, False, None)
    assert plan.metadata.labels[POLICY_LABEL] == "nightly"
    assert len(plan.spec.moves) == 3
    assert cluster.reservations() == []
    assert not any(cluster.taints().values())


def test_a_plan_to_be_approved_says_until_when_and_is_not_waited_for(cluster: FakeCluster) -> None:
    outcome = cycle(cluster, RunMode.APPROVE).run()
    plan = stored(cluster)
    assert outcome.verdict is Verdict.AWAITS_APPROVAL
    assert outcome.seconds < 60
    assert plan.phase is PlanPhase.PROPOSED
    assert plan.spec.approve_before is not None
    left = parse_timestamp(plan.spec.approve_before) - SystemClock().now()
    assert 3500 < left.total_seconds() <= 3600


def test_an_automatic_plan_is_published_approved_and_carried_out(cluster: FakeCluster) -> None:
    outcome = cycle(cluster, RunMode.AUTO).run()
    plan = stored(cluster)
    assert outcome.verdict is Verdict.CARRIED_OUT
    assert outcome.published == plan.metadata.name
    assert plan.spec.approved
    assert plan.phase is PlanPhase.SUCCEEDED


@pytest.mark.parametrize("mode", RunMode)
def test_a_plan_that_was_asked_for_is_filled_in(cluster: FakeCluster, mode: RunMode) -> None:
    request = ask(cluster, mode)
    outcome = cycle(cluster, mode).run(request)
    plan = stored(cluster)
    assert outcome.published == "asked"
    assert len(plan.spec.moves) == 3
    assert plan.spec.predicted is not None
    assert (plan.spec.requested_by, plan.spec.trigger) == ("ada", "Request")
    assert plan.phase is (PlanPhase.SUCCEEDED if mode is RunMode.AUTO else PlanPhase.PROPOSED)


@pytest.mark.parametrize("asked_for", [False, True], ids=["by itself", "on request"])
def test_a_plan_keeps_how_the_nodes_lay_when_it_was_made(cluster: FakeCluster, *, asked_for: bool) -> None:
    cycle(cluster, RunMode.AUTO).run(ask(cluster, RunMode.AUTO) if asked_for else None)
    plan = stored(cluster)
    assert plan.phase is PlanPhase.SUCCEEDED
    assert plan.spec.nodes_before is not None
    assert {one.name: (one.requested, one.pods) for one in plan.spec.nodes_before.nodes} == {
        "high-1": ("7500m", 1),
        "high-2": ("7500m", 1),
        "low-1": ("2", 2),
        "low-2": ("1", 1),
    }


def test_a_plan_that_was_asked_for_and_moves_nothing_is_over(cluster: FakeCluster) -> None:
    for key in list(cluster.objects[PODS.plural]):
        del cluster.objects[PODS.plural][key]
    request = ask(cluster, RunMode.AUTO)
    outcome = cycle(cluster, RunMode.AUTO).run(request)
    plan = stored(cluster)
    assert outcome.verdict is Verdict.NOTHING_TO_MOVE
    assert (plan.phase, plan.status.message) == (PlanPhase.SUCCEEDED, outcome.sentence)
    assert plan.spec.predicted is not None
    assert plan.spec.predicted.moves == 0


def consolidating(cluster: FakeCluster, **limits: Any) -> Cycle:  # noqa: ANN401 - fields of the settings
    planner = with_settings(with_args(PLANNER, goal=goal_named("Consolidate")), **limits)
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    return Cycle(around, settings(RunMode.AUTO), planner)


def test_a_plan_that_was_asked_for_says_what_it_was_for_and_what_held_it_back_though_it_moves_nothing(
    cluster: FakeCluster,
) -> None:
    request = ask(cluster, RunMode.AUTO)
    assert (request.spec.objective.plugin, request.spec.objective.strategy) == ("", "")
    limited = consolidating(cluster, max_moves=1, max_moves_per_node=1)
    for pod in ("big-1", "big-2", "web-2"):
        cluster.merge_patch(PODS, pod, {"metadata": {"annotations": NOT_SAFE}}, namespace="shop")
    outcome = limited.run(request)
    plan = stored(cluster)
    assert outcome.verdict is Verdict.NOTHING_TO_MOVE
    assert (plan.spec.objective.plugin, plan.spec.objective.strategy) == ("Defragmentation", "Consolidate")
    assert plan.spec.predicted is not None
    (restriction,) = plan.spec.predicted.restrictions
    assert restriction.fields == ("maxMoves", "maxMovesPerNode")
    assert restriction.message in plan.status.message
    assert restriction.message.startswith("1 node could be freed without maxMoves: 1 and without maxMovesPerNode: 1")


def test_without_an_operator_nothing_is_begun_and_nothing_is_left(cluster: FakeCluster) -> None:
    del cluster.objects[LEASES.plural]["berth-system", OPERATOR_LEASE]
    request = ask(cluster, RunMode.AUTO)
    outcome = consolidating(cluster).run(request)
    plan = stored(cluster)
    assert outcome.verdict is Verdict.NO_OPERATOR
    assert not outcome.clean
    assert outcome.sentence.startswith("Not begun, and nothing was moved: no operator has ever run in the namespace")
    assert (plan.phase, plan.status.message) == (PlanPhase.ABORTED, outcome.sentence)
    assert plan.spec.objective.strategy == "Consolidate"
    assert cluster.reservations() == []
    assert not any(cluster.taints().values())


def test_an_approved_plan_is_not_carried_out_without_an_operator(cluster: FakeCluster) -> None:
    cycle(cluster, RunMode.APPROVE).run()
    cluster.merge_patch(MIGRATION_PLANS, stored(cluster).metadata.name, {"spec": {"approved": True}})
    del cluster.objects[LEASES.plural]["berth-system", OPERATOR_LEASE]
    outcome = cycle(cluster, RunMode.APPROVE).resume(stored(cluster))
    assert outcome.verdict is Verdict.NO_OPERATOR
    assert stored(cluster).phase is PlanPhase.ABORTED
    assert "no operator has ever run" in stored(cluster).status.message
    assert cluster.reservations() == []


def test_a_plan_that_was_aborted_before_it_was_made_moves_nothing(cluster: FakeCluster) -> None:
    request = ask(cluster, RunMode.AUTO, aborted=True)
    outcome = cycle(cluster, RunMode.AUTO).run(request)
    assert outcome.verdict is Verdict.ABORTED
    assert stored(cluster).phase is PlanPhase.ABORTED
    assert cluster.reservations() == []


def test_a_plan_that_was_deleted_before_it_was_made_is_not_made(cluster: FakeCluster) -> None:
    request = ask(cluster, RunMode.AUTO)
    del cluster.objects[MIGRATION_PLANS.plural][("", "asked")]
    outcome = cycle(cluster, RunMode.AUTO).run(request)
    assert outcome.verdict is Verdict.PLAN_DELETED
    assert cluster.objects[MIGRATION_PLANS.plural] == {}


def test_a_plan_that_was_asked_for_waits_while_another_run_is_at_it(cluster: FakeCluster) -> None:
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 15, "renewTime": "2026-11-21T12:00:00.000000Z"}
    cluster.add(LEASES, {"metadata": {"name": DESCHEDULER_LEASE, "namespace": "berth-system"}, "spec": spec})
    request = ask(cluster, RunMode.AUTO)
    assert cycle(cluster, RunMode.AUTO).run(request).verdict is Verdict.LEASE_HELD
    assert stored(cluster).phase is PlanPhase.REQUESTED


def test_an_approved_plan_is_carried_on(cluster: FakeCluster) -> None:
    cycle(cluster, RunMode.APPROVE).run()
    name = stored(cluster).metadata.name
    cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"approved": True}})
    outcome = cycle(cluster, RunMode.APPROVE).resume(stored(cluster))
    assert outcome.verdict is Verdict.CARRIED_OUT
    assert stored(cluster).phase is PlanPhase.SUCCEEDED


def test_what_changed_before_the_approval_is_looked_at_again(cluster: FakeCluster) -> None:
    cycle(cluster, RunMode.APPROVE).run()
    gone = stored(cluster).spec.moves[0]
    cluster.delete(PODS, gone.pod, namespace=gone.namespace)
    outcome = cycle(cluster, RunMode.APPROVE).resume(stored(cluster))
    assert outcome.plan is not None
    assert outcome.plan.statuses[0].state.value == "Skipped"


@pytest.mark.parametrize("mode", [RunMode.PLAN, RunMode.APPROVE])
def test_another_run_leaves_the_plans_of_policies_alone(cluster: FakeCluster, mode: RunMode) -> None:
    cycle(cluster, mode).run()
    first = stored(cluster)
    cycle(cluster, RunMode.PLAN).run()
    plans = cluster.list(MIGRATION_PLANS, type=MigrationPlan).items
    assert [plan.phase for plan in plans if plan.metadata.uid == first.metadata.uid] == [PlanPhase.PROPOSED]


def test_a_plan_that_takes_too_long_begins_nothing_new(cluster: FakeCluster) -> None:
    short = replace(SETTINGS.execution, max_seconds=0.001)
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    outcome = Cycle(around, replace(settings(RunMode.AUTO), execution=short), PLANNER).run()
    assert outcome.plan is not None
    assert outcome.plan.note == "it took longer than 0.001 s"
    assert {status.reason for status in outcome.plan.statuses} == {"PlanStopped"}
    assert not any(cluster.taints().values())


@pytest.mark.parametrize(("hours", "want"), [(0, PlanPhase.SUCCEEDED), (5, PlanPhase.ABORTED)], ids=["now", "long ago"])
def test_what_another_run_began_is_carried_on_unless_it_is_too_old(
    cluster: FakeCluster, hours: int, want: PlanPhase
) -> None:
    cycle(cluster, RunMode.APPROVE).run()
    begun = format_timestamp(SystemClock().now() - timedelta(hours=hours))
    name, status = stored(cluster).metadata.name, {"status": {"phase": "Running", "startTime": begun}}
    cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"approved": True}})
    cluster.merge_patch(MIGRATION_PLANS, name, status, subresource="status")
    outcome = cycle(cluster, RunMode.APPROVE).resume(stored(cluster))
    assert stored(cluster).phase is want
    assert outcome.verdict is (Verdict.CARRIED_OUT if want is PlanPhase.SUCCEEDED else Verdict.ABORTED)


def test_a_run_that_nobody_looks_at_keeps_to_no_plan_that_was_only_proposed() -> None:
    moves = (PlannedMove(namespace="shop", pod="web", source="n1", target="n2"),)
    proposed = build_plan("proposed", MigrationPlanSpec(policy="nightly", mode=RunMode.PLAN, moves=moves))
    begun = {**proposed, "status": {"phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z"}}
    plans = [MigrationPlan.from_api(body) for body in (proposed, begun)]
    assert find_last_moves(plans[:1], "nightly", with_proposed=False) == ()
    assert find_last_moves(plans[:1], "nightly") == find_last_moves(plans, "nightly", with_proposed=False) == moves
    assert find_last_moves(plans, "another") == ()


@pytest.mark.parametrize("kept", ["n1", "n2", "n3"])
def test_a_plan_keeps_to_the_one_before_it_where_as_much_is_freed(kept: str) -> None:
    cluster = FakeCluster()
    cluster.start_operator()
    names = ("n1", "n2", "n3")
    for name in names:
        cluster.add(NODES, node(name))
        cluster.add(REPLICA_SETS, replica_set(f"web-{name}", 1))
        cluster.add(PODS, web_pod(f"web-{name}-1", f"web-{name}", name, cpu="1"))
    moves = tuple(
        PlannedMove(namespace="shop", pod=f"web-{name}-1", source=name, target=kept) for name in names if name != kept
    )
    before = MigrationPlanSpec(policy="nightly", mode=RunMode.PLAN, moves=moves)
    cluster.add(MIGRATION_PLANS, build_plan("before", before))
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]

    Cycle(around, settings(RunMode.PLAN), with_args(PLANNER, goal=goal_named("Consolidate"))).run()

    (made,) = (
        plan for plan in map(MigrationPlan.from_api, cluster.raw(MIGRATION_PLANS)) if plan.metadata.name != "before"
    )
    assert {(move.namespace, move.pod, move.target) for move in made.spec.moves} == {
        (move.namespace, move.pod, move.target) for move in moves
    }
