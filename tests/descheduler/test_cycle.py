"""A cycle as a whole, on an API server in memory: what it does, what it leaves, what it says."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from berth_core.labels import DRAINING_TAINT, LAST_DEFRAGMENTED_ANNOTATION, MOVE_ANNOTATION
from berth_core.migration_plans import MoveReason, MoveState, PlanPhase
from berth_core.names import OPERATOR_LEASE, reservation_name
from berth_descheduler import cycle
from berth_descheduler.cycle import Cycle, CycleContext, limit_moves
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.settings import Approval, CycleSettings
from berth_kube.errors import ForbiddenError, ServerError, UnreachableError
from berth_kube.resources import EVENTS, LEASES, MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from descheduler.cycle_settings import PLANNER, SETTINGS, SINGLE_PODS, BriskClock, impatient, states
from descheduler.fake_cluster import FakeCluster, Raw, blocked, call, failure, fragmented_cluster, intercepted, pod
from planner_settings import with_settings


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    return fragmented_cluster()


def run(
    cluster: FakeCluster,
    settings: CycleSettings = SETTINGS,
    *,
    planner: PlannerSettings = PLANNER,
    stop: threading.Event | None = None,
    observer: CycleObserver | None = None,
) -> Outcome:
    around = CycleContext(cluster, BriskClock(), observer or CycleObserver(), stop or threading.Event())  # type: ignore[arg-type]
    return Cycle(around, settings, planner).run()


def assert_nothing_is_left(cluster: FakeCluster) -> None:
    assert DRAINING_TAINT not in [key for keys in cluster.taints().values() for key in keys]
    held = [r["metadata"]["name"] for r in cluster.reservations() if r["status"]["state"]["phase"] == "Available"]
    assert held == []
    assert cluster.plan()["status"]["phase"] in {"Succeeded", "Partial", "Failed", "Aborted"}


def test_every_pod_lands_on_its_target_and_the_nodes_are_free(cluster: FakeCluster) -> None:
    outcome = run(cluster)

    assert outcome.clean
    assert outcome.verdict is Verdict.CARRIED_OUT
    assert states(outcome) == dict.fromkeys(("web-1", "api-1", "web-2"), ("Landed", ""))
    assert outcome.plan.freed_nodes == ("low-1", "low-2")
    assert outcome.sentence.startswith("3 of 3 pods landed on their targets; 2 nodes freed in ")
    assert cluster.pods_on("low-1") == cluster.pods_on("low-2") == []
    assert_nothing_is_left(cluster)


def test_the_plan_shows_what_came_of_it(cluster: FakeCluster) -> None:
    run(cluster)

    status = cluster.plan()["status"]
    targets = [move["target"] for move in cluster.plan()["spec"]["moves"]]
    assert status["phase"] == "Succeeded"
    assert [move["state"] for move in status["moves"]] == ["Landed"] * 3
    assert [move["node"] for move in status["moves"]] == targets
    assert all(move["reservation"] and move["replacement"] for move in status["moves"])
    assert status["achieved"]["landedOnTarget"] == 3
    assert status["achieved"]["freedNodeCount"] == 2
    assert status["startTime"] <= status["completionTime"]


def test_sources_are_tainted_while_pods_move_and_remember_it_afterwards(cluster: FakeCluster) -> None:
    seen: list[dict[str, list[str]]] = []
    cluster.before = lambda verb, _plural, _name: seen.append(cluster.taints()) if verb == "evict" else None

    run(cluster)

    assert seen
    assert all(taints == {"low-1": [DRAINING_TAINT], "low-2": [DRAINING_TAINT]} for taints in seen)
    for name in ("low-1", "low-2"):
        assert LAST_DEFRAGMENTED_ANNOTATION in cluster.objects["nodes"][("", name)]["metadata"]["annotations"]
    assert_nothing_is_left(cluster)


def test_taints_of_others_stay(cluster: FakeCluster) -> None:
    theirs = {"key": "theirs", "value": "1", "effect": "PreferNoSchedule"}
    cluster.merge_patch(NODES, "low-1", {"spec": {"taints": [theirs]}})
    run(cluster)
    assert cluster.taints() == {"low-1": ["theirs"]}


def test_no_pod_is_evicted_before_its_place_is_held(cluster: FakeCluster) -> None:
    order: list[str] = []

    def note(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) in {("create", "reservations"), ("evict", "pods")}:
            order.append(verb)

    cluster.before = note
    run(cluster)
    assert order.index("evict") >= 1
    assert order.count("create") == order.count("evict") == 3


def test_a_place_that_is_not_held_leaves_every_pod_of_its_source(cluster: FakeCluster) -> None:
    cluster.hold = lambda r: cluster.hold_at_once(r) if owner_of(r) != "api" else None

    outcome = run(cluster, impatient("reserve_seconds"))

    assert states(outcome) == {
        "web-1": ("Skipped", "SourceNotEmptiable"),
        "api-1": ("Failed", "ReservationTimeout"),
        "web-2": ("Landed", ""),
    }
    assert cluster.pods_on("low-1") == ["api-1", "web-1"]
    assert outcome.plan.phase is PlanPhase.PARTIAL
    assert outcome.plan.freed_nodes == ("low-2",)
    assert not outcome.clean
    assert_nothing_is_left(cluster)


def test_an_unproven_hand_over_is_no_ground_to_evict(cluster: FakeCluster) -> None:
    def unproven(reservation: Raw) -> None:
        slot = {"task": "pod", "index": 0, "state": "Held", "node": "high-1"}
        cluster.set_reservation(reservation, "Available", slot, ready=False)

    cluster.hold = unproven
    outcome = run(cluster, impatient("reserve_seconds"))
    assert {reason for _, reason in states(outcome).values()} <= {
        "HandoverNotReady",
        "SourceNotEmptiable",
        "PlanStopped",
    }
    assert "evict pods web-1" not in cluster.calls
    assert outcome.plan.phase is PlanPhase.FAILED
    assert_nothing_is_left(cluster)


def test_nothing_is_evicted_once_the_operator_is_silent_though_the_hand_over_was_proven(cluster: FakeCluster) -> None:
    lease = cluster.objects[LEASES.plural]["berth-system", OPERATOR_LEASE]

    def fall_silent(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", RESERVATIONS.plural):
            lease["spec"]["leaseDurationSeconds"] = 0

    cluster.before = fall_silent
    outcome = run(cluster, impatient("evict_seconds"))
    assert set(states(outcome).values()) <= {
        ("Failed", "EvictionBlocked"),
        ("Skipped", "SourceNotEmptiable"),
        ("Skipped", "PlanStopped"),
    }
    assert "the operator has been silent for" in outcome.plan.statuses[0].message
    assert [call.name for call in cluster.calls if call.verb == "evict"] == []
    assert_nothing_is_left(cluster)


def test_a_refused_eviction_is_tried_again_until_the_budget_allows_it(cluster: FakeCluster) -> None:
    cluster.faults["evict pods"] = [blocked("web-1") for _ in range(3)]
    outcome = run(cluster)
    assert outcome.clean
    assert outcome.plan.landed_on_target == 3


def test_an_eviction_that_stays_refused_ends_the_move_and_frees_its_place(cluster: FakeCluster) -> None:
    def refuse(verb: str, _plural: str, name: str) -> None:
        if verb == "evict" and name == "web-2":
            raise blocked(name)

    cluster.before = refuse
    outcome = run(cluster, impatient("evict_seconds", "gap_seconds"))
    assert states(outcome)["web-2"] == ("Failed", "EvictionBlocked")
    assert cluster.pods_on("low-2") == ["web-2"]
    assert outcome.plan.freed_nodes == ("low-1",)
    assert_nothing_is_left(cluster)


def test_a_pod_that_takes_ten_years_to_end_is_left_where_it_is(cluster: FakeCluster) -> None:
    cluster.objects["pods"]["shop", "web-2"]["spec"]["terminationGracePeriodSeconds"] = 315_360_000
    outcome = run(cluster)
    assert {name: state for name, (state, _) in states(outcome).items()} == {"web-1": "Landed", "api-1": "Landed"}
    assert cluster.pods_on("low-2") == ["web-2"]


def test_of_a_grace_period_no_more_counts_than_pods_are_moved_with(cluster: FakeCluster) -> None:
    """A plan of whoever allows more does not wait for longer than this run does."""
    cluster.objects["pods"]["shop", "api-1"]["spec"]["terminationGracePeriodSeconds"] = 315_360_000

    def linger(raw: Raw) -> None:
        if raw["metadata"]["name"] == "api-1":
            cluster.terminate(raw)
        else:
            cluster.land_at_once(raw)

    cluster.land = linger
    execution = replace(impatient("land_seconds", seconds=3).execution, max_grace=timedelta(seconds=0.5))
    patient = with_settings(PLANNER, max_grace=timedelta(days=10_000))
    outcome = run(cluster, replace(SETTINGS, execution=execution), planner=patient)
    assert states(outcome)["api-1"] == ("Failed", "PodStays")


def test_an_eviction_that_a_webhook_answers_to_the_end_is_said_to_be_the_webhooks(cluster: FakeCluster) -> None:
    def answer(verb: str, _plural: str, name: str) -> None:
        if verb == "evict" and name == "web-2":
            raise intercepted(name)

    cluster.before = answer
    outcome = run(cluster, impatient("evict_seconds", "gap_seconds"))
    assert states(outcome)["web-2"] == ("Failed", "EvictionIntercepted")
    assert "admission webhook" in next(s.message for s in outcome.plan.statuses if s.pod == "web-2")
    assert cluster.pods_on("low-2") == ["web-2"]
    assert_nothing_is_left(cluster)


def test_a_pod_that_the_webhooks_controller_moves_away_holds_nothing_up(cluster: FakeCluster) -> None:
    asked: list[str] = []

    def answer(verb: str, _plural: str, name: str) -> None:
        if verb == "evict" and name == "api-1":
            asked.append(name)
            with cluster.lock:
                moving = cluster.objects["pods"].get(("shop", "api-1"))
                if moving:
                    cluster.new_pod(moving, node="high-2")
                    cluster.remove(PODS, moving)
            raise intercepted(name)

    cluster.before = answer
    outcome = run(cluster)
    assert states(outcome)["api-1"] == ("Skipped", "PodGone")
    assert asked == ["api-1"]
    assert cluster.pods_on("low-1") == cluster.pods_on("low-2") == []
    assert_nothing_is_left(cluster)


def test_a_forbidden_eviction_is_not_tried_again(cluster: FakeCluster) -> None:
    def refuse(verb: str, _plural: str, name: str) -> None:
        if verb == "evict" and name == "web-2":
            raise ForbiddenError(call("evict", PODS, name), failure(403, "no"))

    cluster.before = refuse
    outcome = run(cluster, impatient("gap_seconds"))
    assert states(outcome)["web-2"] == ("Failed", "EvictionForbidden")
    assert "403" in next(s.message for s in outcome.plan.statuses if s.pod == "web-2")


@pytest.mark.parametrize("late", ["pods", "reservations", "nothing"])
def test_an_eviction_without_an_answer_that_was_carried_out_is_no_failure(cluster: FakeCluster, late: str) -> None:
    """The watches of pods and Reservations bring what happens in any order."""
    cluster.watch_delays[late] = 0.3
    lost = UnreachableError(call("evict", PODS, "x"), failure(0, "reset"), url="https://fake", acted=True)
    done: list[str] = []

    def answer_lost(pod_: Raw) -> None:
        cluster.land_at_once(pod_)
        if not done:
            done.append("once")
            raise lost

    cluster.land = answer_lost
    outcome = run(cluster)
    assert outcome.clean
    assert outcome.plan.landed_on_target == 3


def test_a_call_that_fails_for_now_is_repeated(cluster: FakeCluster) -> None:
    cluster.faults["create reservations"] = [ServerError(call("create", RESERVATIONS, "x"), failure(503, "later"))]
    outcome = run(cluster)
    assert outcome.clean


def test_a_refused_reservation_says_so_on_its_move(cluster: FakeCluster) -> None:
    refusal = ForbiddenError(call("create", RESERVATIONS, "x"), failure(403, "reservations are not for you"))
    cluster.faults["create reservations"] = [refusal] * 3
    outcome = run(cluster)
    assert {state for state, _ in states(outcome).values()} <= {"Failed", "Skipped"}
    assert "reservations are not for you" in " ".join(status.message for status in outcome.plan.statuses)
    assert cluster.pods_on("low-2") == ["web-2"]


def test_a_replacement_on_another_node_is_elsewhere(cluster: FakeCluster) -> None:
    def land_wrong(pod_: Raw) -> None:
        cluster.remove(PODS, pod_)
        place = cluster.held_place(pod_)
        assert place is not None
        move = cluster.plan()["spec"]["moves"][int(place["metadata"]["annotations"][MOVE_ANNOTATION])]
        wrong = move["pod"] == "web-2"  # either pod of the controller may get its place
        planned = place["status"]["slots"][0]["node"]
        cluster.take(place, cluster.new_pod(pod_, node="low-2" if wrong else planned))

    cluster.land = land_wrong
    outcome = run(cluster)
    assert sorted(state for state, _ in states(outcome).values()) == ["Elsewhere", "Landed", "Landed"]
    assert not outcome.clean
    assert "1 elsewhere" in outcome.sentence
    told = {one["reason"]: one["message"] for one in cluster.raw(EVENTS)}
    assert told["Started"] == "Moving: 3 moves"
    target = next(move["target"] for move in cluster.plan()["spec"]["moves"] if move["pod"] == "web-2")
    assert told["MoveFailed"] == f"shop/web-2 Elsewhere: the replacement runs on low-2, not on {target}"


def test_a_replacement_that_never_comes_is_recorded_and_its_place_freed(cluster: FakeCluster) -> None:
    cluster.land = lambda pod_: cluster.remove(PODS, pod_)
    outcome = run(cluster, impatient("land_seconds"))
    assert {reason for _, reason in states(outcome).values()} == {"ReplacementTimeout"}
    assert_nothing_is_left(cluster)


def test_a_replacement_that_is_scheduled_past_its_place_is_counted_as_pending(cluster: FakeCluster) -> None:
    def unscheduled(pod_: Raw) -> None:
        cluster.remove(PODS, pod_)
        cluster.new_pod(pod_, node="")

    cluster.land = unscheduled
    outcome = run(cluster, impatient("land_seconds"))
    assert outcome.plan.pending == 3
    assert outcome.sentence.startswith("0 of 3 pods landed on their targets, 3 pending (ReplacementTimeout 3); ")
    assert not outcome.clean


def test_a_replacement_that_was_removed_after_it_had_landed_is_no_longer_there(cluster: FakeCluster) -> None:
    """Another client removes it in the moment in which its sibling is evicted: the run has counted it by then."""
    names = {one["metadata"]["name"] for one in cluster.raw(PODS)}

    def remove_the_first(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("evict", PODS.plural) and name.startswith("web"):
            for one in [one for one in cluster.raw(PODS) if one["metadata"]["name"] not in names]:
                if one["metadata"]["labels"]["app"] == "web":
                    cluster.remove(PODS, one)

    cluster.before = remove_the_first
    outcome = run(cluster, planner=with_settings(PLANNER, waves=WaveLimits(per_controller=1)))

    assert outcome.sentence.startswith("2 of 3 pods landed on their targets, 1 no longer there; ")
    assert outcome.plan is not None
    assert (outcome.plan.achieved.landed_on_target, outcome.plan.achieved.gone_pods) == (2, 1)
    assert not outcome.clean


def test_a_pod_that_goes_by_itself_is_skipped_and_does_not_keep_the_node(cluster: FakeCluster) -> None:
    def gone(verb: str, plural: str, _name: str) -> None:
        with cluster.lock:
            if (verb, plural) == ("create", "reservations") and ("shop", "api-1") in cluster.objects["pods"]:
                cluster.remove(PODS, cluster.objects["pods"]["shop", "api-1"])

    cluster.before = gone
    outcome = run(cluster)
    assert states(outcome)["api-1"] == ("Skipped", "PodGone")
    assert outcome.plan.freed_nodes == ("low-1", "low-2")
    assert_nothing_is_left(cluster)


def test_too_many_failures_stop_the_plan(cluster: FakeCluster) -> None:
    cluster.hold = lambda r: cluster.set_reservation(r, "Failed")
    strict = replace(SETTINGS, execution=replace(SETTINGS.execution, max_failed_share=0.0))
    one_by_one = with_settings(PLANNER, waves=WaveLimits(per_controller=1, per_wave=1))
    outcome = run(cluster, strict, planner=one_by_one)
    assert outcome.plan.phase is PlanPhase.FAILED
    assert MoveState.LANDED not in {status.state for status in outcome.plan.statuses}
    assert_nothing_is_left(cluster)


def test_siblings_may_take_each_others_places(cluster: FakeCluster) -> None:
    def land_crosswise(pod_: Raw) -> None:
        cluster.remove(PODS, pod_)
        owner = pod_["metadata"]["ownerReferences"][0]["uid"]
        places = [
            r
            for r in cluster.reservations()
            if r["spec"]["owners"][0]["object"]["uid"] == owner and r["status"]["slots"][0]["state"] == "Held"
        ]
        place = max(places, key=lambda r: r["metadata"]["name"] != own_name(pod_, cluster))
        cluster.take(place, cluster.new_pod(pod_, node=place["status"]["slots"][0]["node"]))

    cluster.land = land_crosswise
    outcome = run(cluster)
    assert outcome.clean
    assert outcome.plan.landed_on_target == 3
    assert_nothing_is_left(cluster)


def test_a_deleted_plan_ends_the_run_and_releases_its_places(cluster: FakeCluster) -> None:
    def delete_plan(_reservation: Raw) -> None:
        with cluster.lock:
            if cluster.objects["migrationplans"]:
                cluster.remove(MIGRATION_PLANS, cluster.plan())

    cluster.hold = delete_plan
    outcome = run(cluster)
    assert {reason for _, reason in states(outcome).values()} == {"Interrupted"}
    assert outcome.plan.phase is PlanPhase.ABORTED
    assert cluster.reservations() == []
    assert cluster.taints() == {}
    assert cluster.pods_on("low-1") == ["api-1", "web-1"]


def test_asked_to_stop_it_releases_what_is_reserved_and_unloads_the_nodes(cluster: FakeCluster) -> None:
    stop = threading.Event()
    cluster.hold = lambda _: stop.set()
    outcome = run(cluster, stop=stop)
    assert {status.reason for status in outcome.plan.statuses} == {MoveReason.INTERRUPTED}
    assert outcome.plan.phase is PlanPhase.ABORTED
    assert cluster.reservations() == []
    assert_nothing_is_left(cluster)


def test_asked_to_stop_it_leaves_an_evicted_pods_place_to_the_operator(cluster: FakeCluster) -> None:
    stop = threading.Event()

    def leave(pod_: Raw) -> None:
        cluster.remove(PODS, pod_)
        stop.set()

    cluster.land = leave
    run(cluster, stop=stop)
    evicted = {call.name for call in cluster.calls if call.verb == "evict"}
    assert evicted
    assert len(cluster.reservations()) == len(evicted)
    assert cluster.taints() == {}


def test_only_planning_changes_nothing(cluster: FakeCluster) -> None:
    outcome = run(cluster, replace(SETTINGS, dry_run=True))
    assert outcome.verdict is Verdict.DRY_RUN
    assert outcome.clean
    assert outcome.sentence == "Planned only: 3 moves free 2 of 4 nodes; 2 are empty then."
    assert {call.verb for call in cluster.calls} == {"list"}


def test_with_nothing_to_move_no_plan_is_made(cluster: FakeCluster) -> None:
    outcome = run(cluster, planner=with_settings(PLANNER, max_moves=0))
    assert outcome.verdict is Verdict.NOTHING_TO_MOVE
    assert outcome.clean
    assert not cluster.objects["migrationplans"]


def test_a_run_plans_no_more_moves_than_one_object_holds(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "MOST_MOVES", 1)
    assert len(states(run(cluster))) == 1
    limited = [limit_moves(PLANNER.within(most)).limits.max_moves for most in (None, 0, 1, 7)]
    assert limited == [1, 0, 1, 1]


def test_without_approval_nothing_is_moved(cluster: FakeCluster) -> None:
    outcome = run(cluster, replace(SETTINGS, approval=Approval.APPROVE))
    assert outcome.verdict is Verdict.NOT_APPROVED
    assert not outcome.clean
    assert cluster.plan()["status"]["phase"] == "Aborted"
    assert cluster.pods_on("low-2") == ["web-2"]


def test_an_approved_plan_is_carried_out(cluster: FakeCluster) -> None:
    asked: list[str] = []

    def approve(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("get", "migrationplans") and not asked:
            asked.append(name)
            assert cluster.plan()["status"]["phase"] == "Proposed"
            cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"approved": True}})

    cluster.before = approve
    outcome = run(cluster, replace(SETTINGS, approval=Approval.APPROVE, approval_seconds=60))
    assert outcome.clean
    assert outcome.plan.landed_on_target == 3


def test_a_plan_deleted_before_its_approval_is_not_carried_out(cluster: FakeCluster) -> None:
    def delete(verb: str, plural: str, _name: str) -> None:
        with cluster.lock:
            if (verb, plural) == ("get", "migrationplans") and cluster.objects["migrationplans"]:
                cluster.remove(MIGRATION_PLANS, cluster.plan())

    cluster.before = delete
    outcome = run(cluster, replace(SETTINGS, approval=Approval.APPROVE, approval_seconds=60))
    assert outcome.verdict is Verdict.PLAN_DELETED


def test_two_runs_never_overlap(cluster: FakeCluster) -> None:
    inner: list[Outcome] = []

    def second_run(_reservation: Raw) -> None:
        if not inner:
            inner.append(run(cluster, replace(SETTINGS, identity="other")))
        cluster.hold_at_once(_reservation)

    cluster.hold = second_run
    outcome = run(cluster)
    assert inner[0].verdict is Verdict.LEASE_HELD
    assert not inner[0].clean
    assert outcome.plan.landed_on_target == 3


def test_a_single_pod_whose_place_is_not_held_keeps_no_other_pod_of_its_node(cluster: FakeCluster) -> None:
    cluster.hold = lambda r: cluster.hold_at_once(r) if owner_of(r) != "api" else None

    outcome = run(cluster, replace(impatient("reserve_seconds"), min_freed_nodes=9), planner=SINGLE_PODS)

    assert states(outcome) == {
        "web-1": ("Landed", ""),
        "api-1": ("Failed", "ReservationTimeout"),
        "web-2": ("Landed", ""),
    }
    assert cluster.pods_on("low-1") == ["api-1"]
    assert outcome.plan.freed_nodes == ("low-2",)
    assert_nothing_is_left(cluster)


def test_a_low_node_that_keeps_pods_is_tainted_while_its_pods_move(cluster: FakeCluster) -> None:
    cluster.add(PODS, pod("alone", "", "low-1", cpu="500m"))
    tainted: list[dict[str, list[str]]] = []

    def note(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("evict", "pods"):
            tainted.append(cluster.taints())

    cluster.before = note
    outcome = run(cluster, planner=SINGLE_PODS)

    assert outcome.plan.landed_on_target == 3
    assert outcome.plan.freed_nodes == ("low-2",)
    assert "3 of 3 pods landed on their targets; 1 node freed" in outcome.sentence
    assert tainted == [{"low-1": [DRAINING_TAINT], "low-2": [DRAINING_TAINT]}] * 3
    assert_nothing_is_left(cluster)


def test_a_newcomer_on_the_source_lets_single_pods_move_all_the_same(cluster: FakeCluster) -> None:
    def newcomer(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", "migrationplans"):
            cluster.add(PODS, pod("newcomer", "big", "low-2", cpu="1"))

    cluster.before = newcomer
    outcome = run(cluster, planner=SINGLE_PODS)

    assert outcome.plan.landed_on_target == 3
    assert outcome.plan.freed_nodes == ("low-1",)


def test_a_move_that_no_longer_holds_after_publishing_is_skipped(cluster: FakeCluster) -> None:
    def newcomer(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", "migrationplans"):
            cluster.add(PODS, pod("newcomer", "big", "low-2", cpu="1"))

    cluster.before = newcomer
    outcome = run(cluster)
    assert states(outcome)["web-2"] == ("Skipped", "SourceNotEmptiable")
    assert outcome.plan.landed_on_target == 2


def owner_of(reservation: Raw) -> str:
    owner: str = reservation["spec"]["owners"][0]["object"]["name"]
    return owner


def own_name(pod_: Raw, cluster: FakeCluster) -> str:
    return reservation_name(cluster.plan()["metadata"]["name"], pod_["metadata"]["uid"])
