"""Owns what is true of each slot: its state, node, placeholder and owner, derived from what is observed.

It does not say what to do about it: `decisions.reconcile` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from berth_core.objects import Pod
from berth_core.reservations import ObjectReference, ReservationReason, ReservationTask, Slot, SlotState
from berth_operator.reconcile.handover import HandoverStage, is_given_up, stage_of
from berth_operator.reconcile.observation import (
    Assignment,
    Observation,
    assigned_owners,
    has_started,
    is_on_its_way,
    slots_by_key,
)
from berth_operator.settings import HandoverSettings

_PREEMPTED_BY_SCHEDULER: Final = "PreemptionByScheduler"

SLOW_SECONDS: Final = 5.0
"""After this long an owner that is not bound may have lost its place."""

_FRESH_SECONDS: Final = 3.0
"""How old a look at a node may be that ends a hand-over; younger than `SLOW_SECONDS`, so that it was made during it."""


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
    successor: Pod | None = None
    renewal: Assignment | None = None
    """Set while the successor is handed the place of the placeholder, which is held by the guard meanwhile."""


def view_slots(seen: Observation, handover: HandoverSettings) -> tuple[SlotView, ...]:
    """Return all slots in the order of tasks and indices."""
    prior = slots_by_key(seen.reservation)
    given = assigned_owners(seen)
    views = tuple(
        _view_slot_and_successor(
            seen, _Place(task, index, prior.get((task.name, index))), given.get((task.name, index)), handover
        )
        for task in seen.reservation.spec.tasks
        for index in range(task.replicas)
    )
    return _bear_losses(views, seen.reservation.spec.wanted)


def _bear_losses(views: tuple[SlotView, ...], wanted: int) -> tuple[SlotView, ...]:
    """Return the slots with those that were just lost to be held again, where enough others are left without them."""
    left = sum(view.slot.state is not SlotState.LOST for view in views)
    return views if left < wanted else tuple(_bear_loss(view) for view in views)


def _bear_loss(view: SlotView) -> SlotView:
    """Return a slot that was just lost as one to be held again, or as lost for good where its owner had begun."""
    if view.failure is None:
        return view
    if view.owner is not None:
        return replace(view, failure=None)
    slot = Slot(task=view.slot.task, index=view.slot.index, state=SlotState.PENDING, message=view.slot.message)
    return replace(view, slot=slot, failure=None)


@dataclass(frozen=True, slots=True)
class _Place:
    """A slot before it is looked at: which it is, and what the status said of it."""

    task: ReservationTask
    index: int
    prior: Slot | None


def _view_slot(
    seen: Observation,
    place: _Place,
    given: tuple[Pod, Assignment] | None,
    handover: HandoverSettings,
) -> SlotView:
    """Return one slot; what was taken or lost stays so, an owner on its way counts before a placeholder."""
    task, prior = place.task, place.prior
    placeholder = seen.placeholders.get((task.name, place.index))
    if prior is not None and prior.state in {SlotState.TAKEN, SlotState.LOST}:
        return SlotView(prior, task, placeholder, given[0] if given else None)
    if given is not None and not _needs_no_slot(given[0], placeholder):
        owner, assignment = given
        slot, failure = _slot_in_handover(seen, owner, assignment, placeholder, handover)
        if is_on_its_own(owner, placeholder) and slot.state is SlotState.HANDING_OVER:
            slot = _unless_taken_by_another(seen, slot, owner, assignment)
        return SlotView(slot, task, placeholder, owner, assignment, failure)
    if seen.reservation.phase.terminal:
        return SlotView(Slot(task=task.name, index=place.index, state=SlotState.RELEASED), task, placeholder)
    return _view_placeholder(seen, place, placeholder)


def _view_slot_and_successor(
    seen: Observation,
    place: _Place,
    given: tuple[Pod, Assignment] | None,
    handover: HandoverSettings,
) -> SlotView:
    """Return one slot; it is held while one placeholder hands its place to another."""
    view = _view_slot(seen, place, given, handover)
    successor = seen.successors.get((place.task.name, place.index))
    if successor is None:
        return view
    view = replace(view, successor=successor)
    note = Assignment.from_pod(successor)
    can_hold = view.slot.state in {SlotState.HELD, SlotState.PENDING} and view.failure is None
    if note is None or not can_hold or not is_on_its_way(successor) or note.node in seen.missing_nodes:
        return view
    if is_closed(view):
        return view
    if not has_started(successor) and is_given_up(seen, successor, note, view.placeholder, handover):
        return view
    holder = view.placeholder or successor
    slot = Slot(
        task=place.task.name,
        index=place.index,
        state=SlotState.HELD,
        node=successor.spec.node_name or note.node,
        placeholder=holder.metadata.name,
    )
    return replace(view, slot=slot, renewal=note)


def _slot_in_handover(
    seen: Observation, owner: Pod, assignment: Assignment, placeholder: Pod | None, handover: HandoverSettings
) -> tuple[Slot, ReservationReason | None]:
    """Return a slot whose owner is on its way, and the failure that this is.

    It is taken once the owner has run for the settling time, or has been bound for as long as a hand-over takes: a
    bound pod has its place, however long its images take. It is lost where an owner that is not bound has had its time,
    or the node is gone before.
    """
    slot = Slot(
        task=assignment.task,
        index=assignment.index,
        state=SlotState.HANDING_OVER,
        node=owner.spec.node_name or assignment.node,
        owner=reference_to(owner),
    )
    given_up = is_given_up(seen, owner, assignment, placeholder, handover)
    if has_started(owner):
        settled = seen.running_ages.get(owner.metadata.uid, 0.0) >= handover.settle_seconds
        return (_with(slot, SlotState.TAKEN, _landing(owner, assignment)) if settled else slot), None
    if owner.spec.node_name:
        starting = f"pod {owner.key} is bound to node {slot.node} and does not run yet"
        return (_with(slot, SlotState.TAKEN, starting) if given_up else slot), None
    if assignment.node in seen.missing_nodes:
        text = f"node {assignment.node} is gone"
        return _with(slot, SlotState.LOST, text, ReservationReason.NODE_LOST), ReservationReason.NODE_LOST
    if given_up:
        text = f"pod {owner.key} was not bound to node {assignment.node} in time"
        return _with(slot, SlotState.LOST, text, ReservationReason.HANDOVER_TIMEOUT), None
    return slot, None


def _needs_no_slot(owner: Pod, placeholder: Pod | None) -> bool:
    """Tell whether an owner found a place by itself while its slot was still held: it had waited and was not gated."""
    return bool(owner.spec.node_name) and placeholder is not None and not placeholder.is_terminating


def is_on_its_own(owner: Pod | None, placeholder: Pod | None) -> bool:
    """Tell whether an owner's place is free for it and it is for the scheduler to bind it."""
    return owner is not None and stage_of(owner, placeholder) in {HandoverStage.UNTRIED, HandoverStage.TRIED}


