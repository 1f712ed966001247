"""Check of a Reservation's status, recomputed from the spec, the pods and the nodes.

It shares no code with the operator on purpose, so that it does not share its mistakes. History in a status (that a slot
was taken or lost, and where) is believed; everything derived from it is checked.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from berth_core import (
    HANDOVER_TAINT,
    INDEX_ANNOTATION,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    TASK_ANNOTATION,
    ConditionType,
    Node,
    Pod,
    Reservation,
    ReservationPhase,
    ReservationTask,
    ResourceAmounts,
    Slot,
    SlotState,
    Taint,
    effective_requests,
    expires_at,
    format_timestamp,
    readable_quantities,
    untolerated_taint,
)
from berth_sandbox.invariants.state import ClusterState
from berth_sandbox.invariants.violations import Invariant, Violation

_OPEN_PHASES = {ReservationPhase.PENDING, ReservationPhase.WAITING}
_ON_OFFER = {SlotState.HELD, SlotState.HANDING_OVER}


@dataclass(frozen=True, slots=True)
class _Facts:
    """The API's facts on one Reservation besides its status."""

    reservation: Reservation
    placeholders: dict[tuple[str, str], Pod]
    """By task and index, as the annotations write them."""
    owners: dict[tuple[str, str], Pod]
    """Pods with a note of ours, by the task and index in it."""
    nodes: dict[str, Node]
    """By name."""
    now: datetime


