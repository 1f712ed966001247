"""A Reservation's status, computed from its slots: phase, counts, conditions, amounts."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, assert_never

from berth_core import (
    Capacity,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    ResourceAmounts,
    Slot,
    SlotState,
    TaskStatus,
    count,
    effective_requests,
    expires_at,
    format_timestamp,
    is_expired,
    read_timestamp,
    readable_quantities,
)
from berth_operator.reservation.conditions import compute_conditions
from berth_operator.reservation.nodes_to_survey import node_to_come
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.pod_state import has_started
from berth_operator.reservation.slots import SlotView, is_closed, is_refused, is_starting
from berth_operator.reservation.validation import refuse
from berth_operator.schedulers.volcano import scheduler_of

EventType: TypeAlias = Literal["Normal", "Warning"]

_CLOCK_SKEW: Final = timedelta(minutes=1)
"""How far the clocks of two replicas may differ before a time is no longer believed."""
_ANY_STATE: Final = frozenset(SlotState)
_ON_OFFER: Final = frozenset({SlotState.HELD, SlotState.HANDING_OVER})


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

    The Reservation fails once schedulers have found no place for `patience_seconds`, never for 0.
    """
    reservation = seen.reservation
    current = _terminal_state(reservation) or _fail_when_unschedulable(
        _live_state(seen, views, now), seen, now, patience_seconds
    )
    state = _stamp(current, reservation, now)
    counts = Counter(view.slot.state for view in views)
    slots = tuple(_final_slot(view.slot, state.phase) for view in views)
    expiry = expires_at(reservation)
    requests = {task.name: effective_requests(task.template.spec) for task in reservation.spec.tasks}
    return ReservationStatus(
        state=state,
        node=_nodes_text(slots),
        min_available=reservation.spec.wanted,
        desired=reservation.spec.replicas,
        task_status_count=_count_by_task(slots),
        pending=counts[SlotState.PENDING] if not state.phase.terminal else 0,
        # What was held is given back at the end; a hand-over that is under way then still ends with its pod in the
        # slot.
        available=counts[SlotState.HELD] * (not state.phase.terminal) + counts[SlotState.HANDING_OVER],
        succeeded=counts[SlotState.TAKEN],
        failed=counts[SlotState.LOST],
        conditions=compute_conditions(seen, state, is_available=_is_available(seen, state, counts), now=now),
        current_owner=next((slot.owner for slot in reversed(slots) if slot.owner is not None), None),
        allocatable=readable_quantities(_amounts(requests, slots, _ANY_STATE)),
        held=readable_quantities(_amounts(requests, slots, _ON_OFFER)),
        allocated=readable_quantities(_amounts(requests, slots, {SlotState.TAKEN})),
        slots=slots,
        expires_at=format_timestamp(expiry) if expiry else None,
        counted_in=seen.counted_in,
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
    """Return the seconds for which a state may still await a place, None for no limit."""
    if not patience_seconds or state is None or state.reason != ReservationReason.UNSCHEDULABLE_YET:
        return None
    since = read_timestamp(state.last_transition_time) or now
    return patience_seconds - (now - since).total_seconds()


def _fail_when_unschedulable(state: _State, seen: Observation, now: datetime, patience_seconds: float) -> _State:
    """Return the state, or a failure if placement took too long."""
    prior = seen.reservation.status.state
    if prior is None or prior.reason != state.reason:
        return state
    seconds_left = unschedulable_seconds_left(prior, now, patience_seconds)
    if seconds_left is None or seconds_left > 0:
        return state
    text = f"no place was found within {patience_seconds:g} s: {state.message}"
    return _State(ReservationPhase.FAILED, ReservationReason.UNSCHEDULABLE, text)


def _live_state(seen: Observation, views: tuple[SlotView, ...], now: datetime) -> _State:
    """Return the state of a Reservation that was not over before."""
    # Before anything else: a spec that is impossible has no slots to judge by.
    verdict = seen.verdict or refuse(seen.reservation)
    if verdict is not None:
        return _State(ReservationPhase.FAILED, verdict.reason, verdict.message)
    slots_taken = sum(view.slot.state is SlotState.TAKEN for view in views)
    # Before deletion and expiry: what is complete has succeeded, whatever happens to it afterwards.
    if slots_taken == len(views):
        return _State(ReservationPhase.SUCCEEDED, _taken_reason(views), _taken_text(views))
    if seen.reservation.metadata.deletion_timestamp:
        return _State(ReservationPhase.FAILED, ReservationReason.DELETED, f"deleted: {_end_text(views)}")
    if is_expired(seen.reservation, now):
        return _State(ReservationPhase.FAILED, ReservationReason.EXPIRED, f"expired: {_end_text(views)}")
    for view in views:
        if view.failure is not None:
            return _State(ReservationPhase.FAILED, view.failure, f"slot {_slot_name(view.slot)}: {view.slot.message}")
    return _open_state(seen, views)


def _open_state(seen: Observation, views: tuple[SlotView, ...]) -> _State:
    """Return the state of a Reservation that is neither complete nor expired nor failed."""
    occupied = sum(view.slot.state.is_occupied for view in views)
    lost_slots = [view.slot for view in views if view.slot.state is SlotState.LOST]
    on_the_way = [view.slot for view in views if view.slot.state is SlotState.HANDING_OVER]
    settled_states = {SlotState.LOST, SlotState.TAKEN}
    if lost_slots and all(view.slot.state in settled_states for view in views):
        text = f"slot {_slot_name(lost_slots[0])}: {lost_slots[0].message}"
        return _State(ReservationPhase.FAILED, lost_slots[0].reason or ReservationReason.HANDOVER_TIMEOUT, text)
    if occupied >= seen.reservation.spec.wanted:
        if on_the_way:
            are_starting = all(map(is_starting, on_the_way))
            reason = ReservationReason.OWNERS_STARTING if are_starting else ReservationReason.HANDING_OVER
            return _State(ReservationPhase.AVAILABLE, reason, _handover_text(on_the_way))
        text = _slots_text(views) + (f"; {seen.refusal}; Berth tries again" if seen.refusal else "")
        return _State(ReservationPhase.AVAILABLE, ReservationReason.SLOTS_HELD, text)
    return _pending_state(seen, views)


def _pending_state(seen: Observation, views: tuple[SlotView, ...]) -> _State:
    """Return why fewer slots than wanted are held, with the scheduler's message."""
    waiting_views = [view for view in views if view.slot.state is SlotState.PENDING]
    slots_text = _slots_text(views)
    if any(view.placeholder is None for view in waiting_views):
        return _State(ReservationPhase.PENDING, *_why_not_created(seen, slots_text))
    refused_views = [view for view in waiting_views if is_refused(view)]
    if refused_views:
        return _refused_state(seen, refused_views, slots_text)
    closed = [view for view in waiting_views if is_closed(view)]
    if closed:
        text = (
            f"{slots_text}; {_reasons_text(view.slot.message for view in closed)}, so no pod could take its slot there"
        )
        return _State(ReservationPhase.PENDING, ReservationReason.NODE_CLOSED, text)
    bound_views = [view for view in waiting_views if view.placeholder is not None and view.placeholder.spec.node_name]
    starting = sum(not view.slot.message for view in bound_views)
    if starting:
        have = "has" if starting == 1 else "have"
        text = f"{slots_text}; {starting} more {have} a node and {have} not started yet"
        return _State(ReservationPhase.PENDING, ReservationReason.AWAITING_NODE, text)
    ending = sum(view.placeholder is not None and view.placeholder.is_terminating for view in waiting_views)
    if bound_views or ending == len(waiting_views):
        return _State(ReservationPhase.PENDING, ReservationReason.CREATING_PLACEHOLDERS, slots_text)
    scheduler = scheduler_of(seen.reservation, waiting_views[0].task.template.spec)
    text = f'{slots_text}; no scheduler named "{scheduler}" has looked at the placeholders yet'
    return _State(ReservationPhase.PENDING, ReservationReason.AWAITING_SCHEDULER, text)


def _why_not_created(seen: Observation, begun: str) -> tuple[str, str]:
    """Return reason and message of slots without a placeholder."""
    if seen.choice is not None and seen.choice.reason is not None:
        return seen.choice.reason, f"{begun}; {seen.choice.message}"
    if seen.refusal:
        return ReservationReason.PLACEHOLDER_REFUSED, f"{begun}; {seen.refusal}; Berth tries again"
    return ReservationReason.CREATING_PLACEHOLDERS, begun


def _refused_state(seen: Observation, refused: list[SlotView], begun: str) -> _State:
    """Return the state of refused placeholders: Waiting if room will come."""
    coming_nodes = [node_to_come(seen, view) for view in refused]
    if not all(coming_nodes):
        hopeless = refused[coming_nodes.index("")]
        text = f"{begun}; {hopeless.slot.message}"
        return _State(ReservationPhase.PENDING, ReservationReason.UNSCHEDULABLE_YET, text)
    first_node, *other_nodes = dict.fromkeys(coming_nodes)
    more_text = f" (and {len(other_nodes)} more nodes are chosen)" if other_nodes else ""
    text = f"{begun}; node {first_node} is chosen and gets room once {_awaited_change(seen, first_node)}{more_text}"
    if seen.reservation.spec.capacity is Capacity.WHEN_FREE:
        text += _expectation_text(refused) + _unfenced_text(seen, coming_nodes)
    return _State(ReservationPhase.WAITING, ReservationReason.AWAITING_CAPACITY, text)


def _awaited_change(seen: Observation, node: str) -> str:
    """Return what makes room for a slot on a node."""
    if seen.reservation.awaits_room:
        return f"plan {seen.reservation.plan} has moved pods away"
    if seen.reservation.spec.capacity is Capacity.WHEN_FREE:
        return "its pods have ended"
    first_pod, *other_pods = seen.surveys[node].terminating_pods()
    return (
        f"pod {first_pod} and {len(other_pods)} more have terminated"
        if other_pods
        else f"pod {first_pod} has terminated"
    )


def _expectation_text(waiting: list[SlotView]) -> str:
    """Return when the slots may all have their room."""
    expected_times = [view.slot.expected_at for view in waiting]
    known_times = [time for time in expected_times if time is not None]
    if not known_times:
        return ""
    return (
        f", expected at {max(known_times)}"
        if len(known_times) == len(expected_times)
        else f", expected at {min(known_times)} for the first"
    )


def _unfenced_text(seen: Observation, nodes: Iterable[str]) -> str:
    """Return which awaited node others may still use although it should be fenced."""
    node = next((node for node in nodes if node in seen.unfenced), "")
    return f"; node {node} is not fenced: {seen.unfenced[node]}" if node else ""


def _stamp(state: _State, reservation: Reservation, now: datetime) -> ReservationState:
    """Return the state with the time at which its phase or reason last changed."""
    prior = reservation.status.state
    unchanged = prior is not None and (prior.phase, prior.reason) == (state.phase, state.reason)
    # As conditions do: the time moves only with phase or reason, so that it says how long the Reservation has been so.
    keeps_time = unchanged and not has_impossible_time(prior, now)
    return ReservationState(
        phase=state.phase,
        reason=state.reason,
        message=state.message,
        last_transition_time=prior.last_transition_time if prior and keeps_time else format_timestamp(now),
    )


def has_impossible_time(state: ReservationState | None, now: datetime) -> bool:
    """Return whether another writer left a state whose time is missing, unreadable or too far ahead of this clock."""
    if state is None:
        return False
    since = read_timestamp(state.last_transition_time)
    return since is None or since - _CLOCK_SKEW > now


def _final_slot(slot: Slot, phase: ReservationPhase) -> Slot:
    """Return a slot, Released after the end unless an owner has it."""
    # The end is written before the placeholders are deleted, and must not promise places that are about to go.
    if phase.terminal and slot.state in {SlotState.PENDING, SlotState.HELD}:
        return Slot(task=slot.task, index=slot.index, state=SlotState.RELEASED)
    return slot


def _count_by_task(slots: Iterable[Slot]) -> dict[str, TaskStatus]:
    counts: dict[str, Counter[str]] = {}
    for slot in slots:
        counts.setdefault(slot.task, Counter())[slot.state.value] += 1
    return {task: TaskStatus(phase=dict(sorted(counter.items()))) for task, counter in counts.items()}


def _amounts(
    requests: Mapping[str, ResourceAmounts], slots: Iterable[Slot], states: Container[SlotState]
) -> ResourceAmounts:
    """Return the total requests of the slots in these states; `requests` has those of one slot by task."""
    counts = Counter(slot.task for slot in slots if slot.state in states)
    return ResourceAmounts.total(requests[task].times(count) for task, count in counts.items())


def _nodes_text(slots: Iterable[Slot]) -> str:
    """Return the node of the slots, or how many there are."""
    nodes = {slot.node for slot in slots if slot.node}
    return f"{len(nodes)} nodes" if len(nodes) > 1 else next(iter(nodes), "")


def _reasons_text(reasons: Iterable[str]) -> str:
    """Return the first of several reasons and the number of others."""
    first_reason, *other_reasons = dict.fromkeys(reasons)
    return f"{first_reason} (and {len(other_reasons)} more)" if other_reasons else first_reason


def _slot_name(slot: Slot) -> str:
    return f"{slot.task}/{slot.index}"


def _slots_text(views: tuple[SlotView, ...]) -> str:
    """Return how many slots are held, changing hands, taken and lost."""
    counts = Counter(view.slot.state for view in views)
    states = ((SlotState.HANDING_OVER, "being handed over"), (SlotState.TAKEN, "taken"), (SlotState.LOST, "lost"))
    more_texts = [f", {counts[state]} {words}" for state, words in states if counts[state]]
    return f"{counts[SlotState.HELD]} of {_all_slots(views, 'is', 'are')} held{''.join(more_texts)}"


def _end_text(views: tuple[SlotView, ...]) -> str:
    """Return how many slots were taken at the end."""
    counts = Counter(view.slot.state for view in views)
    on_the_way = counts[SlotState.HANDING_OVER]
    more_text = f" and {on_the_way} being handed over" if on_the_way else ""
    return (
        f"{counts[SlotState.TAKEN]} of {_all_slots(views, 'was', 'were')} taken{more_text}; what was held is given back"
    )


def _all_slots(views: tuple[SlotView, ...], singular: str, plural: str) -> str:
    return f"{count(len(views), 'slot')} {singular if len(views) == 1 else plural}"


def _handover_text(slots: list[Slot]) -> str:
    slot, *other_slots = sorted(slots, key=is_starting)  # one that still waits for its place comes first
    owner_name = f"{slot.owner.namespace}/{slot.owner.name}" if slot.owner else "a pod"
    more_text = f"; {len(other_slots)} more being handed over" if other_slots else ""
    if is_starting(slot):
        return f"{owner_name} is bound to node {slot.node} for slot {_slot_name(slot)} and does not run yet{more_text}"
    but_text = f", but {slot.message}" if slot.message else ""
    return f"{owner_name} is taking slot {_slot_name(slot)} on node {slot.node}{but_text}{more_text}"


def _taken_reason(views: tuple[SlotView, ...]) -> ReservationReason:
    """Return what the owners do when the last slot is taken, as far as their pods are seen."""
    owners = [view.owner for view in views if view.owner is not None]
    if not all(map(has_started, owners)):
        return ReservationReason.OWNERS_STARTING
    has_ended_owner = any(owner.is_terminal for owner in owners)
    return ReservationReason.OWNERS_ENDED if has_ended_owner else ReservationReason.OWNERS_RUNNING


def _taken_text(views: tuple[SlotView, ...]) -> str:
    """Return one sentence on which pod runs where."""
    match views:
        case (only,):
            owner = only.slot.owner
            owner_name = f"{owner.namespace}/{owner.name}" if owner else "the owner"
            has_ended = only.owner is not None and only.owner.is_terminal
            runs_text = "ran and has ended" if has_ended else "runs"
            return only.slot.message or f"{owner_name} {runs_text} on node {only.slot.node}"
        case _:
            return f"all {len(views)} slots were taken by their owners"


def has_just_expired(reservation: Reservation, status: ReservationStatus) -> bool:
    """Return whether a status is the first to report the expiry."""
    state = status.state
    return not reservation.phase.terminal and state is not None and state.reason == ReservationReason.EXPIRED


def newly_lost(prior: ReservationStatus, status: ReservationStatus) -> list[Slot]:
    """Return the slots that a status is the first to report lost."""
    lost_before = {(slot.task, slot.index) for slot in prior.slots if slot.state is SlotState.LOST}
    return [
        slot for slot in status.slots if slot.state is SlotState.LOST and (slot.task, slot.index) not in lost_before
    ]


def describe_transition(prior: ReservationState | None, state: ReservationState) -> tuple[EventType, str, str] | None:
    """Return (type, reason, message) of the event for a change of phase, None for no change."""
    # A new Reservation is Pending, so its first status with that phase is no change.
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
