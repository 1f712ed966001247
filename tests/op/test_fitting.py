"""A pod may take a slot whose owner it is and whose template it fits; of several tasks, the tightest."""

from dataclasses import dataclass
from typing import Any

import pytest

from berth_core import Pod, Toleration
from berth_core.labels import HANDOVER_TAINT
from berth_core.reservations import Reservation, ReservationTask, SlotState
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.fitting import choose_task, may_own, slots_by_key, trusted_assignment
from builders import label_owner, object_owner, owner, pod, task
from handover_builders import note, owner_pod, place, slot

SMALL = task("small", cpu="1", memory="1Gi")
LARGE = task("large", cpu="4", memory="1Gi")
ROOMY = task("roomy", cpu="4", memory="8Gi")
WEB = {"app": "web"}


def web(**spec: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(labels=WEB, **{"cpu": "1", "memory": "1Gi", **spec})


@dataclass(frozen=True, kw_only=True)
class Choice:
    tasks: tuple[ReservationTask, ...]
    pod: Pod
    free: dict[str, int]
    want: str | None


CHOICES = {
    "the only one": Choice(tasks=(SMALL,), pod=web(), free={"small": 1}, want="small"),
    "one whose requests cannot be read gets none": Choice(
        tasks=(SMALL,), pod=web(memory="-1"), free={"small": 1}, want=None
    ),
    "none is free": Choice(tasks=(SMALL,), pod=web(), free={"small": 0}, want=None),
    "none is known": Choice(tasks=(SMALL,), pod=web(), free={}, want=None),
    "the smallest that fits": Choice(
        tasks=(ROOMY, LARGE, SMALL), pod=web(), free={"roomy": 1, "large": 1, "small": 1}, want="small"
    ),
    "a larger one where the smallest is gone": Choice(
        tasks=(ROOMY, LARGE, SMALL), pod=web(), free={"roomy": 1, "large": 1}, want="large"
    ),
    "by memory where cpu is equal": Choice(
        tasks=(ROOMY, LARGE), pod=web(cpu="4"), free={"roomy": 1, "large": 1}, want="large"
    ),
    "too small a slot": Choice(tasks=(SMALL,), pod=web(cpu="2"), free={"small": 1}, want=None),
    "a smaller pod than the slot": Choice(tasks=(LARGE,), pod=web(), free={"large": 1}, want="large"),
    "another scheduler": Choice(tasks=(SMALL,), pod=web(scheduler_name="volcano"), free={"small": 1}, want=None),
    "another node selector": Choice(
        tasks=(SMALL,), pod=web(node_selector={"disk": "ssd"}), free={"small": 1}, want=None
    ),
    "another priority class": Choice(tasks=(SMALL,), pod=web(priority_class_name="high"), free={"small": 1}, want=None),
    "another toleration": Choice(
        tasks=(SMALL,), pod=web(tolerations=[Toleration(key="gpu", operator="Exists")]), free={"small": 1}, want=None
    ),
    "the toleration of the guard does not count": Choice(
        tasks=(SMALL,),
        pod=web(tolerations=[Toleration(key=HANDOVER_TAINT, operator="Exists", effect="NoSchedule")]),
        free={"small": 1},
        want="small",
    ),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES.keys())
def test_choosing_a_task(case: Choice) -> None:
    found = choose_task(place(tasks=case.tasks), case.pod, case.free)
    assert (found.name if found else None) == case.want


OWNERS = {
    "by label": ([label_owner(app="web")], web(), True),
    "by its controller": ([object_owner("ReplicaSet", "web")], web(), True),
    "by either of two": ([label_owner(app="db"), object_owner("ReplicaSet", "web")], web(), True),
    "by none of two": ([label_owner(app="db"), object_owner("StatefulSet", "web")], web(), False),
    "by another controller": ([object_owner("ReplicaSet", "web")], web(controller=owner("Job", "web")), False),
    "nobody": ([], web(), False),
    "from another namespace": ([label_owner(app="web")], pod(labels=WEB, namespace="elsewhere"), False),
}


@pytest.mark.parametrize(("owners", "one", "want"), OWNERS.values(), ids=OWNERS.keys())
def test_owning(owners: list[object], one: Pod, want: bool) -> None:  # noqa: FBT001 - what the case wants
    assert may_own(place(owners=owners), one) is want


@dataclass(frozen=True, kw_only=True)
class Note:
    reservation: Reservation
    pod: Pod
    want: Assignment | None


HELD = place(slot(SlotState.HELD))
NOTES = {
    "on the pod that was given the slot": Note(reservation=HELD, pod=owner_pod(given=note()), want=note()),
    "on its way": Note(
        reservation=place(slot(SlotState.HANDING_OVER)), pod=owner_pod(given=note(), gates=()), want=note()
    ),
    "bound to the node of the slot": Note(
        reservation=HELD, pod=owner_pod(given=note(), gates=(), node="node-a"), want=note()
    ),
    "bound elsewhere, as the status says": Note(
        reservation=place(slot(SlotState.HANDING_OVER, node="node-b")),
        pod=owner_pod(given=note(), gates=(), node="node-b"),
        want=note(),
    ),
    "without a note": Note(reservation=HELD, pod=owner_pod(), want=None),
    "on a pod of another namespace": Note(
        reservation=HELD, pod=owner_pod(given=note(), namespace="elsewhere"), want=None
    ),
    "on a pod that is no owner": Note(reservation=HELD, pod=owner_pod(given=note(), labels={}), want=None),
    "on a pod that is too large": Note(reservation=HELD, pod=owner_pod(given=note(), cpu="64"), want=None),
    "of an unknown task": Note(reservation=HELD, pod=owner_pod(given=note(task="db")), want=None),
    "of an unknown index": Note(reservation=HELD, pod=owner_pod(given=note(1)), want=None),
    "of another node": Note(reservation=HELD, pod=owner_pod(given=note(node="node-z")), want=None),
    "of a slot that has no node yet": Note(
        reservation=place(slot(SlotState.PENDING, node="")), pod=owner_pod(given=note(node="")), want=None
    ),
}


@pytest.mark.parametrize("case", NOTES.values(), ids=NOTES.keys())
def test_trusting_a_note(case: Note) -> None:
    assert trusted_assignment(case.reservation, case.pod, slots_by_key(case.reservation)) == case.want
