"""Steps, deadlines and end of a slot's hand-over to a pod.

An owner pod takes a slot step by step; so does the successor of a placeholder. Each fact leads to one next action
(numbers as in the protocol):

    1. the pod carries our gate and label              -> 2. give it a slot: note, label, toleration of the guard
    2. it has a slot                                   -> fence and guard its node (`act.guards`)
    3. fenced, or guarded for the settling time        -> 3. delete the placeholder
    4. the placeholder is gone                         -> 4. nominate the node, remove the gate
    5. the pod has been bound for the settling time    -> 5. remove the guard (`act.guards`)
    6. the pod runs                                    -> 6. record it, remove note and label
    ·. less than half of its time is left              -> more time, before anything else
    ·. all its time is spent                           -> release the pod

A bound pod has its place, however long its images take: no other pod waits for it to run.

The nomination comes last because kube-scheduler counts a nominated pod as if it were on its node. Nominated while its
placeholder is still there, it would count twice and keep other pods in a hand-over off a full node.

Two clocks answer two questions. The deadline in the note on the pod, which the guard of the node repeats, is a time of
day: until then all other components leave pod and node alone. It is extended, the note first and the guard after it,
whenever less than half of the time is left, so that nothing irreversible happens close to it. A hand-over fails by the
seconds for which an operator has attended to its stage (`runtime.active_time`), never by the time of day: while no
operator acts, or no API server answers, no time passes for a pod that is on its way.
"""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, assert_never

import msgspec

from berth_core import (
    RESERVATION_LABEL,
    ObjectReference,
    Pod,
    Reservation,
    ReservationReason,
    ReservationTask,
    Slot,
    SlotState,
    expires_at,
    parse_timestamp,
)
from berth_core.labels import HANDOVER_LABEL
from berth_operator.reservation.actions import (
    Action,
    AssignSlot,
    CompleteHandover,
    DeletePlaceholder,
    ExtendHandover,
    Nominate,
    Release,
    RenewPlaceholder,
    ShortenPlaceholder,
    Ungate,
)
from berth_operator.reservation.observation import (
    Assignment,
    Guard,
    Observation,
    SlotView,
    choose_task,
    has_started,
    holds_other_gates,
    holds_our_gate,
)
from berth_operator.schedulers.kube_scheduler import SCHEDULER
from berth_operator.settings import HandoverSettings

SLOW_SECONDS: Final = 5.0
"""An owner that is not bound after this long may have lost its place; the status reports one that does not run."""

_FRESH_SECONDS: Final = 3.0
"""Maximum age of a survey that ends a hand-over; below `SLOW_SECONDS`, so it was made during it."""

_CLOCK_SLACK_SECONDS: Final = 5.0

_RECHECK_SECONDS: Final = 1.0
"""How soon a hand-over in progress is reconciled without any event."""

_RENEWAL_MARGINS: Final = 2
"""Margins before its end at which a placeholder is renewed: the API server may be down a minute."""


class HandoverStage(Enum):
    """The component a pod with a slot waits for before running."""

    HELD_BACK = "operator"
    """Our gate is on, or the placeholder exists: no pod could take the place."""

    UNTRIED = "scheduler"
    """The place is free for the pod, and no scheduler has reported on it since."""

    TRIED = "scheduler again"
    """A scheduler has found no place for the pod."""

    BOUND = "kubelet"
    """The pod has its place."""


def stage_of(pod: Pod, placeholder: Pod | None) -> HandoverStage:
    """Return the stage of a pod, given its slot's placeholder."""
    if pod.spec.node_name:
        return HandoverStage.BOUND
    if holds_our_gate(pod) or placeholder is not None:
        return HandoverStage.HELD_BACK
    return HandoverStage.UNTRIED if SCHEDULER.is_untried(pod) else HandoverStage.TRIED


def is_swapped(owner: Pod, assignment: Assignment) -> bool:
    """Return whether an owner's note still names another slot than the one it was bound in."""
    noted = Assignment.from_pod(owner)
    return noted is not None and (noted.task, noted.index) != (assignment.task, assignment.index)


