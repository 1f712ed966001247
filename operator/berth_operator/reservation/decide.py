"""Decides the status, the actions and the next reconcile of one Reservation.

The decision is pure, so a restarted operator makes the same one. `handover` decides the next step of a hand-over,
`slot_giving` which pod gets which slot, and `placeholders` when a placeholder comes and goes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core import Capacity, ReservationPhase, ReservationStatus, SlotState, expires_at, parse_timestamp
from berth_operator.reservation.actions import (
    Action,
    ChooseNodes,
    CompleteHandover,
    DeleteReservation,
    ExtendHandover,
    Nominate,
    Probe,
    Release,
    SurveyNode,
    Ungate,
    Validate,
)
from berth_operator.reservation.handover import next_steps
from berth_operator.reservation.nodes_to_survey import due_surveys
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.placeholders import (
    choice_left,
    drop_successor,
    ensure_placeholder,
    release_slot,
    renew,
    renewals_left,
    slots_without_node,
)
from berth_operator.reservation.slot_giving import give_slots, has_spare_slots, release_unassigned
from berth_operator.reservation.slots import SLOW_SECONDS, SlotView, count_bound_as_taken, view_slots
from berth_operator.reservation.status import compute_status, is_over, unschedulable_seconds_left
from berth_operator.reservation.validation import refuse
from berth_operator.settings import OperatorSettings

_FIRST_PROBE_PAUSE_SECONDS: Final = 0.5
_LONGEST_PROBE_PAUSE_SECONDS: Final = 15.0
_SHORTEST_WAKE_SECONDS: Final = 0.01
_RECHECK_SECONDS: Final = 1.0
"""How soon a hand-over in progress is reconciled without any event."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to write first, and the actions to take after it."""

    status: ReservationStatus
    actions: tuple[Action, ...] = ()
    wake_seconds: float | None = None
    """When to reconcile again at the latest; None if only a change calls for it."""
    seeks_owners: bool = False
    """Whether to search for pods that waited before the Reservation had a slot."""
    is_settled: bool = False
    """Whether the next decision differs only if more changes than the status."""


def decide(seen: Observation, now: datetime, settings: OperatorSettings) -> Decision:
    """Return the status and the actions for one Reservation."""
    # Slots, then the status of all, then the actions: a status never depends on what is done about it, so an operator
    # that ends between writing and acting leaves nothing that the next one would read as done.
    seen = seen.with_lost_nodes(settings.node_lost_seconds)
    views = view_slots(seen, settings.handover)
    # A Reservation that has expired waits for no image: an owner that is bound has its place.
    if is_over(seen.reservation, now):
        views = tuple(map(count_bound_as_taken, views))
    status = compute_status(seen, views, now, patience_seconds=_patience_seconds(seen, settings))
    phase = status.state.phase if status.state else ReservationPhase.PENDING
    if phase.terminal:
        actions = _finalize(seen, views, now, settings)
        # One whose deletion waits for a finalizer needs no further one, which would change nothing.
        is_kept = seen.reservation.metadata.deletion_timestamp is None
        retention_left = _retention_left(status, now, settings) if is_kept else None
        if retention_left is not None and retention_left <= 0:
            actions.append(DeleteReservation())
        wakes = [retention_left]
    else:
        actions = _advance(seen, views, now, settings)
        wakes = _live_wakes(seen, views, status, now, settings)
    # A step that is due already is among the actions; a wake of zero seconds would reconcile without a pause.
    wakes += [seconds for seconds in _handover_wakes(views) if seconds > 0]
    wake = min((seconds for seconds in wakes if seconds is not None), default=None)
    seeks_owners = not phase.terminal and has_spare_slots(seen, views, actions)
    return Decision(
        status,
        tuple(_once_per_pod(actions)),
        wake_seconds=None if wake is None else max(_SHORTEST_WAKE_SECONDS, wake),
        seeks_owners=seeks_owners,
        # A slot that becomes held makes another search due, so only a search that has yet to come is the last step.
        is_settled=seeks_owners and not actions and _only_holds(seen, views),
    )


