from typing import Any

import msgspec
import pytest

from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_core.pod_requests import effective_requests
from berth_core.reservations import (
    Condition,
    ConditionType,
    ObjectReference,
    Reservation,
    ReservationPhase,
    ReservationStatus,
    SlotState,
)
from berth_core.resources import ResourceAmounts
from builders import reservation, task


def two_tasks() -> dict[str, Any]:
    """The Reservation of two tasks from the README, as the API server holds it."""

    def template(name: str, cpu: str, memory: str) -> dict[str, Any]:
        resources = {"requests": {"cpu": cpu, "memory": memory}}
        return {
            "spec": {"restartPolicy": "Never", "containers": [{"name": name, "image": "x", "resources": resources}]}
        }

    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "complex-reservation", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": 3,
            "ttl": "600s",
            "owners": [{"labelSelector": {"matchLabels": {"volcano.sh/reservation-job": "job-multi"}}}],
            "tasks": [
                {"name": "nginx", "replicas": 2, "template": template("nginx", "500m", "500Mi")},
                {"name": "busybox", "replicas": 1, "template": template("busybox", "250m", "256Mi")},
            ],
        },
    }


def test_a_reservation_is_read_field_by_field() -> None:
    held = Reservation.from_api(two_tasks())
    assert held.key == "default/complex-reservation"
    assert (held.spec.scheduler_name, held.spec.queue, held.spec.ttl) == ("volcano", "default", "600s")
    assert (held.spec.replicas, held.spec.wanted) == (3, 3)
    assert [one.name for one in held.spec.tasks] == ["nginx", "busybox"]
    amounts = ResourceAmounts.total(effective_requests(t.template.spec).times(t.replicas) for t in held.spec.tasks)
    assert amounts.to_quantities() == {"cpu": "1250m", "memory": "1256Mi"}
    assert held.spec.owners[0].label_selector is not None
    assert held.phase is ReservationPhase.PENDING


def test_by_default_all_slots_are_wanted() -> None:
    held = reservation(tasks=[task("a", replicas=2), task("b", replicas=3)])
    assert (held.spec.replicas, held.spec.wanted) == (5, 5)
    assert reservation(tasks=[task("a", replicas=2)], min_available=1).spec.wanted == 1


def test_people_write_amounts_without_quotes() -> None:
    body = two_tasks()
    body["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": 1, "memory": 1024}
    }
    template = Reservation.from_api(body).spec.tasks[0].template
    assert effective_requests(template.spec) == ResourceAmounts({"cpu": 1000, "memory": 1024})


def test_a_status_is_written_in_the_apis_names() -> None:
    status = msgspec.convert(
        {
            "state": {"phase": "Available", "reason": "SlotsHeld"},
            "minAvailable": 1,
            "slots": [{"task": "web", "index": 0, "state": "Held", "node": "n", "placeholder": "p"}],
            "taskStatusCount": {"web": {"phase": {"Held": 1}}},
            "currentOwner": {"kind": "Pod", "name": "web-0"},
            "expiresAt": "2026-11-21T12:10:00Z",
            "conditions": [{"type": "Available", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}],
        },
        ReservationStatus,
    )
    assert status.slots[0].state is SlotState.HELD
    assert status.current_owner == ObjectReference(kind="Pod", name="web-0")
    assert msgspec.convert(msgspec.to_builtins(status), ReservationStatus) == status
    assert msgspec.to_builtins(status)["taskStatusCount"] == {"web": {"phase": {"Held": 1}}}


def test_a_condition_holds_only_when_it_is_true() -> None:
    def with_status(text: str) -> Reservation:
        return reservation(status=ReservationStatus(conditions=(Condition(type="HandoverReady", status=text),)))

    assert with_status("True").condition(ConditionType.HANDOVER_READY)
    assert not with_status("False").condition(ConditionType.HANDOVER_READY)
    assert not with_status("Unknown").condition(ConditionType.HANDOVER_READY)
    assert not with_status("True").condition(ConditionType.AVAILABLE)
    assert not reservation().condition(ConditionType.HANDOVER_READY)


