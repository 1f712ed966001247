"""Places of live Reservations: held by placeholders, or promised before these are there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from berth_core import LabelSelectorRequirement, NodeSelectorTerm, Pod
from berth_core.names import placeholder_name
from berth_core.reservations import (
    ObjectReference,
    Reservation,
    ReservationPhase,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
)
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import PlannerSettings, plan
from builders import node, owner, pod, reservation, task
from planner.clusters import consolidating, making_room, refusal_of, settings, tied

LABELS = {"berth.volcano.sh/placeholder": "true", "berth.volcano.sh/reservation": "uid-default-place"}
NAME = placeholder_name("place", "uid-default-place", "web", 0)


def promise(
    *,
    nodes: tuple[str, ...] = ("there",),
    slots: tuple[Slot, ...] = (),
    phase: ReservationPhase | None = None,
    **rest: Any,  # noqa: ANN401 - a builder passes on what the case says
) -> Reservation:
    state = None if phase is None else ReservationState(phase=phase)
    asked = task(nodes=nodes, cpu="3", memory=None, replicas=rest.pop("replicas", 1))
    return reservation(tasks=(asked,), status=ReservationStatus(state=state, slots=slots), **rest)


def slot(state: SlotState, on: str = "there", *, taker: str = "") -> Slot:
    taken_by = ObjectReference(uid=taker) if taker else None
    return Slot(task="web", index=0, state=state, node=on, placeholder=NAME, owner=taken_by)


def placeholder(**rest: Any) -> Pod:  # noqa: ANN401 - the same
    made = pod(NAME, namespace="berth-system", labels=LABELS, cpu="3", memory=None, **rest)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=()))


def pinned(*names: str) -> Pod:
    fields = [LabelSelectorRequirement(key="metadata.name", operator="In", values=(name,)) for name in names]
    affinity = tied(fields=(fields[0],))
    assert affinity.node_affinity is not None
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    terms = tuple(NodeSelectorTerm(match_fields=(one,)) for one in fields)
    wanted = msgspec.structs.replace(
        affinity.node_affinity,
        required_during_scheduling_ignored_during_execution=msgspec.structs.replace(
            required, node_selector_terms=terms
        ),
    )
    return placeholder(affinity=msgspec.structs.replace(affinity, node_affinity=wanted))


@dataclass(frozen=True)
class Case:
    """What is promised of four cores on `there`, and whether two more have room."""

    want: Reason | None
    reservations: tuple[Reservation, ...] = ()
    pods: tuple[Pod, ...] = ()


GATED = pod("heir", uid="uid-heir", cpu="3", memory=None, gates=("berth.volcano.sh/handover",))
HEIR = pod("heir", uid="uid-heir", cpu="3", memory=None, nominated_node="there")
BOUND = pod("heir", uid="uid-heir", cpu="3", memory=None, node="there")

FREE, FULL = None, Reason.INSUFFICIENT_RESOURCES

TABLE = {
    "nothing is promised": Case(FREE),
    "a placeholder runs there": Case(FULL, (promise(slots=(slot(SlotState.HELD),)),), (placeholder(node="there"),)),
    "a placeholder waits for it": Case(FULL, (promise(),), (pinned("there"),)),
    "a placeholder may go elsewhere too": Case(FREE, (promise(nodes=("there", "here")),), (pinned("there", "here"),)),
    "no placeholder is there yet": Case(FULL, (promise(),)),
    "nobody has looked at it yet, and it may be on several nodes": Case(FREE, (promise(nodes=("there", "here")),)),
    "it may be anywhere": Case(FREE, (promise(nodes=()),)),
    "it is promised on another node": Case(FREE, (promise(nodes=("here",)),)),
    "the slot says the node where the request does not": Case(
        FULL, (promise(nodes=(), slots=(slot(SlotState.PENDING),)),)
    ),
    "the placeholder is gone and its heir gated": Case(
        FULL, (promise(slots=(slot(SlotState.HANDING_OVER, taker="uid-heir"),)),), (GATED,)
    ),
    "the heir is nominated and counts once": Case(
        FULL, (promise(slots=(slot(SlotState.HANDING_OVER, taker="uid-heir"),)),), (HEIR,)
    ),
    "the heir is bound and counts": Case(
        FULL, (promise(slots=(slot(SlotState.HANDING_OVER, taker="uid-heir"),)),), (BOUND,)
    ),
    "the slot was taken, and its taker is gone": Case(
        FREE, (promise(slots=(slot(SlotState.TAKEN, taker="uid-heir"),)),)
    ),
    "the slot was lost": Case(FREE, (promise(slots=(slot(SlotState.LOST),)),)),
    "the slot was released": Case(FREE, (promise(slots=(slot(SlotState.RELEASED),)),)),
    "the Reservation failed": Case(FREE, (promise(phase=ReservationPhase.FAILED),)),
    "the Reservation succeeded": Case(FREE, (promise(phase=ReservationPhase.SUCCEEDED),)),
    "the Reservation is being deleted": Case(FREE, (promise(deleted="2026-11-21T12:00:00Z"),)),
    "the Reservation waits for a node": Case(FULL, (promise(phase=ReservationPhase.WAITING),)),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_what_is_promised_on_a_node_is_not_free(case: Case) -> None:
    mover = pod("mover", node="here", cpu="2", memory=None, controller=owner(name="mover"))
    nodes = (node("here", cpu="8"), node("there", cpu="4"))
    snapshot = Snapshot(nodes=nodes, pods=(mover, *case.pods), reservations=case.reservations)

    assert refusal_of(snapshot, "mover", "there") is case.want


def test_an_heir_is_not_counted_beside_its_place() -> None:
    handing_over = promise(slots=(slot(SlotState.HANDING_OVER, taker="uid-heir"),))
    mover = pod("mover", node="here", cpu="1", memory=None, controller=owner(name="mover"))
    nodes = (node("here", cpu="8"), node("there", cpu="4"))

    for heir in (HEIR, BOUND):
        snapshot = Snapshot(nodes=nodes, pods=(mover, heir), reservations=(handing_over,))
        assert refusal_of(snapshot, "mover", "there") is None


WAYS: dict[str, PlannerSettings] = {
    "Threshold": settings(low=45, defragment=50, protection=100),
    "Consolidate": consolidating(),
    "MakeRoom": making_room(shapes=["cpu=10,count=1"]),
}
PLACES: dict[str, Callable[[], Snapshot]] = {
    "held": lambda: cluster((placeholder(node="low"),), promise(nodes=("low",), slots=(slot(SlotState.HELD, "low"),))),
    "waiting for a node": lambda: cluster((pinned("low"),), promise(nodes=("low",))),
    "promised": lambda: cluster((), promise(nodes=("low",))),
}


def cluster(pods: tuple[Pod, ...], *promises: Reservation) -> Snapshot:
    there = (
        pod("q", node="low", cpu="1", memory=None, controller=owner(name="q")),
        pod("big", node="high", cpu="6", memory=None, controller=owner(name="big"), priority=2_000_000_000),
    )
    return Snapshot(nodes=(node("low", cpu="10"), node("high", cpu="10")), pods=(*there, *pods), reservations=promises)


@pytest.mark.parametrize("how", [WAYS["Threshold"], WAYS["Consolidate"]], ids=["Threshold", "Consolidate"])
@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES.keys())
def test_a_node_with_a_place_is_not_emptied(make: Callable[[], Snapshot], how: PlannerSettings) -> None:
    made = plan(make(), how)

    assert not any(move.source == "low" for move in made.moves)
    why = {one.node: one.reason for one in made.refused if one.kind.value == "Node"}
    assert why["low"] in {Reason.HOLDS_IMMOVABLE_PODS, Reason.EXPECTS_PODS}


@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES.keys())
def test_no_room_is_made_where_a_place_is(make: Callable[[], Snapshot]) -> None:
    made = plan(make(), WAYS["MakeRoom"])

    assert made.moves == ()
    assert [room.fitted for room in made.room] == [0]


def test_several_slots_of_one_task_count_each() -> None:
    mover = pod("mover", node="here", cpu="2", memory=None, controller=owner(name="mover"))
    nodes = (node("here", cpu="8"), node("there", cpu="8"))

    one = Snapshot(nodes=nodes, pods=(mover,), reservations=(promise(replicas=1),))
    several = Snapshot(nodes=nodes, pods=(mover,), reservations=(promise(replicas=3),))

    assert refusal_of(one, "mover", "there") is None
    assert refusal_of(several, "mover", "there") is Reason.INSUFFICIENT_RESOURCES
