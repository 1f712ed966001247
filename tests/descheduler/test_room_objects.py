"""The Reservation of a room is for exactly those pods, on exactly those nodes, and goes with its plan."""

from datetime import timedelta
from typing import Any

import msgspec

from berth_core import Pod, Toleration
from berth_core.labels import PLAN_LABEL, ROOM_ANNOTATION
from berth_core.matching import owner_matches, template_matches
from berth_core.plan_rooms import Room, RoomSlot
from berth_core.reservations import Reservation
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.manifests.room_reservations import (
    build_room_reservation,
    room_reservation_name,
    ttl_from,
)
from builders import NOON, as_api, pod, reservation

PLAN = PlanIdentity(name="plan-20261121-120000-abcde", uid="uid-plan")
TTL = timedelta(minutes=10)
SELECTED = pod("later", namespace="ml", cpu="4", memory=None, labels={"app": "train"})


def waits(name: str, **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(name, namespace="shop", uid=f"uid-{name}", **rest)


def room(*slots: tuple[str, str]) -> Room:
    found = tuple(RoomSlot(node=node, pod=name, pod_uid=f"uid-{name}") for node, name in slots)
    return Room(name="shop/train", namespace="shop", slots=found)


def shape(selector: str = "") -> Room:
    slots = (RoomSlot(node="a"), RoomSlot(node="b"), RoomSlot(node="a"))
    return Room(name="cpu=4", namespace="ml", requests={"cpu": "4"}, selector=selector, slots=slots)


def build(of: Room, *pods: Pod) -> Reservation:
    raw = {one.metadata.uid: as_api(one) for one in pods}
    return Reservation.from_api(build_room_reservation(PLAN, 3, of, raw, TTL))


def test_it_belongs_to_its_plan_and_says_which_room_it_is() -> None:
    made = build(room(("a", "x")), waits("x"))
    assert made.metadata.name == room_reservation_name(PLAN.name, 3) != room_reservation_name(PLAN.name, 4)
    assert (made.metadata.namespace, made.spec.ttl) == ("shop", "10m0s")
    assert made.metadata.labels[PLAN_LABEL] == made.plan == PLAN.name
    assert made.metadata.annotations == {ROOM_ANNOTATION: "3"}
    assert made.awaits_room


def test_the_room_of_a_queue_counts_in_that_queue() -> None:
    assert build(msgspec.structs.replace(shape(), queue="ml")).spec.queue == "ml"
    assert "queue" not in build_room_reservation(PLAN, 3, shape(), {}, TTL)["spec"]


def test_only_the_very_pods_may_take_it() -> None:
    x, y = waits("x"), waits("y")
    made = build(room(("a", "x"), ("a", "y")), x, y)
    again = msgspec.structs.replace(x, metadata=msgspec.structs.replace(x.metadata, uid="another"))
    assert [any(owner_matches(owner, one) for owner in made.spec.owners) for one in (x, y, again)] == [
        True,
        True,
        False,
    ]


def test_each_sort_of_pod_on_each_node_has_a_task_of_its_own() -> None:
    small, large = waits("small", cpu="1"), waits("large", cpu="4")
    twin = waits("twin", cpu="4", labels={"other": "labels"})
    made = build(room(("a", "small"), ("a", "large"), ("b", "twin")), small, large, twin)
    assert [(task.reservation_node_names, task.replicas) for task in made.spec.tasks] == [
        (("a",), 1),
        (("a",), 1),
        (("b",), 1),
    ]
    for task, one in zip(made.spec.tasks, (small, large, twin), strict=True):
        assert template_matches(task.template, one, scheduler_name=made.spec.scheduler_name)
    assert len({task.name for task in made.spec.tasks}) == len(made.spec.tasks)


def test_equal_pods_on_one_node_share_a_task() -> None:
    made = build(room(("a", "x"), ("a", "y")), waits("x"), waits("y"))
    assert [(task.reservation_node_names, task.replicas) for task in made.spec.tasks] == [(("a",), 2)]


def test_the_scheduler_of_the_pods_places_what_waits_for_them() -> None:
    made = build(room(("a", "x")), waits("x", scheduler_name="second-scheduler"))
    assert made.spec.scheduler_name == "second-scheduler"


def test_what_a_pod_tolerates_already_is_tolerated_by_what_waits_for_it() -> None:
    gpu = Toleration(key="gpu", operator="Exists")
    made = build(room(("a", "x")), waits("x", tolerations=[gpu]))
    assert made.spec.tasks[0].template.spec.tolerations == (gpu,)


def test_the_room_of_a_shape_is_for_whom_is_selected_or_for_nobody() -> None:
    nobody, selected = build(shape()), build(shape("app=train"))
    assert [any(owner_matches(owner, SELECTED) for owner in one.spec.owners) for one in (nobody, selected)] == [
        False,
        True,
    ]
    assert [(task.reservation_node_names, task.replicas) for task in selected.spec.tasks] == [(("a",), 2), (("b",), 1)]
    assert template_matches(selected.spec.tasks[0].template, SELECTED, scheduler_name="")


def test_a_reservation_lives_so_much_longer_from_now_on() -> None:
    assert ttl_from(NOON + timedelta(minutes=7), reservation(), TTL) == "17m0s"
