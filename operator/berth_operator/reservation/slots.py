"""State, node, placeholder and owner of each slot, from an observation.

What happens when the node of a slot is gone, its placeholder is preempted, or its owner does not come, is read here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

import msgspec

from berth_core import (
    ObjectReference,
    Pod,
    ReservationReason,
    ReservationTask,
    ResourceAmounts,
    Slot,
    SlotState,
    format_timestamp,
)
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.fitting import slots_by_key, trusted_assignment
from berth_operator.reservation.handover import Handover, HandoverStage, read_handover
from berth_operator.reservation.node_choice import SlotId
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.pod_state import awaited_node, is_on_its_way
from berth_operator.reservation.surveys import slot_requests
from berth_operator.schedulers.kube_scheduler import SCHEDULER
from berth_operator.settings import HandoverSettings

SLOW_SECONDS: Final = 5.0
"""An owner that is not bound after this long may have lost its place; the status reports one that does not run."""

_FRESH_SECONDS: Final = 3.0
"""Maximum age of a survey that ends a hand-over; below `SLOW_SECONDS`, so it was made during it."""

_Given = tuple[Pod, Assignment]
"""An owner and the slot that it gets."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot as observed, with its pods."""

    slot: Slot
    task: ReservationTask
    placeholder: Pod | None = None
    owner: Pod | None = None
    """The pod that gets the slot, or had it."""
    handover: Handover | None = None
    """The pod on its way into the slot: its owner, or the successor by which a held slot is renewed."""
    successor: Pod | None = None
    """The next placeholder, whether it is still of use or not."""
    failure: ReservationReason | None = None
    """Set if the loss of this slot ends the whole Reservation."""

    @property
    def key(self) -> SlotId:
        return self.slot.task, self.slot.index

    @property
    def is_renewed(self) -> bool:
        """Whether the placeholder hands its place to its successor; the guard keeps it meanwhile."""
        return self.slot.state is SlotState.HELD and self.handover is not None


@dataclass(frozen=True, slots=True)
class _Position:
    """A slot's task and index, with its previous status."""

    task: ReservationTask
    index: int
    prior: Slot | None

    @property
    def key(self) -> SlotId:
        return self.task.name, self.index


def view_slots(seen: Observation, settings: HandoverSettings) -> tuple[SlotView, ...]:
    """Return all slots in the order of tasks and indices."""
    prior = slots_by_key(seen.reservation)
    assigned_owners = _with_swaps(seen, _assigned_owners(seen, prior), prior)
    places = (
        _Position(task, index, prior.get((task.name, index)))
        for task in seen.reservation.spec.tasks
        for index in range(task.replicas)
    )
    views = tuple(
        _with_successor(seen, _view_slot(seen, place, assigned_owners, settings), settings) for place in places
    )
    slots_left = sum(view.slot.state is not SlotState.LOST for view in views)
    if slots_left >= seen.reservation.spec.wanted:
        views = tuple(_tolerate_loss(view) for view in views)
    else:
        views = tuple(_tolerate_loss(view) if _may_be_held_elsewhere(seen, view) else view for view in views)
    return tuple(_with_expected_times(seen, views)) if seen.surveys else views


def _assigned_owners(seen: Observation, prior: Mapping[SlotId, Slot]) -> dict[SlotId, _Given]:
    """Return each slot's living pod with its assignment."""
    # Of several pods with a note for a slot the one that the status names already counts, else the oldest: a later note
    # takes nothing from a hand-over that has begun. (`sorted` is stable, and owners come oldest first.)
    notes = ((pod, trusted_assignment(seen.reservation, pod, prior)) for pod in seen.owners if is_on_its_way(pod))
    given = [(pod, note) for pod, note in notes if note is not None]
    owners: dict[SlotId, _Given] = {}
    for pod, note in sorted(given, key=lambda pair: not _is_named(pair[0], pair[1], prior)):
        if owners.keys().isdisjoint(note.slots):
            owners |= dict.fromkeys(note.slots, (pod, note))
    return owners