def untrue_statuses(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield the claims of statuses that are not true."""
    pods: dict[str, list[Pod]] = {}
    for pod in state.pods:
        pods.setdefault(pod.metadata.labels.get(RESERVATION_LABEL, ""), []).append(pod)
    nodes = {node.metadata.name: node for node in state.nodes}
    for reservation in state.reservations:
        if not reservation.spec.tasks:
            continue  # its spec cannot be read: nothing can be worked out from it
        facts = _gather(reservation, pods.get(reservation.metadata.uid, []), nodes, now)
        for untruth in _find_untrue(facts):
            yield Violation(Invariant.STATUS_UNTRUE, f"reservation {reservation.key}", untruth)


def _gather(reservation: Reservation, pods: list[Pod], nodes: dict[str, Node], now: datetime) -> _Facts:
    placeholders, owners = dict[tuple[str, str], Pod](), dict[tuple[str, str], Pod]()
    for pod in pods:
        notes = pod.metadata.annotations
        if PLACEHOLDER_LABEL in pod.metadata.labels:
            key = notes.get(TASK_ANNOTATION, ""), notes.get(INDEX_ANNOTATION, "")
            # Of a placeholder and its successor the running one holds the slot.
            if key not in placeholders or pod.status.phase == "Running":
                placeholders[key] = pod
        elif notes.get(SLOT_ANNOTATION, "").count("/"):
            task, indices, *_ = notes[SLOT_ANNOTATION].split("/")
            owners |= {(task, index): pod for index in indices.split("+")}
    return _Facts(reservation, placeholders, owners, nodes, now)


def _find_untrue(facts: _Facts) -> Iterator[str]:
    """Yield a phrase for each wrong claim of one status."""
    reservation = facts.reservation
    if reservation.status.state is None:
        yield "it has no status"
        return
    wanted_slots = {(task.name, index) for task in reservation.spec.tasks for index in range(task.replicas)}
    slots = reservation.status.slots
    if Counter((slot.task, slot.index) for slot in slots) != Counter(wanted_slots):
        yield "its slots are not those of its tasks"
        return
    yield from _wrong_phase(facts)
    yield from _wrong_numbers(reservation)
    yield from _wrong_amounts(reservation)
    yield from _wrong_conditions(reservation)
    for slot in slots:
        yield from _wrong_slot(facts, slot)


def _count(reservation: Reservation) -> Counter[SlotState]:
    return Counter(slot.state for slot in reservation.status.slots)


def _occupied(reservation: Reservation) -> int:
    """Return how many slots are held, on the way or taken; after the end only taken ones count."""
    counts = _count(reservation)
    slots_taken = counts[SlotState.TAKEN]
    return (
        slots_taken
        if reservation.phase.terminal
        else slots_taken + counts[SlotState.HELD] + counts[SlotState.HANDING_OVER]
    )


def _wrong_phase(facts: _Facts) -> Iterator[str]:
    """Yield the faults of the phase; Failed is history and may have any reason."""
    reservation, phase = facts.reservation, facts.reservation.phase
    complete = _count(reservation)[SlotState.TAKEN] == reservation.spec.replicas
    enough = _occupied(reservation) >= reservation.spec.wanted
    if phase is ReservationPhase.SUCCEEDED and not complete:
        yield "it is Succeeded though not every slot was taken"
    if phase.terminal:
        return
    if reservation.metadata.deletion_timestamp:
        yield f"it is {phase} though it is being deleted"
    elif complete:
        yield f"it is {phase} though every slot was taken"
    elif phase is ReservationPhase.AVAILABLE and not enough:
        yield "it is Available though fewer slots than wanted are held"
    elif phase in _OPEN_PHASES and enough:
        yield f"it is {phase} though enough slots are held"
    expiry = expires_at(reservation)
    if expiry is not None and expiry <= facts.now:
        yield f"it is {phase} though it has expired"


def _wrong_numbers(reservation: Reservation) -> Iterator[str]:
    """Yield the numbers and names that do not follow from the slots."""
    status, counts, is_over = reservation.status, _count(reservation), reservation.phase.terminal
    by_task: dict[str, Counter[str]] = {}
    for slot in status.slots:
        by_task.setdefault(slot.task, Counter())[slot.state.value] += 1
    expiry = expires_at(reservation)
    nodes = {slot.node for slot in status.slots if slot.node}
    claims = {
        "pending": (status.pending, 0 if is_over else counts[SlotState.PENDING]),
        "available": (status.available, (0 if is_over else counts[SlotState.HELD]) + counts[SlotState.HANDING_OVER]),
        "succeeded": (status.succeeded, counts[SlotState.TAKEN]),
        "failed": (status.failed, counts[SlotState.LOST]),
        "desired": (status.desired, reservation.spec.replicas),
        "minAvailable": (status.min_available, reservation.spec.wanted),
        "expiresAt": (status.expires_at, format_timestamp(expiry) if expiry else None),
        "observedGeneration": (status.observed_generation, reservation.metadata.generation),
        "node": (status.node, f"{len(nodes)} nodes" if len(nodes) > 1 else "".join(nodes)),
        "taskStatusCount": (
            {name: count.phase for name, count in status.task_status_count.items()},
            {name: dict(by_phase) for name, by_phase in by_task.items()},
        ),
    }
    for field, (claimed, worked_out) in claims.items():
        if claimed != worked_out:
            yield f"{field} is {claimed!r}, not {worked_out!r}"
    owners = {slot.owner for slot in status.slots} - {None}
    if status.current_owner not in (owners or {None}):
        yield "currentOwner is none of the slots' owners"


def _wrong_amounts(reservation: Reservation) -> Iterator[str]:
    requests = {task.name: effective_requests(task.template.spec) for task in reservation.spec.tasks}
    for field, claimed, states in (
        ("allocatable", reservation.status.allocatable, set(SlotState)),
        ("held", reservation.status.held, _ON_OFFER),
        ("allocated", reservation.status.allocated, {SlotState.TAKEN}),
    ):
        slots = (slot for slot in reservation.status.slots if slot.state in states)
        total = ResourceAmounts.total([requests[slot.task] for slot in slots])
        if ResourceAmounts.from_quantities(claimed) != total:
            yield f"{field} is {claimed}, not {readable_quantities(total)}"


def _wrong_conditions(reservation: Reservation) -> Iterator[str]:
    claims = {
        ConditionType.AVAILABLE: _occupied(reservation) >= reservation.spec.wanted,
        ConditionType.SUCCEEDED: reservation.phase is ReservationPhase.SUCCEEDED,
        ConditionType.FAILED: reservation.phase is ReservationPhase.FAILED,
    }
    for type_, holds in claims.items():
        if reservation.condition(type_) != holds:
            yield f"the condition {type_} is not {holds}"


def _wrong_slot(facts: _Facts, slot: Slot) -> Iterator[str]:
    """Yield the faults of one slot's state."""
    key, name = (slot.task, str(slot.index)), f"slot {slot.task}/{slot.index}"
    placeholder, owner = facts.placeholders.get(key), facts.owners.get(key)
    is_over = facts.reservation.phase.terminal
    match slot.state:
        case SlotState.HELD | SlotState.PENDING | SlotState.RELEASED if is_over is not (
            slot.state is SlotState.RELEASED
        ):
            yield f"{name} is {slot.state} though the Reservation is {facts.reservation.phase}"
        case SlotState.HELD if not _holds(facts, slot, placeholder):
            yield f"{name} is Held though no placeholder runs on node {slot.node}"
        case SlotState.PENDING if placeholder is not None and owner is None and _holds(facts, slot, placeholder):
            yield f"{name} is Pending though its placeholder runs"
        case SlotState.HANDING_OVER if owner is None or slot.owner is None or owner.metadata.uid != slot.owner.uid:
            yield f"{name} is HandingOver though no pod is on the way to it"
        case SlotState.TAKEN | SlotState.HANDING_OVER if slot.owner is None or not slot.node:
            yield f"{name} is {slot.state} and names no pod or no node"


def _holds(facts: _Facts, slot: Slot, placeholder: Pod | None) -> bool:
    """Return whether a placeholder holds a slot: it runs on an allowed node that lets in the owner."""
    if placeholder is None or placeholder.status.phase != "Running" or placeholder.is_terminating:
        return False
    node = placeholder.spec.node_name
    if node not in facts.nodes or slot.node not in {"", node}:
        return False
    return _task_of(facts.reservation, slot).allows(node) and _lets_in(facts.nodes[node], placeholder)


def _lets_in(node: Node, placeholder: Pod) -> bool:
    """Return whether a pod with the placeholder's tolerations could be bound and start on a node."""
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "True")
    # As the scheduler does: what tolerates this taint tolerates `spec.unschedulable`
    # (`pkg/scheduler/framework/plugins/nodeunschedulable`).
    cordon = (Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),) if node.spec.unschedulable else ()
    taints = (*cordon, *(taint for taint in node.spec.taints if taint.key != HANDOVER_TAINT))
    return ready == "True" and untolerated_taint(placeholder.spec.tolerations, taints) is None


def _task_of(reservation: Reservation, slot: Slot) -> ReservationTask:
    return next(task for task in reservation.spec.tasks if task.name == slot.task)