def _only_holds(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Return whether every slot is held and no pod is about to take one."""
    is_quiet = not (seen.owners or seen.waiting or seen.successors)
    return is_quiet and all(view.slot.state is SlotState.HELD for view in views)


def may_validate_first(seen: Observation, now: datetime) -> bool:
    """Return whether a Reservation is so new that `decide` would only validate it."""
    reservation = seen.reservation
    is_untouched = reservation.status.state is None and not reservation.status.slots
    has_no_pods = not (seen.placeholders or seen.successors or seen.owners)
    is_possible = seen.verdict is None and reservation.spec.replicas > 0 and not is_over(reservation, now)
    return is_untouched and has_no_pods and not seen.validated and is_possible and refuse(reservation) is None


def _once_per_pod(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions, each step of an owner once: a pod that takes several slots has a view for each."""
    seen_steps = set[tuple[type[Action], str]]()
    for action in actions:
        if isinstance(action, ExtendHandover | Nominate | Ungate | CompleteHandover | Release):
            step = type(action), action.pod.metadata.uid
            if step in seen_steps:
                continue
            seen_steps.add(step)
        yield action


def _patience_seconds(seen: Observation, settings: OperatorSettings) -> float:
    """Return how long schedulers may find no place, 0 for any time."""
    is_patient = seen.reservation.spec.capacity is Capacity.WHEN_FREE or seen.is_patient
    return 0.0 if is_patient else settings.unschedulable_seconds


def _advance(seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return the actions that a live Reservation needs."""
    if _needs_validation(seen, views):
        # A dry run comes before the first placeholder: one that is refused later would hold part of the capacity of a
        # Reservation that can never be complete. Owners that came early are let go meanwhile.
        return [*release_unassigned(seen, views), Validate()]
    actions: list[Action] = []
    if choice_left(seen, views) == 0:
        # All slots in one choice, so that two of them do not count on the same room.
        actions.append(ChooseNodes(slots_without_node(seen, views)))
    for view in views:
        actions += _slot_actions(seen, view, now, settings)
    actions += give_slots(seen, views, now, settings.handover)
    actions += [SurveyNode(node) for node in due_surveys(seen, views)[0]]
    if _probe_left(seen, views) == 0:
        actions.append(Probe())
    return actions


def _needs_validation(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Return whether the API server must still validate the templates."""
    # Not if something is held already: an operator that starts anew takes nothing away.
    is_untouched = not seen.placeholders and all(view.slot.state is SlotState.PENDING for view in views)
    return is_untouched and not seen.validated


def _slot_actions(seen: Observation, view: SlotView, now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return the actions for one slot of a live Reservation."""
    match view.slot.state:
        case SlotState.PENDING:
            return [*drop_successor(view), *ensure_placeholder(seen, view)]
        case SlotState.HELD:
            # A placeholder hands its place to its successor as it would to an owner: no pod gets between them.
            return _handover_steps(view, now, settings) if view.is_renewed else renew(seen, view, now, settings)
        case SlotState.HANDING_OVER:
            return [*drop_successor(view), *_handover_steps(view, now, settings)]
        case SlotState.TAKEN | SlotState.LOST:
            return release_slot(seen, view)
        case SlotState.RELEASED:
            return []


def _handover_steps(view: SlotView, now: datetime, settings: OperatorSettings) -> list[Action]:
    return next_steps(view.handover, now, settings.handover) if view.handover is not None else []


def _finalize(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: OperatorSettings
) -> list[Action]:
    """Release everything except pods that have begun to take their slot."""
    actions = release_unassigned(seen, views)
    for view in views:
        match view.slot.state:
            case SlotState.HANDING_OVER:
                actions += _handover_steps(view, now, settings)
            case SlotState.TAKEN | SlotState.LOST:
                actions += release_slot(seen, view)
            # Without grace: these places are given up, and it does not matter which pod takes them first.
            case SlotState.PENDING | SlotState.HELD | SlotState.RELEASED:
                actions += release_slot(seen, view, at_once=True)
    return actions


def _probe_left(seen: Observation, views: tuple[SlotView, ...]) -> float | None:
    """Return the seconds until the next probe, more after each failure; None if none is needed."""
    is_held = any(view.slot.state is SlotState.HELD for view in views)
    if seen.probe is None:
        return 0.0 if is_held else None
    if seen.probe.is_final or not is_held:
        return None
    # Exponential back-off: a registration that is not in use yet is in use soon, a webhook that is down may stay so.
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
    expiry = expires_at(seen.reservation)
    return [
        unschedulable_seconds_left(status.state, now, _patience_seconds(seen, settings)),
        choice_left(seen, views) or None,  # a choice that is due now is among the actions
        None if expiry is None else (expiry - now).total_seconds(),
        _probe_left(seen, views) or None,  # a probe that is due now is among the actions
        due_surveys(seen, views)[1],
        *_losses_left(seen, settings),
        *renewals_left(seen, views, now, margin_seconds=settings.placeholders.deadline_margin_seconds),
    ]


def _losses_left(seen: Observation, settings: OperatorSettings) -> Iterator[float]:
    """Yield the seconds until each node that is not ready counts as lost."""
    for unready_seconds in seen.unready_seconds.values():
        if unready_seconds < settings.node_lost_seconds:
            yield settings.node_lost_seconds - unready_seconds


def _handover_wakes(views: tuple[SlotView, ...]) -> Iterator[float]:
    """Yield the seconds until each hand-over goes on by time alone."""
    for view in views:
        if view.handover is None or view.slot.state not in {SlotState.HANDING_OVER, SlotState.HELD}:
            continue
        if view.handover.stage.has_node:
            yield SLOW_SECONDS - view.handover.spent_seconds
        else:
            yield view.handover.settling_seconds if view.handover.settling_seconds > 0 else _RECHECK_SECONDS


def _retention_left(status: ReservationStatus, now: datetime, settings: OperatorSettings) -> float | None:
    """Return the seconds for which a finished Reservation stays, None for ever."""
    if not settings.retention_seconds or status.state is None:
        return None
    ended_at = parse_timestamp(status.state.last_transition_time)
    return settings.retention_seconds - (now - ended_at).total_seconds()
