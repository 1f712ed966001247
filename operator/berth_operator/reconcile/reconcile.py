"""Owns the decisions about one Reservation: from what is observed to a status, actions and the next look.

It does no I/O and keeps nothing between two calls: a restarted operator decides the same.

The hand-over of a slot is a row of facts, each of which leads to one next action (numbers as in the protocol):

    1. the pod carries our gate and label              -> 2. give it a slot: note, toleration of the guard
    2. it has a slot; its node is guarded              -> wait for the settling time
    3. guarded for the settling time                   -> 3. delete the placeholder
    4. the placeholder is gone                         -> 4. nominate the node, take off the gate
    5. the pod has run for the settling time           -> 5. record it, take off note and label (then the guard goes)
    ·. less than half of its time is left              -> more time, before anything else
    ·. it has had all its time (`handover_time`)       -> let the pod go its own way

The nomination comes last on purpose: kube-scheduler counts a nominated pod as if it were on its node. Nominated while
its placeholder is still there, it would count twice and turn other pods in a hand-over away from a full node.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from berth_core.clock import parse_timestamp
from berth_core.labels import RESERVATION_LABEL
from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationPhase, ReservationStatus, SlotState, expires_at
from berth_operator.reconcile.actions import (
    Action,
    AssignSlot,
    Collect,
    CreatePlaceholder,
    DeletePlaceholder,
    ExtendHandover,
    Finish,
    LookAtNode,
    Nominate,
    Probe,
    Release,
    ShortenPlaceholder,
    SucceedPlaceholder,
    Ungate,
    Validate,
)
from berth_operator.reconcile.handover import deadline_from, extended, is_short_of_time
from berth_operator.reconcile.observation import (
    Assignment,
    Observation,
    choose_task,
    has_started,
    holds_other_gates,
    holds_our_gate,
)
from berth_operator.reconcile.slots import SlotView, due_looks, view_slots
from berth_operator.reconcile.status import OCCUPIED, compute_status, patience_left
from berth_operator.settings import OperatorSettings

# --- deadlines -------------------------------------------------------------------------------------------------------
# Until when the kubelet lets a placeholder run, and what to do where that is not what its Reservation says.
#
# It does not make the successor: `decisions.reconcile` decides on it, `acting.performer` creates it. The API server
# lets nobody put `activeDeadlineSeconds` off: a placeholder whose Reservation was extended is succeeded by another one
# in time. Where it was shortened the deadline is brought forward.

_LEAD_MARGINS: Final = 2
"""A placeholder is succeeded so many margins before its end, when the API server may still be away for a minute."""


def seconds_to_renewal(reservation: Reservation, placeholder: Pod, now: datetime, margin_seconds: int) -> float | None:
    """Return in how many seconds a placeholder is to be succeeded, None where it outlives its Reservation."""
    ends, wanted = _ends_at(placeholder), _wanted_end(reservation, margin_seconds)
    if ends is None or (wanted is not None and ends >= wanted - timedelta(seconds=margin_seconds / 2)):
        return None
    return (ends - now).total_seconds() - _LEAD_MARGINS * margin_seconds


def seconds_too_long(reservation: Reservation, placeholder: Pod, margin_seconds: int) -> int | None:
    """Return the earlier deadline for a placeholder that would outlive its Reservation by far, else None."""
    wanted, started = _wanted_end(reservation, margin_seconds), placeholder.status.start_time
    if wanted is None or started is None:
        return None
    ends = _ends_at(placeholder)
    if ends is not None and ends <= wanted + timedelta(seconds=margin_seconds):
        return None
    return max(1, int((wanted - parse_timestamp(started)).total_seconds()))


def _ends_at(placeholder: Pod) -> datetime | None:
    """Return when the kubelet ends a placeholder, None where it never does or does not run it yet."""
    length, started = placeholder.spec.active_deadline_seconds, placeholder.status.start_time
    return None if length is None or started is None else parse_timestamp(started) + timedelta(seconds=length)


def _wanted_end(reservation: Reservation, margin_seconds: int) -> datetime | None:
    """Return when a placeholder is to end by itself: a margin after its Reservation, None for never."""
    expiry = expires_at(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))
    try:
        return None if expiry is None else expiry + timedelta(seconds=margin_seconds)
    except OverflowError:
        return None


_LOOK_AGAIN_SECONDS: Final = 1.0
"""How soon a hand-over in progress is looked at even if nothing was heard of it."""

_PROBE_AGAIN_SECONDS: Final = 0.5
"""How soon a proof that failed is tried again the first time."""

_LONGEST_PROBE_PAUSE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What is true, what to do, and when to look again at the latest (seconds; None: only when something changes)."""

    status: ReservationStatus
    actions: tuple[Action, ...] = ()
    wake_seconds: float | None = None
    seeks_owners: bool = False
    """Whether pods are to be looked for that were waiting for a place before there was a slot for them."""


