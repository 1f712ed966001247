"""What must be true of a cluster at rest is looked for, and what is not so is found."""

import json
from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from berth_core import Node, Pod, Taint
from berth_core.gated_queues import GatedQueue, GatedQueueStatus
from berth_core.labels import (
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    DRAINING_TAINT,
    FENCE_LABEL,
    FREED_ANNOTATION,
    FREED_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    INDEX_ANNOTATION,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    QUEUE_GATE,
    RELEASED_ANNOTATION,
    RELEASED_HASH,
    RESERVATION_LABEL,
    ROOM_TAINT,
    SLOT_ANNOTATION,
    STANDING_FENCE_LABEL,
    TASK_ANNOTATION,
    TEMPLATE_HASH_LABEL,
)
from berth_core.migration_plans import MigrationPlan, MigrationPlanStatus, PlanPhase
from berth_core.names import (
    DESCHEDULER_LEASE,
    OPERATOR_LEASE,
    QUEUE_WEBHOOK_CONFIGURATION,
    WEBHOOK_CONFIGURATION,
    priority_class_name,
    room_taint_value,
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
)
from berth_core.workloads import WorkloadSpec, WorkloadStatus
from berth_kube.leases import Lease, LeaseSpec
from berth_sandbox.invariants import (
    BOUND_SECONDS,
    ClusterState,
    Invariant,
    NamedObject,
    Violation,
    find_troubles,
    find_violations,
)
from builders import (
    NOON,
    NOON_TEXT,
    gated_queue,
    label_owner,
    meta,
    namespace,
    node,
    object_owner,
    owner,
    pod,
    reservation,
    workload,
)

LATER = str(int(NOON.timestamp()) + 30)
EARLIER = str(int(NOON.timestamp()) - 1)

LIVE = reservation("live", uid="live")
SUCCEEDED = reservation("over", uid="over", phase=ReservationPhase.SUCCEEDED)
FAILED = reservation("over", uid="over", phase=ReservationPhase.FAILED)
DELETED = reservation("over", uid="over", deleted="2026-11-21T12:00:00Z")

MANAGED = {MANAGED_LABEL: MANAGED_BY_OPERATOR}
PRIORITY_CLASS = NamedObject(metadata=meta(priority_class_name(0), labels=MANAGED))
WEBHOOK = NamedObject(metadata=meta(WEBHOOK_CONFIGURATION, labels=MANAGED))
QUEUE_WEBHOOK = NamedObject(metadata=meta(QUEUE_WEBHOOK_CONFIGURATION, labels=MANAGED))
OF_DEFAULT = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}
QUEUE = GatedQueue.read({"metadata": {"name": "q1"}, "spec": OF_DEFAULT})
SUSPENDED = GatedQueue.read({"metadata": {"name": "q1"}, "spec": {**OF_DEFAULT, "suspend": True}})
QUEUED = pod("web-0", gates=[QUEUE_GATE])


def with_slot(
    state: SlotState, *, on: str = "node-a", taker: str = "", phase: ReservationPhase = ReservationPhase.AVAILABLE
) -> Reservation:
    """A Reservation with the uid `live` and one slot, which a pod of a uid takes."""
    taking = ObjectReference(kind="Pod", namespace="default", name="web-0", uid=taker) if taker else None
    slots = (Slot(task="main", index=0, state=state, node=on, owner=taking),)
    return reservation(
        "live", uid="live", owners=[], status=ReservationStatus(state=ReservationState(phase=phase), slots=slots)
    )


HELD = with_slot(SlotState.HELD)
HANDING_OVER = with_slot(SlotState.HANDING_OVER, taker="uid-default-web-0")
EXPIRED_MEANWHILE = with_slot(SlotState.HANDING_OVER, taker="uid-default-web-0", phase=ReservationPhase.FAILED)


def let_go(plan: str, *, text: str = "") -> Pod:
    """Return a pod that a surge move has taken out of its ReplicaSet."""
    note = text or json.dumps({"plan": plan, "hash": "5d4f8c7b9"})
    return pod(
        "web-1", node="worker", labels={TEMPLATE_HASH_LABEL: RELEASED_HASH}, annotations={RELEASED_ANNOTATION: note}
    )


