"""A pod that no node takes is evicted from a closed lent node, and from no other, whatever happens meanwhile."""

import io
import itertools
import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from rich.console import Console

from berth_core import SystemClock, format_timestamp
from berth_core.labels import EMPTY_BY_ANNOTATION, EVICT_PERIOD_ANNOTATION, REVOCABLE_ZONE_LABEL, STANDING_FENCE_LABEL
from berth_core.migration_plans import MigrationPlan, RunMode
from berth_descheduler.capabilities.lent_nodes.plugin import LENT_NODES, LentNodes
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.migration.plans.recovery import recover_plans
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.plugins.defragmentation import NoBalance
from berth_descheduler.report.stored_plan_documents import describe_stored_plan
from berth_descheduler.report.stored_plans import render_stored_plan
from berth_descheduler.settings import Approval, CycleSettings
from berth_kube.errors import NotFoundError, UnreachableError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, REPLICA_SETS
from builders import NOON
from descheduler.cycle_settings import SETTINGS, BriskClock, impatient, states
from descheduler.fake_cluster import FakeCluster, Raw, blocked, call, evicted, failure, node, pod, replica_set
from descheduler.test_cycle_killed_anywhere import MortalProcess, is_killed
from planner_settings import planner_settings, with_plugins, with_settings

PLANNER: Final = with_plugins(
    planner_settings(waves=WaveLimits(per_controller=1)),
    deschedule=(Enabled(LENT_NODES, LentNodes()),),
    balance=Enabled("", NoBalance((LENT_NODES,))),
)
JOBS: Final = ("ads", "etl", "web")


def fence(kind: str = "lent-closed") -> Raw:
    labels = {"berth.volcano.sh/fence": "true", STANDING_FENCE_LABEL: kind}
    body = pod("fence", "nobody", "lent", cpu="0")
    made = format_timestamp(SystemClock().now())
    body["metadata"] |= {
        "namespace": "berth-system",
        "labels": labels,
        "ownerReferences": [],
        "creationTimestamp": made,
    }
    return body


def lent_cluster(*, preemptable: bool = True, usual_cpu: str = "1") -> FakeCluster:
    """A lent node that is closed, with one pod of each job, and a usual node."""
    cluster = FakeCluster()
    cluster.start_operator()
    lent = node("lent")
    lent["metadata"]["labels"][REVOCABLE_ZONE_LABEL] = "rz1"
    cluster.add(NODES, lent)
    cluster.add(NODES, node("usual", cpu=usual_cpu))
    cluster.add(PODS, fence())
    for name in JOBS:
        cluster.add(REPLICA_SETS, replica_set(name, 1))
        body = pod(f"{name}-1", name, "lent", cpu="2")
        if preemptable:
            body["metadata"]["labels"]["volcano.sh/preemptable"] = "true"
        cluster.add(PODS, body)
    return cluster


def run(
    client: Any,  # noqa: ANN401 - doubles
    clock: Any = None,  # noqa: ANN401 - doubles
    settings: CycleSettings = SETTINGS,
    planner: PlannerSettings = PLANNER,
) -> Outcome:
    context = CycleContext(client, clock or BriskClock(), CycleObserver(), threading.Event())
    return Cycle(context, settings, planner).run()


def test_pods_that_no_node_takes_leave_without_a_place_and_the_plan_says_so() -> None:
    cluster = lent_cluster()
    outcome = run(cluster)
    assert states(outcome) == {f"{name}-1": ("Removed", "") for name in JOBS}
    assert outcome.plan is not None
    assert outcome.clean
    assert outcome.sentence.startswith("3 of 3 pods evicted without a place in")
    assert cluster.pods_on("lent") == ["fence"]
    assert len(cluster.raw(PODS)) == 4, "their controllers have made them again"
    assert cluster.reservations() == []
    plan = cluster.get(MIGRATION_PLANS, outcome.plan.plan, type=MigrationPlan)
    assert [("target" in move) for move in cluster.plan()["spec"]["moves"]] == [False] * 3
    done = plan.status.achieved
    assert done is not None
    assert (done.moves, done.evictions, done.landed_on_target) == (0, 3, 0)
    document = describe_stored_plan(plan)
    assert (document.planned_moves, document.planned_evictions, document.evictions) == (0, 3, 3)
    said = io.StringIO()
    Console(file=said, width=200).print(render_stored_plan(plan, NOON))
    assert "3 evictions" in said.getvalue()
    assert "nowhere: evicted" in said.getvalue()
    assert "waits for a node" in said.getvalue()


def test_what_has_a_place_elsewhere_is_moved_and_the_rest_evicted_in_the_same_plan() -> None:
    outcome = run(lent_cluster(usual_cpu="3"))
    assert states(outcome) == {"ads-1": ("Landed", ""), "etl-1": ("Removed", ""), "web-1": ("Removed", "")}
    assert outcome.sentence.startswith("1 of 1 pod landed on its target, 2 of 2 pods evicted without a place in")


