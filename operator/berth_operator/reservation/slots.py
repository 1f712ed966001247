"""State, node, placeholder and owner of each slot, from an observation.

The second half selects the nodes to survey: where room may still appear, or where another pod may have taken a place.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from berth_core import (
    Pod,
    ReservationReason,
    ReservationTask,
    ResourceAmounts,
    Slot,
    SlotState,
    format_timestamp,
)
from berth_operator.reservation.handover import SLOW_SECONDS, has_timed_out, may_be_bound, view_handover
from berth_operator.reservation.observation import (
    Assignment,
    Observation,
    SlotView,
    assigned_owners,
    awaited_node,
    has_started,
    is_on_its_way,
    slot_requests,
    slots_by_key,
)
from berth_operator.schedulers.kube_scheduler import SCHEDULER
from berth_operator.settings import HandoverSettings


@dataclass(frozen=True, slots=True)
class _Place:
    """A slot's task and index, with its previous status."""

    task: ReservationTask
    index: int
    prior: Slot | None


def view_slots(seen: Observation, handover: HandoverSettings) -> tuple[SlotView, ...]:
    """Return all slots in the order of tasks and indices."""
    prior = slots_by_key(seen.reservation)
    given = _with_swaps(seen, assigned_owners(seen), prior)
    views = tuple(
        _view_slot_and_successor(
            seen, _Place(task, index, prior.get((task.name, index))), given.get((task.name, index)), handover
        )
        for task in seen.reservation.spec.tasks
        for index in range(task.replicas)
    )
    left = sum(view.slot.state is not SlotState.LOST for view in views)
    if left >= seen.reservation.spec.wanted:
        views = tuple(_tolerate_loss(view) for view in views)
    return tuple(_with_expected_times(seen, views)) if seen.surveys else views


def _with_swaps(
    seen: Observation,
    given: Mapping[tuple[str, int], tuple[Pod, Assignment]],
    prior: Mapping[tuple[str, int], Slot],
) -> Mapping[tuple[str, int], tuple[Pod, Assignment]]:
    """Return the assignments, with owners that were bound in another owner's place in its slot.

    Pods that waited have no gate of ours: the first place that is freed may go to any of them. The other owner is left
    without a slot, and gets the one whose placeholder still stands.
    """
    swapped = dict(given)
    for key, (owner, note) in given.items():
        if not _needs_no_slot(owner, note, seen.placeholders.get(key)):
            continue
        for other, slot in prior.items():
            placeholder = seen.placeholders.get(other)
            is_freed = slot.state is SlotState.HANDING_OVER and (placeholder is None or placeholder.is_terminating)
            its_owner = swapped.get(other)
            is_used = its_owner is not None and bool(its_owner[0].spec.node_name)
            if is_freed and not is_used and slot.task == note.task and slot.node == owner.spec.node_name:
                del swapped[key]
                swapped[other] = owner, replace(note, index=slot.index, node=slot.node)
                break
    return swapped


def _with_expected_times(seen: Observation, views: Iterable[SlotView]) -> Iterator[SlotView]:
    """Yield the slots, those that await a node's capacity with the time they may have it.

    Of several slots of a Reservation on one node the later ones need the room of the earlier ones, too.
    """
    wanted: dict[str, ResourceAmounts] = {}
    for view in views:
        node = awaited_node(view.placeholder) if view.placeholder is not None else ""
        survey = seen.surveys.get(node)
        if survey is None or view.slot.state is not SlotState.PENDING:
            yield view
            continue
        wanted[node] = wanted.get(node, ResourceAmounts.empty()).plus(slot_requests(view.task.template.spec))
        expected = survey.expected_room(wanted[node])
        text = format_timestamp(expected) if expected is not None else None
        yield replace(view, slot=msgspec.structs.replace(view.slot, expected_at=text))