def _is_named(pod: Pod, note: Assignment, prior: Mapping[SlotId, Slot]) -> bool:
    """Return whether the status names a pod as the owner of all slots of its note."""
    slot_owners = (prior[key].owner for key in note.slots)
    return all(owner is not None and owner.uid == pod.metadata.uid for owner in slot_owners)


def _with_swaps(
    seen: Observation, given: Mapping[SlotId, _Given], prior: Mapping[SlotId, Slot]
) -> Mapping[SlotId, _Given]:
    """Return the assignments, with owners that were bound in another owner's place in that one's slot.

    The other owner is left without a slot, and gets the one whose placeholder still stands.
    """
    # Pods that waited have no gate of ours: the first place that is freed may go to any of them.
    swapped_owners = dict(given)
    for key, (owner, note) in given.items():
        if note.further or not _needs_no_slot(owner, note, seen.placeholders.get(key)):
            continue
        for other_key, slot in prior.items():
            placeholder = seen.placeholders.get(other_key)
            is_freed = slot.state is SlotState.HANDING_OVER and (placeholder is None or placeholder.is_terminating)
            its_owner = swapped_owners.get(other_key)
            is_used = its_owner is not None and bool(its_owner[0].spec.node_name or its_owner[1].further)
            if is_freed and not is_used and slot.task == note.task and slot.node == owner.spec.node_name:
                del swapped_owners[key]
                swapped_owners[other_key] = owner, replace(note, index=slot.index, node=slot.node)
                break
    return swapped_owners


def _needs_no_slot(owner: Pod, note: Assignment, placeholder: Pod | None) -> bool:
    """Return whether an owner was bound elsewhere while its slot was still held."""
    # It had waited without our gate, and the scheduler found another place for it. Bound to the slot's own node, it has
    # taken the slot: its placeholder is gone, and only the word of that may come late.
    is_elsewhere = owner.spec.node_name not in {"", note.node}
    return is_elsewhere and placeholder is not None and not placeholder.is_terminating


def _may_be_held_elsewhere(seen: Observation, view: SlotView) -> bool:
    """Return whether a placeholder was lost with its node, and may be on another one."""
    allowed = view.task.node_names
    return view.failure is ReservationReason.NODE_LOST and (not allowed or not seen.missing_nodes.issuperset(allowed))


def _tolerate_loss(view: SlotView) -> SlotView:
    """Turn a lost slot into one to hold again; it stays lost if its owner had begun."""
    if view.failure is None:
        return view
    if view.owner is not None:
        return replace(view, failure=None)
    slot = Slot(task=view.slot.task, index=view.slot.index, state=SlotState.PENDING, message=view.slot.message)
    return replace(view, slot=slot, failure=None)


def _with_expected_times(seen: Observation, views: Iterable[SlotView]) -> Iterator[SlotView]:
    """Yield the slots, those that await a node's capacity with the time at which they may have it."""
    # Of several slots of a Reservation on one node the later ones need the room of the earlier ones, too.
    requests_by_node: dict[str, ResourceAmounts] = {}
    for view in views:
        node = awaited_node(view.placeholder) if view.placeholder is not None else ""
        survey = seen.surveys.get(node)
        if survey is None or view.slot.state is not SlotState.PENDING:
            yield view
            continue
        requests_by_node[node] = requests_by_node.get(node, ResourceAmounts.empty()).plus(
            slot_requests(view.task.template.spec)
        )
        expected_at = survey.expected_room(requests_by_node[node])
        text = format_timestamp(expected_at) if expected_at is not None else None
        yield replace(view, slot=msgspec.structs.replace(view.slot, expected_at=text))


def _view_slot(
    seen: Observation, place: _Position, given: Mapping[SlotId, _Given], settings: HandoverSettings
) -> SlotView:
    """Return one slot; an owner on its way counts before a placeholder."""
    placeholder = seen.placeholders.get(place.key)
    owner, note = given.get(place.key, (None, None))
    if place.prior is not None and place.prior.state in {SlotState.TAKEN, SlotState.LOST}:
        return SlotView(place.prior, place.task, placeholder, owner)
    if owner is not None and note is not None and not _needs_no_slot(owner, note, placeholder):
        return _view_handover(seen, place, read_handover(seen, owner, note, placeholder, settings))
    if seen.reservation.phase.terminal:
        slot = Slot(task=place.task.name, index=place.index, state=SlotState.RELEASED)
        return SlotView(slot, place.task, placeholder)
    return _view_placeholder(seen, place, placeholder)


