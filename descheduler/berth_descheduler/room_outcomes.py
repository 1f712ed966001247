"""Owns what is said of a plan's rooms at its end: in which phase that leaves the plan, and a sentence for people.

It does not own how a room fares (`rooms`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from berth_core.migration_plans import MoveState, MoveStatus, PlanPhase
from berth_core.plan_rooms import RoomReason, RoomState, RoomStatus
from berth_descheduler.wording import first_few

_ROOMS_SHOWN: Final = 3
_PODS_SHOWN: Final = 3
_MADE: Final = frozenset({RoomState.HELD, RoomState.TAKEN})
_UNWANTED: Final = frozenset({MoveState.FAILED, MoveState.ELSEWHERE})


def conclude_rooms(rooms: Sequence[RoomStatus], statuses: Sequence[MoveStatus]) -> PlanPhase:
    """Return the phase in which a plan ends that was to make room; what is not needed any more is no failure."""
    failed = any(room.state is RoomState.FAILED for room in rooms)
    if not failed and not any(status.state in _UNWANTED for status in statuses):
        return PlanPhase.SUCCEEDED
    landed = any(status.state is MoveState.LANDED for status in statuses)
    return PlanPhase.PARTIAL if landed or any(room.state in _MADE for room in rooms) else PlanPhase.FAILED


def describe_rooms(rooms: Sequence[RoomStatus]) -> str:
    """Return who has the rooms, a sentence each where they are few; "" without rooms."""
    if not rooms:
        return ""
    if len(rooms) <= _ROOMS_SHOWN:
        return " ".join(f"Room for {room.name}: {_describe(room)}." for room in rooms)
    made = sum(room.state is RoomState.TAKEN for room in rooms)
    parts = [f"{made} of {len(rooms)} rooms taken by the pods that they were made for", *_count_others(rooms)]
    return f"{', '.join(parts)}."


def _describe(room: RoomStatus) -> str:
    match room.state:
        case RoomState.TAKEN:
            shown = first_few([f"{slot.pod} on {slot.node}" for slot in room.taken], _PODS_SHOWN)
            return f"taken by {shown}" if shown else "taken"
        case RoomState.HELD:
            return f"held by Reservation {room.reservation}"
        case RoomState.RELEASED:
            unneeded = room.reason in {RoomReason.POD_GONE, RoomReason.POD_PLACED}
            return f"not needed any more{_why(room)}" if unneeded else f"given back{_why(room)}"
        case RoomState.FAILED:
            return f"not taken{_why(room)}" if room.reason == RoomReason.NOT_TAKEN else f"not made{_why(room)}"
        case RoomState.PENDING | RoomState.WAITING:
            return f"still {room.state.value}"


def _why(room: RoomStatus) -> str:
    return f" ({': '.join(part for part in (room.reason, room.message) if part)})" if room.reason else ""


def _count_others(rooms: Sequence[RoomStatus]) -> Iterator[str]:
    """Yield how many rooms are in each other state, with the reasons, the most frequent first."""
    for state in (RoomState.HELD, RoomState.WAITING, RoomState.PENDING, RoomState.RELEASED, RoomState.FAILED):
        found = [room for room in rooms if room.state is state]
        reasons = Counter(room.reason for room in found if room.reason)
        ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        why = f" ({', '.join(f'{reason} {count}' for reason, count in ordered)})" if ordered else ""
        if found:
            yield f"{len(found)} {state.value.lower()}{why}"
