"""What became of the rooms that a plan made: its final phase, and a sentence for people."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from berth_core import MoveState, MoveStatus, PlanPhase, RoomReason, RoomState, RoomStatus, first_few

_ROOMS_SHOWN: Final = 3
_PODS_SHOWN: Final = 3
_MADE: Final = frozenset({RoomState.HELD, RoomState.TAKEN})
_UNWANTED: Final = frozenset({MoveState.FAILED, MoveState.ELSEWHERE})


def conclude_rooms(rooms: Sequence[RoomStatus], statuses: Sequence[MoveStatus]) -> PlanPhase:
    """Return the final phase of a plan by its rooms; a room that is no longer needed is no failure."""
    has_failed_room = any(room.state is RoomState.FAILED for room in rooms)
    if not has_failed_room and not any(status.state in _UNWANTED for status in statuses):
        return PlanPhase.SUCCEEDED
    has_landed = any(status.state.succeeded for status in statuses)
    return PlanPhase.PARTIAL if has_landed or any(room.state in _MADE for room in rooms) else PlanPhase.FAILED


def describe_rooms(rooms: Sequence[RoomStatus]) -> str:
    """Return who has the rooms: a sentence for each of a few, numbers of many; "" without rooms."""
    if not rooms:
        return ""
    if len(rooms) <= _ROOMS_SHOWN:
        return " ".join(f"Room for {room.name}: {_describe_room_outcome(room)}." for room in rooms)
    rooms_taken = sum(room.state is RoomState.TAKEN for room in rooms)
    parts = [f"{rooms_taken} of {len(rooms)} rooms taken by the pods that they were made for", *_count_others(rooms)]
    return f"{', '.join(parts)}."


def _describe_room_outcome(room: RoomStatus) -> str:
    match room.state:
        case RoomState.TAKEN:
            pods_in_words = first_few([f"{slot.pod} on {slot.node}" for slot in room.taken], _PODS_SHOWN)
            return f"taken by {pods_in_words}" if pods_in_words else "taken"
        case RoomState.HELD:
            return f"held by Reservation {room.reservation}"
        case RoomState.RELEASED:
            unneeded = room.reason in {RoomReason.POD_GONE, RoomReason.POD_PLACED}
            return f"not needed any more{_why(room)}" if unneeded else f"given back{_why(room)}"
        case RoomState.FAILED:
            return f"not taken{_why(room)}" if room.reason == RoomReason.NOT_TAKEN else f"not made{_why(room)}"
        case RoomState.WAITING if room.message:
            return room.message
        case RoomState.PENDING | RoomState.WAITING:
            return f"still {room.state.value}"


def _why(room: RoomStatus) -> str:
    return f" ({': '.join(part for part in (room.reason, room.message) if part)})" if room.reason else ""


def _count_others(rooms: Sequence[RoomStatus]) -> Iterator[str]:
    """Yield how many rooms are in each other state, with the reasons."""
    for state in (RoomState.HELD, RoomState.WAITING, RoomState.PENDING, RoomState.RELEASED, RoomState.FAILED):
        in_state = [room for room in rooms if room.state is state]
        if in_state:
            yield f"{len(in_state)} {state.value.lower()}{reasons_in_brackets(in_state)}"


def reasons_in_brackets(statuses: Sequence[MoveStatus | RoomStatus]) -> str:
    """Return how often each reason occurs, the most frequent first, as in " (Unschedulable 2)"; "" without reasons."""
    occurrences = Counter(status.reason for status in statuses if status.reason)
    most_frequent_first = sorted(
        occurrences.items(), key=lambda reason_and_count: (-reason_and_count[1], reason_and_count[0])
    )
    texts = [f"{reason} {occurrence_count}" for reason, occurrence_count in most_frequent_first]
    return f" ({', '.join(texts)})" if texts else ""
