"""A cycle that makes room, on an API server in memory: it is kept for whom it is made, or given back."""

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from berth_core.durations import parse_duration
from berth_core.labels import DRAINING_TAINT, ROOM_TAINT
from berth_core.migration_plans import MoveReason, PlanPhase
from berth_core.names import room_taint_value
from berth_core.plan_rooms import RoomReason, RoomState
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.report.documents import describe_run
from berth_descheduler.settings import CycleSettings
from berth_kube.errors import ForbiddenError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from descheduler.cycle_settings import SETTINGS, BriskClock, impatient
from descheduler.fake_cluster import Raw, call, failure
from descheduler.room_cluster import BEGINS_NOTHING, LARGE, RoomCluster, asking, slot_of
from descheduler.test_cycle_killed_anywhere import SETTINGS as PATIENT
from descheduler.test_cycle_killed_anywhere import MortalProcess, is_killed


@pytest.fixture
def cluster() -> RoomCluster:
    return RoomCluster()


def run(
    cluster: RoomCluster,
    planner: PlannerSettings | None = None,
    *,
    settings: CycleSettings = SETTINGS,
    stop: threading.Event | None = None,
) -> Outcome:
    around = CycleContext(cluster, BriskClock(), CycleObserver(), stop or threading.Event())  # type: ignore[arg-type]
    return Cycle(around, settings, planner or asking()).run()


def rooms(outcome: Outcome) -> list[tuple[RoomState, str]]:
    assert outcome.plan is not None
    return [(room.state, room.reason) for room in outcome.plan.rooms]


def moves(outcome: Outcome) -> list[tuple[str, str]]:
    assert outcome.plan is not None
    return [(status.state.value, status.reason) for status in outcome.plan.statuses]


def at_first_eviction(cluster: RoomCluster, act: Callable[[], object]) -> None:
    """Have something happen right before the first pod is evicted."""
    evicted: list[str] = []

    def look(verb: str, _plural: str, name: str) -> None:
        if verb == "evict":
            evicted.append(name)
            if len(evicted) == 1:
                act()

    cluster.before = look


def evictions(cluster: RoomCluster) -> list[str]:
    return [call.name for call in cluster.calls if call.verb == "evict"]


def test_the_pod_that_waits_gets_the_room(cluster: RoomCluster) -> None:
    outcome = run(cluster)

    assert outcome.clean
    assert rooms(outcome) == [(RoomState.TAKEN, "")]
    assert moves(outcome) == [("Landed", "")] * 2
    assert cluster.pods_on("tight") == [LARGE]
    assert f"Room for shop/{LARGE}: taken by {LARGE} on tight." in outcome.sentence
    assert [(one.pod, one.node) for one in describe_run(outcome).rooms[0].taken] == [(LARGE, "tight")]
    assert cluster.taints() == {}


def test_the_plan_says_for_whom_the_room_is_and_who_has_it(cluster: RoomCluster) -> None:
    run(cluster)
    plan = cluster.plan()
    ((room,), (status,)) = plan["spec"]["rooms"], plan["status"]["rooms"]
    assert (room["name"], room["namespace"]) == (f"shop/{LARGE}", "shop")
    assert list(room["slots"]) == [{"node": "tight", "pod": LARGE, "podUID": f"uid-{LARGE}"}]
    assert (plan["status"]["phase"], status["state"]) == ("Succeeded", "Taken")
    assert status["reservation"] == cluster.rooms()[0]["metadata"]["name"]


def test_before_the_first_eviction_the_room_waits_and_its_node_is_kept_from_others(cluster: RoomCluster) -> None:
    seen: list[tuple[list[str], list[Raw]]] = []

    def look() -> None:
        phases = [one["status"]["state"]["phase"] for one in cluster.rooms()]
        seen.append((phases, cluster.objects["nodes"]["", "tight"]["spec"]["taints"]))

    at_first_eviction(cluster, look)
    run(cluster)

    plan = cluster.plan()["metadata"]["name"]
    taint: Raw = {"key": ROOM_TAINT, "value": room_taint_value(plan, "tight"), "effect": "NoSchedule"}
    assert seen == [(["Waiting"], [taint])]