def may_be_bound(owner: Pod, placeholder: Pod | None) -> bool:
    """Return whether the place is free and the owner may be bound."""
    return stage_of(owner, placeholder) in {HandoverStage.UNTRIED, HandoverStage.TRIED}


# --- time ------------------------------------------------------------------------------------------------------------


def has_timed_out(
    seen: Observation, pod: Pod, note: Assignment, placeholder: Pod | None, handover: HandoverSettings
) -> bool:
    """Return whether a pod has spent its stage's attended time."""
    spent_seconds = seen.stage_ages.get(pod.metadata.uid, 0.0)
    match stage_of(pod, placeholder):
        case HandoverStage.HELD_BACK:
            # On a node that would refuse the pod, the placeholder may terminate for ever.
            access = seen.accesses.get(note.node) if placeholder is not None else None
            is_shut = access is not None and bool(access.why_closed(pod.spec.tolerations))
            return spent_seconds >= (handover.timeout_seconds if is_shut else handover.untried_seconds)
        case HandoverStage.UNTRIED:
            return spent_seconds >= handover.untried_seconds
        case HandoverStage.TRIED:
            return spent_seconds >= handover.timeout_seconds
        case HandoverStage.BOUND:
            return False
        case stage:
            assert_never(stage)


def _deadline_from(now: datetime, handover: HandoverSettings) -> int:
    """Return the deadline of a hand-over that begins or is extended now."""
    return int(now.timestamp() + handover.timeout_seconds)


def _is_short_of_time(note: Assignment, now: datetime, handover: HandoverSettings) -> bool:
    """Return whether too little time is left, or too much.

    Too much is left once the clock was set back.
    """
    left = note.deadline - now.timestamp()
    return not handover.timeout_seconds / 2 <= left <= handover.timeout_seconds + _CLOCK_SLACK_SECONDS


def _extended(note: Assignment, now: datetime, handover: HandoverSettings) -> Assignment:
    return replace(note, deadline=_deadline_from(now, handover))


# --- the observed state of a slot in a hand-over ---------------------------------------------------------------------


def view_handover(
    seen: Observation,
    task: ReservationTask,
    owner: Pod,
    assignment: Assignment,
    placeholder: Pod | None,
    handover: HandoverSettings,
    *,
    prior: Slot | None,
) -> SlotView:
    """Return a slot in hand-over, and the failure if it is lost; `prior` is what the status says of it.

    The slot is taken once the owner runs. It is lost if an owner that is not bound has spent its time, or its node is
    gone and no scheduler is about to bind it elsewhere.
    """
    slot = Slot(
        task=assignment.task,
        index=assignment.index,
        state=SlotState.HANDING_OVER,
        node=owner.spec.node_name or assignment.node,
        owner=ObjectReference.of("v1", "Pod", owner.metadata),
    )
    failure: ReservationReason | None = None
    timed_out = has_timed_out(seen, owner, assignment, placeholder, handover)
    if has_started(owner):
        slot = _taken(slot, _misplacement(owner, assignment))
    elif owner.spec.node_name:
        slot = _starting(slot) if _is_slow_to_start(seen, slot, prior) else slot
    elif assignment.node in seen.missing_nodes:
        text = f"node {assignment.node} is gone"
        # A scheduler that has not reported yet may bind the pod elsewhere: the status says what comes of it.
        if stage_of(owner, placeholder) is HandoverStage.UNTRIED and not timed_out:
            slot = msgspec.structs.replace(slot, message=text)
        else:
            failure = ReservationReason.NODE_LOST
            slot = _lost(slot, failure, text)
    elif timed_out:
        text = f"pod {owner.key} was not bound to node {assignment.node} in time"
        slot = _lost(slot, ReservationReason.HANDOVER_TIMEOUT, text)
    elif may_be_bound(owner, placeholder):
        slot = _unless_taken_by_another(seen, slot, owner, assignment)
    return SlotView(slot, task, placeholder, owner, assignment, failure)


def is_starting(slot: Slot) -> bool:
    """Return whether a slot's owner has been bound for some time and does not run yet."""
    return slot.state is SlotState.HANDING_OVER and slot.reason == ReservationReason.OWNERS_STARTING


