"""The making of what the operator sees: Reservations with a past, placeholders, owner pods in a hand-over."""
# ruff: noqa: ANN401 - a builder passes on what the case says

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from berth_core import ContainerStatus, Pod, PodCondition, Toleration
from berth_core.labels import (
    AWAITS_CAPACITY_LABEL,
    CHOSEN_NODE_ANNOTATION,
    HANDOVER_GATE,
    HANDOVER_LABEL,
    INDEX_ANNOTATION,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    TASK_ANNOTATION,
)
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import (
    ObjectReference,
    Reservation,
    ReservationPhase,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
)
from berth_operator.reservation.actions import (
    Action,
    AssignSlot,
    CompleteHandover,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    ExtendHandover,
    Nominate,
    Probe,
    Release,
    RenewPlaceholder,
    ShortenPlaceholder,
    SurveyNode,
    Ungate,
    Validate,
)
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.decide import Decision, decide
from berth_operator.reservation.manifests import handover_toleration
from berth_operator.reservation.observation import Guard, Observation, ProbeResult
from berth_operator.reservation.surveys import Survey, build_survey
from berth_operator.settings import OperatorSettings
from builders import NOON, NOON_TEXT, label_owner, pod, reservation, task

PLACE_UID = "uid-default-place"
DEADLINE = int(NOON.timestamp()) + 30
UNSCHEDULABLE = PodCondition(
    type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes are available: 3 Insufficient cpu."
)
GATED = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
PATIENT = OperatorSettings(unschedulable_seconds=0)
PROVEN = ProbeResult(gated=True, message="a dry-run pod came back gated")
PREEMPTED = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")


def slot(state: SlotState, index: int = 0, *, task: str = "web", node: str = "node-a", **rest: Any) -> Slot:
    return Slot(task=task, index=index, state=state, node=node, **rest)


def place(
    *slots: Slot,
    replicas: int = 1,
    phase: ReservationPhase | None = None,
    reason: str = "",
    since: str = NOON_TEXT,
    **rest: Any,
) -> Reservation:
    """A Reservation for pods labelled app=web, of one task `web`, whose status says what the slots say."""
    phase = phase or (ReservationPhase.AVAILABLE if slots else None)
    state = ReservationState(phase=phase, reason=reason, last_transition_time=since) if phase else None
    return reservation(
        tasks=rest.pop("tasks", [task(replicas=replicas)]),
        owners=rest.pop("owners", [label_owner(app="web")]),
        status=ReservationStatus(state=state, slots=slots),
        **rest,
    )


HANDING_OVER = place(slot(SlotState.HANDING_OVER))


def placeholder(
    index: int = 0,
    *,
    task: str = "web",
    node: str = "node-a",
    phase: str | None = None,
    conditions: Sequence[PodCondition] = (),
    deleted: str | None = None,
    version: str = "1",
    uid: str | None = None,
) -> Pod:
    """A placeholder of the Reservation `place`: Running on its node, Pending without one."""
    made = pod(
        f"place-{task}-{index}",
        namespace=DEFAULT_NAMESPACE,
        uid=uid or f"uid-placeholder-{task}-{index}",
        labels={RESERVATION_LABEL: PLACE_UID, PLACEHOLDER_LABEL: "true"},
        annotations={TASK_ANNOTATION: task, INDEX_ANNOTATION: str(index)},
        node=node,
        phase=phase,
        deleted=deleted,
    )
    made = msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, conditions=(*made.status.conditions, *conditions))
    )
    return at_version(made, version)


def awaiting(node: str = "node-a", *, index: int = 0, tried: bool = True) -> Pod:
    """A placeholder that waits for a node, after a scheduler has found no room there or before."""
    made = placeholder(index, node="")
    meta = msgspec.structs.replace(
        made.metadata,
        labels=made.metadata.labels | {AWAITS_CAPACITY_LABEL: "true"},
        annotations=made.metadata.annotations | {CHOSEN_NODE_ANNOTATION: node},
    )
    made = msgspec.structs.replace(made, metadata=meta)
    return with_condition(made, UNSCHEDULABLE) if tried else made


def note(index: int = 0, *, task: str = "web", node: str = "node-a", deadline: int = DEADLINE) -> Assignment:
    return Assignment(task=task, index=index, node=node, deadline=deadline)