def test_a_reservation_is_over_in_two_phases() -> None:
    assert {phase for phase in ReservationPhase if phase.terminal} == {
        ReservationPhase.SUCCEEDED,
        ReservationPhase.FAILED,
    }


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        (("tasks", 0, "replicas"), "two", r"\$\.spec\.tasks\[0\]\.replicas"),
        (("tasks",), {}, r"\$\.spec\.tasks"),
        (("ttl",), 600, r"\$\.spec\.ttl"),
    ],
)
def test_a_field_that_does_not_fit_is_named(path: tuple[str | int, ...], value: object, want: str) -> None:
    body = two_tasks()
    place: Any = body["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(msgspec.ValidationError, match=want):
        Reservation.from_api(body)


PLAN: dict[str, Any] = {
    "apiVersion": "berth.volcano.sh/v1alpha1",
    "kind": "MigrationPlan",
    "metadata": {"name": "plan-1"},
    "spec": {
        "objective": {"plugin": "Defragmentation", "strategy": "Threshold", "args": {"numberOfNodes": 2}},
        "moves": [
            {
                "namespace": "default",
                "pod": "web-0",
                "podUID": "u",
                "owner": {"kind": "ReplicaSet", "name": "web", "uid": "o"},
                "source": "a",
                "target": "b",
                "requests": {"cpu": "1"},
                "wave": 1,
            }
        ],
        "predicted": {"nodes": 1, "moves": 1, "waves": 2, "freedNodes": ["a"]},
    },
}


def test_a_plan_is_read_and_written_in_the_apis_names() -> None:
    plan = MigrationPlan.from_api(PLAN)
    (move,) = plan.spec.moves
    assert (move.pod_uid, move.wave, move.target) == ("u", 1, "b")
    assert plan.spec.predicted is not None
    assert plan.spec.predicted.freed_nodes == ("a",)
    assert msgspec.to_builtins(plan)["spec"]["moves"][0]["podUID"] == "u"
    assert MigrationPlan.from_api(msgspec.to_builtins(plan)) == plan


def test_a_plan_that_nobody_has_taken_up_is_proposed() -> None:
    assert MigrationPlan.from_api(PLAN).phase is PlanPhase.PROPOSED
    assert MigrationPlan.from_api({**PLAN, "status": {"phase": "Running"}}).phase is PlanPhase.RUNNING


def plan_of_two(**status: Any) -> MigrationPlan:  # noqa: ANN401 - a raw status
    (move,) = PLAN["spec"]["moves"]
    rooms = [{"name": name, "namespace": "default"} for name in ("first", "second")]
    moves = [move, {**move, "pod": "web-1"}]
    return MigrationPlan.from_api({**PLAN, "spec": {**PLAN["spec"], "moves": moves, "rooms": rooms}, "status": status})


LANDED = {"namespace": "default", "pod": "web-0", "state": "Landed"}
HELD = {"name": "first", "state": "Held"}
SAID: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "nothing": ({}, ["web-0 Pending", "web-1 Pending"], ["first Pending", "second Pending"]),
    "something of the first": (
        {"moves": [LANDED], "rooms": [HELD]},
        ["web-0 Landed", "web-1 Pending"],
        ["first Held", "second Pending"],
    ),
    "more than there is": (
        {"moves": [LANDED] * 3, "rooms": [HELD] * 3},
        ["web-0 Landed", "web-0 Landed"],
        ["first Held", "first Held"],
    ),
}


@pytest.mark.parametrize(("status", "want_moves", "want_rooms"), SAID.values(), ids=SAID.keys())
def test_every_move_and_room_has_a_status_whatever_is_said(
    status: dict[str, Any], want_moves: list[str], want_rooms: list[str]
) -> None:
    plan = plan_of_two(**status)
    assert [f"{one.pod} {one.state.value}" for one in plan.move_statuses] == want_moves
    assert [f"{one.name} {one.state.value}" for one in plan.room_statuses] == want_rooms


def test_plans_and_moves_are_over_in_these() -> None:
    assert {phase for phase in PlanPhase if phase.terminal} == {
        PlanPhase.SUCCEEDED,
        PlanPhase.PARTIAL,
        PlanPhase.FAILED,
        PlanPhase.ABORTED,
    }
    assert {state for state in MoveState if state.terminal} == {
        MoveState.LANDED,
        MoveState.ELSEWHERE,
        MoveState.REMOVED,
        MoveState.SKIPPED,
        MoveState.FAILED,
    }


ODD = {
    "a field of a template of the wrong type": (("spec", "tasks", 0, "template", "spec", "tolerations"), "none", True),
    "a status that somebody else wrote": (("status",), {"slots": "none"}, False),
}


@pytest.mark.parametrize(("path", "value", "status_stays"), ODD.values(), ids=ODD.keys())
def test_an_odd_reservation_is_read_as_far_as_it_can_be(
    path: tuple[str | int, ...],
    value: object,
    status_stays: bool,  # noqa: FBT001 - what the case wants
) -> None:
    body: Any = two_tasks() | {"status": {"state": {"phase": "Available"}}}
    assert Reservation.read(body) == Reservation.from_api(body)
    at = body
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value

    read = Reservation.read(body)

    assert read.key == "default/complex-reservation"
    assert read.spec.tasks == ()
    assert (read.phase is ReservationPhase.AVAILABLE) is status_stays


def test_a_slot_may_be_on_any_node_unless_some_are_named() -> None:
    free, tied = task(), task(nodes=["node-a", "node-b"])
    assert (free.node_names, free.allows("node-c")) == ((), True)
    assert tied.node_names == ("node-a", "node-b")
    assert [name for name in ("node-a", "node-b", "node-c") if tied.allows(name)] == ["node-a", "node-b"]
