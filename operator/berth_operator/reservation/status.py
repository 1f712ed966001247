"""A Reservation's status, computed from its slots: phase, counts, conditions, amounts."""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, assert_never

from berth_core import (
    Capacity,
    PodSpec,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    ResourceAmounts,
    Slot,
    SlotState,
    TaskStatus,
    effective_requests,
    expires_at,
    format_timestamp,
    is_expired,
    parse_timestamp,
)
from berth_operator.reservation.conditions import compute_conditions
from berth_operator.reservation.nodes_to_survey import node_to_come
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.slots import SlotView, is_closed, is_refused, is_starting
from berth_operator.reservation.validation import refuse
from berth_operator.schedulers.volcano import scheduler_of

EventType: TypeAlias = Literal["Normal", "Warning"]

_ON_OFFER = frozenset({SlotState.HELD, SlotState.HANDING_OVER})


@dataclass(frozen=True, slots=True)
class _State:
    """A phase with its reason and message, before it has a time."""

    phase: ReservationPhase
    reason: str
    message: str


def compute_status(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, *, patience_seconds: float = 0
) -> ReservationStatus:
    """Return the whole status; unchanged parts keep their times.

    The Reservation fails once schedulers have found no place for `patience_seconds`; 0: never.
    """
    reservation = seen.reservation
    current = _terminal_state(reservation) or _fail_when_unschedulable(
        _live_state(seen, views, now), seen, now, patience_seconds
    )
    state = _stamp(current, reservation, now)
    counts = Counter(view.slot.state for view in views)
    slots = tuple(_final_slot(view.slot, state.phase) for view in views)
    expiry = expires_at(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))
    return ReservationStatus(
        state=state,
        node=_nodes_text(slots),
        min_available=reservation.spec.wanted,
        desired=reservation.spec.replicas,
        task_status_count=_count_by_task(slots),
        pending=counts[SlotState.PENDING] if not state.phase.terminal else 0,
        available=counts[SlotState.HELD] * (not state.phase.terminal) + counts[SlotState.HANDING_OVER],
        succeeded=counts[SlotState.TAKEN],
        failed=counts[SlotState.LOST],
        conditions=compute_conditions(seen, state, is_available=_is_available(seen, state, counts), now=now),
        current_owner=next((s.owner for s in reversed(slots) if s.owner is not None), None),
        allocatable=_amounts(views, slots, frozenset(SlotState)).to_quantities(),
        held=_amounts(views, slots, _ON_OFFER).to_quantities(),
        allocated=_amounts(views, slots, {SlotState.TAKEN}).to_quantities(),
        slots=slots,
        expires_at=format_timestamp(expiry) if expiry else None,
        observed_generation=reservation.metadata.generation,
    )


def _terminal_state(reservation: Reservation) -> _State | None:
    """Return the final state, None while the Reservation lives."""
    state = reservation.status.state
    if state is None or not state.phase.terminal:
        return None
    return _State(state.phase, state.reason, state.message)


def is_over(reservation: Reservation, now: datetime) -> bool:
    """Return whether a Reservation has ended, or ends by time or deletion now."""
    meta = reservation.metadata
    return reservation.phase.terminal or bool(meta.deletion_timestamp) or is_expired(reservation, now)


def _is_available(seen: Observation, state: ReservationState, counts: Counter[SlotState]) -> bool:
    """Return whether as many slots as wanted are held or taken."""
    occupied = (
        sum(counts[slot_state] for slot_state in SlotState if slot_state.is_occupied)
        if not state.phase.terminal
        else counts[SlotState.TAKEN]
    )
    return occupied >= seen.reservation.spec.wanted


def unschedulable_seconds_left(state: ReservationState | None, now: datetime, patience_seconds: float) -> float | None:
    """Return the seconds for which a state may await a place.

    None for no limit.
    """
    if not patience_seconds or state is None or state.reason != ReservationReason.UNSCHEDULABLE_YET:
        return None
    return patience_seconds - (now - parse_timestamp(state.last_transition_time)).total_seconds()