def test_a_pod_that_is_deleted_gets_no_room_and_nothing_more_is_moved_for_it(cluster: RoomCluster) -> None:
    large = cluster.objects["pods"]["shop", LARGE]
    at_first_eviction(cluster, lambda: cluster.remove(PODS, large))

    outcome = run(cluster)

    assert rooms(outcome) == [(RoomState.RELEASED, RoomReason.POD_GONE)]
    assert moves(outcome) == [("Landed", ""), ("Skipped", MoveReason.ROOM_NOT_NEEDED)]
    assert len(evictions(cluster)) == 1
    assert outcome.plan is not None
    assert outcome.plan.phase is PlanPhase.SUCCEEDED
    assert cluster.rooms() == []
    assert cluster.taints() == {}


def test_a_pod_that_finds_another_place_needs_no_room(cluster: RoomCluster) -> None:
    def place() -> None:
        large = cluster.objects["pods"]["shop", LARGE]
        cluster._store("pods", {**large, "spec": {**large["spec"], "nodeName": "new-node"}})

    at_first_eviction(cluster, place)

    outcome = run(cluster, settings=impatient("gap_seconds"))

    assert rooms(outcome) == [(RoomState.RELEASED, RoomReason.POD_PLACED)]
    assert "got a place on new-node" in outcome.sentence
    assert cluster.rooms() == []


def test_without_a_reservation_that_waits_nothing_is_moved(cluster: RoomCluster) -> None:
    cluster.hold = lambda raw: cluster.set_reservation(raw, "Failed", slot_of(raw, "Released"))

    outcome = run(cluster)

    assert rooms(outcome) == [(RoomState.FAILED, RoomReason.RESERVATION_FAILED)]
    assert moves(outcome) == [("Skipped", MoveReason.ROOM_NOT_NEEDED)] * 2
    assert evictions(cluster) == []
    assert not outcome.clean
    assert cluster.plan()["status"]["phase"] == "Failed"
    assert cluster.taints() == {}


def test_without_the_right_to_reserve_nothing_is_moved(cluster: RoomCluster) -> None:
    refusal = ForbiddenError(call("create", RESERVATIONS, "x"), failure(403, "no right"))
    cluster.faults["create reservations"] = [refusal]

    outcome = run(cluster)

    assert rooms(outcome) == [(RoomState.FAILED, RoomReason.RESERVATION_FAILED)]
    assert "no right" in outcome.sentence
    assert evictions(cluster) == []


def test_where_no_operator_looks_the_plan_gives_up_before_it_moves_anything(cluster: RoomCluster) -> None:
    cluster.hold = lambda _: None

    outcome = run(cluster, settings=impatient("reserve_seconds"))

    assert rooms(outcome) == [(RoomState.FAILED, RoomReason.RESERVATION_TIMEOUT)]
    assert "is berth-operator running?" in outcome.sentence
    assert evictions(cluster) == []
    assert cluster.rooms() == []


def test_room_that_is_not_made_is_given_back(cluster: RoomCluster) -> None:
    """The second pod's place is never held."""
    hold, count = cluster.hold_or_wait, iter(range(10))
    cluster.hold = lambda raw: hold(raw) if next(count) < 2 else cluster.set_reservation(raw, "Failed")

    outcome = run(cluster)

    assert rooms(outcome) == [(RoomState.FAILED, RoomReason.ROOM_NOT_MADE)]
    assert "a pod had to stay on tight" in outcome.sentence
    assert cluster.plan()["status"]["phase"] == "Partial"
    assert cluster.rooms() == []
    assert cluster.taints() == {}


def test_room_that_nobody_takes_is_given_back(cluster: RoomCluster) -> None:
    cluster.gives = False
    outcome = run(cluster, settings=impatient("land_seconds"))
    assert rooms(outcome) == [(RoomState.FAILED, RoomReason.NOT_TAKEN)]
    assert cluster.rooms() == []


def test_a_plan_that_is_deleted_keeps_no_room_and_no_node(cluster: RoomCluster) -> None:
    def delete() -> None:
        cluster.delete(MIGRATION_PLANS, cluster.plan()["metadata"]["name"])

    at_first_eviction(cluster, delete)
    outcome = run(cluster)
    assert rooms(outcome) == [(RoomState.RELEASED, RoomReason.INTERRUPTED)]
    assert cluster.rooms() == []
    assert cluster.taints() == {}


