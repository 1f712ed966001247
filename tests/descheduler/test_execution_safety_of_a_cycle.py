"""What a cycle does for the safety of others, on an API server in memory: who comes first, what is not begun."""

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from berth_core import Node
from berth_core.clock import SystemClock
from berth_core.labels import DRAINING_TAINT, FREED_TAINT
from berth_core.migration_plans import PlanPhase
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.metrics import PING_PONG, CycleMetrics
from berth_descheduler.migration.nodes.freed_marks import sweep_freed_nodes
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.settings import CycleSettings, FreedNodes
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, REPLICA_SETS
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock, impatient, states
from descheduler.fake_cluster import FakeCluster, Raw, evicted, fragmented_cluster, pod, replica_set, waiting_pod
from planner_settings import with_settings

ONE_BY_ONE = with_settings(PLANNER, waves=WaveLimits(per_controller=1))
RESTING = replace(SETTINGS, pod_cool_down=timedelta(hours=1))
TAINTING = replace(SETTINGS, freed=FreedNodes(taint=True, annotations={"example.com/remove": "true"}))


def run(cluster: FakeCluster, settings: CycleSettings = SETTINGS, planner: PlannerSettings = PLANNER) -> Outcome:
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    return Cycle(around, settings, planner).run()


def with_execution(settings: CycleSettings = SETTINGS, **changes: Any) -> CycleSettings:  # noqa: ANN401 - of any field
    return replace(settings, execution=replace(settings.execution, **changes))


def add_hungry(cluster: FakeCluster, *, cpu: str) -> Raw:
    cluster.add(REPLICA_SETS, replica_set("hungry", 1))
    return cluster.add(PODS, waiting_pod("hungry-1", "hungry", cpu=cpu))


# --- moves wait for others only where they have to ------------------------------------------------------------------


def test_a_move_that_takes_long_keeps_back_only_the_moves_that_wait_for_it() -> None:
    cluster = fragmented_cluster()
    gone: dict[str, Raw] = {}

    def land(evicted_pod: Raw) -> None:
        name = evicted_pod["metadata"]["name"]
        gone[name] = evicted_pod
        if name == "api-1":
            cluster.terminate(evicted_pod)
        else:
            cluster.land_at_once(evicted_pod)
        if len(gone) == 3:  # so the pod of the second wave moves while the slow one is under way
            cluster.land_at_once(gone["api-1"])

    cluster.land = land

    outcome = run(cluster, planner=ONE_BY_ONE)

    (plan,) = cluster.raw(MIGRATION_PLANS)
    waves = {move["pod"]: move["wave"] for move in plan["spec"]["moves"]}
    assert (waves["api-1"], sorted((waves["web-1"], waves["web-2"]))) == (1, [1, 2])
    assert {state for state, _ in states(outcome).values()} == {"Landed"}


# --- pending pods come first ------------------------------------------------------------------------------------------


def test_a_run_is_not_begun_while_it_would_take_the_room_of_a_pod_that_waits() -> None:
    cluster = fragmented_cluster()
    add_hungry(cluster, cpu="8")
    outcome = run(cluster, with_execution(pending_wait_seconds=0.3))
    assert outcome.verdict is Verdict.PODS_WAIT
    assert not outcome.clean
    assert "1 pod waits" in outcome.sentence
    assert outcome.sentence.endswith("shop/hungry-1.")
    assert not cluster.objects[MIGRATION_PLANS.plural]
    assert cluster.taints() == {}


def test_a_run_begins_once_the_pod_that_waited_has_a_node() -> None:
    cluster = fragmented_cluster()
    add_hungry(cluster, cpu="8")
    bound = {"spec": {"nodeName": "low-1"}}
    threading.Timer(0.5, cluster.merge_patch, (PODS, "hungry-1", bound), {"namespace": "shop"}).start()
    outcome = run(cluster, with_execution(pending_wait_seconds=60))
    assert outcome.verdict is Verdict.CARRIED_OUT
    assert evicted(cluster) == ["web-2"]


