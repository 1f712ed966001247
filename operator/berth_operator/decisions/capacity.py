"""Owns what is to be asked about nodes: whether room is still to come there, whether another pod took a place.

It does not ask (`acting.performer`), nor say what an answer means (`decisions.surveys`).
"""

from collections.abc import Iterator
from typing import Final

from berth_core.reservations import SlotState
from berth_operator.decisions.observation import Observation
from berth_operator.decisions.slots import SLOW_SECONDS, SlotView, is_on_its_own, is_refused

_MOST_NODES: Final = 4
"""With more nodes to choose from, no node is chosen."""

_BUSY_SECONDS: Final = 2.0
"""How often a node is looked at on which something is about to change."""

_QUIET_SECONDS: Final = 5.0
"""How often it is looked at otherwise."""


def node_to_come(seen: Observation, view: SlotView) -> str:
    """Return the node on which a slot gets its room once the pods there that are terminating are gone; "" for none.

    Where a plan makes the room, its pods may not even be terminating yet.
    """
    if seen.reservation.awaits_room and view.task.reservation_node_names:
        return view.task.reservation_node_names[0]
    for node in _chosen_nodes(view):
        survey = seen.surveys.get(node)
        if survey is not None and survey.will_have_room(view.task.template.spec):
            return node
    return ""


def due_looks(seen: Observation, views: tuple[SlotView, ...]) -> tuple[dict[str, None], float | None]:
    """Return the nodes to look at now, in order, and in how many seconds the next look is due; None where none is."""
    due: dict[str, None] = {}
    later: list[float] = []
    for node, seconds in _looks(seen, views):
        if seconds <= 0:
            due[node] = None
        later.append(seconds if seconds > 0 else _BUSY_SECONDS)
    return due, min(later, default=None)


def _looks(seen: Observation, views: tuple[SlotView, ...]) -> Iterator[tuple[str, float]]:
    """Yield each node that matters to a slot, and in how many seconds it is to be looked at."""
    for view in views:
        for node in _chosen_nodes(view):
            yield node, _seconds_left(seen, node)
        if view.owner is not None and view.assignment is not None and is_on_its_own(view.owner, view.placeholder):
            slow = SLOW_SECONDS - seen.stage_ages.get(view.owner.metadata.uid, 0.0)
            yield view.assignment.node, max(slow, _seconds_left(seen, view.assignment.node, is_urgent=True))


def _chosen_nodes(view: SlotView) -> tuple[str, ...]:
    """Return the few nodes that a placeholder is tied to for which the scheduler found no place."""
    names = view.task.reservation_node_names
    refused = view.slot.state is SlotState.PENDING and is_refused(view)
    return names if refused and len(names) <= _MOST_NODES else ()


def _seconds_left(seen: Observation, node: str, *, is_urgent: bool = False) -> float:
    survey = seen.surveys.get(node)
    if survey is None:
        return 0.0
    return (_BUSY_SECONDS if is_urgent or survey.going() else _QUIET_SECONDS) - survey.age_seconds