def _fail_when_unschedulable(state: _State, seen: Observation, now: datetime, patience_seconds: float) -> _State:
    """Return the state, or a failure if placement took too long."""
    prior = seen.reservation.status.state
    if prior is None or prior.reason != state.reason:
        return state
    left = unschedulable_seconds_left(prior, now, patience_seconds)
    if left is None or left > 0:
        return state
    text = f"no place was found within {patience_seconds:g} s: {state.message}"
    return _State(ReservationPhase.FAILED, ReservationReason.UNSCHEDULABLE, text)


def _live_state(seen: Observation, views: tuple[SlotView, ...], now: datetime) -> _State:
    """Return the state of a Reservation that was not over before."""
    verdict = seen.verdict or refuse(seen.reservation)
    if verdict is not None:
        return _State(ReservationPhase.FAILED, verdict.reason, verdict.message)
    taken = sum(view.slot.state is SlotState.TAKEN for view in views)
    if taken == len(views):
        return _State(ReservationPhase.SUCCEEDED, ReservationReason.OWNERS_RUNNING, _taken_text(views))
    if seen.reservation.metadata.deletion_timestamp:
        return _State(ReservationPhase.FAILED, ReservationReason.DELETED, f"deleted: {_end_text(views)}")
    if is_expired(seen.reservation, now):
        return _State(ReservationPhase.FAILED, ReservationReason.EXPIRED, f"expired: {_end_text(views)}")
    for view in views:
        if view.failure is not None:
            return _State(ReservationPhase.FAILED, view.failure, f"slot {_slot_name(view.slot)}: {view.slot.message}")
    return _open_state(seen, views)


def _open_state(seen: Observation, views: tuple[SlotView, ...]) -> _State:
    """Return the state of an open Reservation.

    It is neither complete, expired nor failed.
    """
    occupied = sum(view.slot.state.is_occupied for view in views)
    lost = [view.slot for view in views if view.slot.state is SlotState.LOST]
    on_the_way = [view.slot for view in views if view.slot.state is SlotState.HANDING_OVER]
    settled = {SlotState.LOST, SlotState.TAKEN}
    if lost and all(view.slot.state in settled for view in views):
        text = f"slot {_slot_name(lost[0])}: {lost[0].message}"
        return _State(ReservationPhase.FAILED, lost[0].reason or ReservationReason.HANDOVER_TIMEOUT, text)
    if occupied >= seen.reservation.spec.wanted:
        if on_the_way:
            are_starting = all(map(is_starting, on_the_way))
            reason = ReservationReason.OWNERS_STARTING if are_starting else ReservationReason.HANDING_OVER
            return _State(ReservationPhase.AVAILABLE, reason, _handover_text(on_the_way))
        return _State(ReservationPhase.AVAILABLE, ReservationReason.SLOTS_HELD, _slots_text(views))
    return _pending_state(seen, views)


def _pending_state(seen: Observation, views: tuple[SlotView, ...]) -> _State:
    """Return why fewer slots than wanted are held, with the scheduler's message."""
    waiting = [view for view in views if view.slot.state is SlotState.PENDING]
    begun = _slots_text(views)
    if any(view.placeholder is None for view in waiting):
        return _State(ReservationPhase.PENDING, *_why_not_created(seen, begun))
    refused = [view for view in waiting if is_refused(view)]
    if refused:
        return _refused_state(seen, refused, begun)
    closed = [view for view in waiting if is_closed(view)]
    if closed:
        text = f"{begun}; {_reasons_text(view.slot.message for view in closed)}, so no pod could take its slot there"
        return _State(ReservationPhase.PENDING, ReservationReason.NODE_CLOSED, text)
    bound = [view for view in waiting if view.placeholder is not None and view.placeholder.spec.node_name]
    starting = sum(not view.slot.message for view in bound)
    if starting:
        text = f"{begun}; {starting} more {'has' if starting == 1 else 'have'} a node and did not start yet"
        return _State(ReservationPhase.PENDING, ReservationReason.AWAITING_NODE, text)
    going = sum(view.placeholder is not None and view.placeholder.is_terminating for view in waiting)
    if bound or going == len(waiting):
        return _State(ReservationPhase.PENDING, ReservationReason.CREATING_PLACEHOLDERS, begun)
    scheduler = scheduler_of(seen.reservation, waiting[0].task.template.spec)
    text = f'{begun}; no scheduler named "{scheduler}" has looked at the placeholders yet'
    return _State(ReservationPhase.PENDING, ReservationReason.AWAITING_SCHEDULER, text)


