"""The look at the cluster before a wave takes the plan's own rooms for what they are."""

from collections.abc import Sequence

import msgspec

from berth_core import Node, OwnerReference, Pod, Taint
from berth_core.labels import PLACEHOLDER_LABEL, RESERVATION_LABEL, ROOM_ANNOTATION, ROOM_TAINT
from berth_core.migration_plans import (
    PLAN_API_VERSION,
    PLAN_KIND,
    MigrationPlan,
    MigrationPlanSpec,
    Objective,
    PlannedMove,
    Predicted,
)
from berth_core.names import DEFAULT_NAMESPACE, room_taint_value
from berth_core.plan_rooms import Room, RoomSlot
from berth_core.reservations import Reservation
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.validation.plan_review import PlanValidator, Review
from builders import bare_pod, meta, namespace, node, owner, pod, reservation, task
from descheduler.cycle_settings import UNPROTECTED

PLAN = "plan-1"


def move(name: str, source: str, target: str) -> PlannedMove:
    return PlannedMove(namespace="default", pod=name, pod_uid=f"uid-default-{name}", source=source, target=target)


MOVES = (move("first", "tight", "roomy"), move("second", "tight", "roomy"), move("aside", "third", "tight"))


def small(name: str, on: str) -> Pod:
    return pod(name, node=on, cpu="2", memory=None, controller=owner(name=name))


def place() -> Reservation:
    """The Reservation that waits for all of the node where room is made."""
    made = reservation(uid="uid-room", tasks=[task(nodes=["tight"], cpu="10", memory=None)])
    controller = OwnerReference(
        api_version=PLAN_API_VERSION, kind=PLAN_KIND, name=PLAN, uid="uid-plan", controller=True
    )
    head = msgspec.structs.replace(
        made.metadata, owner_references=(controller,), annotations={ROOM_ANNOTATION: "0"}, labels={}
    )
    return msgspec.structs.replace(made, metadata=head)


def waiting_place() -> Pod:
    labels = {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid-room"}
    pin = task(nodes=["tight"]).reservation_node_names
    return pod("place", namespace=DEFAULT_NAMESPACE, cpu="10", memory=None, labels=labels, nominated_node=pin[0])


def cluster(*pods: Pod) -> Snapshot:
    """`tight`, `roomy` and `third` of 10 cpu; room is made on the first, which is kept from others."""
    guard = Taint(key=ROOM_TAINT, value=room_taint_value(PLAN, "tight"), effect="NoSchedule")
    firm = [bare_pod(f"firm-{name}", node=name, cpu="6", memory=None) for name in ("roomy", "third")]
    nodes: Sequence[Node] = (node("tight", cpu="10", taints=[guard]), node("roomy", cpu="10"), node("third", cpu="10"))
    return Snapshot(
        nodes=tuple(nodes),
        pods=(*firm, waiting_place(), *pods),
        reservations=(place(),),
        namespaces=(namespace("default"), namespace(DEFAULT_NAMESPACE)),
    )


def review(snapshot: Snapshot, *ahead: int) -> Review:
    room = Room(
        name="default/large",
        namespace="default",
        slots=(RoomSlot(node="tight", pod="large", pod_uid="uid-default-large"),),
    )
    spec = MigrationPlanSpec(
        objective=Objective(strategy="MakeRoom"),
        moves=MOVES,
        rooms=(room,),
        predicted=Predicted(nodes=2, moves=2, waves=2, freed_nodes=("tight",)),
    )
    plan = MigrationPlan(metadata=meta(PLAN), spec=spec)
    return PlanValidator(plan, UNPROTECTED, lambda: snapshot).review({index: MOVES[index] for index in ahead}, ahead)


def test_the_moves_hold_though_the_room_waits_on_their_node() -> None:
    snapshot = cluster(small("first", "tight"), small("second", "tight"))
    assert review(snapshot, 0, 1) == Review()


def test_a_pod_may_move_to_the_node_where_room_is_made() -> None:
    snapshot = cluster(small("first", "roomy"), small("second", "roomy"), small("aside", "third"))
    assert review(snapshot, 2) == Review()


def test_a_node_where_room_is_made_need_not_become_empty() -> None:
    snapshot = cluster(small("first", "roomy"), small("second", "tight"), small("another", "tight"))
    assert review(snapshot, 1) == Review()


def test_hungry_pods_have_no_room_where_it_is_made_for_another() -> None:
    hungry = pod("hungry", cpu="5", memory=None, controller=owner(name="hungry"))
    snapshot = cluster(small("first", "roomy"), small("second", "tight"), hungry)
    assert review(snapshot, 1).waiting == ()


def test_pods_for_whom_the_room_is_do_not_come_before_it() -> None:
    large = pod("large", cpu="4", memory=None, controller=owner(name="large"))
    snapshot = cluster(small("first", "tight"), small("second", "tight"), large)
    assert review(snapshot, 0, 1).waiting == ()