def decide(seen: Observation, now: datetime, settings: OperatorSettings) -> Decision:
    """Return the status and the actions for one Reservation; the status is to be written first."""
    views = view_slots(seen, settings.handover)
    status = compute_status(seen, views, now, patience_seconds=settings.unschedulable_seconds)
    phase = status.state.phase if status.state else ReservationPhase.PENDING
    if phase.terminal:
        actions = _wind_up(seen, views, now, settings)
        actions += _collect(status, now, settings)
    else:
        actions = _carry_on(seen, views, now, settings)
    seeks = not phase.terminal and _has_slot_to_give(seen, views, actions)
    return Decision(status, tuple(actions), _next_look(seen, views, status, now, settings), seeks)


def _carry_on(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings
) -> list[Action]:
    """Return what a live Reservation needs."""
    if _needs_validation(seen, views):
        return [*_release_unassigned(seen, views), Validate()]
    actions: list[Action] = []
    for view in views:
        actions += _tend(seen, view, now, settings)
    actions += _give_slots(seen, views, now, settings)
    actions += [LookAtNode(node) for node in due_looks(seen, views)[0]]
    if _proof_left(seen, views) == 0:
        actions.append(Probe())
    return actions


def _proof_left(seen: Observation, views: tuple[SlotView, ...]) -> float | None:
    """Return the seconds until the path is to be proven; None where it is, or where nothing is held.

    One that fails is made again, later each time.
    """
    held = any(view.slot.state is SlotState.HELD for view in views)
    if seen.probe is None:
        return 0.0 if held else None
    if seen.probe.is_final or not held:
        return None
    pause = min(_PROBE_AGAIN_SECONDS * 2.0 ** max(0, seen.probe.failures - 1), _LONGEST_PROBE_PAUSE_SECONDS)
    return max(0.0, pause - seen.probe.age_seconds)