def _is_slow_to_start(seen: Observation, slot: Slot, prior: Slot | None) -> bool:
    """Return whether the status should say that a bound owner does not run yet.

    Most run before that would be worth a write. What it says once stays, also when an operator starts anew.
    """
    uid = slot.owner.uid if slot.owner is not None else ""
    was_said = prior is not None and is_starting(prior) and prior.owner is not None and prior.owner.uid == uid
    return was_said or seen.stage_ages.get(uid, 0.0) >= SLOW_SECONDS


def _starting(slot: Slot) -> Slot:
    text = f"{_owner_text(slot)} is bound to node {slot.node} and does not run yet"
    return msgspec.structs.replace(slot, reason=ReservationReason.OWNERS_STARTING.value, message=text)


def _owner_text(slot: Slot) -> str:
    return f"pod {slot.owner.namespace}/{slot.owner.name}" if slot.owner is not None else "a pod"


def count_bound_as_taken(view: SlotView) -> SlotView:
    """Return the slot of a Reservation that is over: an owner that is bound has its place, whether it runs or not."""
    is_bound = view.owner is not None and bool(view.owner.spec.node_name)
    if view.slot.state is not SlotState.HANDING_OVER or not is_bound:
        return view
    return replace(view, slot=msgspec.structs.replace(_starting(view.slot), state=SlotState.TAKEN, reason=""))


def _taken(slot: Slot, message: str) -> Slot:
    return msgspec.structs.replace(slot, state=SlotState.TAKEN, message=message)


def _lost(slot: Slot, reason: ReservationReason, message: str) -> Slot:
    return msgspec.structs.replace(slot, state=SlotState.LOST, reason=reason.value, message=message)


def _misplacement(owner: Pod, assignment: Assignment) -> str:
    """Return that an owner runs on the wrong node, or ""."""
    node = owner.spec.node_name
    return "" if node == assignment.node else f"pod {owner.key} runs on node {node}, not on node {assignment.node}"


def _unless_taken_by_another(seen: Observation, slot: Slot, owner: Pod, given: Assignment) -> Slot:
    """Return the slot, lost if a fresh survey shows no room."""
    survey = seen.surveys.get(given.node)
    slow = seen.stage_ages.get(owner.metadata.uid, 0.0) >= SLOW_SECONDS
    if survey is None or not slow or survey.age_seconds > _FRESH_SECONDS:
        return slot
    takers = survey.takers(owner)
    own = (seen.reservation.metadata.uid, given.task, str(given.index))
    if not takers or any(taker.holds == own for taker in takers):
        return slot
    text = f"pod {takers[0].key} took the place of pod {owner.key} on node {given.node}"
    return _lost(slot, ReservationReason.PLACE_TAKEN, text)


# --- the steps -------------------------------------------------------------------------------------------------------


def give_slots(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, handover: HandoverSettings
) -> list[Action]:
    """Give each waiting pod a held slot that it fits.

    Gated pods without one are released. Pods that waited earlier get theirs once as many slots as the Reservation wants
    are held: they may be useful only together, and lose nothing by waiting.
    """
    held = [view for view in views if view.slot.state is SlotState.HELD]
    free = Counter(view.task.name for view in held)
    deadline = _deadline_from(now, handover)
    actions: list[Action] = []
    for pod in (*_unassigned(seen, views), *(seen.waiting if has_enough(seen, views) else ())):
        is_sent = pod.metadata.labels.get(RESERVATION_LABEL) == seen.reservation.metadata.uid
        served = holds_our_gate(pod) or not is_sent
        task = choose_task(seen.reservation, pod, free) if served else None
        if task is None:
            actions += [Release(pod, elsewhere=holds_our_gate(pod))] if is_sent else []
            continue
        free[task.name] -= 1
        if holds_other_gates(pod):
            continue  # its slot stays held until only our gate is left
        slot = next((view.slot for view in held if view.task is task and view.renewal is None), None)
        if slot is None:
            continue  # the placeholder hands its slot to its successor
        held = [view for view in held if view.slot is not slot]
        assignment = Assignment(task=slot.task, index=slot.index, node=slot.node, deadline=deadline)
        actions.append(AssignSlot(pod, assignment))
    return actions if _may_begin(seen, views, actions) else [one for one in actions if isinstance(one, Release)]