def _view_handover(seen: Observation, place: _Position, handover: Handover) -> SlotView:
    """Return a slot in hand-over, taken once the owner runs.

    It is lost if an owner that is not bound has spent its time, or if its node is gone and no scheduler is about to
    bind it elsewhere.
    """
    owner, note = handover.pod, handover.note
    slot = Slot(
        task=place.task.name,
        index=place.index,
        state=SlotState.HANDING_OVER,
        node=owner.spec.node_name or note.node,
        owner=ObjectReference.of("v1", "Pod", owner.metadata),
    )
    failure: ReservationReason | None = None
    match handover.stage:
        case HandoverStage.RUNNING:
            slot = msgspec.structs.replace(slot, state=SlotState.TAKEN, message=_misplacement(owner, note))
        case HandoverStage.BOUND:
            slot = _starting(slot) if _is_slow_to_start(handover, place.prior) else slot
        case HandoverStage.UNTRIED if handover.is_node_missing and not handover.has_timed_out:
            # A scheduler that has not reported yet may bind the pod elsewhere: the status says what comes of it.
            slot = msgspec.structs.replace(slot, message=_why_lost(seen, note.node))
        case _ if handover.is_node_missing:
            failure = ReservationReason.NODE_LOST
            slot = _lost(slot, failure, _why_lost(seen, note.node), slot.node)
        case _ if handover.has_timed_out:
            text = f"pod {owner.key} was not bound to node {note.node} in time"
            slot = _lost(slot, ReservationReason.HANDOVER_TIMEOUT, text, slot.node)
        case HandoverStage.UNTRIED | HandoverStage.TRIED:
            slot = _unless_taken_by_another(seen, slot, handover)
        case HandoverStage.HELD | HandoverStage.ENDING | HandoverStage.FREED:
            pass  # the place is kept: what is waited for is the operator's next step
        case stage:
            assert_never(stage)
    return SlotView(slot, place.task, handover.placeholder, owner, handover, failure=failure)


def is_starting(slot: Slot) -> bool:
    """Return whether a slot's owner has been bound for some time and does not run yet."""
    return slot.state is SlotState.HANDING_OVER and slot.reason == ReservationReason.OWNERS_STARTING


def _is_slow_to_start(handover: Handover, prior: Slot | None) -> bool:
    """Return whether the status should say that a bound owner does not run yet."""
    # Most owners run before a report would be worth a write. A report stays, also when another operator takes over.
    reported = prior.owner if prior is not None and is_starting(prior) else None
    was_reported = reported is not None and reported.uid == handover.pod.metadata.uid
    return was_reported or handover.spent_seconds >= SLOW_SECONDS


def _starting(slot: Slot) -> Slot:
    pod = f"pod {slot.owner.namespace}/{slot.owner.name}" if slot.owner is not None else "a pod"
    text = f"{pod} is bound to node {slot.node} and does not run yet"
    return msgspec.structs.replace(slot, reason=ReservationReason.OWNERS_STARTING.value, message=text)


def count_bound_as_taken(view: SlotView) -> SlotView:
    """Return the slot of a Reservation that is over: an owner that is bound has its place, whether it runs or not."""
    is_bound = view.handover is not None and view.handover.stage.has_node
    if view.slot.state is not SlotState.HANDING_OVER or not is_bound:
        return view
    return replace(view, slot=msgspec.structs.replace(_starting(view.slot), state=SlotState.TAKEN, reason=""))


def _misplacement(owner: Pod, note: Assignment) -> str:
    """Return that an owner runs on the wrong node, or ""."""
    node = owner.spec.node_name
    return "" if node == note.node else f"pod {owner.key} runs on node {node}, not on node {note.node}"