def test_a_place_that_is_never_held_keeps_no_pod_once_the_node_is_due() -> None:
    cluster = lent_cluster(usual_cpu="7")
    cluster.hold = lambda _reservation: None
    reasons = {}
    for minutes in (60, 1):
        now = SystemClock().now()
        said = {EVICT_PERIOD_ANNOTATION: "1m", EMPTY_BY_ANNOTATION: format_timestamp(now + timedelta(minutes=minutes))}
        due = fence()
        due["metadata"]["annotations"] = said
        cluster.add(PODS, due)
        outcome = run(cluster, settings=impatient("reserve_seconds"), planner=with_settings(PLANNER, now=now))
        reasons[minutes] = set(states(outcome).values())
        assert cluster.reservations() == []
        assert len(evicted(cluster)) == (0 if minutes > 1 else len(JOBS))
    assert ("Failed", "ReservationTimeout") in reasons[60]
    assert reasons[1] == {("Removed", "")}


def test_no_plan_is_made_that_would_only_fail_again() -> None:
    cluster = lent_cluster(usual_cpu="7", preemptable=False)
    cluster.hold = lambda _reservation: None
    # However many fail, the plan goes on: a move that it skips instead would not be of the pod.
    unstopped = replace(SETTINGS, execution=replace(SETTINGS.execution, max_failed_share=1.0))
    outcomes = []
    for minutes in (0, 1, 3):
        planner = with_settings(PLANNER, now=SystemClock().now() + timedelta(minutes=minutes))
        outcomes.append(run(cluster, settings=impatient("reserve_seconds", settings=unstopped), planner=planner))
    assert set(states(outcomes[0]).values()) == {("Failed", "ReservationTimeout")}
    assert outcomes[1].verdict is Verdict.NOTHING_TO_MOVE
    assert states(outcomes[2]) == states(outcomes[0]), "after two periods they are tried once more"
    assert evicted(cluster) == []


@pytest.mark.parametrize("kind", ["lent-closed", "lent-open", "pods"])
def test_no_pod_of_a_tenant_is_believed_to_be_a_fence(kind: str) -> None:
    cluster = lent_cluster(usual_cpu="7")
    for name, on in (("theirs", "lent"), ("on-the-usual", "usual")):
        forged = fence(kind)
        forged["metadata"] |= {"namespace": "shop", "name": name}
        forged["spec"]["nodeName"] = on
        cluster.add(PODS, forged)
    outcome = run(cluster)
    assert states(outcome) == {f"{name}-1": ("Landed", "") for name in JOBS}


def test_a_pod_that_is_not_preemptable_stays() -> None:
    cluster = lent_cluster(preemptable=False)
    assert run(cluster).verdict is Verdict.NOTHING_TO_MOVE
    assert evicted(cluster) == []


def test_a_plan_that_is_only_shown_or_not_approved_evicts_nothing() -> None:
    cluster = lent_cluster()
    assert run(cluster, settings=replace(SETTINGS, mode=RunMode.PLAN)).verdict is Verdict.PLANNED
    not_approved = replace(SETTINGS, approval=Approval.APPROVE, approval_seconds=0.1)
    assert run(cluster, settings=not_approved).verdict is Verdict.NOT_APPROVED
    assert evicted(cluster) == []


def test_a_disruption_budget_is_asked_again_until_it_allows_the_eviction() -> None:
    cluster = lent_cluster()
    cluster.faults["evict pods"] = [blocked("ads-1"), blocked("ads-1")]
    assert states(run(cluster)) == {f"{name}-1": ("Removed", "") for name in JOBS}
    assert len(evicted(cluster)) == 5


def test_no_more_than_the_allowed_number_is_under_way_at_once() -> None:
    cluster = lent_cluster()
    ending: list[str] = []
    most = [0]
    timers: list[threading.Timer] = []

    def land(body: Raw) -> None:
        ending.append(body["metadata"]["name"])
        most[0] = max(most[0], len(ending))
        cluster.terminate(body)

        def gone() -> None:
            with cluster.lock:
                ending.remove(body["metadata"]["name"])
                cluster.land_at_once(body)

        timers.append(threading.Timer(0.1, gone))
        timers[-1].start()

    cluster.land = land
    one_at_once = replace(SETTINGS, execution=replace(SETTINGS.execution, max_open_moves=1))
    assert states(run(cluster, settings=one_at_once)) == {f"{name}-1": ("Removed", "") for name in JOBS}
    assert most == [1]
    for timer in timers:
        timer.join()