def test_a_pod_that_fits_nowhere_anyhow_does_not_hold_a_run_back() -> None:
    cluster = fragmented_cluster()
    add_hungry(cluster, cpu="64")
    assert run(cluster, with_execution(pending_wait_seconds=0.3)).verdict is Verdict.CARRIED_OUT


def test_a_published_plan_is_not_begun_while_it_would_take_the_room_of_a_pod_that_waits() -> None:
    cluster = fragmented_cluster()

    def hungry_after_publishing(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", MIGRATION_PLANS.plural):
            cluster.before = lambda *_: None
            add_hungry(cluster, cpu="8")

    cluster.before = hungry_after_publishing
    outcome = run(cluster, with_execution(pending_wait_seconds=0.3))
    assert set(states(outcome).values()) == {("Skipped", "PodsWaiting")}
    assert outcome.plan is not None
    assert outcome.plan.phase is PlanPhase.ABORTED
    assert "shop/hungry-1" in outcome.sentence
    assert not any(call.verb == "patch" and call.plural == "nodes" for call in cluster.calls), "nothing was tainted"


def test_a_wave_does_not_go_on_while_it_would_take_the_room_of_a_pod_that_waits() -> None:
    cluster = fragmented_cluster()

    def hungry_after_the_first_eviction(verb: str, _plural: str, _name: str) -> None:
        if verb == "evict":
            cluster.before = lambda *_: None
            add_hungry(cluster, cpu="8")

    cluster.before = hungry_after_the_first_eviction
    outcome = run(cluster, with_execution(pending_wait_seconds=0.3), ONE_BY_ONE)
    assert outcome.plan is not None
    later = [status for status in outcome.plan.statuses if status.reason == "PodsWaiting"]
    assert later
    assert {status.state.value for status in later} == {"Skipped"}
    assert "shop/hungry-1" in outcome.sentence
    assert not outcome.clean
    assert len(evicted(cluster)) == 3 - len(later)
    assert DRAINING_TAINT not in [key for keys in cluster.taints().values() for key in keys]


# --- one after the other ----------------------------------------------------------------------------------------------


def test_the_next_pod_of_a_controller_stays_until_the_replacement_before_it_is_ready() -> None:
    cluster = fragmented_cluster()

    def land_unready(gone: Raw) -> None:
        cluster.remove(PODS, gone)
        place = cluster.held_place(gone)
        assert place is not None
        new = cluster.new_pod(gone, node=place["status"]["slots"][0]["node"], ready=not gone_is_web(gone))
        cluster.take(place, new)

    def gone_is_web(gone: Raw) -> bool:
        return bool(gone["metadata"]["labels"]["app"] == "web")

    cluster.land = land_unready
    outcome = run(cluster, impatient("ready_seconds", settings=with_execution(max_failed_share=1.0)), ONE_BY_ONE)
    found = states(outcome)
    assert sorted(found[name] for name in ("web-1", "web-2")) == [
        ("Failed", "ReplacementTimeout"),
        ("Skipped", "SiblingNotReady"),
    ]
    assert len([name for name in evicted(cluster) if name.startswith("web")]) == 1


def test_a_replacement_that_becomes_ready_late_lets_the_next_go() -> None:
    cluster = fragmented_cluster()

    def land_late(gone: Raw) -> None:
        cluster.remove(PODS, gone)
        place = cluster.held_place(gone)
        assert place is not None
        new = cluster.new_pod(gone, node=place["status"]["slots"][0]["node"], ready=False)
        cluster.take(place, new)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        name = new["metadata"]["name"]
        of_the_kubelet = {"namespace": "shop", "subresource": "status"}
        threading.Timer(3, cluster.merge_patch, (PODS, name, ready), of_the_kubelet).start()

    cluster.land = land_late
    # Each move is over before its replacement is Ready; the next one waits as long again.
    settings = impatient("ready_seconds", settings=with_execution(max_failed_share=1.0), seconds=2)
    outcome = run(cluster, settings, ONE_BY_ONE)
    assert sorted(evicted(cluster)) == ["api-1", "web-1", "web-2"], states(outcome)


def test_each_wave_is_looked_at_anew() -> None:
    cluster = fragmented_cluster()

    def fill_after_the_first_eviction(verb: str, _plural: str, _name: str) -> None:
        if verb == "evict":
            cluster.before = lambda *_: None
            later = next(move for move in cluster.plan()["spec"]["moves"] if move["wave"] == 2)
            cluster.add(PODS, pod("newcomer", "big", later["target"], cpu="2"))

    cluster.before = fill_after_the_first_eviction
    outcome = run(cluster, planner=ONE_BY_ONE)
    assert ("Skipped", "TargetUnfit") in states(outcome).values()
    assert "ReservationTimeout" not in str(states(outcome))


def test_a_wave_that_takes_too_long_stops_the_plan() -> None:
    cluster = fragmented_cluster()
    cluster.hold = lambda _reservation: None
    slow = with_execution(wave_seconds=0.2)
    outcome = run(cluster, slow)
    assert set(states(outcome).values()) == {("Skipped", "PlanStopped")}
    assert "wave 1 took longer than 0.2 s" in outcome.sentence


# --- aborted in the middle --------------------------------------------------------------------------------------------


def test_a_plan_that_is_aborted_in_its_middle_begins_nothing_more_and_brings_its_pods_home() -> None:
    cluster = fragmented_cluster()

    def abort_at_the_first_eviction(gone: Raw) -> None:
        name = cluster.plan()["metadata"]["name"]
        cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"aborted": True}})
        threading.Timer(0.4, cluster.land_at_once, [gone]).start()

    cluster.land = abort_at_the_first_eviction
    outcome = run(cluster, TAINTING, ONE_BY_ONE)
    assert outcome.plan is not None
    assert outcome.plan.phase is PlanPhase.ABORTED
    assert "it was aborted on request" in outcome.sentence
    found = states(outcome)
    assert {reason for state, reason in found.values() if state == "Skipped"} == {"Aborted"}
    landed = [name for name, (state, _) in found.items() if state == "Landed"]
    assert sorted(landed) == sorted(evicted(cluster))
    assert len(cluster.objects[PODS.plural]) == 5
    assert cluster.taints() == {}
    assert [r["metadata"]["name"] for r in cluster.reservations() if r["status"]["state"]["phase"] == "Available"] == []