def _may_begin(seen: Observation, views: tuple[SlotView, ...], actions: list[Action]) -> bool:
    """Return whether slots may change hands now.

    With `allOrNothing` pods for all wanted slots must have come; slots that have begun count. A slot that is lost
    during its hand-over does not take back the others.
    """
    if not seen.reservation.spec.all_or_nothing:
        return True
    begun = sum(view.slot.state in {SlotState.HANDING_OVER, SlotState.TAKEN} for view in views)
    return begun + sum(isinstance(action, AssignSlot) for action in actions) >= seen.reservation.spec.wanted


def has_enough(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Return whether as many slots as wanted are occupied.

    Such slots are held, changing hands or taken.
    """
    return sum(view.slot.state.is_occupied for view in views) >= seen.reservation.spec.wanted


def _unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Pod]:
    known = {view.owner.metadata.uid for view in views if view.owner is not None}
    return [pod for pod in seen.owners if pod.metadata.uid not in known and not pod.is_terminating]


def release_unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Action]:
    return [Release(pod, elsewhere=holds_our_gate(pod)) for pod in _unassigned(seen, views)]


def hand_over(
    seen: Observation,
    view: SlotView,
    now: datetime,
    handover: HandoverSettings,
    *,
    to: Pod | None,
    note: Assignment | None,
) -> list[Action]:
    """Return a hand-over's next step; none while it waits.

    With less than half of its time left it first gets more: a pod that is ungated, or whose placeholder is deleted,
    near the deadline would have its place guarded for a moment only.
    """
    if to is None or note is None:
        return []
    is_late = not to.spec.node_name and _is_short_of_time(note, now, handover)
    is_kept_off = not to.spec.node_name and HANDOVER_LABEL not in to.metadata.labels  # an older operator gave the slot
    if is_late or is_kept_off or is_swapped(to, note):
        return [ExtendHandover(to, _extended(note, now, handover))]
    guard = seen.guards.get(note.node)
    if to.spec.node_name or guard is None or guard.deadline < note.deadline:
        return []  # an earlier hand-over's guard may be removed at any moment
    if view.placeholder is None:
        return _send_to_node(to, note.node)
    if view.placeholder.is_terminating or _settling_left(guard, handover) > 0:
        return []
    # A placeholder runs nothing that must end first. A node that takes no pods shows by not ending it that the owner is
    # better off elsewhere.
    access = seen.accesses.get(note.node)
    is_open = access is None or not access.why_closed(to.spec.tolerations)
    return [DeletePlaceholder(view.placeholder, at_once=is_open, for_owner=True)]


def _send_to_node(pod: Pod, node: str) -> list[Action]:
    """Return the actions that send a pod to its node."""
    if holds_our_gate(pod):
        return [Nominate(pod, node), Ungate(pod)]
    # A scheduler that tried too early removes the nomination.
    return [] if SCHEDULER.steered_to(pod) == node else [Nominate(pod, node)]


def settling_left(seen: Observation, views: tuple[SlotView, ...], handover: HandoverSettings) -> float | None:
    """Return the seconds until a hand-over goes on by time alone, None if none does."""
    left: list[float] = []
    for view in views:
        pod, note = (view.successor, view.renewal) if view.renewal is not None else (view.owner, view.assignment)
        if pod is None or note is None or (view.slot.state is not SlotState.HANDING_OVER and view.renewal is None):
            continue
        if pod.spec.node_name:
            left.append(SLOW_SECONDS - seen.stage_ages.get(pod.metadata.uid, 0.0))
        else:
            guard = seen.guards.get(note.node)
            settling_seconds = _settling_left(guard, handover) if guard is not None else 0.0
            left.append(settling_seconds if settling_seconds > 0 else _RECHECK_SECONDS)
    return min((seconds for seconds in left if seconds > 0), default=None)


def _settling_left(guard: Guard, handover: HandoverSettings) -> float:
    """Return the seconds until every scheduler has seen a guard; a fence is seen before the end of a placeholder."""
    return 0.0 if guard.is_fenced else handover.unfenced_settle_seconds - guard.age_seconds


# --- renewal ---------------------------------------------------------------------------------------------------------
# The API server forbids a later `activeDeadlineSeconds`: a placeholder of an extended Reservation hands its place
# to a successor in time. If the Reservation was shortened, the deadline is brought forward.


def renew(
    seen: Observation, view: SlotView, now: datetime, handover: HandoverSettings, *, margin_seconds: int
) -> list[Action]:
    """Return actions that hold a slot as long as its Reservation says.

    A placeholder hands its place to its successor as it would to an owner, so that no pod gets between them.
    """
    if view.renewal is not None and view.successor is not None:
        if has_started(view.successor):
            return [CompleteHandover(view.successor)]
        return hand_over(seen, view, now, handover, to=view.successor, note=view.renewal)
    if view.successor is not None or view.placeholder is None:
        return drop_successor(view)
    seconds = _seconds_too_long(seen.reservation, view.placeholder, margin_seconds)
    if seconds is not None:
        return [ShortenPlaceholder(view.placeholder, seconds)]
    left = _seconds_to_renewal(seen.reservation, view.placeholder, now, margin_seconds)
    if left is None or left > 0:
        return []
    deadline = _deadline_from(now, handover)
    note = Assignment(task=view.slot.task, index=view.slot.index, node=view.slot.node, deadline=deadline)
    return [RenewPlaceholder(view.task, view.placeholder, note)]


def drop_successor(view: SlotView) -> list[Action]:
    """Return the deletion of a successor that is not needed."""
    gone = view.successor is None or view.successor.is_terminating
    return [] if gone or view.successor is None else [DeletePlaceholder(view.successor)]


def renewals_left(seen: Observation, views: tuple[SlotView, ...], now: datetime, *, margin_seconds: int) -> list[float]:
    """Return the seconds until each placeholder that ends too early is renewed."""
    held = [view for view in views if view.slot.state is SlotState.HELD and view.renewal is None]
    times = [
        _seconds_to_renewal(seen.reservation, view.placeholder, now, margin_seconds)
        for view in held
        if view.placeholder
    ]
    return [seconds for seconds in times if seconds is not None]


def _seconds_to_renewal(reservation: Reservation, placeholder: Pod, now: datetime, margin_seconds: int) -> float | None:
    """Return the seconds until a placeholder's renewal.

    None if it outlives its Reservation.
    """
    ends, wanted = _ends_at(placeholder), _wanted_end(reservation, margin_seconds)
    if ends is None or (wanted is not None and ends >= wanted - timedelta(seconds=margin_seconds / 2)):
        return None
    return (ends - now).total_seconds() - _RENEWAL_MARGINS * margin_seconds


def _seconds_too_long(reservation: Reservation, placeholder: Pod, margin_seconds: int) -> int | None:
    """Return an earlier deadline for a placeholder that far outlives its Reservation."""
    wanted, started = _wanted_end(reservation, margin_seconds), placeholder.status.start_time
    if wanted is None or started is None:
        return None
    ends = _ends_at(placeholder)
    if ends is not None and ends <= wanted + timedelta(seconds=margin_seconds):
        return None
    return max(1, int((wanted - parse_timestamp(started)).total_seconds()))


def _ends_at(placeholder: Pod) -> datetime | None:
    """Return when the kubelet ends a placeholder.

    None if it never does or the placeholder is not running.
    """
    length, started = placeholder.spec.active_deadline_seconds, placeholder.status.start_time
    return None if length is None or started is None else parse_timestamp(started) + timedelta(seconds=length)


def _wanted_end(reservation: Reservation, margin_seconds: int) -> datetime | None:
    """Return a margin after the Reservation's end, None for never."""
    expiry = expires_at(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))
    try:
        return None if expiry is None else expiry + timedelta(seconds=margin_seconds)
    except OverflowError:
        return None