def _unless_taken_by_another(seen: Observation, slot: Slot, handover: Handover) -> Slot:
    """Return the slot, lost if a fresh survey shows no room."""
    note, owner = handover.note, handover.pod
    survey = seen.surveys.get(note.node)
    if survey is None or handover.spent_seconds < SLOW_SECONDS or survey.age_seconds > _FRESH_SECONDS:
        return slot
    takers = survey.takers(owner)
    own_placeholders = {(seen.reservation.metadata.uid, task, str(index)) for task, index in note.slots}
    if not takers or any(taker.holds in own_placeholders for taker in takers):
        return slot
    text = f"pod {takers[0].key} took the place of pod {owner.key} on node {note.node}"
    return _lost(slot, ReservationReason.PLACE_TAKEN, text, slot.node)


def _view_placeholder(seen: Observation, place: _Position, placeholder: Pod | None) -> SlotView:
    """Return a slot that only its placeholder can hold."""
    task, prior = place.task, place.prior
    slot = Slot(task=task.name, index=place.index, state=SlotState.PENDING)
    if placeholder is None:
        if prior is not None and prior.state is SlotState.HELD and prior.node in seen.missing_nodes:
            lost_slot = _lost(slot, ReservationReason.NODE_LOST, _why_lost(seen, prior.node), prior.node)
            return SlotView(lost_slot, task, failure=ReservationReason.NODE_LOST)
        return SlotView(slot, task)
    node = placeholder.spec.node_name
    if SCHEDULER.was_preempted(placeholder):
        text = f"a pod of higher priority took the place on node {node}"
        lost_slot = _lost(slot, ReservationReason.PREEMPTED, text, node)
        return SlotView(lost_slot, task, placeholder, failure=ReservationReason.PREEMPTED)
    if node in seen.missing_nodes:
        lost_slot = _lost(slot, ReservationReason.NODE_LOST, _why_lost(seen, node), node)
        return SlotView(lost_slot, task, placeholder, failure=ReservationReason.NODE_LOST)
    runs = placeholder.status.phase == "Running" and not placeholder.is_terminating and task.allows(node)
    why_closed = seen.why_closed(placeholder) if runs else ""
    is_held = runs and not why_closed
    described = msgspec.structs.replace(
        slot,
        state=SlotState.HELD if is_held else SlotState.PENDING,
        node=node or awaited_node(placeholder),
        placeholder=placeholder.metadata.name,
        reason=ReservationReason.NODE_CLOSED.value if why_closed else "",
        message=f"node {node} {why_closed}" if why_closed else "" if is_held else _why_pending(placeholder),
    )
    return SlotView(described, task, placeholder)


def _why_lost(seen: Observation, node: str) -> str:
    """Return what became of a missing node."""
    if node not in seen.unready_seconds:
        return f"node {node} is gone"
    return f"node {node} has not been ready for so long that its places count as lost (--node-lost-seconds)"


def _lost(slot: Slot, reason: ReservationReason, message: str, node: str) -> Slot:
    return msgspec.structs.replace(slot, state=SlotState.LOST, node=node, reason=reason.value, message=message)


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


def _with_successor(seen: Observation, view: SlotView, settings: HandoverSettings) -> SlotView:
    """Return one slot, held while its placeholder gives way to a successor."""
    successor = seen.successors.get(view.key)
    if successor is None:
        return view
    view = replace(view, successor=successor)
    note = Assignment.from_pod(successor)
    is_holdable = (
        view.slot.state in {SlotState.HELD, SlotState.PENDING} and view.failure is None and not is_closed(view)
    )
    if note is None or not is_holdable or not is_on_its_way(successor):
        return view
    renewal = read_handover(seen, successor, note, view.placeholder, settings)
    if renewal.is_node_missing or renewal.has_timed_out:
        return view
    holder = view.placeholder or successor
    slot = Slot(
        task=view.slot.task,
        index=view.slot.index,
        state=SlotState.HELD,
        node=successor.spec.node_name or note.node,
        placeholder=holder.metadata.name,
    )
    return replace(view, slot=slot, handover=renewal)