def _tolerate_loss(view: SlotView) -> SlotView:
    """Turn a lost slot into one to hold again.

    The slot stays lost if its owner had begun.
    """
    if view.failure is None:
        return view
    if view.owner is not None:
        return replace(view, failure=None)
    slot = Slot(task=view.slot.task, index=view.slot.index, state=SlotState.PENDING, message=view.slot.message)
    return replace(view, slot=slot, failure=None)


def _view_slot_and_successor(
    seen: Observation, place: _Place, given: tuple[Pod, Assignment] | None, handover: HandoverSettings
) -> SlotView:
    """Return one slot, held while its placeholder gives way to a successor."""
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
    if not has_started(successor) and has_timed_out(seen, successor, note, view.placeholder, handover):
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


def _view_slot(
    seen: Observation, place: _Place, given: tuple[Pod, Assignment] | None, handover: HandoverSettings
) -> SlotView:
    """Return one slot; an owner on its way counts before a placeholder."""
    task, prior = place.task, place.prior
    placeholder = seen.placeholders.get((task.name, place.index))
    if prior is not None and prior.state in {SlotState.TAKEN, SlotState.LOST}:
        return SlotView(prior, task, placeholder, given[0] if given else None)
    if given is not None and not _needs_no_slot(*given, placeholder):
        owner, assignment = given
        return view_handover(seen, task, owner, assignment, placeholder, handover, prior=prior)
    if seen.reservation.phase.terminal:
        return SlotView(Slot(task=task.name, index=place.index, state=SlotState.RELEASED), task, placeholder)
    return _view_placeholder(seen, place, placeholder)


def _needs_no_slot(owner: Pod, assignment: Assignment, placeholder: Pod | None) -> bool:
    """Return whether an owner was bound elsewhere while its slot was still held."""
    # It had waited without our gate, and the scheduler found another place for it. Bound to the slot's own node, it has
    # taken the slot: its placeholder is gone, and only the word of that may come late.
    is_elsewhere = owner.spec.node_name not in {"", assignment.node}
    return is_elsewhere and placeholder is not None and not placeholder.is_terminating


def _view_placeholder(seen: Observation, place: _Place, placeholder: Pod | None) -> SlotView:
    """Return a slot that only its placeholder can hold."""
    task, index, prior = place.task, place.index, place.prior
    slot = Slot(task=task.name, index=index, state=SlotState.PENDING)
    if placeholder is None:
        if prior is not None and prior.state is SlotState.HELD and prior.node in seen.missing_nodes:
            return _lost(slot, task, None, ReservationReason.NODE_LOST, f"node {prior.node} is gone", prior.node)
        return SlotView(slot, task)
    node = placeholder.spec.node_name
    if SCHEDULER.was_preempted(placeholder):
        text = f"a pod of higher priority took the place on node {node}"
        return _lost(slot, task, placeholder, ReservationReason.PREEMPTED, text, node)
    if node in seen.missing_nodes:
        return _lost(slot, task, placeholder, ReservationReason.NODE_LOST, f"node {node} is gone", node)
    runs = placeholder.status.phase == "Running" and not placeholder.is_terminating and task.allows(node)
    closed = seen.why_closed(placeholder) if runs else ""
    held = runs and not closed
    described = Slot(
        task=task.name,
        index=index,
        state=SlotState.HELD if held else SlotState.PENDING,
        node=node or awaited_node(placeholder),
        placeholder=placeholder.metadata.name,
        reason=ReservationReason.NODE_CLOSED.value if closed else "",
        message=f"node {node} {closed}" if closed else "" if held else _why_pending(placeholder),
    )
    return SlotView(described, task, placeholder)


def _lost(
    slot: Slot, task: ReservationTask, placeholder: Pod | None, reason: ReservationReason, message: str, node: str
) -> SlotView:
    lost = msgspec.structs.replace(slot, state=SlotState.LOST, node=node, reason=reason.value, message=message)
    return SlotView(lost, task, placeholder, failure=reason)


