"""The decision on one Reservation: status, actions and next reconcile.

It is pure, so a restarted operator decides the same.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core import (
    Capacity,
    ReservationPhase,
    ReservationStatus,
    SlotState,
    expires_at,
    parse_timestamp,
    queue_of_slot,
)
from berth_operator.reservation.actions import (
    Action,
    AssignSlot,
    ChooseNodes,
    CompleteHandover,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    Probe,
    Release,
    SurveyNode,
    Validate,
)
from berth_operator.reservation.handover import (
    count_bound_as_taken,
    drop_successor,
    give_slots,
    hand_over,
    has_enough,
    release_unassigned,
    renew,
    renewals_left,
    settling_left,
)
from berth_operator.reservation.node_choice import CHOICE_SECONDS
from berth_operator.reservation.observation import Observation, SlotView, has_started
from berth_operator.reservation.slots import due_surveys, view_slots
from berth_operator.reservation.status import compute_status, is_over, unschedulable_seconds_left
from berth_operator.settings import OperatorSettings

_FIRST_PROBE_PAUSE_SECONDS: Final = 0.5
_LONGEST_PROBE_PAUSE_SECONDS: Final = 15.0
_SHORTEST_WAKE_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to write first, and the actions to take after it."""

    status: ReservationStatus
    actions: tuple[Action, ...] = ()
    wake_seconds: float | None = None
    """When to reconcile again at the latest; None: only after a change."""
    seeks_owners: bool = False
    """Whether to search for pods that waited before the Reservation had a slot."""


def decide(seen: Observation, now: datetime, settings: OperatorSettings) -> Decision:
    """Return the status and the actions for one Reservation."""
    views = view_slots(seen, settings.handover)
    if is_over(seen.reservation, now):
        views = tuple(map(count_bound_as_taken, views))
    status = compute_status(seen, views, now, patience_seconds=_patience_seconds(seen, settings))
    phase = status.state.phase if status.state else ReservationPhase.PENDING
    if phase.terminal:
        actions = _finalize(seen, views, now, settings)
        actions += _delete_after_retention(status, now, settings)
        wakes = [_retention_left(status, now, settings)]
    else:
        actions = _advance(seen, views, now, settings)
        wakes = _live_wakes(seen, views, status, now, settings)
    if any(view.slot.state is SlotState.HANDING_OVER or view.renewal is not None for view in views):
        wakes.append(settling_left(seen, views, settings.handover))
    wake = min((seconds for seconds in wakes if seconds is not None), default=None)
    return Decision(
        status,
        tuple(actions),
        wake_seconds=None if wake is None else max(_SHORTEST_WAKE_SECONDS, wake),
        seeks_owners=not phase.terminal and _has_spare_slots(seen, views, actions),
    )


def _patience_seconds(seen: Observation, settings: OperatorSettings) -> float:
    """Return how long schedulers may find no place, 0 for any time."""
    is_patient = seen.reservation.spec.capacity is Capacity.WHEN_FREE or queue_of_slot(seen.reservation)
    return 0.0 if is_patient else settings.unschedulable_seconds


# --- a live Reservation ----------------------------------------------------------------------------------------------