def test_a_run_that_is_told_to_stop_gives_the_room_back(cluster: RoomCluster) -> None:
    stop = threading.Event()
    at_first_eviction(cluster, stop.set)
    outcome = run(cluster, stop=stop)
    assert rooms(outcome) == [(RoomState.RELEASED, RoomReason.INTERRUPTED)]
    assert outcome.plan is not None
    assert outcome.plan.phase is PlanPhase.ABORTED
    assert cluster.rooms() == []
    assert cluster.taints() == {}


def test_room_for_a_shape_stays_held_when_the_plan_is_over(cluster: RoomCluster) -> None:
    outcome = run(cluster, asking(shapes=["cpu=10,count=1"]))
    assert rooms(outcome) == [(RoomState.HELD, "")]
    (room,) = cluster.rooms()
    assert room["status"]["state"]["phase"] == "Available"
    assert room["metadata"]["namespace"] == "berth-system"
    assert timedelta(minutes=10) <= parse_duration(room["spec"]["ttl"]) < timedelta(minutes=11)
    assert f"held by Reservation {room['metadata']['name']}" in outcome.sentence
    assert cluster.taints() == {}


def test_two_pods_on_one_node_get_their_room_each(cluster: RoomCluster) -> None:
    cluster.remove(PODS, cluster.objects["pods"]["shop", LARGE])
    for name in ("half-1", "half-2"):
        cluster.wait_for_room(name, cpu="4500m")
    outcome = run(cluster, asking(pods=["shop/half-1", "shop/half-2"]))
    assert rooms(outcome) == [(RoomState.TAKEN, "")] * 2
    assert {"half-1", "half-2"} <= {name for node in ("tight", "roomy-1", "roomy-2") for name in cluster.pods_on(node)}


def test_a_room_taint_of_a_plan_that_is_gone_is_taken_off(cluster: RoomCluster) -> None:
    stale = {"key": ROOM_TAINT, "value": room_taint_value("plan-gone", "roomy-1"), "effect": "NoSchedule"}
    cluster.merge_patch(NODES, "roomy-1", {"spec": {"taints": [stale]}})
    run(cluster, BEGINS_NOTHING)
    assert cluster.taints() == {}


def test_a_taint_that_outlived_the_recorded_end_of_its_room_comes_off(cluster: RoomCluster) -> None:
    run(cluster, settings=PATIENT)
    (plan,) = cluster.objects["migrationplans"].values()
    assert [room["state"] for room in plan["status"]["rooms"]] == [RoomState.TAKEN]
    plan["status"]["phase"] = PlanPhase.RUNNING
    value = room_taint_value(plan["metadata"]["name"], "tight")
    cluster.objects["nodes"]["", "tight"]["spec"]["taints"] = [
        {"key": ROOM_TAINT, "value": value, "effect": "NoSchedule"}
    ]
    run(cluster, BEGINS_NOTHING, settings=PATIENT)
    assert cluster.taints() == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.deep)])
def test_the_next_run_ends_what_a_killed_one_began(step: int) -> None:
    calls_to_live = 0
    for calls_to_live in itertools.count(step=step):
        cluster = RoomCluster()
        process = MortalProcess(cluster, calls_to_live)
        mortal = Cycle(CycleContext(process, process, CycleObserver(), threading.Event()), PATIENT, asking())  # type: ignore[arg-type]
        if not is_killed(process, mortal.run):
            break

        run(cluster, BEGINS_NOTHING, settings=PATIENT)

        when = f"killed before call {calls_to_live}"
        assert [
            key for keys in cluster.taints().values() for key in keys if key in {ROOM_TAINT, DRAINING_TAINT}
        ] == [], when
        plans = [plan["status"] for plan in cluster.objects["migrationplans"].values()]
        assert {status["phase"] for status in plans} <= {"Succeeded", "Aborted"}, when
        begun = any(status["phase"] == "Succeeded" for status in plans)
        assert cluster.pods_on("tight") == ([LARGE] if begun else ["api-1", "web-1"]), when
        assert {one["status"]["state"]["phase"] for one in cluster.reservations()} <= {"Succeeded"}, when
        assert len(evictions(cluster)) == (2 if begun else 0), when
    assert calls_to_live > 40
