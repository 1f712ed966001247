"""A place that a plan makes the room for waits from the start, and its plan's taint keeps out all but its own pods."""
# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import OwnerReference, Pod, Toleration
from berth_core.labels import HANDOVER_TAINT, ROOM_ANNOTATION, ROOM_TAINT
from berth_core.migration_plans import PLAN_API_VERSION, PLAN_KIND
from berth_core.names import room_taint_value
from berth_core.reservations import Reservation, ReservationPhase, SlotState
from berth_operator.reservation.manifests import build_placeholder
from berth_operator.reservation.pod_patches import build_assignment
from berth_operator.settings import PlaceholderSettings
from builders import as_api, pod, reservation, task
from handover_builders import UNSCHEDULABLE, decide_now, note, observe, owner_pod, place, placeholder, slot, told
from json_patches import apply

PLAN = "plan-20261121-120000-abcde"
CONTROLLER = OwnerReference(api_version=PLAN_API_VERSION, kind=PLAN_KIND, name=PLAN, uid="uid-plan", controller=True)
OURS = Toleration(key=ROOM_TAINT, operator="Equal", value=room_taint_value(PLAN, "node-a"), effect="NoSchedule")
GUARD = Toleration(key=HANDOVER_TAINT, operator="Exists", effect="NoSchedule")
GPU = Toleration(key="gpu", operator="Exists")


def owned_by(of: Reservation, *owners: OwnerReference, awaits_room: bool = False) -> Reservation:
    notes = {**of.metadata.annotations, **({ROOM_ANNOTATION: "0"} if awaits_room else {})}
    return msgspec.structs.replace(
        of, metadata=msgspec.structs.replace(of.metadata, owner_references=owners, annotations=notes)
    )


def room(*slots: Any, **rest: Any) -> Reservation:
    """A Reservation that waits for the room that a plan makes."""
    return owned_by(place(*slots, **rest), CONTROLLER, awaits_room=True)


@dataclass(frozen=True, kw_only=True)
class Owned:
    owners: tuple[OwnerReference, ...] = ()
    want: tuple[Toleration, ...] = ()


OWNED = {
    "nobody": Owned(),
    "its plan": Owned(owners=(CONTROLLER,), want=(OURS,)),
    "a plan that does not control it": Owned(owners=(msgspec.structs.replace(CONTROLLER, controller=False),)),
    "something else of that name": Owned(owners=(msgspec.structs.replace(CONTROLLER, kind="Job"),)),
    "a plan of somebody else's": Owned(
        owners=(msgspec.structs.replace(CONTROLLER, api_version="example.com/v1alpha1"),)
    ),
}


@pytest.mark.parametrize("case", OWNED.values(), ids=OWNED.keys())
def test_the_taint_of_a_plan_is_tolerated_for_a_reservation_that_is_controlled_by(case: Owned) -> None:
    body = build_placeholder(
        owned_by(reservation(), *case.owners),
        task(nodes=["node-a"]),
        0,
        priority=0,
        deadline_seconds=None,
        settings=PlaceholderSettings(),
    )
    assert msgspec.convert(body, Pod).spec.tolerations == case.want


def test_what_is_pinned_to_no_node_gets_to_none_of_the_plan_s_nodes() -> None:
    of = owned_by(reservation(), CONTROLLER)
    body = build_placeholder(of, task(), 0, priority=0, deadline_seconds=None, settings=PlaceholderSettings())
    assert msgspec.convert(body, Pod).spec.tolerations == ()


def test_a_template_gives_no_toleration_of_other_plans() -> None:
    forged = task(tolerations=[GPU, Toleration(key=ROOM_TAINT, operator="Exists")])
    body = build_placeholder(
        reservation(), forged, 0, priority=0, deadline_seconds=None, settings=PlaceholderSettings()
    )
    assert msgspec.convert(body, Pod).spec.tolerations == (GPU,)