def _advance(seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return the actions that a live Reservation needs."""
    if _needs_validation(seen, views):
        return [*release_unassigned(seen, views), Validate()]
    actions: list[Action] = []
    if _choice_left(seen, views) == 0:
        actions.append(ChooseNodes(_without_node(seen, views)))
    for view in views:
        actions += _reconcile_slot(seen, view, now, settings)
    actions += give_slots(seen, views, now, settings.handover)
    actions += [SurveyNode(node) for node in due_surveys(seen, views)[0]]
    if _probe_left(seen, views) == 0:
        actions.append(Probe())
    return actions


def _needs_validation(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Return whether the API server must still validate the templates."""
    # Not if something is held already.
    untouched = not seen.placeholders and all(view.slot.state is SlotState.PENDING for view in views)
    return untouched and not seen.validated


def _reconcile_slot(seen: Observation, view: SlotView, now: datetime, settings: OperatorSettings) -> list[Action]:
    match view.slot.state:
        case SlotState.PENDING:
            return [*drop_successor(view), *_ensure_placeholder(seen, view)]
        case SlotState.HELD:
            margin_seconds = settings.placeholders.deadline_margin_seconds
            return renew(seen, view, now, settings.handover, margin_seconds=margin_seconds)
        case SlotState.HANDING_OVER:
            steps = hand_over(seen, view, now, settings.handover, to=view.owner, note=view.assignment)
            return [*drop_successor(view), *steps]
        case SlotState.TAKEN | SlotState.LOST:
            return _release_slot(seen, view)
        case SlotState.RELEASED:
            return []


def _ensure_placeholder(seen: Observation, view: SlotView) -> list[Action]:
    """Create a placeholder, or delete one that ended or lost its node."""
    if view.placeholder is None:
        if seen.reservation.spec.capacity is Capacity.FREE:
            return [CreatePlaceholder(view.task, view.slot.index)]
        node = _chosen_node(seen, view)
        return [CreatePlaceholder(view.task, view.slot.index, node)] if node else []
    if seen.awaits_in_vain(view.placeholder):
        return [DeletePlaceholder(view.placeholder, at_once=True)]
    if view.placeholder.spec.node_name in seen.missing_nodes:
        return [DeletePlaceholder(view.placeholder, at_once=True)]
    if view.placeholder.is_terminal and not view.placeholder.is_terminating:
        return [DeletePlaceholder(view.placeholder)]
    return []


def _chosen_node(seen: Observation, view: SlotView) -> str:
    """Return the recently chosen node of a slot, "" without one that is still there."""
    choice = seen.choice
    if choice is None or not choice.is_recent:
        return ""
    node = choice.nodes.get((view.slot.task, view.slot.index), "")
    return "" if node in seen.missing_nodes else node


def _without_node(seen: Observation, views: tuple[SlotView, ...]) -> tuple[tuple[str, int], ...]:
    """Return the slots that need a chosen node."""
    if seen.reservation.spec.capacity is Capacity.FREE:
        return ()
    lacking = (view for view in views if view.slot.state is SlotState.PENDING and view.placeholder is None)
    return tuple((view.slot.task, view.slot.index) for view in lacking if not _chosen_node(seen, view))


def _choice_left(seen: Observation, views: tuple[SlotView, ...]) -> float | None:
    """Return the seconds until the next choice of nodes, None if none is needed."""
    without = _without_node(seen, views)
    if not without:
        return None
    if seen.choice is None or any(seen.choice.nodes.get(slot) in seen.missing_nodes for slot in without):
        return 0.0
    return max(0.0, CHOICE_SECONDS - seen.choice.age_seconds)


def _has_spare_slots(seen: Observation, views: tuple[SlotView, ...], actions: list[Action]) -> bool:
    """Return whether to search for pods that could take the remaining slots."""
    held = sum(view.slot.state is SlotState.HELD for view in views)
    is_left = held > sum(isinstance(action, AssignSlot) for action in actions)
    return not seen.searched and is_left and has_enough(seen, views)


def _probe_left(seen: Observation, views: tuple[SlotView, ...]) -> float | None:
    """Return the seconds until the next probe, None if none is needed.

    A failed probe is repeated with growing delays.
    """
    held = any(view.slot.state is SlotState.HELD for view in views)
    if seen.probe is None:
        return 0.0 if held else None
    if seen.probe.is_final or not held:
        return None
    pause = min(_FIRST_PROBE_PAUSE_SECONDS * 2.0 ** max(0, seen.probe.failures - 1), _LONGEST_PROBE_PAUSE_SECONDS)
    return max(0.0, pause - seen.probe.age_seconds)


def _live_wakes(
    seen: Observation,
    views: tuple[SlotView, ...],
    status: ReservationStatus,
    now: datetime,
    settings: OperatorSettings,
) -> list[float | None]:
    """Return the seconds until each thing that changes by time alone."""
    expiry = expires_at(seen.reservation.spec, parse_timestamp(seen.reservation.metadata.creation_timestamp or ""))
    return [
        unschedulable_seconds_left(status.state, now, _patience_seconds(seen, settings)),
        _choice_left(seen, views) or None,  # a choice that is due now is among the actions
        None if expiry is None else (expiry - now).total_seconds(),
        _probe_left(seen, views) or None,  # a probe that is due now is among the actions
        due_surveys(seen, views)[1],
        *renewals_left(seen, views, now, margin_seconds=settings.placeholders.deadline_margin_seconds),
    ]


# --- a finished Reservation ------------------------------------------------------------------------------------------


def _finalize(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings
) -> list[Action]:
    """Release everything except pods that have begun to take their slot."""
    actions = release_unassigned(seen, views)
    for view in views:
        match view.slot.state:
            case SlotState.HANDING_OVER:
                actions += hand_over(seen, view, now, settings.handover, to=view.owner, note=view.assignment)
            case SlotState.TAKEN | SlotState.LOST:
                actions += _release_slot(seen, view)
            case SlotState.PENDING | SlotState.HELD | SlotState.RELEASED:
                actions += _release_slot(seen, view, at_once=True)
    return actions


def _release_slot(seen: Observation, view: SlotView, *, at_once: bool = False) -> list[Action]:
    """Return the remaining actions for a taken, lost or released slot.

    `at_once` force-deletes the placeholder of a slot without an owner.
    """
    actions = drop_successor(view)
    if view.owner is not None:
        actions.append(CompleteHandover(view.owner) if has_started(view.owner) else Release(view.owner))
    if view.placeholder is not None:
        at_once = at_once or view.placeholder.spec.node_name in seen.missing_nodes
        if at_once or not view.placeholder.is_terminating:
            actions.append(DeletePlaceholder(view.placeholder, at_once))
    return actions


def _delete_after_retention(status: ReservationStatus, now: datetime, settings: OperatorSettings) -> list[Action]:
    left = _retention_left(status, now, settings)
    return [DeleteReservation()] if left is not None and left <= 0 else []


def _retention_left(status: ReservationStatus, now: datetime, settings: OperatorSettings) -> float | None:
    """Return the seconds for which a finished Reservation stays, None for ever."""
    if not settings.retention_seconds or status.state is None:
        return None
    ended = parse_timestamp(status.state.last_transition_time)
    return settings.retention_seconds - (now - ended).total_seconds()
