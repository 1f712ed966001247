"""Owns what is true of each slot: its state, node, placeholder and owner, derived from what is observed.

It does not say what to do about it: `berth_operator.reconcile` does.
"""

from dataclasses import dataclass
from datetime import datetime

from berth_core.objects import Pod
from berth_core.reservations import ObjectReference, ReservationReason, ReservationTask, Slot, SlotState
from berth_operator.assignments import Assignment
from berth_operator.observation import Observation, assigned_owner, has_started

_PREEMPTED_BY_SCHEDULER = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot as observed, with the pods that make it so."""

    slot: Slot
    task: ReservationTask
    placeholder: Pod | None = None
    owner: Pod | None = None
    assignment: Assignment | None = None
    failure: ReservationReason | None = None
    """Set where the loss of this slot ends the whole Reservation."""


def view_slots(seen: Observation, now: datetime, *, settle_seconds: float) -> tuple[SlotView, ...]:
    """Return all slots in the order of tasks and indices."""
    prior = {(slot.task, slot.index): slot for slot in seen.reservation.status.slots}
    return tuple(
        _view_slot(seen, task, index, prior.get((task.name, index)), now, settle_seconds)
        for task in seen.reservation.spec.tasks
        for index in range(task.replicas)
    )


def _view_slot(
    seen: Observation,
    task: ReservationTask,
    index: int,
    prior: Slot | None,
    now: datetime,
    settle_seconds: float,
) -> SlotView:
    """Return one slot; what was taken or lost stays so, an owner on its way counts before a placeholder."""
    placeholder = seen.placeholders.get((task.name, index))
    given = assigned_owner(seen, task.name, index)
    if prior is not None and prior.state in {SlotState.TAKEN, SlotState.LOST}:
        return SlotView(prior, task, placeholder, given[0] if given else None)
    if given is not None:
        owner, assignment = given
        slot = _slot_in_handover(seen, owner, assignment, now, settle_seconds)
        return SlotView(slot, task, placeholder, owner, assignment)
    if seen.reservation.phase.terminal:
        return SlotView(Slot(task=task.name, index=index, state=SlotState.RELEASED), task, placeholder)
    return _view_placeholder(seen, task, index, prior, placeholder)


def _slot_in_handover(
    seen: Observation, owner: Pod, assignment: Assignment, now: datetime, settle_seconds: float
) -> Slot:
    """Return a slot whose owner is on its way: taken once it has run for the settling time, lost past its deadline."""
    slot = Slot(
        task=assignment.task,
        index=assignment.index,
        state=SlotState.HANDING_OVER,
        node=owner.spec.node_name or assignment.node,
        owner=reference_to(owner),
    )
    if has_started(owner):
        settled = seen.running_ages.get(owner.metadata.uid, 0.0) >= settle_seconds
        return _with(slot, SlotState.TAKEN) if settled else slot
    if now.timestamp() > assignment.deadline:
        return _with(slot, SlotState.LOST, f"pod {owner.key} did not run on node {assignment.node} in time")
    return slot


def _view_placeholder(
    seen: Observation, task: ReservationTask, index: int, prior: Slot | None, placeholder: Pod | None
) -> SlotView:
    """Return a slot that only its placeholder can hold."""
    slot = Slot(task=task.name, index=index, state=SlotState.PENDING)
    if placeholder is None:
        if prior is not None and prior.state is SlotState.HELD and prior.node not in seen.nodes:
            return _lost(slot, task, None, ReservationReason.NODE_LOST, f"node {prior.node} is gone", prior.node)
        return SlotView(slot, task)
    node = placeholder.spec.node_name
    if _was_preempted(placeholder):
        text = f"a pod of higher priority took the place on node {node}"
        return _lost(slot, task, placeholder, ReservationReason.PREEMPTED, text, node)
    if node and node not in seen.nodes:
        return _lost(slot, task, placeholder, ReservationReason.NODE_LOST, f"node {node} is gone", node)
    allowed = not task.reservation_node_names or node in task.reservation_node_names
    held = placeholder.status.phase == "Running" and not placeholder.is_terminating and allowed
    described = Slot(
        task=task.name,
        index=index,
        state=SlotState.HELD if held else SlotState.PENDING,
        node=node,
        placeholder=placeholder.metadata.name,
        message="" if held else why_pending(placeholder),
    )
    return SlotView(described, task, placeholder)


def _was_preempted(placeholder: Pod) -> bool:
    return any(
        c.type == "DisruptionTarget" and c.status == "True" and c.reason == _PREEMPTED_BY_SCHEDULER
        for c in placeholder.status.conditions
    )


def _lost(
    slot: Slot, task: ReservationTask, placeholder: Pod | None, reason: ReservationReason, message: str, node: str
) -> SlotView:
    lost = Slot(task=slot.task, index=slot.index, state=SlotState.LOST, node=node, message=message)
    return SlotView(lost, task, placeholder, failure=reason)


def _with(slot: Slot, state: SlotState, message: str = "") -> Slot:
    return Slot(task=slot.task, index=slot.index, state=state, node=slot.node, owner=slot.owner, message=message)


def why_pending(placeholder: Pod) -> str:
    """Return the scheduler's own words on a pending placeholder, "" where no scheduler has spoken."""
    if placeholder.is_terminating:
        return "the placeholder is terminating"
    return next((c.message for c in placeholder.status.conditions if c.type == "PodScheduled" and c.message), "")


def reference_to(pod: Pod) -> ObjectReference:
    """Return a reference to a pod."""
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
    )