def _needs_validation(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Tell whether the templates were not put to the API server yet; where something is held already, they were."""
    untouched = not seen.placeholders and all(view.slot.state is SlotState.PENDING for view in views)
    return untouched and not seen.validated


def _tend(seen: Observation, view: SlotView, now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return what one slot of a live Reservation needs."""
    match view.slot.state:
        case SlotState.PENDING:
            return [*_drop_successor(view), *_hold(seen, view)]
        case SlotState.HELD:
            return _keep(seen, view, now, settings)
        case SlotState.HANDING_OVER:
            return [*_drop_successor(view), *_hand_over(seen, view, now, settings)]
        case SlotState.TAKEN | SlotState.LOST:
            return _close(seen, view)
        case SlotState.RELEASED:
            return []


def _keep(seen: Observation, view: SlotView, now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return what keeps a held slot for as long as its Reservation says: another placeholder takes the place in time.

    One placeholder hands its place to the next as it would to an owner, so that nobody gets between them.
    """
    if view.renewal is not None and view.successor is not None:
        if has_started(view.successor):
            settled = seen.running_ages.get(view.successor.metadata.uid, 0.0) >= settings.handover.settle_seconds
            return [Finish(view.successor)] if settled else []
        return _hand_over(seen, replace(view, owner=view.successor, assignment=view.renewal), now, settings)
    margin = settings.placeholders.deadline_margin_seconds
    if view.successor is not None or view.placeholder is None:
        return _drop_successor(view)
    seconds = seconds_too_long(seen.reservation, view.placeholder, margin)
    if seconds is not None:
        return [ShortenPlaceholder(view.placeholder, seconds)]
    left = seconds_to_renewal(seen.reservation, view.placeholder, now, margin)
    if left is None or left > 0:
        return []
    deadline = deadline_from(now, settings.handover)
    note = Assignment(task=view.slot.task, index=view.slot.index, node=view.slot.node, deadline=deadline)
    return [SucceedPlaceholder(view.task, view.placeholder, note)]


def _drop_successor(view: SlotView) -> list[Action]:
    """Return the deletion of a successor that is not needed."""
    gone = view.successor is None or view.successor.is_terminating
    return [] if gone or view.successor is None else [DeletePlaceholder(view.successor)]


def _hold(seen: Observation, view: SlotView) -> list[Action]:
    """Return what makes a placeholder run: create it, or clear away one that has ended or whose node is gone."""
    if view.placeholder is None:
        return [CreatePlaceholder(view.task, view.slot.index)]
    if view.placeholder.spec.node_name in seen.missing_nodes:
        return [DeletePlaceholder(view.placeholder, at_once=True)]
    if view.placeholder.is_terminal and not view.placeholder.is_terminating:
        return [DeletePlaceholder(view.placeholder)]
    return []


def _hand_over(seen: Observation, view: SlotView, now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return the next step of a hand-over; none where something has to happen first.

    With less than half of its time left it gets more before anything is done: a pod that is let go, or whose
    placeholder is deleted, near the deadline would have its place guarded for a moment only.
    """
    owner, assignment = view.owner, view.assignment
    if owner is None or assignment is None or has_started(owner):
        return []
    if is_short_of_time(assignment, now, settings.handover):
        return [ExtendHandover(owner, extended(assignment, now, settings.handover))]
    guard = seen.guards.get(assignment.node)
    if owner.spec.node_name or guard is None or guard.deadline < assignment.deadline:
        return []  # an earlier hand-over's guard may be taken off at any moment
    if view.placeholder is None:
        return _let_go(owner, assignment.node)
    has_settled = not view.placeholder.is_terminating and guard.age_seconds >= settings.handover.settle_seconds
    return [DeletePlaceholder(view.placeholder, for_owner=True)] if has_settled else []


def _let_go(owner: Pod, node: str) -> list[Action]:
    """Return what sends an owner to its node; a nomination is taken off by a scheduler that tried too early."""
    if holds_our_gate(owner):
        return [Nominate(owner, node), Ungate(owner)]
    return [] if owner.status.nominated_node_name == node else [Nominate(owner, node)]


def _close(seen: Observation, view: SlotView, *, for_nobody: bool = False) -> list[Action]:
    """Return what is left to do for a slot that is taken, lost or given back.

    A place `for_nobody` is given back at once: no owner is to find it empty, and a kubelet is not waited for.
    """
    actions = _drop_successor(view)
    if view.owner is not None:
        actions.append(Finish(view.owner) if has_started(view.owner) else Release(view.owner))
    if view.placeholder is not None:
        at_once = for_nobody or view.placeholder.spec.node_name in seen.missing_nodes
        if at_once or not view.placeholder.is_terminating:
            actions.append(DeletePlaceholder(view.placeholder, at_once))
    return actions


def _unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Pod]:
    """Return labelled pods that no slot knows."""
    known = {view.owner.metadata.uid for view in views if view.owner is not None}
    return [pod for pod in seen.owners if pod.metadata.uid not in known and not pod.is_terminating]


def _release_unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Action]:
    return [Release(pod, elsewhere=holds_our_gate(pod)) for pod in _unassigned(seen, views)]


def _give_slots(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings
) -> list[Action]:
    """Give each waiting pod a held slot of a task that it matches; release at once gated ones that get none.

    Those that were waiting before get theirs when there are as many as are wanted together: they may be of use together
    only, and lose nothing by it.
    """
    held = [view for view in views if view.slot.state is SlotState.HELD]
    free = Counter(view.task.name for view in held)
    deadline = deadline_from(now, settings.handover)
    actions: list[Action] = []
    for pod in (*_unassigned(seen, views), *(seen.waiting if _has_enough(seen, views) else ())):
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
            continue  # its slot is just handed from one placeholder to the next
        held = [view for view in held if view.slot is not slot]
        assignment = Assignment(task=slot.task, index=slot.index, node=slot.node, deadline=deadline)
        actions.append(AssignSlot(pod, assignment))
    return actions