def _why_not_created(seen: Observation, begun: str) -> tuple[str, str]:
    """Return reason and message of slots without a placeholder."""
    if seen.choice is not None and seen.choice.reason is not None:
        return seen.choice.reason, f"{begun}; {seen.choice.message}"
    return ReservationReason.CREATING_PLACEHOLDERS, begun


def _refused_state(seen: Observation, refused: list[SlotView], begun: str) -> _State:
    """Return the state of refused placeholders: Waiting if room will come."""
    coming = [node_to_come(seen, view) for view in refused]
    if not all(coming):
        hopeless = refused[coming.index("")]
        text = f"{begun}; {hopeless.slot.message}"
        return _State(ReservationPhase.PENDING, ReservationReason.UNSCHEDULABLE_YET, text)
    first, *others = dict.fromkeys(coming)
    more = f" (and {len(others)} more nodes are chosen)" if others else ""
    text = f"{begun}; node {first} is chosen and gets room once {_what_is_awaited(seen, first)}{more}"
    if seen.reservation.spec.capacity is Capacity.WHEN_FREE:
        text += _expectation_text(refused) + _unfenced_text(seen, coming)
    return _State(ReservationPhase.WAITING, ReservationReason.AWAITING_CAPACITY, text)


def _what_is_awaited(seen: Observation, node: str) -> str:
    """Return what makes room for a slot on a node."""
    if seen.reservation.awaits_room:
        return f"plan {seen.reservation.plan} has moved pods away"
    if seen.reservation.spec.capacity is Capacity.WHEN_FREE:
        return "its pods have ended"
    first, *others = seen.surveys[node].going()
    return f"pod {first} and {len(others)} more have terminated" if others else f"pod {first} has terminated"


def _expectation_text(waiting: list[SlotView]) -> str:
    """Return when the slots may all have their room."""
    times = [view.slot.expected_at for view in waiting]
    known = [time for time in times if time is not None]
    if not known:
        return ""
    return f", expected at {max(known)}" if len(known) == len(times) else f", expected at {min(known)} for the first"


def _unfenced_text(seen: Observation, nodes: Iterable[str]) -> str:
    """Return which awaited node others may still use although it should be fenced."""
    node = next((node for node in nodes if node in seen.unfenced), "")
    return f"; node {node} is not fenced: {seen.unfenced[node]}" if node else ""


def _stamp(state: _State, reservation: Reservation, now: datetime) -> ReservationState:
    """Return the state with its last transition time.

    That is the time of the last change of phase or reason.
    """
    prior = reservation.status.state
    unchanged = prior is not None and (prior.phase, prior.reason) == (state.phase, state.reason)
    return ReservationState(
        phase=state.phase,
        reason=state.reason,
        message=state.message,
        last_transition_time=prior.last_transition_time if prior and unchanged else format_timestamp(now),
    )


def _final_slot(slot: Slot, phase: ReservationPhase) -> Slot:
    """Return a slot, Released after the end unless an owner has it."""
    if phase.terminal and slot.state in {SlotState.PENDING, SlotState.HELD}:
        return Slot(task=slot.task, index=slot.index, state=SlotState.RELEASED)
    return slot


def _count_by_task(slots: Iterable[Slot]) -> dict[str, TaskStatus]:
    counts: dict[str, Counter[str]] = {}
    for slot in slots:
        counts.setdefault(slot.task, Counter())[slot.state.value] += 1
    return {task: TaskStatus(phase=dict(sorted(counter.items()))) for task, counter in counts.items()}