def owner_pod(
    name: str = "web-0",
    *,
    given: Assignment | None = None,
    gates: Sequence[str] = (HANDOVER_GATE,),
    labels: Mapping[str, str] | None = None,
    started: bool = False,
    version: str = "1",
    **rest: Any,
) -> Pod:
    """A pod labelled app=web that the webhook gated; with a note it tolerates the guard, and the fence admits it."""
    slot_label = {HANDOVER_LABEL: "true"} if given else {}
    tolerations = (msgspec.convert(handover_toleration(), Toleration),) if given else ()
    made = pod(
        name,
        uid=f"uid-{name}",
        labels={"app": "web", RESERVATION_LABEL: PLACE_UID, **slot_label} if labels is None else labels,
        annotations={SLOT_ANNOTATION: given.to_annotation()} if given else {},
        gates=gates,
        tolerations=tolerations,
        phase=rest.pop("phase", "Running" if started else "Pending"),
        **rest,
    )
    return at_version(made, version)


def with_condition(made: Pod, condition: PodCondition) -> Pod:
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=(condition,)))


def with_container_status(made: Pod) -> Pod:
    status = msgspec.structs.replace(made.status, container_statuses=(ContainerStatus(name="app"),))
    return msgspec.structs.replace(made, status=status)


def at_version(made: Pod, version: str) -> Pod:
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, resource_version=version))


def reference(made: Pod) -> ObjectReference:
    return ObjectReference(
        api_version="v1", kind="Pod", namespace=made.metadata.namespace, name=made.metadata.name, uid=made.metadata.uid
    )


def resident(name: str, *, cpu: str, deleted: str | None = None) -> Pod:
    """A pod that runs on the node of a slot."""
    return pod(name, uid=f"uid-{name}", node="node-a", cpu=cpu, memory=None, deleted=deleted)


def holder_on_node(*, cpu: str) -> Pod:
    """The placeholder of the first slot as the pods of its node show it."""
    holder = placeholder()
    asking = resident("any", cpu=cpu).spec
    return msgspec.structs.replace(holder, spec=asking)


def on_node(*pods: Pod, age_seconds: float = 1.0) -> Survey:
    """What pods on a node of 4 cpu say."""
    survey = build_survey({"cpu": "4", "memory": "16Gi", "pods": "110"}, pods)
    return replace(survey, age_seconds=age_seconds)


def guard(age_seconds: float = 1.0, deadline: int = DEADLINE, *, is_fenced: bool = True) -> Guard:
    return Guard(deadline=deadline, age_seconds=age_seconds, is_fenced=is_fenced)


def observe(
    of: Reservation,
    *pods: Pod,
    guards: Mapping[str, Guard] | None = None,
    **rest: Any,
) -> Observation:
    """What is seen of a Reservation that was validated: pods are told apart by their labels."""
    holders = [one for one in pods if PLACEHOLDER_LABEL in one.metadata.labels]
    return Observation(
        reservation=of,
        placeholders={
            (one.metadata.annotations[TASK_ANNOTATION], int(one.metadata.annotations[INDEX_ANNOTATION])): one
            for one in holders
        },
        owners=tuple(one for one in pods if PLACEHOLDER_LABEL not in one.metadata.labels),
        guards=dict(guards or {}),
        validated=rest.pop("validated", True),
        **rest,
    )


def decide_now(seen: Observation, *, seconds: float = 0) -> Decision:
    return decide(seen, NOON + timedelta(seconds=seconds), OperatorSettings())


def told(action: Action) -> tuple[str, str]:
    """Name an action and the pod it is about."""
    match action:
        case AssignSlot(pod) | ExtendHandover(pod) | Nominate(pod) | Ungate(pod) | CompleteHandover(pod) | Release(pod):
            return type(action).__name__, pod.metadata.name
        case DeletePlaceholder(pod) | ShortenPlaceholder(pod):
            return type(action).__name__, pod.metadata.name
        case RenewPlaceholder(_, pod):
            return "RenewPlaceholder", pod.metadata.name
        case CreatePlaceholder(_, index):
            return "CreatePlaceholder", str(index)
        case SurveyNode(node):
            return type(action).__name__, node
        case Validate() | Probe() | DeleteReservation():
            return type(action).__name__, ""
