from dataclasses import dataclass

import pytest

from berth_core.labels import (
    DRAINING_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
)
from berth_core.migration_plans import MigrationPlan, MigrationPlanStatus, PlanPhase
from berth_core.names import WEBHOOK_CONFIGURATION, priority_class_name
from berth_core.objects import Node, Taint
from berth_core.reservations import (
    Reservation,
    ReservationPhase,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
)
from berth_sandbox.invariants import ClusterState, Invariant, NamedObject, Violation, find_violations
from builders import NOON, meta, node, pod, reservation

LATER = str(int(NOON.timestamp()) + 30)
EARLIER = str(int(NOON.timestamp()) - 1)

LIVE = reservation("live", uid="live")
SUCCEEDED = reservation("over", uid="over", phase=ReservationPhase.SUCCEEDED)
FAILED = reservation("over", uid="over", phase=ReservationPhase.FAILED)
DELETED = reservation("over", uid="over", deleted="2026-11-21T12:00:00Z")

MANAGED = {MANAGED_LABEL: MANAGED_BY_OPERATOR}
PRIORITY_CLASS = NamedObject(metadata=meta(priority_class_name(0), labels=MANAGED))
WEBHOOK = NamedObject(metadata=meta(WEBHOOK_CONFIGURATION, labels=MANAGED))


def with_slot(on: str) -> Reservation:
    state = ReservationState(phase=ReservationPhase.AVAILABLE)
    slots = (Slot(task="main", index=0, state=SlotState.HANDING_OVER, node=on),)
    return reservation("live", uid="live", status=ReservationStatus(state=state, slots=slots))


def guarded(value: str) -> Node:
    return node("node-a", taints=[Taint(key=HANDOVER_TAINT, value=value, effect="NoSchedule")])


def draining(plan: str) -> Node:
    return node("node-a", taints=[Taint(key=DRAINING_TAINT, value=plan, effect="NoSchedule")])


def plan(name: str, phase: PlanPhase) -> MigrationPlan:
    return MigrationPlan(metadata=meta(name), status=MigrationPlanStatus(phase=phase))


@dataclass(frozen=True)
class Case:
    state: ClusterState
    want_invariants: tuple[Invariant, ...] = ()


def of_pod(*reservations: Reservation, **how: object) -> ClusterState:
    return ClusterState(pods=(pod("web-0", **how),), reservations=reservations)  # type: ignore[arg-type]


GATED = {"labels": {RESERVATION_LABEL: "over"}, "gates": [HANDOVER_GATE], "phase": "Running", "node": ""}
OF_LIVE = {**GATED, "labels": {RESERVATION_LABEL: "live"}}
PLACEHOLDER = {"labels": {RESERVATION_LABEL: "over", PLACEHOLDER_LABEL: "true"}, "node": "node-a"}
LABELLED = {"labels": {RESERVATION_LABEL: "over"}, "node": "node-a"}