def test_a_pod_that_a_budget_keeps_for_long_stays_and_the_others_leave() -> None:
    cluster = lent_cluster()
    at_once = cluster.land

    def land(body: Raw) -> None:
        if body["metadata"]["name"] == "ads-1":
            raise blocked("ads-1")
        at_once(body)

    cluster.land = land
    found = states(run(cluster, settings=impatient("evict_seconds")))
    assert found == {
        "ads-1": ("Failed", "EvictionBlocked"),
        "etl-1": ("Removed", ""),
        "web-1": ("Removed", ""),
    }
    assert cluster.pods_on("lent") == ["ads-1", "fence"]


def test_an_eviction_without_an_answer_that_was_carried_out_is_one_although_the_second_request_finds_no_pod() -> None:
    cluster = lent_cluster()
    at_once = cluster.land
    asked: list[str] = []

    def land(body: Raw) -> None:
        name = body["metadata"]["name"]
        asked.append(name)
        what, why = call("evict", PODS, name), failure(504, "no answer")
        if name == "ads-1" and asked.count(name) == 1:
            raise UnreachableError(what, why, url="https://api", acted=True)
        at_once(body)
        if name == "ads-1":
            raise NotFoundError(what, failure(404, "it has left by now"))

    cluster.land = land
    assert states(run(cluster)) == {f"{name}-1": ("Removed", "") for name in JOBS}
    assert asked.count("ads-1") == 2


@pytest.mark.parametrize("left", ["not", "gone", "leaving", "ended by itself"])
def test_a_plan_that_is_ended_in_the_middle_says_that_a_pod_has_left(left: str) -> None:
    cluster = lent_cluster()
    (body,) = (one for one in cluster.raw(PODS) if one["metadata"]["name"] == "ads-1")
    move = {"namespace": "shop", "pod": "ads-1", "podUID": body["metadata"]["uid"], "source": "lent", "wave": 1}
    begun = {"phase": "Running", "startTime": format_timestamp(NOON - timedelta(days=1))}
    cluster.add(MIGRATION_PLANS, {"metadata": {"name": "old"}, "spec": {"moves": [move]}, "status": begun})
    if left == "gone":
        cluster.delete(PODS, "ads-1", namespace="shop")
    elif left == "leaving":
        cluster.terminate(body)
    elif left == "ended by itself":
        cluster.add(PODS, {**body, "status": {"phase": "Succeeded"}})
    assert recover_plans(cluster.as_client(), SystemClock(), 1800, tuple) == ()
    (found,) = cluster.plan()["status"]["moves"]
    assert found["reason"] == "Interrupted"
    assert found["state"] == ("Failed" if left in {"gone", "leaving"} else "Skipped")
    assert ("its pod has left" in found["message"]) is (left in {"gone", "leaving"})


CHANGES: Final[dict[str, tuple[str, str]]] = {
    "the node is open again": ("fence", "is not closed any more"),
    "another pod of its job is missing": ("sibling", "spares no pod"),
    "it is not preemptable any more": ("label", "does not say that it is preemptable"),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_the_last_look_before_an_eviction_keeps_the_pod(change: str, words: str) -> None:
    cluster = lent_cluster()

    def changes(verb: str, _plural: str, name: str) -> None:
        if verb != "get" or name != "web-1":
            return
        with cluster.lock:
            if change == "fence":
                cluster.add(PODS, fence("lent-open"))
            elif change == "sibling":
                missing = pod("web-2", "web", "usual", cpu="1")
                missing["status"]["conditions"] = []
                cluster.add(PODS, missing)
            else:
                body = cluster.objects["pods"]["shop", "web-1"]
                body["metadata"]["labels"].pop("volcano.sh/preemptable", None)

    cluster.before = changes
    outcome = run(cluster)
    assert states(outcome)["web-1"] == ("Skipped", "Filtered")
    assert outcome.plan is not None
    assert words in next(one.message for one in outcome.plan.statuses if one.pod == "web-1")
    assert "web-1" in cluster.pods_on("lent")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.deep)])
def test_the_next_run_ends_what_a_killed_one_began(step: int) -> None:
    calls_to_live = 0
    for calls_to_live in itertools.count(step=step):
        cluster = lent_cluster(usual_cpu="3")
        process = MortalProcess(cluster, calls_to_live)
        if not is_killed(process, partial(run, process, process)):
            break
        run(cluster)

        assert cluster.pods_on("lent") == ["fence"], f"killed before call {calls_to_live}"
        assert len(cluster.raw(PODS)) == 4, f"killed before call {calls_to_live}"
        assert evicted(cluster) == [f"{name}-1" for name in JOBS], f"killed before call {calls_to_live}"
        plans = [plan["status"]["phase"] for plan in cluster.raw(MIGRATION_PLANS)]
        assert set(plans) <= {"Succeeded", "Aborted"}, f"killed before call {calls_to_live}"
    assert calls_to_live > 30
