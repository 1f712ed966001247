"""The bodies that the descheduler sends say what they must, and nothing that would hit others."""

import json
from datetime import timedelta
from typing import Any

import pytest

from berth_core.migration_plans import (
    Achieved,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    MoveState,
    MoveStatus,
    NodeBefore,
    NodesBefore,
    PlannedMove,
    PlanPhase,
    Predicted,
)
from berth_core.names import reservation_name
from berth_core.reservations import ObjectReference, Reservation
from berth_descheduler.migration.manifests.move_reservations import build_reservation
from berth_descheduler.migration.manifests.plans import MOST_MOVES, PlanIdentity, build_plan, build_status_patch
from berth_descheduler.migration.operator.cleanup import build_ungate_operations
from berth_descheduler.planner.recorded_nodes import MOST_NODES
from berth_descheduler.planner.waves import MOST_NAMED
from descheduler.fake_cluster import pod

PLAN = PlanIdentity(name="plan-1", uid="plan-uid")
MOVE = PlannedMove(namespace="shop", pod="web-1", pod_uid="uid-web-1", source="low", target="high", wave=1)


def built(raw_pod: dict[str, Any] | None = None) -> dict[str, Any]:
    return build_reservation(PLAN, 3, MOVE, raw_pod or pod("web-1", "web", "low", cpu="1"), timedelta(minutes=10))


def test_a_reservation_asks_for_one_place_on_the_target_for_the_pods_controller() -> None:
    reservation = Reservation.from_api(built())
    (task,) = reservation.spec.tasks
    (owner,) = reservation.spec.owners
    assert task.reservation_node_names == ("high",)
    assert task.replicas == reservation.spec.wanted == 1
    assert owner.object is not None
    assert (owner.object.kind, owner.object.namespace, owner.object.name, owner.object.uid) == (
        "ReplicaSet",
        "shop",
        "web",
        "uid-web",
    )
    assert reservation.spec.scheduler_name == "default-scheduler"
    assert reservation.spec.ttl == "10m0s"


def test_a_place_for_a_pod_that_requests_nothing_says_that_this_is_meant() -> None:
    modest = pod("web-1", "web", "low", cpu="1")
    modest["spec"]["containers"][0].pop("resources")
    for raw, want in ((modest, True), (None, False)):
        (task,) = Reservation.from_api(built(raw)).spec.tasks
        assert task.requests_nothing is want


def test_a_pod_of_the_next_rollout_may_take_the_place_too() -> None:
    raw = pod("web-1", "web-7d4f", "low", cpu="1")
    raw["metadata"]["labels"] = {"pod-template-hash": "7d4f"}
    controller, deployment = Reservation.from_api(built(raw)).spec.owners
    assert controller.object is not None
    assert (controller.object.kind, controller.object.name) == ("ReplicaSet", "web-7d4f")
    assert deployment.object == ObjectReference(api_version="apps/v1", kind="Deployment", namespace="shop", name="web")


def test_a_place_of_a_stateful_set_is_for_the_pod_of_the_same_name_only() -> None:
    raw = pod("db-1", "db", "low", cpu="1")
    raw["metadata"]["ownerReferences"][0]["kind"] = "StatefulSet"
    (owner,) = Reservation.from_api(built(raw)).spec.owners
    assert owner.object is not None
    assert (owner.object.kind, owner.object.name, owner.object.uid) == ("Pod", "db-1", "")


def test_a_reservation_goes_with_its_plan_and_is_found_again_by_its_name() -> None:
    metadata = built()["metadata"]
    assert metadata["name"] == reservation_name("plan-1", "uid-web-1")
    assert metadata["namespace"] == "shop"
    assert metadata["labels"]["berth.volcano.sh/plan"] == "plan-1"
    assert metadata["annotations"]["berth.volcano.sh/move"] == "3"
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "berth.volcano.sh/v1alpha1",
            "kind": "MigrationPlan",
            "name": "plan-1",
            "uid": "plan-uid",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


def test_a_pod_that_nothing_makes_again_is_not_reserved_for() -> None:
    lonely = pod("web-1", "web", "low", cpu="1")
    lonely["metadata"]["ownerReferences"][0]["controller"] = False
    with pytest.raises(ValueError, match="shop/web-1 has no controller"):
        built(lonely)


def test_a_plan_reads_back_as_it_was_meant() -> None:
    spec = MigrationPlanSpec(moves=(MOVE,), approved=True, predicted=Predicted(nodes=9, moves=1, waves=1))
    body = build_plan("plan-1", spec)
    assert MigrationPlan.from_api(body).spec == spec
    assert body["spec"]["approved"] is True
    assert body["spec"]["moves"][0]["wave"] == 1
    assert body["spec"]["moves"][0]["podUID"] == "uid-web-1"