def _unless_taken_by_another(seen: Observation, slot: Slot, owner: Pod, given: Assignment) -> Slot:
    """Return the slot as lost where a fresh look at its node shows that others have left its owner no room."""
    survey = seen.surveys.get(given.node)
    slow = seen.stage_ages.get(owner.metadata.uid, 0.0) >= SLOW_SECONDS
    if survey is None or not slow or survey.age_seconds > _FRESH_SECONDS:
        return slot
    takers = survey.takers(owner)
    own = (seen.reservation.metadata.uid, given.task, str(given.index))
    if not takers or any(taker.holds == own for taker in takers):
        return slot
    text = f"pod {takers[0].key} took the place of pod {owner.key} on node {given.node}"
    return _with(slot, SlotState.LOST, text, ReservationReason.PLACE_TAKEN)


def _landing(owner: Pod, assignment: Assignment) -> str:
    """Return what there is to say of an owner that runs: nothing where it is on the node of its slot."""
    node = owner.spec.node_name
    return "" if node == assignment.node else f"pod {owner.key} runs on node {node}, not on node {assignment.node}"


def _view_placeholder(seen: Observation, place: _Place, placeholder: Pod | None) -> SlotView:
    """Return a slot that only its placeholder can hold."""
    task, index, prior = place.task, place.index, place.prior
    slot = Slot(task=task.name, index=index, state=SlotState.PENDING)
    if placeholder is None:
        if prior is not None and prior.state is SlotState.HELD and prior.node in seen.missing_nodes:
            return _lost(slot, task, None, ReservationReason.NODE_LOST, f"node {prior.node} is gone", prior.node)
        return SlotView(slot, task)
    node = placeholder.spec.node_name
    if _was_preempted(placeholder):
        text = f"a pod of higher priority took the place on node {node}"
        return _lost(slot, task, placeholder, ReservationReason.PREEMPTED, text, node)
    if node in seen.missing_nodes:
        return _lost(slot, task, placeholder, ReservationReason.NODE_LOST, f"node {node} is gone", node)
    allowed = not task.reservation_node_names or node in task.reservation_node_names
    runs = placeholder.status.phase == "Running" and not placeholder.is_terminating and allowed
    closed = seen.why_closed(placeholder) if runs else ""
    held = runs and not closed
    described = Slot(
        task=task.name,
        index=index,
        state=SlotState.HELD if held else SlotState.PENDING,
        node=node,
        placeholder=placeholder.metadata.name,
        reason=ReservationReason.NODE_CLOSED.value if closed else "",
        message=f"node {node} {closed}" if closed else "" if held else why_pending(placeholder),
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
    lost = msgspec.structs.replace(slot, state=SlotState.LOST, node=node, reason=reason.value, message=message)
    return SlotView(lost, task, placeholder, failure=reason)


def _with(slot: Slot, state: SlotState, message: str = "", reason: str = "") -> Slot:
    return msgspec.structs.replace(slot, state=state, message=message, reason=str(reason))


def why_pending(placeholder: Pod) -> str:
    """Return the scheduler's own words on a pending placeholder, "" where no scheduler has spoken."""
    if placeholder.is_terminating:
        return "the placeholder is terminating"
    return next((c.message for c in placeholder.status.conditions if c.type == "PodScheduled" and c.message), "")


def is_refused(view: SlotView) -> bool:
    """Tell whether a scheduler has said why it finds no place."""
    if view.placeholder is None or view.placeholder.is_terminating or view.placeholder.spec.node_name:
        return False  # what is said of a placeholder on a node is no scheduler's word
    return bool(view.slot.message)


def is_closed(view: SlotView) -> bool:
    """Tell whether a placeholder runs on a node that would not let in its owner."""
    return view.slot.state is SlotState.PENDING and view.slot.reason == ReservationReason.NODE_CLOSED


def reference_to(pod: Pod) -> ObjectReference:
    """Return a reference to a pod."""
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
    )


