"""Which nodes to survey: where room may still appear, or where another pod may have taken a place."""

from collections.abc import Iterator
from typing import Final

from berth_core import SlotState
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.pod_state import awaited_node
from berth_operator.reservation.slots import SLOW_SECONDS, SlotView, is_refused

_MAX_SURVEYED_NODES: Final = 4
"""With more nodes to choose from, none is surveyed."""

_BUSY_SECONDS: Final = 2.0
"""Interval between surveys of a node where a change is imminent."""

_QUIET_SECONDS: Final = 5.0
"""Interval between surveys of other nodes."""

_AWAITED_SECONDS: Final = 30.0
"""Interval between surveys of a node whose pods end some day; they only show when."""


def node_to_come(seen: Observation, view: SlotView) -> str:
    """Return the node where pods that end leave room for a slot, "" for none."""
    # Where a plan makes the room, or the slot awaits a chosen node, the pods may not even be terminating yet.
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
    """Return the nodes to survey now, in order, and the seconds until the next survey."""
    due_nodes: dict[str, None] = {}
    later: list[float] = []
    for node, seconds in _surveys(seen, views):
        if seconds <= 0:
            due_nodes[node] = None
        later.append(seconds if seconds > 0 else _BUSY_SECONDS)
    return due_nodes, min(later, default=None)


def _surveys(seen: Observation, views: tuple[SlotView, ...]) -> Iterator[tuple[str, float]]:
    """Yield each node relevant to a slot, and seconds until its survey."""
    for view in views:
        is_awaited = view.placeholder is not None and bool(awaited_node(view.placeholder))
        for node in _chosen_nodes(view):
            yield node, _seconds_left(seen, node, quiet_seconds=_AWAITED_SECONDS if is_awaited else _QUIET_SECONDS)
        if view.owner is not None and view.handover is not None and view.handover.stage.may_be_bound:
            node = view.handover.note.node
            yield node, max(SLOW_SECONDS - view.handover.spent_seconds, _seconds_left(seen, node, is_urgent=True))


def _chosen_nodes(view: SlotView) -> tuple[str, ...]:
    """Return the awaited node of a refused slot, else its task's nodes if they are few."""
    node_awaited = awaited_node(view.placeholder) if view.placeholder is not None else ""
    names = (node_awaited,) if node_awaited else view.task.node_names
    is_refused_slot = view.slot.state is SlotState.PENDING and is_refused(view)
    return names if is_refused_slot and len(names) <= _MAX_SURVEYED_NODES else ()


def _seconds_left(
    seen: Observation, node: str, *, is_urgent: bool = False, quiet_seconds: float = _QUIET_SECONDS
) -> float:
    survey = seen.surveys.get(node)
    if survey is None:
        return 0.0
    return (_BUSY_SECONDS if is_urgent or survey.terminating_pods() else quiet_seconds) - survey.age_seconds