def _amounts(views: Iterable[SlotView], slots: Iterable[Slot], states: Container[SlotState]) -> ResourceAmounts:
    """Return the total requests of the slots in these states."""
    counts: dict[str, int] = {}
    specs: dict[str, PodSpec] = {}
    for view, slot in zip(views, slots, strict=True):
        if slot.state in states:
            counts[slot.task] = counts.get(slot.task, 0) + 1
            specs[slot.task] = view.task.template.spec
    return ResourceAmounts.total(effective_requests(specs[task]).times(count) for task, count in counts.items())


def _nodes_text(slots: Iterable[Slot]) -> str:
    """Return the node of the slots, or how many there are."""
    nodes = {slot.node for slot in slots if slot.node}
    return f"{len(nodes)} nodes" if len(nodes) > 1 else next(iter(nodes), "")


def _reasons_text(reasons: Iterable[str]) -> str:
    """Return the first of several reasons and the number of others."""
    first, *others = dict.fromkeys(reasons)
    return f"{first} (and {len(others)} more)" if others else first


def _slot_name(slot: Slot) -> str:
    return f"{slot.task}/{slot.index}"


def _slots_text(views: tuple[SlotView, ...]) -> str:
    """Return how many slots are held, changing hands, taken and lost."""
    counts = Counter(view.slot.state for view in views)
    others = ((SlotState.HANDING_OVER, "being handed over"), (SlotState.TAKEN, "taken"), (SlotState.LOST, "lost"))
    more = [f", {counts[state]} {words}" for state, words in others if counts[state]]
    return f"{counts[SlotState.HELD]} of {len(views)} slots are held{''.join(more)}"


def _end_text(views: tuple[SlotView, ...]) -> str:
    """Return how many slots were taken at the end."""
    counts = Counter(view.slot.state for view in views)
    on_the_way = counts[SlotState.HANDING_OVER]
    more = f" and {on_the_way} being handed over" if on_the_way else ""
    return f"{counts[SlotState.TAKEN]} of {len(views)} slots were taken{more}; what was held is given back"


def _handover_text(slots: list[Slot]) -> str:
    first, *others = sorted(slots, key=is_starting)  # one that still waits for its place comes first
    name = f"{first.owner.namespace}/{first.owner.name}" if first.owner else "a pod"
    more = f"; {len(others)} more being handed over" if others else ""
    if is_starting(first):
        return f"{name} is bound to node {first.node} for slot {_slot_name(first)} and does not run yet{more}"
    but = f", but {first.message}" if first.message else ""
    return f"{name} is taking slot {_slot_name(first)} on node {first.node}{but}{more}"


def _taken_text(views: tuple[SlotView, ...]) -> str:
    """Return one sentence on which pod runs where."""
    match views:
        case (only,):
            owner = only.slot.owner
            name = f"{owner.namespace}/{owner.name}" if owner else "the owner"
            return only.slot.message or f"{name} runs on node {only.slot.node}"
        case _:
            return f"all {len(views)} slots were taken by their owners"


def has_just_expired(reservation: Reservation, status: ReservationStatus) -> bool:
    """Return whether a status is the first to report the expiry."""
    state = status.state
    return not reservation.phase.terminal and state is not None and state.reason == ReservationReason.EXPIRED


def newly_lost(prior: ReservationStatus, status: ReservationStatus) -> list[Slot]:
    """Return the slots that a status is the first to report lost."""
    known = {(slot.task, slot.index) for slot in prior.slots if slot.state is SlotState.LOST}
    return [slot for slot in status.slots if slot.state is SlotState.LOST and (slot.task, slot.index) not in known]


def describe_transition(prior: ReservationState | None, state: ReservationState) -> tuple[EventType, str, str] | None:
    """Return (type, reason, message) of the event for a change of phase.

    A new Reservation is Pending, so the first Pending is no event.
    """
    if (prior.phase if prior is not None else ReservationPhase.PENDING) is state.phase:
        return None
    match state.phase:
        case ReservationPhase.FAILED:
            return "Warning", state.reason, state.message
        case (
            ReservationPhase.PENDING
            | ReservationPhase.WAITING
            | ReservationPhase.AVAILABLE
            | ReservationPhase.SUCCEEDED
        ):
            return "Normal", state.phase.value, state.message
        case _:
            assert_never(state.phase)