def _has_slot_to_give(seen: Observation, views: tuple[SlotView, ...], actions: list[Action]) -> bool:
    """Tell whether slots are left, and nobody has looked lately for pods that could take them."""
    held = sum(view.slot.state is SlotState.HELD for view in views)
    is_left = held > sum(isinstance(action, AssignSlot) for action in actions)
    return not seen.searched and is_left and _has_enough(seen, views)


def _has_enough(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Tell whether as many slots as are wanted together are held, on their way to an owner or taken."""
    return sum(view.slot.state in OCCUPIED for view in views) >= seen.reservation.spec.wanted


def _wind_up(seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings) -> list[Action]:
    """Release everything of a finished Reservation, except for pods that have begun to take their slot."""
    actions = _release_unassigned(seen, views)
    for view in views:
        match view.slot.state:
            case SlotState.HANDING_OVER:
                actions += _hand_over(seen, view, now, settings)
            case SlotState.TAKEN | SlotState.LOST:
                actions += _close(seen, view)
            case SlotState.PENDING | SlotState.HELD | SlotState.RELEASED:
                actions += _close(seen, view, for_nobody=True)
    return actions


def _collect(status: ReservationStatus, now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return the deletion of a Reservation whose retention time is over."""
    left = _retention_left(status, now, settings)
    return [Collect()] if left is not None and left <= 0 else []


def _retention_left(status: ReservationStatus, now: datetime, settings: OperatorSettings) -> float | None:
    if not settings.retention_seconds or status.state is None or not status.state.phase.terminal:
        return None
    ended = parse_timestamp(status.state.last_transition_time)
    return settings.retention_seconds - (now - ended).total_seconds()


def _next_look(
    seen: Observation,
    views: tuple[SlotView, ...],
    status: ReservationStatus,
    now: datetime,
    settings: OperatorSettings,
) -> float | None:
    """Return the seconds after which something changes by time alone."""
    looks: list[float] = []
    retention = _retention_left(status, now, settings)
    if retention is not None:
        looks.append(retention)
    patience = patience_left(status.state, now, settings.unschedulable_seconds)
    if patience is not None:
        looks.append(patience)
    expiry = expires_at(seen.reservation.spec, parse_timestamp(seen.reservation.metadata.creation_timestamp or ""))
    if expiry is not None and status.state is not None and not status.state.phase.terminal:
        looks.append((expiry - now).total_seconds())
    proof = _proof_left(seen, views) if status.state is not None and not status.state.phase.terminal else None
    if proof:
        looks.append(proof)
    if status.state is not None and not status.state.phase.terminal:
        look = due_looks(seen, views)[1]
        looks += [look] if look is not None else []
        looks += _renewals_left(seen, views, now, settings)
    if any(view.slot.state is SlotState.HANDING_OVER or view.renewal is not None for view in views):
        looks.append(_settling_left(seen, views, settings))
    return max(0.01, min(looks)) if looks else None


def _renewals_left(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings
) -> list[float]:
    """Return the seconds until placeholders are to be succeeded by others."""
    margin = settings.placeholders.deadline_margin_seconds
    held = [view for view in views if view.slot.state is SlotState.HELD and view.renewal is None]
    times = [seconds_to_renewal(seen.reservation, view.placeholder, now, margin) for view in held if view.placeholder]
    return [seconds for seconds in times if seconds is not None]


def _settling_left(seen: Observation, views: tuple[SlotView, ...], settings: OperatorSettings) -> float:
    """Return the seconds until the next settling time of a hand-over in progress is over."""
    moving = [
        (view.successor, view.renewal) if view.renewal is not None else (view.owner, view.assignment)
        for view in views
        if view.slot.state is SlotState.HANDING_OVER or view.renewal is not None
    ]
    ages = [
        seen.running_ages.get(pod.metadata.uid, 0.0) if has_started(pod) else _guard_age(seen, given.node)
        for pod, given in moving
        if pod is not None and given is not None
    ]
    left = [settings.handover.settle_seconds - age for age in ages]
    return min((seconds for seconds in left if seconds > 0), default=_LOOK_AGAIN_SECONDS)


def _guard_age(seen: Observation, node: str) -> float:
    guard = seen.guards.get(node)
    return guard.age_seconds if guard else 0.0