@pytest.mark.parametrize("before", [owner_pod(), pod(tolerations=[GPU])], ids=["no tolerations", "a toleration"])
def test_an_owner_gets_to_the_node_of_its_slot_and_to_no_other_of_the_plan(before: Pod) -> None:
    operations = build_assignment(before, note(), room())
    after = msgspec.convert(apply(operations, as_api(before)), Pod)
    assert after.spec.tolerations == (*before.spec.tolerations, GUARD, OURS)


# --- waiting

REFUSED = placeholder(node="", conditions=[UNSCHEDULABLE])
PINNED = [task(nodes=["node-a"], cpu="2")]


def state(of: Reservation, *, seconds: float = 0) -> tuple[str, str, str]:
    found = decide_now(observe(of, REFUSED), seconds=seconds).status.state
    assert found is not None
    return found.phase, found.reason, found.message


def test_a_place_is_waited_for_from_the_start_though_nothing_leaves_its_node_yet() -> None:
    assert state(room(tasks=PINNED)) == (
        "Waiting",
        "AwaitingCapacity",
        f"0 of 1 slot is held; node node-a is chosen and gets room once plan {PLAN} has moved pods away",
    )


def test_a_place_for_which_nobody_makes_room_is_not_waited_for() -> None:
    assert state(owned_by(place(tasks=PINNED), CONTROLLER))[:2] == ("Pending", "UnschedulableYet")


def test_on_a_node_that_is_not_chosen_nothing_is_waited_for() -> None:
    assert state(room(tasks=[task(cpu="2")]))[:2] == ("Pending", "UnschedulableYet")


def test_room_is_waited_for_until_the_reservation_ends() -> None:
    old = {"phase": ReservationPhase.WAITING, "reason": "AwaitingCapacity"}
    assert state(room(tasks=PINNED, ttl="1h", **old), seconds=900)[0] == "Waiting"
    assert state(room(tasks=PINNED, ttl="10m", **old), seconds=900)[:2] == ("Failed", "Expired")


# --- pods that are of use together only


@dataclass(frozen=True, kw_only=True)
class Waiters:
    held: int
    min_available: int | None = None
    want: list[tuple[str, str]] = field(default_factory=list)
    want_search: bool


WAITERS = {
    "all slots are held": Waiters(held=2, want=[("AssignSlot", "web-0"), ("AssignSlot", "web-1")], want_search=False),
    "a slot is missing": Waiters(held=1, want_search=False),
    "as many as are wanted are held": Waiters(
        held=1, min_available=1, want=[("AssignSlot", "web-0")], want_search=False
    ),
}


@pytest.mark.parametrize("case", WAITERS.values(), ids=WAITERS.keys())
def test_pods_that_were_waiting_get_their_slots_when(case: Waiters) -> None:
    slots = [slot(SlotState.HELD if index < case.held else SlotState.PENDING, index) for index in range(2)]
    phase = ReservationPhase.AVAILABLE if case.held == 2 else ReservationPhase.PENDING
    of = place(*slots, replicas=2, phase=phase, min_available=case.min_available)
    holders = [placeholder(index) for index in range(case.held)]
    starting = [placeholder(index, node="") for index in range(case.held, 2)]
    waiting = tuple(owner_pod(f"web-{index}", gates=(), labels={"app": "web"}) for index in range(2))
    decision = decide_now(observe(of, *holders, *starting, waiting=waiting, searched=True))
    assert [told(action) for action in decision.actions if told(action)[0] == "AssignSlot"] == case.want
    assert decision.seeks_owners is case.want_search


@pytest.mark.parametrize(("held", "want"), [(1, False), (2, True)])
def test_they_are_looked_for_when_all_slots_are_held(held: int, *, want: bool) -> None:
    slots = [slot(SlotState.HELD if index < held else SlotState.PENDING, index) for index in range(2)]
    of = place(*slots, replicas=2, phase=ReservationPhase.PENDING)
    pods = [placeholder(index, node="node-a" if index < held else "") for index in range(2)]
    assert decide_now(observe(of, *pods)).seeks_owners is want
