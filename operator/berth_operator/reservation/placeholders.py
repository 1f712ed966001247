"""The placeholder of one slot: when it is created, replaced, renewed, shortened and deleted.

The API server forbids a later `activeDeadlineSeconds` (its validation of pod updates lets the value only become
smaller): a placeholder of an extended Reservation hands its place to a successor in time. If the Reservation was
shortened, the deadline is brought forward.
"""

from datetime import datetime, timedelta
from typing import Final

from berth_core import Capacity, Pod, Reservation, SlotState, expires_at, parse_timestamp
from berth_operator.reservation.actions import (
    Action,
    CompleteHandover,
    CreatePlaceholder,
    DeletePlaceholder,
    Release,
    RenewPlaceholder,
    ShortenPlaceholder,
)
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.handover import deadline_from
from berth_operator.reservation.node_choice import CHOICE_SECONDS, SlotId
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.pod_state import has_started
from berth_operator.reservation.slots import SlotView
from berth_operator.settings import OperatorSettings

_RENEWAL_MARGINS: Final = 2
"""Margins before its end at which a placeholder is renewed, so that the API server may be down for one of them."""


def ensure_placeholder(seen: Observation, view: SlotView) -> list[Action]:
    """Create a placeholder, or delete one that ended or lost its node."""
    placeholder = view.placeholder
    if placeholder is None:
        # With `Free` the scheduler chooses the node; capacity that is awaited has its node chosen first, to be fenced.
        if seen.reservation.spec.capacity is Capacity.FREE:
            return [CreatePlaceholder(view.task, view.slot.index)]
        node = _chosen_node(seen, view)
        return [CreatePlaceholder(view.task, view.slot.index, node)] if node else []
    if seen.awaits_in_vain(placeholder) or placeholder.spec.node_name in seen.missing_nodes:
        return [DeletePlaceholder(placeholder, at_once=True)]  # no kubelet is there to end it
    # A placeholder that ended, by its deadline or evicted by its kubelet, keeps its name: the next one needs it free.
    if placeholder.is_terminal and not placeholder.is_terminating:
        return [DeletePlaceholder(placeholder)]
    return []


def _chosen_node(seen: Observation, view: SlotView) -> str:
    """Return the recently chosen node of a slot, "" without one that is still there."""
    choice = seen.choice
    if choice is None or not choice.is_recent:
        return ""
    node = choice.nodes.get(view.key, "")
    return "" if node in seen.missing_nodes else node


def slots_without_node(seen: Observation, views: tuple[SlotView, ...]) -> tuple[SlotId, ...]:
    """Return the slots that need a chosen node."""
    if seen.reservation.spec.capacity is Capacity.FREE:
        return ()
    without_placeholder = (view for view in views if view.slot.state is SlotState.PENDING and view.placeholder is None)
    return tuple(view.key for view in without_placeholder if not _chosen_node(seen, view))


def choice_left(seen: Observation, views: tuple[SlotView, ...]) -> float | None:
    """Return the seconds until the next choice of nodes, None if none is needed."""
    nodeless_slots = slots_without_node(seen, views)
    if not nodeless_slots:
        return None
    if seen.choice is None or any(seen.choice.nodes.get(slot) in seen.missing_nodes for slot in nodeless_slots):
        return 0.0
    return max(0.0, CHOICE_SECONDS - seen.choice.age_seconds)


def release_slot(seen: Observation, view: SlotView, *, at_once: bool = False) -> list[Action]:
    """Return the remaining actions for a taken, lost or released slot; `at_once` force-deletes its placeholder."""
    actions = drop_successor(view)
    if view.owner is not None:
        actions.append(CompleteHandover(view.owner) if has_started(view.owner) else Release(view.owner))
    if view.placeholder is not None:
        at_once = at_once or view.placeholder.spec.node_name in seen.missing_nodes
        if at_once or not view.placeholder.is_terminating:
            actions.append(DeletePlaceholder(view.placeholder, at_once))
    return actions


def drop_successor(view: SlotView) -> list[Action]:
    """Return the deletion of a successor that is not needed."""
    successor = view.successor
    return [] if successor is None or successor.is_terminating else [DeletePlaceholder(successor)]


def renew(seen: Observation, view: SlotView, now: datetime, settings: OperatorSettings) -> list[Action]:
    """Return actions by which a held slot begins to be held as long as its Reservation says."""
    if view.successor is not None or view.placeholder is None:
        return drop_successor(view)
    margin_seconds = settings.placeholders.deadline_margin_seconds
    seconds = _seconds_too_long(seen.reservation, view.placeholder, margin_seconds)
    if seconds is not None:
        return [ShortenPlaceholder(view.placeholder, seconds)]
    seconds_left = _seconds_to_renewal(seen.reservation, view.placeholder, now, margin_seconds)
    if seconds_left is None or seconds_left > 0:
        return []
    deadline = deadline_from(now, settings.handover)
    note = Assignment(task=view.slot.task, index=view.slot.index, node=view.slot.node, deadline=deadline)
    return [RenewPlaceholder(view.task, view.placeholder, note)]


def renewals_left(seen: Observation, views: tuple[SlotView, ...], now: datetime, *, margin_seconds: int) -> list[float]:
    """Return the seconds until each placeholder that ends too early is renewed."""
    held_views = (view for view in views if view.slot.state is SlotState.HELD and not view.is_renewed)
    seconds_to_renewal = (
        _seconds_to_renewal(seen.reservation, view.placeholder, now, margin_seconds)
        for view in held_views
        if view.placeholder
    )
    return [seconds for seconds in seconds_to_renewal if seconds is not None]


def _seconds_to_renewal(reservation: Reservation, placeholder: Pod, now: datetime, margin_seconds: int) -> float | None:
    """Return the seconds until a placeholder's renewal, None if it outlives its Reservation."""
    ends, wanted_end = _ends_at(placeholder), _wanted_end(reservation, margin_seconds)
    if ends is None or (wanted_end is not None and ends >= wanted_end - timedelta(seconds=margin_seconds / 2)):
        return None
    return (ends - now).total_seconds() - _RENEWAL_MARGINS * margin_seconds


def _seconds_too_long(reservation: Reservation, placeholder: Pod, margin_seconds: int) -> int | None:
    """Return an earlier deadline for a placeholder that far outlives its Reservation."""
    wanted_end, started = _wanted_end(reservation, margin_seconds), placeholder.status.start_time
    # activeDeadlineSeconds counts from `status.startTime`, which the kubelet sets when it takes the pod up
    # (`pkg/kubelet/active_deadline.go`).
    if wanted_end is None or started is None:
        return None
    ends = _ends_at(placeholder)
    if ends is not None and ends <= wanted_end + timedelta(seconds=margin_seconds):
        return None
    return max(1, int((wanted_end - parse_timestamp(started)).total_seconds()))


def _ends_at(placeholder: Pod) -> datetime | None:
    """Return when the kubelet ends a placeholder; None if it never does or the placeholder is not running."""
    length, started = placeholder.spec.active_deadline_seconds, placeholder.status.start_time
    return None if length is None or started is None else parse_timestamp(started) + timedelta(seconds=length)


def _wanted_end(reservation: Reservation, margin_seconds: int) -> datetime | None:
    """Return a margin after the Reservation's end, None for never."""
    expiry = expires_at(reservation)
    try:
        return None if expiry is None else expiry + timedelta(seconds=margin_seconds)
    except OverflowError:
        return None
