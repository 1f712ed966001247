"""What plans say that make room."""

from collections.abc import Iterator, Sequence
from typing import Final

from berth_core import agreeing, count, percent
from berth_descheduler.planner import Plan, RoomMade
from berth_descheduler.planner.sentences import Figure, count_moves, describe_named_pods

_LISTED_ROOMS: Final = 3


def describe_room(plan: Plan) -> str:
    """Return what the plan makes room for, in a sentence."""
    if not plan.room:
        return describe_named_pods(plan) if plan.moves else "Nothing waits for room."
    fitted, wanted = sum(room.fitted for room in plan.room), [room.wanted for room in plan.room]
    wanted_name = plan.room[0].name if len(plan.room) == 1 else count(len(plan.room), "kind") + " of pods"
    of_wanted = "" if None in wanted else f" of {sum(number or 0 for number in wanted)}"
    if not plan.moves:
        return f"Nothing to move: {fitted}{of_wanted} fit as it is ({wanted_name})."
    make = agreeing(len(plan.moves), "make")
    return f"{count_moves(plan)} {make} room: {fitted}{of_wanted} fit then ({wanted_name})."


def room_figures(rooms: Sequence[RoomMade]) -> Iterator[Figure]:
    """Yield how many pods find room."""
    if rooms:
        yield Figure("find room", str(sum(room.fitted for room in rooms)), _wanted(rooms))


def _wanted(rooms: Sequence[RoomMade]) -> str:
    wanted = [room.wanted for room in rooms if room.wanted is not None]
    return f"of {count(sum(wanted), 'pod')}" if len(wanted) == len(rooms) else "as many as can be"


def unused_by_rooms(rooms: Sequence[RoomMade]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the shares of free capacity that the first rooms cannot use, before and after."""
    for room in rooms[:_LISTED_ROOMS]:
        unused_after = dict(room.unused_after)
        for name, unused in room.unused_before:
            texts = percent(unused), percent(unused_after.get(name, unused))
            yield f"free {name} of no use to {room.name}", texts