# --- capacity --------------------------------------------------------------------------------------------------------
# What is to be asked about nodes: whether room is still to come there, whether another pod took a place.
#
# It does not ask (`acting.performer`), nor say what an answer means (`decisions.surveys`).

_MOST_NODES: Final = 4
"""With more nodes to choose from, no node is chosen."""

_BUSY_SECONDS: Final = 2.0
"""How often a node is looked at on which something is about to change."""

_QUIET_SECONDS: Final = 5.0
"""How often it is looked at otherwise."""


def node_to_come(seen: Observation, view: SlotView) -> str:
    """Return the node on which a slot gets its room once the pods there that are terminating are gone; "" for none.

    Where a plan makes the room, its pods may not even be terminating yet.
    """
    if seen.reservation.awaits_room and view.task.reservation_node_names:
        return view.task.reservation_node_names[0]
    for node in _chosen_nodes(view):
        survey = seen.surveys.get(node)
        if survey is not None and survey.will_have_room(view.task.template.spec):
            return node
    return ""


def due_looks(seen: Observation, views: tuple[SlotView, ...]) -> tuple[dict[str, None], float | None]:
    """Return the nodes to look at now, in order, and in how many seconds the next look is due; None where none is."""
    due: dict[str, None] = {}
    later: list[float] = []
    for node, seconds in _looks(seen, views):
        if seconds <= 0:
            due[node] = None
        later.append(seconds if seconds > 0 else _BUSY_SECONDS)
    return due, min(later, default=None)


def _looks(seen: Observation, views: tuple[SlotView, ...]) -> Iterator[tuple[str, float]]:
    """Yield each node that matters to a slot, and in how many seconds it is to be looked at."""
    for view in views:
        for node in _chosen_nodes(view):
            yield node, _seconds_left(seen, node)
        if view.owner is not None and view.assignment is not None and is_on_its_own(view.owner, view.placeholder):
            slow = SLOW_SECONDS - seen.stage_ages.get(view.owner.metadata.uid, 0.0)
            yield view.assignment.node, max(slow, _seconds_left(seen, view.assignment.node, is_urgent=True))


def _chosen_nodes(view: SlotView) -> tuple[str, ...]:
    """Return the few nodes that a placeholder is tied to for which the scheduler found no place."""
    names = view.task.reservation_node_names
    refused = view.slot.state is SlotState.PENDING and is_refused(view)
    return names if refused and len(names) <= _MOST_NODES else ()


def _seconds_left(seen: Observation, node: str, *, is_urgent: bool = False) -> float:
    survey = seen.surveys.get(node)
    if survey is None:
        return 0.0
    return (_BUSY_SECONDS if is_urgent or survey.going() else _QUIET_SECONDS) - survey.age_seconds
