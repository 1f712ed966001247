"""What the API server keeps of a status, and what `kubectl get` shows of it."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest

from berth_core.gated_queues import GatedQueue, GatedQueueStatus
from berth_core.migration_plans import (
    Achieved,
    FreedMarks,
    MigrationPlan,
    MigrationPlanStatus,
    MoveMethod,
    MoveReason,
    MoveState,
    MoveStatus,
    PlanPhase,
    Restriction,
    RestrictionReason,
)
from berth_core.plan_rooms import RoomReason, RoomSlot, RoomState, RoomStatus
from berth_core.policies import DeschedulerPolicy, DeschedulerPolicyStatus, FragmentationStatus, ResourceUse, ShapeRoom
from berth_core.reservations import (
    Condition,
    ObjectReference,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
    TaskStatus,
)
from berth_core.revocable_zones import RevocableZone, RevocableZoneStatus
from berth_core.windows import ActiveOccurrence, PastOccurrence, ReservationWindow, ReservationWindowStatus, WindowTimes
from plain_api import PlainApi

RESERVATIONS: Final = "apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations"
PLANS: Final = "apis/berth.volcano.sh/v1alpha1/migrationplans"
POLICIES: Final = "apis/berth.volcano.sh/v1alpha1/deschedulerpolicies"
ZONES: Final = "apis/berth.volcano.sh/v1alpha1/revocablezones"
WINDOWS: Final = "apis/berth.volcano.sh/v1alpha1/namespaces/default/reservationwindows"
NOON: Final = "2026-11-21T12:00:00Z"
LATER: Final = "2026-11-21T12:10:00Z"

Store = Callable[[str, dict[str, Any]], str]

RESERVATION: Final[dict[str, Any]] = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Reservation",
    "spec": {
        "owners": [{"object": {"uid": "6c5a"}}],
        "tasks": [{"name": "web", "template": {"spec": {"containers": [{"name": "c"}]}}}],
    },
}
PLAN: Final[dict[str, Any]] = {
    "apiVersion": "berth.volcano.sh/v1alpha1",
    "kind": "MigrationPlan",
    "spec": {
        "objective": {"plugin": "Defragmentation", "strategy": "Threshold"},
        "predicted": {"nodes": 60, "moves": 41, "waves": 3},
    },
}

POLICY: Final[dict[str, Any]] = {
    "apiVersion": "berth.volcano.sh/v1alpha1",
    "kind": "DeschedulerPolicy",
    "spec": {"trigger": {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"}, "profiles": [{"name": "default"}]},
}

OWNER: Final = ObjectReference(api_version="v1", kind="Pod", namespace="default", name="web-1", uid="0d8f")
CONDITION: Final = Condition(
    type="Available", status="True", reason="SlotsHeld", message="m", last_transition_time=NOON, observed_generation=2
)
RESERVATION_STATUS: Final = ReservationStatus(
    state=ReservationState(
        phase=ReservationPhase.AVAILABLE, reason=ReservationReason.SLOTS_HELD, message="m", last_transition_time=NOON
    ),
    min_available=1,
    task_status_count={"web": TaskStatus(phase={SlotState.HELD: 1})},
    pending=1,
    available=2,
    succeeded=3,
    failed=4,
    desired=10,
    conditions=(CONDITION,),
    current_owner=OWNER,
    allocatable={"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
    held={"cpu": "500m"},
    allocated={"memory": "1Gi", "example.com/gpu": "1"},
    slots=(
        Slot(
            task="web",
            index=0,
            state=SlotState.LOST,
            node="n-1",
            placeholder="r-web-0",
            owner=OWNER,
            reason=ReservationReason.PREEMPTED,
            expected_at="2026-11-21T13:00:00Z",
            message="m",
        ),
    ),
    node="node-1",
    counted_in='queue "ml" of Volcano by spec.queue; no queue of Berth by the namespace default',
    expires_at=LATER,
    observed_generation=2,
)
PLAN_STATUS: Final = MigrationPlanStatus(
    phase=PlanPhase.PARTIAL,
    message="40 of 41 moves landed",
    replanned_as="plan-2",
    freed_marks=FreedMarks(taint=True, annotations={"example.com/empty": "true"}),
    start_time=NOON,
    completion_time=LATER,
    moves=(
        MoveStatus(
            namespace="default",
            pod="web-0",
            state=MoveState.ELSEWHERE,
            reason=MoveReason.REPLACEMENT_TIMEOUT,
            message="m",
            reservation="plan-1",
            replacement="web-1",
            node="n-2",
            method=MoveMethod.EVICT,
            method_reason="its ReplicaSet is gone",
        ),
    ),
    rooms=(
        RoomStatus(
            name="shop/large-0",
            state=RoomState.TAKEN,
            reason=RoomReason.POD_PLACED,
            message="m",
            reservation="plan-1-room",
            taken=(RoomSlot(node="n-1", pod="large-0", pod_uid="f00d"),),
        ),
    ),
    achieved=Achieved(
        moves=41,
        landed_on_target=40,
        evictions=5,
        elsewhere=1,
        skipped=2,
        failed=3,
        gone_pods=1,
        freed_nodes=("n-1",),
        freed_node_count=1,
        freeing_nodes=("n-2",),
        ending_pods=4,
        stuck_pods=5,
        pending_pods=4,
        seconds=61.5,
    ),
    conditions=(CONDITION,),
)
POLICY_STATUS: Final = DeschedulerPolicyStatus(
    observed_generation=2,
    last_run_time=NOON,
    last_scheduled_time=NOON,
    next_run_time=LATER,
    last_verdict="CarriedOut",
    last_outcome="41 of 41 pods landed on their targets.",
    last_plan="plan-1",
    restrictions=(Restriction(reason=RestrictionReason.LIMIT_BINDS, fields=("maxMoves",), message="m"),),
    fragmentation=FragmentationStatus(
        measured_at=NOON,
        nodes=60,
        empty_nodes=2,
        resources=(ResourceUse(resource="cpu", requested_ratio="0.4321", largest_free="12", free="500"),),
        shapes=(ShapeRoom(shape="cpu=16,memory=64Gi", room=2),),
    ),
    warnings=("w",),
    conditions=(CONDITION,),
)
WINDOW: Final[dict[str, Any]] = {
    "apiVersion": "berth.volcano.sh/v1alpha1",
    "kind": "ReservationWindow",
    "spec": {"schedule": "0 3 - 4 * * *", "podNumToReserve": 10, "resources": {"cpu": "32"}},
}
WINDOW_STATUS: Final = ReservationWindowStatus(
    observed_generation=2,
    state="Reserving",
    next=WindowTimes(reserve_at=NOON, start=NOON, end=LATER),
    active=(
        ActiveOccurrence(
            reservation="nightly-1",
            start=NOON,
            end=LATER,
            phase="Waiting",
            nodes=("n-1",),
            desired=10,
            held=4,
            taken=3,
            expected_at=NOON,
        ),
    ),
    history=(PastOccurrence(reservation="nightly-0", start=NOON, end=LATER, outcome="Ended", desired=10, taken=9),),
    last_start=NOON,
    conditions=(CONDITION,),
)
QUEUES: Final = "apis/berth.volcano.sh/v1alpha1/queues"
QUEUE: Final[dict[str, Any]] = {
    "apiVersion": "berth.volcano.sh/v1alpha1",
    "kind": "Queue",
    "spec": {"guarantee": {"resource": {"memory": "200M"}}},
}
QUEUE_STATUS: Final = GatedQueueStatus(
    observed_generation=2,
    state="Open",
    namespaces=1,
    admitted=8,
    waiting=3,
    too_large=1,
    guarantee={"memory": "200M"},
    real_capability={"memory": "800M"},
    deserved={"memory": "200M"},
    allocated={"memory": "100M", "cpu": "1"},
    request={"memory": "300M"},
    held={"memory": "100M"},
    held_slots=1,
    waiting_slots=1,
    fenced_nodes=("node-a",),
    conditions=(CONDITION,),
)

ZONE: Final[dict[str, Any]] = {
    "apiVersion": "berth.volcano.sh/v1alpha1",
    "kind": "RevocableZone",
    "spec": {"windows": ["1:00-4:00"]},
}
ZONE_STATUS: Final = RevocableZoneStatus(
    observed_generation=2,
    state="Open",
    opens_at=NOON,
    closes_at=LATER,
    evict_from=LATER,
    nodes=3,
    pods=7,
    conditions=(CONDITION,),
)


def as_json(struct: msgspec.Struct) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(struct))
    return body


def fields_at_their_default(struct: msgspec.Struct, path: str) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if value == default:
            yield f"{path}.{field.name}"
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, msgspec.Struct):
                yield from fields_at_their_default(inner, f"{path}.{field.name}")


@pytest.mark.parametrize(
    "status",
    [RESERVATION_STATUS, PLAN_STATUS, POLICY_STATUS, WINDOW_STATUS, ZONE_STATUS, QUEUE_STATUS],
    ids=["rsv", "mplan", "dpol", "rsvw", "rvz", "bq"],
)
def test_the_examples_leave_no_field_out(status: msgspec.Struct) -> None:
    assert not list(fields_at_their_default(status, "status"))


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("place", "kept", "read", "status"),
    [
        (RESERVATIONS, RESERVATION, Reservation.from_api, RESERVATION_STATUS),
        (WINDOWS, WINDOW, ReservationWindow.read, WINDOW_STATUS),
        (ZONES, ZONE, RevocableZone.read, ZONE_STATUS),
    ],
    ids=["Reservation", "ReservationWindow", "RevocableZone"],
)
def test_a_full_status_comes_back_whole(
    api: PlainApi, stored: Store, place: str, kept: dict[str, Any], read: Callable[[Any], Any], status: msgspec.Struct
) -> None:
    path = stored(place, kept)
    answer = api.merge_patch(f"{path}/status", {"status": as_json(status)})
    assert not answer.refused, answer.message
    body = api.get(path).body
    assert body["status"] == as_json(status)
    assert read(body).status == status


@pytest.mark.cluster
def test_a_full_queue_status_comes_back_whole_and_is_shown(api: PlainApi, stored: Store) -> None:
    path = stored(QUEUES, QUEUE)
    covered = Condition(type="Covered", status="False", reason="UsedByOthers")
    status = msgspec.structs.replace(QUEUE_STATUS, conditions=(CONDITION, covered))
    answer = api.merge_patch(f"{path}/status", {"status": as_json(status)})
    assert not answer.refused, answer.message
    body = api.get(path).body
    assert body["status"] == as_json(status)
    assert GatedQueue.read(body).status == status
    assert shown(api, path) == {
        "State": "Open",
        "Weight": 1,
        "Namespaces": 1,
        "Admitted": 8,
        "Waiting": 3,
        "Covered": "False",
        "Enforced": None,
        "Allocated Cpu": "1",
        "Allocated Memory": "100M",
        "Held Slots": 1,
        "Waiting Slots": 1,
    }


@pytest.mark.cluster
def test_a_full_plan_status_comes_back_whole(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, PLAN)
    answer = api.merge_patch(f"{path}/status", {"status": as_json(PLAN_STATUS)})
    assert not answer.refused, answer.message
    body = api.get(path).body
    assert body["status"] == as_json(PLAN_STATUS)
    assert MigrationPlan.from_api(body).status == PLAN_STATUS


@pytest.mark.cluster
def test_a_full_policy_status_comes_back_whole(api: PlainApi, stored: Store) -> None:
    path = stored(POLICIES, POLICY)
    answer = api.merge_patch(f"{path}/status", {"status": as_json(POLICY_STATUS)})
    assert not answer.refused, answer.message
    body = api.get(path).body
    assert body["status"] == as_json(POLICY_STATUS)
    assert DeschedulerPolicy.from_api(body).status == POLICY_STATUS


@pytest.mark.cluster
def test_who_writes_a_status_cannot_change_the_spec_nor_the_other_way(api: PlainApi, stored: Store) -> None:
    path = stored(RESERVATIONS, RESERVATION)
    api.merge_patch(f"{path}/status", {"spec": {"ttl": "5s"}, "status": {"desired": 1}})
    api.merge_patch(path, {"status": {"desired": 7}})
    body = api.get(path).body
    assert body["status"] == {"desired": 1}
    assert "ttl" not in body["spec"]


@pytest.mark.cluster
def test_a_move_whose_state_is_left_out_is_pending(api: PlainApi, stored: Store) -> None:
    path = stored(PLANS, PLAN)
    status = MigrationPlanStatus(moves=(MoveStatus(namespace="default", pod="web-0"),))
    api.merge_patch(f"{path}/status", {"status": as_json(status)})
    body = api.get(path).body
    assert body["status"]["moves"][0]["state"] == "Pending"
    assert MigrationPlan.from_api(body).status == status


def shown(api: PlainApi, path: str) -> dict[str, Any]:
    body = api.table(path).body
    (row,) = body["rows"]
    names = [column["name"] for column in body["columnDefinitions"]]
    return {name: cell for name, cell in zip(names, row["cells"], strict=True) if name not in {"Name", "Age"}}


@pytest.mark.cluster
def test_kubectl_shows_a_reservation(api: PlainApi, stored: Store) -> None:
    path = stored(RESERVATIONS, RESERVATION)
    api.merge_patch(f"{path}/status", {"status": as_json(RESERVATION_STATUS)})
    assert shown(api, path) == {
        "Phase": "Available",
        "Node": "node-1",
        "Available": 2,
        "Taken": 3,
        "Desired": 10,
        "Owner": "web-1",
        "Expires": LATER,
        "Reason": "SlotsHeld",
    }


@pytest.mark.cluster
def test_kubectl_shows_a_plan(api: PlainApi, stored: Store) -> None:
    gain = {"freedNodeCount": 2, "freedResources": {"cpu": "32", "memory": "128Gi"}, "freedPricePerHour": "1.536"}
    risk = {"podsWithoutBudget": 3, "onlyPods": 1, "statefulSetPods": 0, "expectedSeconds": 90}
    predicted = {**PLAN["spec"]["predicted"], **gain, **risk}
    path = stored(
        PLANS, {**PLAN, "spec": {**PLAN["spec"], "predicted": predicted, "mode": "Approve", "approveBefore": LATER}}
    )
    api.merge_patch(f"{path}/status", {"status": as_json(PLAN_STATUS)})
    assert shown(api, path) == {
        "Phase": "Partial",
        "Policy": None,
        "Strategy": "Threshold",
        "Moves": 41,
        "Landed": 40,
        "Evicted": 5,
        "Freed": 1,
        "Message": "40 of 41 moves landed",
        "To-Free": 2,
        "CPU": "32",
        "Memory": "128Gi",
        "Price": "1.536",
        "No-Budget": 3,
        "No-Sibling": 1,
        "StatefulSet": 0,
        "Seconds": 90,
        "Approve-Before": LATER,
    }


@pytest.mark.cluster
def test_kubectl_shows_a_policy(api: PlainApi, stored: Store) -> None:
    path = stored(POLICIES, POLICY)
    valid = {"type": "Valid", "status": "True", "reason": "Accepted"}
    api.merge_patch(f"{path}/status", {"status": {**as_json(POLICY_STATUS), "conditions": [valid]}})
    assert shown(api, path) == {
        "Mode": "Plan",
        "Trigger": "0 2 * * *",
        "Suspend": False,
        "Valid": "True",
        "Last Outcome": "CarriedOut",
        "Next Run": LATER,
        "Outcome": "41 of 41 pods landed on their targets.",
    }


@pytest.mark.cluster
def test_kubectl_shows_a_window(api: PlainApi, stored: Store) -> None:
    path = stored(WINDOWS, WINDOW)
    sufficient = {"type": "Sufficient", "status": "True"}
    api.merge_patch(f"{path}/status", {"status": {**as_json(WINDOW_STATUS), "conditions": [sufficient]}})
    assert shown(api, path) == {
        "Schedule": "0 3 - 4 * * *",
        "State": "Reserving",
        "Pods": 10,
        "Held": 4,
        "Taken": 3,
        "Sufficient": "True",
        "Next Start": NOON,
        "Reservation": "nightly-1",
    }


@pytest.mark.cluster
def test_kubectl_shows_a_zone(api: PlainApi, stored: Store) -> None:
    path = stored(ZONES, ZONE)
    empty = {"type": "EmptyInTime", "status": "True"}
    api.merge_patch(f"{path}/status", {"status": {**as_json(ZONE_STATUS), "conditions": [empty]}})
    assert shown(api, path) == {
        "State": "Open",
        "Nodes": 3,
        "Pods": 7,
        "Opens": NOON,
        "Closes": LATER,
        "Empty In Time": "True",
        "Windows": '["1:00-4:00"]',
    }


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("path", "kind", "want_short_name", "want_namespaced"),
    [
        ("apis/batch.volcano.sh/v1alpha1", "Reservation", "rsv", True),
        ("apis/berth.volcano.sh/v1alpha1", "MigrationPlan", "mplan", False),
        ("apis/berth.volcano.sh/v1alpha1", "DeschedulerPolicy", "dpol", False),
        ("apis/berth.volcano.sh/v1alpha1", "ReservationWindow", "rsvw", True),
        ("apis/berth.volcano.sh/v1alpha1", "RevocableZone", "rvz", False),
        ("apis/berth.volcano.sh/v1alpha1", "Queue", "bq", False),
    ],
    ids=["rsv", "mplan", "dpol", "rsvw", "rvz", "bq"],
)
def test_a_kind_has_a_short_name_the_category_of_all_and_a_scope(
    api: PlainApi, path: str, kind: str, want_short_name: str, *, want_namespaced: bool
) -> None:
    entries = api.get(path).body["resources"]
    resource = next(entry for entry in entries if entry["kind"] == kind and "shortNames" in entry)
    assert (resource["shortNames"], resource["categories"]) == ([want_short_name], ["berth"])
    assert resource["namespaced"] is want_namespaced
