"""Which moves of a plan make which room: moves off the room's nodes, and moves that make way for these."""

from collections.abc import Sequence

from berth_core import PlannedMove, Room


def moves_of_rooms(rooms: Sequence[Room], moves: Sequence[PlannedMove]) -> tuple[frozenset[int], ...]:
    """Return the positions of the moves that make each room; a move may serve several rooms."""
    return tuple(_moves_of(room, moves) for room in rooms)


def _moves_of(room: Room, moves: Sequence[PlannedMove]) -> frozenset[int]:
    """Return the moves of one room.

    A move that makes way for another stands before it, so one pass from the end finds all.
    """
    nodes = set(room.nodes)
    moves_of_room: dict[int, PlannedMove] = {}
    for index in reversed(range(len(moves))):
        move = moves[index]
        if move.source in nodes or any(_makes_way(move, later_move) for later_move in moves_of_room.values()):
            moves_of_room[index] = move
    return frozenset(moves_of_room)


def _makes_way(move: PlannedMove, later: PlannedMove) -> bool:
    """Return whether a later move needs this one, for space on its target or to find its pod."""
    if move.source == later.target:
        return True
    return (move.namespace, move.pod, move.target) == (later.namespace, later.pod, later.source)