def guarded(value: str) -> Node:
    return node("node-a", taints=[Taint(key=HANDOVER_TAINT, value=value, effect="NoSchedule")])


def fence(namespace: str = "berth-system", **labels: str) -> Pod:
    return pod("fence-node-a-1", namespace=namespace, node="node-a", labels={FENCE_LABEL: "true", **labels})


STANDING = fence(**{STANDING_FENCE_LABEL: "pods"})


def keeps(node: str) -> GatedQueue:
    return structs.replace(gated_queue(), status=GatedQueueStatus(fenced_nodes=(node,)))


def cooling(until: str) -> Node:
    """Return a node that is labelled as cooling until then."""
    return node("worker", labels={COOLING_LABEL: "true"}, annotations={COOLING_UNTIL_ANNOTATION: until})


def freed(*, marked: bool = True, tainted: bool = True) -> Node:
    taint = Taint(key=FREED_TAINT, value="p", effect="PreferNoSchedule")
    return node("worker", taints=(taint,) if tainted else (), annotations={FREED_ANNOTATION: "{}"} if marked else {})


def agent_on(name: str) -> Pod:
    return pod("agent", node=name, controller=owner("DaemonSet", "agent"))


def draining(plan: str) -> Node:
    return node("node-a", taints=[Taint(key=DRAINING_TAINT, value=plan, effect="NoSchedule")])


def kept(plan: str) -> Node:
    return node("node-a", taints=[Taint(key=ROOM_TAINT, value=room_taint_value(plan, "node-a"), effect="NoSchedule")])


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
LABELLED = {"labels": {RESERVATION_LABEL: "over"}, "node": "node-a"}


def note(deadline: str, on: str = "node-a") -> dict[str, str]:
    return {SLOT_ANNOTATION: f"main/0/{on}/{deadline}"}


def placeholder(uid: str, *, index: int = 0, **how: object) -> dict[str, object]:
    labels = {RESERVATION_LABEL: uid, PLACEHOLDER_LABEL: "true"}
    notes = {TASK_ANNOTATION: "main", INDEX_ANNOTATION: str(index)}
    return {"labels": labels, "annotations": notes, "node": "node-a", **how}


NOMINATED = {"labels": {RESERVATION_LABEL: "live"}, "annotations": note(LATER), "nominated_node": "node-a"}