def test_a_plan_that_waits_for_approval_says_so() -> None:
    assert build_plan("plan-1", MigrationPlanSpec())["spec"]["approved"] is False


def test_a_status_reads_back_as_it_was_meant() -> None:
    moves = (
        MoveStatus(namespace="shop", pod="web-1"),
        MoveStatus(namespace="shop", pod="web-2", state=MoveState.LANDED),
    )
    status = MigrationPlanStatus(phase=PlanPhase.RUNNING, moves=moves, achieved=Achieved(moves=2))
    patch = build_status_patch(status)
    assert MigrationPlan.from_api({"metadata": {}, **patch}).status == status
    assert [move["state"] for move in patch["status"]["moves"]] == ["Pending", "Landed"]


def test_only_our_gate_is_taken_off_and_only_where_it_still_is() -> None:
    gates = [{"name": "theirs"}, {"name": "berth.volcano.sh/handover"}, {"name": "others"}]
    raw_pod = {"metadata": {"uid": "uid-web-1"}, "spec": {"schedulingGates": gates}}
    assert build_ungate_operations(raw_pod) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-web-1"},
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": "berth.volcano.sh/handover"},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]
    assert build_ungate_operations({**raw_pod, "spec": {"schedulingGates": [{"name": "theirs"}]}}) == []


@pytest.mark.parametrize(
    ("phase", "want"),
    [
        (PlanPhase.RUNNING, None),
        (PlanPhase.SUCCEEDED, {"Finished": "True", "Succeeded": "True"}),
        (PlanPhase.PARTIAL, {"Finished": "True", "Succeeded": "False"}),
        (PlanPhase.ABORTED, {"Finished": "True", "Succeeded": "False"}),
    ],
)
def test_a_plan_has_conditions_once_it_is_over(phase: PlanPhase, want: dict[str, str] | None) -> None:
    status = MigrationPlanStatus(phase=phase, message="all done", completion_time="2026-11-21T12:00:00Z")
    body = build_status_patch(status)["status"]
    found = {one["type"]: one["status"] for one in body["conditions"]} if "conditions" in body else None
    assert found == want


def test_a_plan_of_the_most_moves_fits_into_an_object_of_etcd_with_long_names_and_messages() -> None:
    node = "ip-10-0-255-255.a-region-far-away.compute.internal"
    long = {"namespace": "n" * 40, "pod": "p" * 80}
    owner = ObjectReference(api_version="apps/v1", kind="ReplicaSet", namespace="n" * 40, name="p" * 70, uid="u" * 36)
    requests = {"cpu": "1500m", "memory": "3221225472", "example.com/accelerator": "1"}
    move = PlannedMove(
        **long,
        pod_uid="u" * 36,
        owner=owner,
        source=node,
        target=node,
        requests=requests,
        wave=10,
        after=(MOST_MOVES - 1,) * MOST_NAMED,
    )
    moved = MoveStatus(
        **long,
        state=MoveState.FAILED,
        reason="ReplacementTimeout",
        message="m" * 120,
        reservation="r" * 36,
        node=node,
        replacement="p" * 80,
    )
    freed = Predicted(nodes=5000, moves=MOST_MOVES, waves=100, freed_nodes=(node,) * MOST_MOVES)

    before = NodeBefore(name=node, allocatable="253908Mi", requested="189123456789", pods=100)
    nodes = NodesBefore(resource="memory", nodes=(before,) * MOST_NODES, left_out=4600)

    spec = build_plan("plan", MigrationPlanSpec(moves=(move,) * MOST_MOVES, predicted=freed, nodes_before=nodes))
    over = MigrationPlanStatus(
        phase=PlanPhase.PARTIAL, moves=(moved,) * MOST_MOVES, achieved=Achieved(freed_nodes=(node,) * MOST_MOVES)
    )

    assert _size(spec) + _size(build_status_patch(over)) < 1.4 * 2**20


def _size(body: object) -> int:
    """Return the bytes of an object as the API server writes it to etcd."""
    return len(json.dumps(body, separators=(",", ":")))


def test_the_template_of_a_preemptable_pod_says_so_whoever_said_it_of_the_pod() -> None:
    raw = pod("web-1", "web", "low", cpu="1")
    for preemptable in (True, False):
        body = build_reservation(PLAN, 3, MOVE, raw, timedelta(minutes=10), is_preemptable=preemptable)
        metadata = Reservation.from_api(body).spec.tasks[0].template.metadata
        assert (metadata.annotations == {"volcano.sh/preemptable": "true"}) is preemptable
        assert metadata.labels == Reservation.from_api(built(raw)).spec.tasks[0].template.metadata.labels
