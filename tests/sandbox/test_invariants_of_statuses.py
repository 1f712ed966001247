"""A status is true if it follows from the spec, the pods and the nodes; each thing in it that does not is found."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from berth_core import Node, Pod, Taint
from berth_core.labels import (
    HANDOVER_TAINT,
    INDEX_ANNOTATION,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    TASK_ANNOTATION,
)
from berth_core.reservations import (
    Condition,
    ConditionType,
    ObjectReference,
    Reservation,
    ReservationPhase,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
    TaskStatus,
)
from berth_sandbox.invariants import ClusterState, Invariant, find_violations
from builders import NOON, NOON_TEXT, node, pod, reservation, task

TAKER = ObjectReference(kind="Pod", namespace="default", name="web-0", uid="taker")
HELD = Slot(task="web", index=0, state=SlotState.HELD, node="node-a", placeholder="hold-0")
PENDING = Slot(task="web", index=0, state=SlotState.PENDING)
HANDING_OVER = Slot(task="web", index=0, state=SlotState.HANDING_OVER, node="node-a", owner=TAKER)
TAKEN = replace(HANDING_OVER, state=SlotState.TAKEN)
RELEASED = Slot(task="web", index=0, state=SlotState.RELEASED)
AMOUNT = {"cpu": "1", "memory": "64Mi"}
COUNTED_AS = {
    SlotState.HELD: "available",
    SlotState.HANDING_OVER: "available",
    SlotState.TAKEN: "succeeded",
    SlotState.LOST: "failed",
    SlotState.PENDING: "pending",
}


def conditions(phase: ReservationPhase, *, available: bool) -> tuple[Condition, ...]:
    holds = {
        ConditionType.AVAILABLE: available,
        ConditionType.SUCCEEDED: phase is ReservationPhase.SUCCEEDED,
        ConditionType.FAILED: phase is ReservationPhase.FAILED,
    }
    return tuple(Condition(type=type_, status=str(is_true)) for type_, is_true in holds.items())


def claim(phase: ReservationPhase, slot: Slot, **lies: Any) -> Reservation:  # noqa: ANN401 - any field may lie
    """A Reservation of one slot whose status is true of that slot, but for the lies."""
    numbers = {"pending": 0, "available": 0, "succeeded": 0, "failed": 0}
    if slot.state in COUNTED_AS:
        numbers[COUNTED_AS[slot.state]] = 1
    on_offer = slot.state in {SlotState.HELD, SlotState.HANDING_OVER}
    truth: dict[str, Any] = {
        "state": ReservationState(phase=phase),
        "node": slot.node,
        "min_available": 1,
        "desired": 1,
        "task_status_count": {"web": TaskStatus(phase={slot.state.value: 1})},
        **numbers,
        "conditions": conditions(phase, available=on_offer or slot.state is SlotState.TAKEN),
        "current_owner": slot.owner,
        "allocatable": AMOUNT,
        "held": AMOUNT if on_offer else {},
        "allocated": AMOUNT if slot.state is SlotState.TAKEN else {},
        "slots": (slot,),
        "expires_at": "2026-11-21T12:10:00Z",
    }
    return reservation(uid="live", tasks=[task(cpu="1")], status=ReservationStatus(**truth | lies))


def placeholder(**how: Any) -> Pod:  # noqa: ANN401 - as the builder takes it
    labels = {RESERVATION_LABEL: "live", PLACEHOLDER_LABEL: "true"}
    notes = {TASK_ANNOTATION: "web", INDEX_ANNOTATION: "0"}
    place = {"namespace": "berth-system", "labels": labels, "annotations": notes, "node": "node-a"}
    return pod("hold-0", **{**place, **how})


TAKING = pod(
    "web-0",
    uid="taker",
    labels={RESERVATION_LABEL: "live"},
    annotations={SLOT_ANNOTATION: f"web/0/node-a/{int(NOON.timestamp()) + 30}"},
)


@dataclass(frozen=True)
class Case:
    reservation: Reservation
    pods: tuple[Pod, ...] = ()
    want: tuple[str, ...] = ()
    nodes: tuple[str, ...] = field(default=("node-a", "node-b"))


PHASE = ReservationPhase
HOLDING = (placeholder(),)
IS_HELD = claim(PHASE.AVAILABLE, HELD)

CASES = {
    "a slot is held": Case(IS_HELD, HOLDING),
    "a slot is awaited": Case(claim(PHASE.PENDING, PENDING)),
    "a slot waits for its node": Case(claim(PHASE.WAITING, PENDING), (placeholder(phase="Pending"),)),
    "a slot is handed over": Case(claim(PHASE.AVAILABLE, HANDING_OVER), (TAKING,)),
    "a slot was taken": Case(claim(PHASE.SUCCEEDED, TAKEN)),
    "a slot was released": Case(claim(PHASE.FAILED, RELEASED)),
    "a spec that nobody can read says nothing": Case(reservation(uid="live", tasks=[])),
    "nobody has looked at it yet": Case(reservation(uid="live"), (), ("it has no status",)),
    "slots that there are not": Case(
        claim(PHASE.AVAILABLE, HELD, slots=(HELD, HELD)), HOLDING, ("its slots are not those of its tasks",)
    ),
    "Held by one placeholder while another is to take its place": Case(
        IS_HELD, (placeholder(), placeholder(node="", phase="Pending"))
    ),
    "Held without a placeholder": Case(IS_HELD, (), ("slot web/0 is Held though no placeholder runs on node node-a",)),
    "Held by a placeholder that does not run": Case(
        IS_HELD, (placeholder(phase="Pending"),), ("slot web/0 is Held though no placeholder runs on node node-a",)
    ),
    "Held by a placeholder that is going": Case(
        IS_HELD, (placeholder(deleted=NOON_TEXT),), ("slot web/0 is Held though no placeholder runs on node node-a",)
    ),
    "Held on a node that is gone": Case(
        IS_HELD, HOLDING, ("slot web/0 is Held though no placeholder runs on node node-a",), nodes=("node-b",)
    ),
    "Held on another node than said": Case(
        IS_HELD,
        (placeholder(node="node-b"),),
        ("slot web/0 is Held though no placeholder runs on node node-a",),
    ),
    "Pending though its placeholder runs": Case(
        claim(PHASE.PENDING, PENDING), HOLDING, ("slot web/0 is Pending though its placeholder runs",)
    ),
    "handed over to nobody": Case(
        claim(PHASE.AVAILABLE, HANDING_OVER), (), ("slot web/0 is HandingOver though no pod is on the way to it",)
    ),
    "handed over to another pod than said": Case(
        claim(PHASE.AVAILABLE, HANDING_OVER),
        (replace(TAKING, metadata=replace(TAKING.metadata, uid="other")),),
        ("slot web/0 is HandingOver though no pod is on the way to it",),
    ),
    "taken by nobody": Case(
        claim(PHASE.SUCCEEDED, replace(TAKEN, owner=None)), (), ("slot web/0 is Taken and names no pod or no node",)
    ),
    "Held after the end": Case(
        claim(PHASE.FAILED, HELD, available=0, conditions=conditions(PHASE.FAILED, available=False)),
        HOLDING,
        ("slot web/0 is Held though the Reservation is Failed",),
    ),
    "Released before the end": Case(
        claim(PHASE.PENDING, RELEASED), (), ("slot web/0 is Released though the Reservation is Pending",)
    ),
    "Succeeded too early": Case(
        claim(PHASE.SUCCEEDED, RELEASED), (), ("it is Succeeded though not every slot was taken",)
    ),
    "Available with too little": Case(
        claim(PHASE.AVAILABLE, PENDING), (), ("it is Available though fewer slots than wanted are held",)
    ),
    "Pending with enough": Case(claim(PHASE.PENDING, HELD), HOLDING, ("it is Pending though enough slots are held",)),
    "not over though all was taken": Case(
        claim(PHASE.AVAILABLE, TAKEN), (), ("it is Available though every slot was taken",)
    ),
    "a wrong number": Case(claim(PHASE.AVAILABLE, HELD, available=7), HOLDING, ("available is 7, not 1",)),
    "a wrong number of a task": Case(
        claim(PHASE.AVAILABLE, HELD, task_status_count={}),
        HOLDING,
        ("taskStatusCount is {}, not {'web': {'Held': 1}}",),
    ),
    "a wrong node": Case(claim(PHASE.AVAILABLE, HELD, node="node-b"), HOLDING, ("node is 'node-b', not 'node-a'",)),
    "a wrong end": Case(
        claim(PHASE.AVAILABLE, HELD, expires_at=None), HOLDING, ("expiresAt is None, not '2026-11-21T12:10:00Z'",)
    ),
    "a wrong owner": Case(
        claim(PHASE.AVAILABLE, HELD, current_owner=TAKER), HOLDING, ("currentOwner is none of the slots' owners",)
    ),
    "a wrong amount": Case(
        claim(PHASE.AVAILABLE, HELD, allocatable={}), HOLDING, (f"allocatable is {{}}, not {AMOUNT}",)
    ),
    "a wrong amount that is held": Case(
        claim(PHASE.AVAILABLE, HELD, held={}), HOLDING, (f"held is {{}}, not {AMOUNT}",)
    ),
    "a wrong condition": Case(
        claim(PHASE.AVAILABLE, HELD, conditions=()), HOLDING, ("the condition Available is not True",)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_status_says_and_is_not_so_is_found(case: Case) -> None:
    state = ClusterState(reservations=(case.reservation,), pods=case.pods, nodes=tuple(map(node, case.nodes)))
    found = [v for v in find_violations(state, now=NOON) if v.invariant is Invariant.STATUS_UNTRUE]
    assert tuple(violation.detail for violation in found) == case.want
    assert {violation.target for violation in found} <= {"reservation default/place"}


def test_a_live_reservation_past_its_time_is_found() -> None:
    due = replace(IS_HELD, metadata=replace(IS_HELD.metadata, creation_timestamp="2026-11-21T11:50:00Z"))
    due = replace(due, status=replace(due.status, expires_at=NOON_TEXT))
    found = find_violations(ClusterState(reservations=(due,), pods=HOLDING, nodes=(node("node-a"),)), now=NOON)
    assert [violation.detail for violation in found] == ["it is Available though it has expired"]


CLOSED = {
    "is not ready": node("node-a", ready=False),
    "is cordoned": node("node-a", unschedulable=True),
    "is tainted": node("node-a", taints=[Taint(key="worn", effect="NoSchedule")]),
}


@pytest.mark.parametrize("closed", CLOSED.values(), ids=CLOSED.keys())
def test_a_slot_is_not_held_where_its_node(closed: Node) -> None:
    waiting = claim(PHASE.PENDING, replace(PENDING, node="node-a"))
    told = [lies_of(said, closed) for said in (IS_HELD, waiting)]
    assert told == [["slot web/0 is Held though no placeholder runs on node node-a"], []]


def test_a_slot_is_held_where_its_node_carries_our_guard() -> None:
    guarded = node("node-a", taints=[Taint(key=HANDOVER_TAINT, value="1", effect="NoSchedule")])
    assert lies_of(IS_HELD, guarded) == []


def lies_of(said: Reservation, where: Node) -> list[str]:
    state = ClusterState(reservations=(said,), pods=HOLDING, nodes=(where,))
    return [v.detail for v in find_violations(state, now=NOON) if v.invariant is Invariant.STATUS_UNTRUE]