# --- what is worth it, and what rests ---------------------------------------------------------------------------------


def test_a_plan_that_frees_fewer_nodes_than_asked_for_is_not_begun() -> None:
    cluster = fragmented_cluster()
    outcome = run(cluster, replace(SETTINGS, min_freed_nodes=3))
    assert outcome.verdict is Verdict.TOO_LITTLE_GAIN
    assert "2 nodes would be freed with 3 moves, at least 3 are asked for" in outcome.sentence
    assert not cluster.objects[MIGRATION_PLANS.plural]
    assert run(cluster, replace(SETTINGS, min_freed_nodes=2)).verdict is Verdict.CARRIED_OUT


def refill(cluster: FakeCluster, *nodes: str) -> None:
    """Let the scheduler spread new pods over nodes."""
    cluster.add(REPLICA_SETS, replica_set("new", len(nodes)))
    for number, name in enumerate(nodes):
        cluster.add(PODS, pod(f"new-{number}", "new", name, cpu="500m"))


def test_nodes_that_were_filled_again_are_not_freed_over_and_over() -> None:
    cluster = fragmented_cluster()
    assert run(cluster, RESTING).verdict is Verdict.CARRIED_OUT
    refill(cluster, "low-1", "low-2")
    outcome = run(cluster, RESTING)
    assert outcome.verdict is Verdict.GAIN_UNDONE
    assert "low-1, low-2 would be freed once more" in outcome.sentence
    assert "less than 1h0m0s ago" in outcome.sentence
    assert run(cluster, SETTINGS).verdict is Verdict.CARRIED_OUT