def _why_pending(placeholder: Pod) -> str:
    """Return the scheduler's message on a pending placeholder, "" without one."""
    if placeholder.is_terminating:
        return "the placeholder is terminating"
    return SCHEDULER.why_refused(placeholder)


def is_refused(view: SlotView) -> bool:
    """Return whether a scheduler has reported why it finds no place."""
    if view.placeholder is None or view.placeholder.is_terminating or view.placeholder.spec.node_name:
        return False  # the message on a placeholder with a node is not the scheduler's
    return bool(view.slot.message)


def is_closed(view: SlotView) -> bool:
    """Return whether a placeholder's node would refuse its owner."""
    return view.slot.state is SlotState.PENDING and view.slot.reason == ReservationReason.NODE_CLOSED


# --- nodes to survey -------------------------------------------------------------------------------------------------

_MOST_NODES: Final = 4
"""With more nodes to choose from, none is surveyed."""

_BUSY_SECONDS: Final = 2.0
"""Interval between surveys of a node where a change is imminent."""

_QUIET_SECONDS: Final = 5.0
"""Interval between surveys of other nodes."""

_AWAITED_SECONDS: Final = 30.0
"""Interval between surveys of a node whose pods end some day; they only show when."""


def node_to_come(seen: Observation, view: SlotView) -> str:
    """Return the node where pods that end leave room for a slot.

    "" without such a node. If a plan makes the room, or the slot awaits a chosen node's capacity, the pods may not even
    be terminating yet.
    """
    if view.placeholder is not None and awaited_node(view.placeholder):
        return awaited_node(view.placeholder)
    if seen.reservation.awaits_room and view.task.node_names:
        return view.task.node_names[0]
    for node in _chosen_nodes(view):
        survey = seen.surveys.get(node)
        if survey is not None and survey.will_have_room(view.task.template.spec):
            return node
    return ""


def due_surveys(seen: Observation, views: tuple[SlotView, ...]) -> tuple[dict[str, None], float | None]:
    """Return nodes to survey now, and seconds until the next survey.

    The nodes are in order.
    """
    due: dict[str, None] = {}
    later: list[float] = []
    for node, seconds in _surveys(seen, views):
        if seconds <= 0:
            due[node] = None
        later.append(seconds if seconds > 0 else _BUSY_SECONDS)
    return due, min(later, default=None)


def _surveys(seen: Observation, views: tuple[SlotView, ...]) -> Iterator[tuple[str, float]]:
    """Yield each node relevant to a slot, and seconds until its survey."""
    for view in views:
        is_awaited = view.placeholder is not None and bool(awaited_node(view.placeholder))
        for node in _chosen_nodes(view):
            yield node, _seconds_left(seen, node, quiet_seconds=_AWAITED_SECONDS if is_awaited else _QUIET_SECONDS)
        if view.owner is not None and view.assignment is not None and may_be_bound(view.owner, view.placeholder):
            slow = SLOW_SECONDS - seen.stage_ages.get(view.owner.metadata.uid, 0.0)
            yield view.assignment.node, max(slow, _seconds_left(seen, view.assignment.node, is_urgent=True))


def _chosen_nodes(view: SlotView) -> tuple[str, ...]:
    """Return the task's nodes if the scheduler found no place, or the one that is awaited.

    Empty if there are many nodes.
    """
    awaited = awaited_node(view.placeholder) if view.placeholder is not None else ""
    names = (awaited,) if awaited else view.task.node_names
    refused = view.slot.state is SlotState.PENDING and is_refused(view)
    return names if refused and len(names) <= _MOST_NODES else ()


def _seconds_left(
    seen: Observation, node: str, *, is_urgent: bool = False, quiet_seconds: float = _QUIET_SECONDS
) -> float:
    survey = seen.surveys.get(node)
    if survey is None:
        return 0.0
    return (_BUSY_SECONDS if is_urgent or survey.going() else quiet_seconds) - survey.age_seconds
