"""A run plans again what a plan could not do any more, because others had changed pods and nodes meanwhile."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from berth_core import ObjectMeta
from berth_core.clock import SystemClock
from berth_core.migration_plans import (
    MigrationPlan,
    MigrationPlanSpec,
    MoveReason,
    MoveState,
    MoveStatus,
    PlannedMove,
    PlanPhase,
    RunMode,
)
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.metrics import REPLANNED, CycleMetrics
from berth_descheduler.migration.plans.stop import PlanStop
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.planner.cool_downs import NodeCoolDown
from berth_descheduler.report import describe_run
from berth_descheduler.settings import Approval, CycleSettings, ExecutionSettings
from berth_kube.resources import EVENTS, MIGRATION_PLANS, NODES, PODS, REPLICA_SETS
from builders import FakeClock
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock
from descheduler.fake_cluster import FakeCluster, evicted, node, pod, replica_set
from planner_settings import with_settings

# --- when a plan is outdated ------------------------------------------------------------------------------------------

MOVES = tuple(
    PlannedMove(namespace="shop", pod=f"web-{number}", source=f"low-{number}", target="high") for number in range(20)
)
PLAN = MigrationPlan(metadata=ObjectMeta(name="plan"), spec=MigrationPlanSpec(moves=MOVES))
Said = tuple[MoveState, str]
LANDED, PENDING, UNDER_WAY = (MoveState.LANDED, ""), (MoveState.PENDING, ""), (MoveState.RESERVED, "")
GONE, CHANGED, FILTERED = ((MoveState.SKIPPED, reason) for reason in ("PodGone", "PodChanged", "Filtered"))


def statuses(*groups: tuple[int, Said]) -> list[MoveStatus]:
    said = [one for number, one in groups for _ in range(number)]
    return [
        MoveStatus(namespace=move.namespace, pod=move.pod, state=state, reason=reason)
        for move, (state, reason) in zip(MOVES, said, strict=True)
    ]


CASES: dict[str, tuple[list[tuple[int, Said]], int, bool]] = {
    "nothing has changed": ([(20, PENDING)], 0, False),
    "a quarter of what is left is skipped": ([(4, GONE), (4, LANDED), (12, PENDING)], 0, True),
    "less than a quarter is": ([(4, GONE), (3, LANDED), (13, PENDING)], 0, False),
    "a quarter of what is left will be": ([(4, LANDED), (16, PENDING)], 4, True),
    "both together are": ([(2, CHANGED), (6, LANDED), (12, PENDING)], 2, True),
    "three moves are too few": ([(3, GONE), (16, LANDED), (1, PENDING)], 0, False),
    "what is under way is not left": ([(4, GONE), (4, UNDER_WAY), (12, PENDING)], 0, True),
    "nothing is left to begin": ([(8, GONE), (12, LANDED)], 0, False),
    "another reason keeps the pods": ([(8, FILTERED), (12, PENDING)], 0, False),
}


@pytest.mark.parametrize(("groups", "doomed", "want"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("replans", [True, False])
def test_a_plan_is_outdated_when_a_quarter_of_what_is_left_cannot_be_done(
    groups: list[tuple[int, Said]], doomed: int, *, want: bool, replans: bool
) -> None:
    settings = ExecutionSettings(max_failed_share=1)
    stop = PlanStop(PLAN, clock=FakeClock(), settings=settings, asked=threading.Event(), replans=replans)
    found = statuses(*groups)
    ahead = [index for index, one in enumerate(found) if one.state is MoveState.PENDING]
    stop.note(ObservedPlan(), found)
    stop.note_overtaken(found, ahead[:doomed])
    assert (stop.reason is MoveReason.OUTDATED) is (want and replans)


def test_what_a_new_plan_would_meet_again_outdates_no_plan() -> None:
    settings = ExecutionSettings(max_failed_share=1)
    same_node = [replace_source(move, "low") for move in MOVES[:8]]
    plan = MigrationPlan(metadata=ObjectMeta(name="plan"), spec=MigrationPlanSpec(moves=(*same_node, *MOVES[8:])))
    stop = PlanStop(plan, clock=FakeClock(), settings=settings, asked=threading.Event(), replans=True)
    not_emptiable = (MoveState.SKIPPED, "SourceNotEmptiable")
    stop.note(ObservedPlan(), statuses((1, (MoveState.FAILED, "EvictionBlocked")), (7, not_emptiable), (12, PENDING)))
    assert not stop.has_begun


def replace_source(move: PlannedMove, source: str) -> PlannedMove:
    return PlannedMove(namespace=move.namespace, pod=move.pod, source=source, target=move.target)


# --- what a run does then ---------------------------------------------------------------------------------------------

LOW = 8
AGAIN = replace(SETTINGS, max_replans=3)
IN_TURN = with_settings(PLANNER, waves=WaveLimits(per_controller=1, per_wave=2))
"""Empties the low nodes in four waves."""


def scattered_cluster() -> FakeCluster:
    """Eight low nodes with a pod each, and two high ones with room for all of them and as many more."""
    cluster = FakeCluster()
    cluster.start_operator()
    cluster.add(REPLICA_SETS, replica_set("big", 2))
    for name in ("high-1", "high-2"):
        cluster.add(NODES, node(name, cpu="40"))
        cluster.add(PODS, pod(f"big-{name}", "big", name, cpu="30"))
    for number in range(1, LOW + 1):
        cluster.add(NODES, node(f"low-{number}"))
        cluster.add(REPLICA_SETS, replica_set(f"web{number}", 1))
        cluster.add(PODS, pod(f"web{number}-1", f"web{number}", f"low-{number}", cpu="1"))
    return cluster


def run(cluster: FakeCluster, settings: CycleSettings = AGAIN, planner: PlannerSettings = IN_TURN) -> Outcome:
    context = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    return Cycle(context, settings, planner).run()


def at_the_first_eviction(cluster: FakeCluster, happens: Callable[[], None]) -> None:
    def look(verb: str, _plural: str, _name: str) -> None:
        if verb == "evict":
            cluster.before = lambda *_: None
            happens()

    cluster.before = look


def roll_out(cluster: FakeCluster, most: int = LOW) -> None:
    """Let new pods take the place of those of the plan, on the same nodes."""
    with cluster.lock:
        ahead = [one for one in cluster.raw(PODS) if one["metadata"]["name"].startswith("web")]
        for old in sorted(ahead, key=lambda one: str(one["spec"].get("nodeName")))[-most:]:
            cluster.remove(PODS, old)
            cluster.new_pod(old, node=old["spec"]["nodeName"])


def low_pods(cluster: FakeCluster) -> list[str]:
    return [name for number in range(1, LOW + 1) for name in cluster.pods_on(f"low-{number}")]


def plans(cluster: FakeCluster) -> list[MigrationPlan]:
    found = (MigrationPlan.from_api(raw) for raw in cluster.raw(MIGRATION_PLANS))
    return sorted(found, key=lambda plan: int(plan.metadata.resource_version or 0))


def test_a_run_plans_the_rest_again_when_others_have_changed_a_quarter_of_it() -> None:
    cluster = scattered_cluster()
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
    outcome = run(cluster)

    assert outcome.verdict is Verdict.CARRIED_OUT
    assert outcome.clean, outcome.sentence
    assert low_pods(cluster) == []
    [first] = outcome.replanned
    assert first.outdated
    assert {status.reason for status in first.statuses if status.state is MoveState.SKIPPED} <= {
        "Outdated",
        "PodGone",
        "PodChanged",
    }
    assert outcome.plan is not None
    assert outcome.plan.landed_on_target == len(outcome.plan.statuses)
    assert "left cannot be made now. Planned again: " in outcome.sentence


def test_both_plans_say_which_plan_has_the_rest() -> None:
    cluster = scattered_cluster()
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
    outcome = run(cluster)
    of_name = {plan.metadata.name: plan for plan in plans(cluster)}
    first, second = of_name[outcome.replanned[0].plan], of_name[outcome.published]
    assert first.phase is PlanPhase.PARTIAL
    assert first.status.replanned_as == second.metadata.name
    assert first.status.message.endswith(f"Planned again as {second.metadata.name}.")
    assert second.spec.trigger == "Replan"
    events = [one for one in cluster.raw(EVENTS) if one.get("reason") == "Replanned"]
    assert [one["involvedObject"]["name"] for one in events] == [first.metadata.name]
    document = describe_run(outcome)
    assert (document.plan, [one.plan for one in document.replanned]) == (second.metadata.name, [first.metadata.name])


def test_it_counts_both_plans_and_that_one_was_planned_again() -> None:
    cluster = scattered_cluster()
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
    registry = CollectorRegistry()
    CycleMetrics(registry, SystemClock()).cycle_ended(run(cluster))
    assert registry.get_sample_value(REPLANNED) == 1


def test_without_further_plans_a_run_walks_through_what_is_left() -> None:
    cluster = scattered_cluster()
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
    outcome = run(cluster, SETTINGS)
    assert len(plans(cluster)) == 1
    assert outcome.replanned == ()
    assert len(low_pods(cluster)) == 4
    assert MoveReason.OUTDATED not in {status.reason for status in outcome.plan.statuses} if outcome.plan else False


def test_a_run_makes_no_more_further_plans_than_allowed() -> None:
    cluster = scattered_cluster()

    def roll_out_again() -> None:
        roll_out(cluster, 6)
        at_the_first_eviction(cluster, roll_out_again)

    at_the_first_eviction(cluster, roll_out_again)
    outcome = run(cluster, replace(SETTINGS, max_replans=1))
    assert len(plans(cluster)) == 2
    assert len(outcome.replanned) == 1


def test_no_pod_is_moved_twice_in_a_run() -> None:
    cluster = scattered_cluster()
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
    run(cluster)
    landed = {status.replacement for plan in plans(cluster) for status in plan.status.moves}
    assert not landed.intersection(evicted(cluster))


@pytest.mark.parametrize("limit", ["max_moves", "max_moves_per_namespace"])
def test_all_plans_of_a_run_together_keep_its_limits(limit: str) -> None:
    cluster = scattered_cluster()
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 6))
    outcome = run(cluster, planner=with_settings(IN_TURN, **{limit: 6}))
    begun = [one for plan in outcome.plans for one in plan.statuses if one.state is not MoveState.SKIPPED]
    assert outcome.replanned
    assert len(begun) <= 6


def test_the_cool_down_of_nodes_does_not_keep_the_rest_of_the_same_run() -> None:
    cluster = scattered_cluster()
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
    resting = replace(AGAIN, node_cool_down=timedelta(hours=1))
    planner = with_settings(IN_TURN, now=SystemClock().now()).with_rule(NodeCoolDown(timedelta(hours=1)))
    outcome = run(cluster, resting, planner)
    assert outcome.replanned
    assert low_pods(cluster) == []


def test_a_rest_that_brings_nothing_more_is_said_and_not_begun() -> None:
    cluster = scattered_cluster()

    def scale_up_beyond_all_room() -> None:
        roll_out(cluster, 4)
        for number in range(1, LOW + 1):
            cluster.add(REPLICA_SETS, replica_set(f"huge{number}", 1))
            cluster.add(PODS, pod(f"huge{number}-1", f"huge{number}", f"low-{number}", cpu="9"))

    at_the_first_eviction(cluster, scale_up_beyond_all_room)
    outcome = run(cluster)
    assert outcome.replanned == ()
    assert len(plans(cluster)) == 1
    assert " Planned again: " in outcome.sentence
    assert outcome.not_replanned


def test_what_was_approved_goes_on_and_its_rest_waits_for_an_approval_of_its_own() -> None:
    cluster = scattered_cluster()

    def approve_the_first(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("get", MIGRATION_PLANS.plural) and len(cluster.raw(MIGRATION_PLANS)) == 1:
            at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
            cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"approved": True}})

    cluster.before = approve_the_first
    outcome = run(cluster, replace(AGAIN, approval=Approval.APPROVE))
    [first] = outcome.replanned
    assert MoveReason.OUTDATED not in {status.reason for status in first.statuses}
    assert outcome.verdict is Verdict.NOT_APPROVED
    assert len(low_pods(cluster)) == 4


def test_a_policy_that_asks_for_approval_publishes_the_rest_and_does_not_wait() -> None:
    cluster = scattered_cluster()
    asking = replace(AGAIN, mode=RunMode.APPROVE, approval=Approval.APPROVE, policy="nightly")
    planned = run(cluster, asking)
    cluster.merge_patch(MIGRATION_PLANS, planned.published, {"spec": {"approved": True}})
    [proposed] = plans(cluster)
    at_the_first_eviction(cluster, lambda: roll_out(cluster, 4))
    context = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    outcome = Cycle(context, asking, IN_TURN).resume(proposed)
    assert outcome.verdict is Verdict.AWAITS_APPROVAL
    assert [one.plan for one in outcome.replanned] == [proposed.metadata.name]
    assert outcome.published not in {"", proposed.metadata.name}
    assert len(low_pods(cluster)) == 4


class Killed(BaseException):
    """The process is gone: nothing catches this."""


def test_a_run_that_is_killed_between_two_plans_leaves_the_rest_to_the_next_run() -> None:
    cluster = scattered_cluster()
    begun: list[str] = []

    def look(verb: str, plural: str, name: str) -> None:
        if verb == "evict" and not begun:
            begun.append(name)
            roll_out(cluster, 4)
        if (verb, plural) == ("create", MIGRATION_PLANS.plural) and begun:
            raise Killed

    cluster.before = look
    with pytest.raises(Killed):
        run(cluster)
    [first] = plans(cluster)
    assert first.phase is PlanPhase.PARTIAL
    assert low_pods(cluster)

    cluster.before = lambda *_: None
    assert run(cluster).clean
    assert low_pods(cluster) == []