CASES = {
    "an empty cluster is well": Case(ClusterState()),
    "a pod that runs is well": Case(of_pod(node="node-a")),
    "a pod gated for a Reservation that holds a slot is on its way": Case(of_pod(HELD, **OF_LIVE)),
    "a pod gated on the way to its slot": Case(of_pod(HANDING_OVER, **OF_LIVE, annotations=note(LATER))),
    "a pod gated on the way to its slot, and the Reservation expired meanwhile": Case(
        of_pod(EXPIRED_MEANWHILE, **OF_LIVE, annotations=note(LATER))
    ),
    "a pod gated on the way to its slot for too long": Case(
        of_pod(HANDING_OVER, **OF_LIVE, annotations=note(EARLIER)), (Invariant.GATE_LEFT,)
    ),
    "a pod gated for a live Reservation without a slot": Case(of_pod(LIVE, **OF_LIVE), (Invariant.GATE_LEFT,)),
    "a pod gated for a slot that another pod is taking": Case(
        of_pod(with_slot(SlotState.HANDING_OVER, taker="other"), **OF_LIVE), (Invariant.GATE_LEFT,)
    ),
    "two pods gated for one held slot": Case(
        ClusterState(
            reservations=(HELD,),
            pods=tuple(pod(name, **OF_LIVE) for name in ("web-0", "web-1")),  # type: ignore[arg-type]
        ),
        (Invariant.GATE_LEFT,),
    ),
    "a gated pod that is being deleted": Case(of_pod(**GATED, deleted=NOON_TEXT)),
    "a pod gated for a Reservation that succeeded": Case(of_pod(SUCCEEDED, **GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for a Reservation that failed": Case(of_pod(FAILED, **GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for a Reservation that is being deleted": Case(of_pod(DELETED, **GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for a Reservation that is gone": Case(of_pod(**GATED), (Invariant.GATE_LEFT,)),
    "a pod gated for nobody": Case(of_pod(LIVE, **{**GATED, "labels": {}}), (Invariant.GATE_LEFT,)),
    "a pod that waits for its queue": Case(
        ClusterState(queues=(QUEUE,), namespaces=(namespace("default"),), pods=(QUEUED,)), (Invariant.POD_PENDING,)
    ),
    "a pod that waits though no queue has its namespace": Case(
        ClusterState(queues=(QUEUE,), namespaces=(namespace("other"),), pods=(QUEUED,), webhooks=(QUEUE_WEBHOOK,)),
        (Invariant.POD_PENDING, Invariant.QUEUE_GATE_LEFT),
    ),
    "a pod and a webhook that wait for a queue that is switched off": Case(
        ClusterState(
            queues=(SUSPENDED,), namespaces=(namespace("default"),), pods=(QUEUED,), webhooks=(QUEUE_WEBHOOK,)
        ),
        (Invariant.POD_PENDING, Invariant.QUEUE_GATE_LEFT, Invariant.WEBHOOK_LEFT),
    ),
    "a pod with a gate of somebody else is theirs": Case(
        of_pod(**{**GATED, "labels": {}, "gates": ["example.com/gate"]})
    ),
    "a placeholder of a live Reservation": Case(of_pod(HELD, **placeholder("live"))),
    "a placeholder of a Reservation that nobody has looked at yet": Case(of_pod(LIVE, **placeholder("live"))),
    "a placeholder that waits for the scheduler is no pending pod": Case(
        of_pod(HELD, **placeholder("live", node="", phase="Pending"))
    ),
    "a placeholder of a slot that is being handed over": Case(of_pod(HANDING_OVER, **placeholder("live"))),
    "a placeholder of a slot whose owner is on the way though the Reservation expired": Case(
        of_pod(EXPIRED_MEANWHILE, **placeholder("live"))
    ),
    "a placeholder whose Reservation is over": Case(
        of_pod(FAILED, **placeholder("over")), (Invariant.PLACEHOLDER_LEFT,)
    ),
    "a placeholder whose Reservation is gone": Case(of_pod(**placeholder("over")), (Invariant.PLACEHOLDER_LEFT,)),
    "a placeholder of a slot that was taken": Case(
        of_pod(with_slot(SlotState.TAKEN, taker="x"), **placeholder("live")), (Invariant.PLACEHOLDER_LEFT,)
    ),
    "a placeholder of a slot that there is not": Case(
        of_pod(HELD, **placeholder("live", index=7)), (Invariant.PLACEHOLDER_LEFT,)
    ),
    "a waiting pod that is nominated for its slot": Case(of_pod(HANDING_OVER, **NOMINATED), (Invariant.POD_PENDING,)),
    "a waiting pod that is nominated for no slot": Case(
        of_pod(LIVE, **NOMINATED), (Invariant.NOMINATION_LEFT, Invariant.POD_PENDING)
    ),
    "a nomination to another node than that of our note is the scheduler's": Case(
        of_pod(LIVE, **{**NOMINATED, "nominated_node": "node-b"}), (Invariant.POD_PENDING,)
    ),
    "a nomination of a pod without our note is the scheduler's": Case(
        of_pod(nominated_node="node-a"), (Invariant.POD_PENDING,)
    ),
    "a nominated pod that is bound": Case(of_pod(HANDING_OVER, **{**NOMINATED, "node": "node-a"})),
    "a running pod that keeps its label": Case(of_pod(SUCCEEDED, **LABELLED), (Invariant.LABEL_LEFT,)),
    "a pod that waits for a place": Case(of_pod(), (Invariant.POD_PENDING,)),
    "a pod that is bound but does not run yet": Case(of_pod(node="node-a", phase="Pending"), (Invariant.POD_PENDING,)),
    "a guard within its deadline where a slot changes hands": Case(
        ClusterState(nodes=(guarded(LATER),), reservations=(HANDING_OVER,))
    ),
    "a guard for a hand-over that goes on though its Reservation expired": Case(
        ClusterState(nodes=(guarded(LATER),), reservations=(EXPIRED_MEANWHILE,))
    ),
    "a guard past its deadline": Case(
        ClusterState(nodes=(guarded(EARLIER),), reservations=(HANDING_OVER,)), (Invariant.GUARD_LEFT,)
    ),
    "a guard that names no deadline": Case(
        ClusterState(nodes=(guarded("soon"),), reservations=(HANDING_OVER,)), (Invariant.GUARD_LEFT,)
    ),
    "a guard where a slot is only held": Case(
        ClusterState(nodes=(guarded(LATER),), reservations=(HELD,)), (Invariant.GUARD_LEFT,)
    ),
    "a guard where one placeholder takes the place of another": Case(
        ClusterState(
            nodes=(guarded(LATER),),
            reservations=(HELD,),
            pods=(
                pod("first", **placeholder("live")),  # type: ignore[arg-type]
                pod("second", **placeholder("live", node="", phase="Pending")),  # type: ignore[arg-type]
            ),
        )
    ),
    "a guard for a hand-over on another node": Case(
        ClusterState(nodes=(guarded(LATER),), reservations=(with_slot(SlotState.HANDING_OVER, on="node-b"),)),
        (Invariant.GUARD_LEFT,),
    ),
    "a guard for nobody": Case(ClusterState(nodes=(guarded(LATER),)), (Invariant.GUARD_LEFT,)),
    "a fence where a slot changes hands": Case(ClusterState(pods=(fence(),), reservations=(HANDING_OVER,))),
    "a fence where a slot is only held": Case(
        ClusterState(pods=(fence(),), reservations=(HELD,)), (Invariant.FENCE_LEFT,)
    ),
    "a standing fence of a node that a queue keeps": Case(ClusterState(pods=(STANDING,), queues=(keeps("node-a"),))),
    "a standing fence of a node that nobody keeps": Case(
        ClusterState(pods=(STANDING,), queues=(keeps("node-b"),)), (Invariant.FENCE_LEFT,)
    ),
    "a pod in another namespace that is labelled as a fence": Case(ClusterState(pods=(fence("default"),))),
    "a source of a running plan": Case(ClusterState(nodes=(draining("p"),), plans=(plan("p", PlanPhase.RUNNING),))),
    "a source of a plan that is over": Case(
        ClusterState(nodes=(draining("p"),), plans=(plan("p", PlanPhase.SUCCEEDED),)), (Invariant.DRAINING_LEFT,)
    ),
    "a pod that a running plan has let go": Case(
        ClusterState(pods=(let_go("p"),), plans=(plan("p", PlanPhase.RUNNING),))
    ),
    "a pod that a plan that is over has let go": Case(
        ClusterState(pods=(let_go("p"),), plans=(plan("p", PlanPhase.SUCCEEDED),)), (Invariant.RELEASED_LEFT,)
    ),
    "a pod that a plan that is gone has let go": Case(ClusterState(pods=(let_go("p"),)), (Invariant.RELEASED_LEFT,)),
    "a pod that was let go and whose annotation cannot be read": Case(
        ClusterState(pods=(let_go("p", text="["),)), (Invariant.RELEASED_LEFT,)
    ),
    "a node where a plan that is over made room": Case(
        ClusterState(nodes=(kept("p"),), plans=(plan("p", PlanPhase.SUCCEEDED),)), (Invariant.ROOM_GUARD_LEFT,)
    ),
    "a node where a running plan makes room": Case(
        ClusterState(nodes=(kept("p"),), plans=(plan("p", PlanPhase.RUNNING),))
    ),
    "a freed node that nobody uses": Case(ClusterState(nodes=(freed(),))),
    "a freed node with a pod of a DaemonSet": Case(ClusterState(nodes=(freed(),), pods=(agent_on("worker"),))),
    "a freed node that is used": Case(
        ClusterState(nodes=(freed(),), pods=(pod("web-1", node="worker"),)), (Invariant.FREED_LEFT,)
    ),
    "a freed node whose taint is off and that is used": Case(
        ClusterState(nodes=(freed(tainted=False),), pods=(pod("web-1", node="worker"),)), (Invariant.FREED_LEFT,)
    ),
    "a node that rests": Case(ClusterState(nodes=(cooling("2099-01-01T00:00:00Z"),))),
    "a node that has rested": Case(ClusterState(nodes=(cooling("2020-01-01T00:00:00Z"),)), (Invariant.COOLING_LEFT,)),
    "a node that rests for nobody knows how long": Case(
        ClusterState(nodes=(cooling(""), cooling("soon"))), (Invariant.COOLING_LEFT, Invariant.COOLING_LEFT)
    ),
    "a taint of a freed node that no mark explains": Case(
        ClusterState(nodes=(freed(marked=False),)), (Invariant.FREED_LEFT,)
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


def found_in(state: ClusterState) -> tuple[Invariant, ...]:
    """What is found, statuses aside: those of these cases are written by hand, and have a table of their own."""
    found = find_violations(state, now=NOON)
    return tuple(v.invariant for v in found if v.invariant is not Invariant.STATUS_UNTRUE)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_not_as_it_must_be_is_found(case: Case) -> None:
    assert found_in(case.state) == case.want_invariants


# --- workloads ---

RUNNING = pod("web-0", node="node-a", controller=owner("ReplicaSet", "web"))
OTHERS = pod("web-1", node="node-a", controller=owner("ReplicaSet", "other"))
TAKEN_BY_WEB = with_slot(SlotState.TAKEN, taker=RUNNING.metadata.uid)
SHORT = (Invariant.WORKLOAD_SHORT,)


def of_workload(*reservations: Reservation, kind: str = "ReplicaSet", replicas: int | None = 2) -> ClusterState:
    made = workload(kind, "web", replicas=replicas, match_labels={"app": "web"})
    return ClusterState(pods=(RUNNING, OTHERS), workloads=(made,), reservations=reservations)


WORKLOAD_CASES = {
    "one of two pods runs, and it took a slot": Case(of_workload(TAKEN_BY_WEB), SHORT),
    "all pods run": Case(of_workload(TAKEN_BY_WEB, replicas=1)),
    "scaled to zero": Case(of_workload(TAKEN_BY_WEB, replicas=0)),
    "short, and no Reservation is for it": Case(
        of_workload(reservation(uid="x", owners=[object_owner("ReplicaSet", "api")]))
    ),
    "short, and a Reservation names it": Case(
        of_workload(reservation(uid="x", owners=[object_owner("ReplicaSet", "web")])), SHORT
    ),
    "short, and a Reservation of another namespace names it": Case(
        of_workload(reservation(namespace="other", uid="x", owners=[object_owner("ReplicaSet", "web")]))
    ),
    "short, and a Reservation selects the labels of its pods": Case(
        of_workload(reservation(uid="x", owners=[label_owner(app="web")])), SHORT
    ),
    "a Job that is over": Case(of_workload(TAKEN_BY_WEB, kind="Job", replicas=None)),
}


@pytest.mark.parametrize("case", WORKLOAD_CASES.values(), ids=WORKLOAD_CASES.keys())
def test_a_workload_that_a_reservation_is_for_has_all_its_pods_running(case: Case) -> None:
    assert found_in(case.state) == case.want_invariants


def test_a_job_that_runs_wants_as_many_pods_as_it_runs_at_once() -> None:
    job = structs.replace(
        workload("Job", "web"), spec=WorkloadSpec(parallelism=3, completions=2), status=WorkloadStatus(active=1)
    )
    runs = pod("job-0", node="node-a", controller=owner("Job", "web"))
    state = ClusterState(pods=(runs,), workloads=(job,), reservations=(with_slot(SlotState.TAKEN, taker="-"),))
    assert found_in(state) == ()
    concerned = replace(state, reservations=(with_slot(SlotState.TAKEN, taker=runs.metadata.uid),))
    assert [v.detail for v in find_violations(concerned, now=NOON) if v.invariant is Invariant.WORKLOAD_SHORT] == [
        "1 of its 2 pods run"
    ]


# --- services ---

AT_WORK = Lease(meta(OPERATOR_LEASE), LeaseSpec(holder_identity="a", lease_duration_seconds=8, renew_time=NOON_TEXT))
GIVEN_BACK = Lease(meta(OPERATOR_LEASE), LeaseSpec(lease_duration_seconds=1, renew_time=NOON_TEXT))
OVERDUE = Lease(
    meta(OPERATOR_LEASE),
    LeaseSpec(holder_identity="a", lease_duration_seconds=8, renew_time="2026-11-21T11:59:51.500000Z"),
)
PLANNING = Lease(
    meta(DESCHEDULER_LEASE), LeaseSpec(holder_identity="b", lease_duration_seconds=15, renew_time=NOON_TEXT)
)
PROVEN = reservation(
    uid="x",
    status=ReservationStatus(
        state=ReservationState(phase=ReservationPhase.AVAILABLE),
        conditions=(Condition(type=ConditionType.HANDOVER_READY, status="True"),),
    ),
)
RUNNING_PLAN = plan("p", PlanPhase.RUNNING)

SERVICE_CASES = {
    "classes of an operator that runs, and all is over": Case(
        ClusterState(priority_classes=(PRIORITY_CLASS,), reservations=(SUCCEEDED,), leases=(AT_WORK,))
    ),
    "the operator holds its Lease": Case(ClusterState(leases=(AT_WORK,))),
    "there is no Lease": Case(ClusterState(), (Invariant.OPERATOR_ABSENT,)),
    "the Lease was given back": Case(ClusterState(leases=(GIVEN_BACK,)), (Invariant.OPERATOR_ABSENT,)),
    "the Lease is not renewed": Case(ClusterState(leases=(OVERDUE,)), (Invariant.OPERATOR_ABSENT,)),
    "a running plan whose descheduler is at work": Case(
        ClusterState(leases=(AT_WORK, PLANNING), plans=(RUNNING_PLAN,))
    ),
    "a running plan that nobody carries out": Case(
        ClusterState(leases=(AT_WORK,), plans=(RUNNING_PLAN,)), (Invariant.PLAN_ABANDONED,)
    ),
    "a place whose hand-over is proven": Case(ClusterState(leases=(AT_WORK,), reservations=(PROVEN,))),
    "a place whose hand-over is not proven": Case(
        ClusterState(leases=(AT_WORK,), reservations=(HELD,)), (Invariant.HANDOVER_UNPROVEN,)
    ),
    "a pod that waits is no trouble of Berth's": Case(ClusterState(leases=(AT_WORK,), pods=(pod(),))),
}


@pytest.mark.parametrize("case", SERVICE_CASES.values(), ids=SERVICE_CASES.keys())
def test_people_are_told_which_service_does_not_do_its_work(case: Case) -> None:
    found = find_troubles(case.state, now=NOON)
    assert tuple(v.invariant for v in found if v.invariant is not Invariant.STATUS_UNTRUE) == case.want_invariants


# --- violations ---


def test_every_invariant_has_a_bound() -> None:
    assert set(BOUND_SECONDS) == set(Invariant)


TARGETS = {
    "pod default/web-0": ("pod", "default", "web-0"),
    "node node-a": ("node", "", "node-a"),
}


@pytest.mark.parametrize(("target", "want"), TARGETS.items(), ids=TARGETS.keys())
def test_a_violation_names_its_target(target: str, want: tuple[str, str, str]) -> None:
    found = Violation(Invariant.GATE_LEFT, target, "")
    assert (found.kind, found.namespace, found.name) == want


def test_a_violation_reads_as_a_line_for_people() -> None:
    violation = Violation(Invariant.GATE_LEFT, "pod default/web-0", "Reservation x is not live")
    assert str(violation) == "GateLeft: pod default/web-0: Reservation x is not live"


def test_violations_come_in_a_fixed_order() -> None:
    pods = tuple(pod(f"web-{number}") for number in range(5))
    forward = find_violations(ClusterState(pods=pods), now=NOON)
    assert forward == find_violations(ClusterState(pods=pods[::-1]), now=NOON)
    assert len(forward) == 5