def test_a_pod_that_was_moved_lately_is_not_moved_again() -> None:
    cluster = fragmented_cluster()
    run(cluster, RESTING)
    moved = {status["replacement"] for status in cluster.plan()["status"]["moves"]}
    for name in moved:  # a scheduler's whim brings them back to the low nodes
        cluster.merge_patch(PODS, name, {"spec": {"nodeName": "low-1"}}, namespace="shop")
    outcome = run(cluster, RESTING)
    assert outcome.verdict is Verdict.NOTHING_TO_MOVE
    again = run(cluster, SETTINGS)
    assert again.verdict is Verdict.CARRIED_OUT
    notes = [note for plan in cluster.raw(MIGRATION_PLANS) for note in plan["spec"]["predicted"].get("notes", ())]
    assert [note.rpartition("), ")[2] for note in notes] == ["which leaves 2 nodes empty instead of 1."]


def test_moves_that_undo_earlier_ones_are_counted() -> None:
    cluster = fragmented_cluster()
    first = run(cluster)
    assert first.plan is not None
    assert first.plan.ping_pong == 0
    plan = cluster.plan()
    index = next(number for number, move in enumerate(plan["spec"]["moves"]) if move["pod"] == "web-2")
    moves = [{**move, "source": move["target"]} if move["pod"] == "web-2" else move for move in plan["spec"]["moves"]]
    cluster.merge_patch(MIGRATION_PLANS, plan["metadata"]["name"], {"spec": {"moves": moves}})
    replacement = plan["status"]["moves"][index]["replacement"]
    cluster.merge_patch(PODS, replacement, {"spec": {"nodeName": "low-2"}}, namespace="shop")
    outcome = run(cluster)
    assert states(outcome) == {replacement: ("Landed", "")}
    assert outcome.plan is not None
    assert outcome.plan.ping_pong == 1
    registry = CollectorRegistry()
    CycleMetrics(registry, SystemClock()).cycle_ended(outcome)
    assert registry.get_sample_value(PING_PONG) == 1


# --- freed nodes ------------------------------------------------------------------------------------------------------


def test_freed_nodes_are_marked_and_the_marks_go_when_pods_come() -> None:
    cluster = fragmented_cluster()
    run(cluster, TAINTING)
    assert cluster.taints() == {"low-1": [FREED_TAINT], "low-2": [FREED_TAINT]}
    notes = cluster.objects[NODES.plural]["", "low-1"]["metadata"]["annotations"]
    assert notes["example.com/remove"] == "true"
    cluster.add(PODS, pod("newcomer", "big", "low-1", cpu="1"))
    nodes = cluster.list(NODES, type=Node).items
    sweep_freed_nodes(cluster, nodes, lambda: read_live_snapshot(cluster))  # type: ignore[arg-type]
    assert cluster.taints() == {"low-2": [FREED_TAINT]}


def test_an_aborted_or_failed_run_marks_nothing() -> None:
    cluster = fragmented_cluster()
    cluster.hold = lambda _reservation: None
    run(cluster, impatient("reserve_seconds", settings=TAINTING))
    assert cluster.taints() == {}


@pytest.mark.parametrize("settings", [TAINTING, RESTING], ids=["tainting", "resting"])
def test_a_second_run_finds_nothing_to_do(settings: CycleSettings) -> None:
    cluster = fragmented_cluster()
    run(cluster, settings)
    before = cluster.taints()
    assert run(cluster, settings).verdict is Verdict.NOTHING_TO_MOVE
    assert cluster.taints() == before
