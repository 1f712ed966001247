"""Owns which moves of a plan make which of its rooms: those off the room's nodes, and those that make way for these.

It does not own whether they take place.
"""

from collections.abc import Sequence

from berth_core.migration_plans import PlannedMove
from berth_core.plan_rooms import Room


def moves_of_rooms(rooms: Sequence[Room], moves: Sequence[PlannedMove]) -> tuple[frozenset[int], ...]:
    """Return for each room the positions of the moves that make it; a move may serve several rooms."""
    return tuple(_moves_of(room, moves) for room in rooms)


def _moves_of(room: Room, moves: Sequence[PlannedMove]) -> frozenset[int]:
    """Return the moves of one room; whatever makes way for a move stands before it, so one look from the end does."""
    nodes = set(room.nodes)
    found: dict[int, PlannedMove] = {}
    for index in reversed(range(len(moves))):
        move = moves[index]
        if move.source in nodes or any(_makes_way(move, later) for later in found.values()):
            found[index] = move
    return frozenset(found)


def _makes_way(move: PlannedMove, later: PlannedMove) -> bool:
    """Tell whether a move leaves the target of a later one, or brings its pod to where that one takes it from."""
    if move.source == later.target:
        return True
    return (move.namespace, move.pod, move.target) == (later.namespace, later.pod, later.source)