CASES = {
    "an empty cluster is well": Case(ClusterState()),
    "a pod that runs is well": Case(of_pod(node="node-a")),
    "a pod gated for a live Reservation is on its way": Case(of_pod(LIVE, **OF_LIVE)),
    "a pod gated for a Reservation that succeeded": Case(of_pod(SUCCEEDED, **GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for a Reservation that failed": Case(of_pod(FAILED, **GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for a Reservation that is being deleted": Case(of_pod(DELETED, **GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for a Reservation that is gone": Case(of_pod(**GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for nobody": Case(of_pod(LIVE, **{**GATED, "labels": {}}), (Invariant.GATE_LEFT,)),
    "a pod with a gate of somebody else is theirs": Case(
        of_pod(**{**GATED, "labels": {}, "gates": ["example.com/gate"]})
    ),
    "a placeholder of a live Reservation": Case(
        of_pod(LIVE, labels={RESERVATION_LABEL: "live", PLACEHOLDER_LABEL: "true"}, node="node-a")
    ),
    "a placeholder that waits for the scheduler is no pending pod": Case(
        of_pod(LIVE, labels={RESERVATION_LABEL: "live", PLACEHOLDER_LABEL: "true"})
    ),
    "a placeholder whose Reservation is over": Case(of_pod(FAILED, **PLACEHOLDER), (Invariant.PLACEHOLDER_LEFT,)),
    "a placeholder whose Reservation is gone": Case(of_pod(**PLACEHOLDER), (Invariant.PLACEHOLDER_LEFT,)),
    "a running pod that keeps its label": Case(of_pod(SUCCEEDED, **LABELLED), (Invariant.LABEL_LEFT,)),
    "a pod that waits for a place": Case(of_pod(), (Invariant.POD_PENDING,)),
    "a pod that is bound but does not run yet": Case(of_pod(node="node-a", phase="Pending"), (Invariant.POD_PENDING,)),
    "a guard within its deadline for a live slot": Case(
        ClusterState(nodes=(guarded(LATER),), reservations=(with_slot("node-a"),))
    ),
    "a guard past its deadline": Case(
        ClusterState(nodes=(guarded(EARLIER),), reservations=(with_slot("node-a"),)), (Invariant.GUARD_LEFT,)
    ),
    "a guard that names no deadline": Case(
        ClusterState(nodes=(guarded("soon"),), reservations=(with_slot("node-a"),)), (Invariant.GUARD_LEFT,)
    ),
    "a guard for a slot on another node": Case(
        ClusterState(nodes=(guarded(LATER),), reservations=(with_slot("node-b"),)), (Invariant.GUARD_LEFT,)
    ),
    "a guard for nobody": Case(ClusterState(nodes=(guarded(LATER),)), (Invariant.GUARD_LEFT,)),
    "a source of a running plan": Case(ClusterState(nodes=(draining("p"),), plans=(plan("p", PlanPhase.RUNNING),))),
    "a source of a plan that is over": Case(
        ClusterState(nodes=(draining("p"),), plans=(plan("p", PlanPhase.SUCCEEDED),)), (Invariant.DRAINING_LEFT,)
    ),
    "a source of a plan that is gone": Case(ClusterState(nodes=(draining("p"),)), (Invariant.DRAINING_LEFT,)),
    "a taint of somebody else is theirs": Case(
        ClusterState(nodes=(node("node-a", taints=[Taint(key="example.com/x", effect="NoSchedule")]),))
    ),
    "what the operator made for a live Reservation": Case(
        ClusterState(priority_classes=(PRIORITY_CLASS,), webhooks=(WEBHOOK,), reservations=(LIVE,))
    ),
    "what the operator made, and all is over": Case(
        ClusterState(priority_classes=(PRIORITY_CLASS,), webhooks=(WEBHOOK,), reservations=(SUCCEEDED,)),
        (Invariant.PRIORITY_CLASS_LEFT, Invariant.WEBHOOK_LEFT),
    ),
    "classes and webhooks of somebody else are theirs": Case(
        ClusterState(
            priority_classes=(NamedObject(metadata=meta("gold")),), webhooks=(NamedObject(metadata=meta("x")),)
        )
    ),
    "a node that is just full": Case(
        ClusterState(nodes=(node("node-a", cpu="2", pods="1"),), pods=(pod(node="node-a", cpu="2"),))
    ),
    "a node with more cpu requested than it has": Case(
        ClusterState(nodes=(node("node-a", cpu="2"),), pods=(pod(node="node-a", cpu="2001m"),)),
        (Invariant.NODE_OVERBOOKED,),
    ),
    "a node with more pods than slots": Case(
        ClusterState(nodes=(node("node-a", pods="1"),), pods=(pod("a", node="node-a"), pod("b", node="node-a"))),
        (Invariant.NODE_OVERBOOKED,),
    ),
    "pods that ended take no room": Case(
        ClusterState(
            nodes=(node("node-a", cpu="2"),),
            pods=(pod("a", node="node-a", cpu="2", phase="Succeeded"), pod("b", node="node-a", cpu="2")),
        )
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_not_as_it_must_be_is_found(case: Case) -> None:
    found = find_violations(case.state, now=NOON)
    assert tuple(violation.invariant for violation in found) == case.want_invariants


def test_a_violation_reads_as_a_line_for_people() -> None:
    violation = Violation(Invariant.GATE_LEFT, "pod default/web-0", "Reservation x is not live")
    assert str(violation) == "GateLeft: pod default/web-0: Reservation x is not live"


def test_violations_come_in_a_fixed_order() -> None:
    pods = tuple(pod(f"web-{number}") for number in range(5))
    forward = find_violations(ClusterState(pods=pods), now=NOON)
    assert forward == find_violations(ClusterState(pods=pods[::-1]), now=NOON)
    assert len(forward) == 5
