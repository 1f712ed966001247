"""Owns what a plan records of the room that it makes: for whom, on which nodes, and which places belong together.

It does not own how room is found (`make_room`), nor how it is kept for whom it is made.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from berth_core.plan_rooms import Room, RoomSlot
from berth_descheduler.planner.quality import RoomMade
from berth_descheduler.plugins.room_requests import RoomOwners

MOST_ROOMS: Final = 500
"""So many rooms a plan may have; what has room beyond that is not kept for anybody."""

_MOST_OWNERS: Final = 32
"""So many owners a Reservation may have: the room of a larger gang is kept in parts."""

_MOST_SLOTS: Final = 1000
"""So many slots a Reservation may have."""


@dataclass(frozen=True, slots=True)
class RoomTerms:
    """What decides on the rooms of shapes."""

    own_namespace: str
    """Where the room of a shape without owners is held."""

    owners: RoomOwners | None = None


def planned_rooms(made: Sequence[RoomMade], terms: RoomTerms, emptied: Collection[str]) -> tuple[Room, ...]:
    """Return the rooms of a plan, which takes pods off the `emptied` nodes.

    Pods of one gang share a room. As many of a shape as the moves allow are not asked for in order to keep all of that
    free: without owners nothing is kept, with owners what the moves made.
    """
    gangs: dict[tuple[str, str], list[RoomSlot]] = {}
    rooms: list[Room] = []
    for one in made:
        if not one.pods:
            rooms += _of_shape(one, terms, emptied)
            continue
        for waiting, node in zip(one.pods, one.nodes, strict=False):  # the first ones have the room
            slot = RoomSlot(node=node, pod=waiting.name, pod_uid=waiting.uid)
            if one.gang:
                gangs.setdefault((waiting.namespace, one.gang), []).append(slot)
            else:
                key = f"{waiting.namespace}/{waiting.name}"
                rooms.append(Room(name=key, namespace=waiting.namespace, slots=(slot,)))
    for (namespace, gang), slots in gangs.items():
        whole = Room(name=f"{namespace}/{gang}", namespace=namespace, gang=gang, slots=tuple(slots))
        rooms += _in_parts(whole, _MOST_OWNERS)
    return tuple(rooms[:MOST_ROOMS])


def _of_shape(made: RoomMade, terms: RoomTerms, emptied: Collection[str]) -> Iterable[Room]:
    nodes: Sequence[str] = made.nodes
    if made.wanted is None:
        nodes = [node for node in nodes if node in emptied] if terms.owners else ()
    if not nodes:
        return ()
    whole = Room(
        name=made.name,
        namespace=terms.owners.namespace if terms.owners else terms.own_namespace,
        requests=dict(made.requests),
        selector=terms.owners.selector if terms.owners else "",
        slots=tuple(RoomSlot(node=node) for node in nodes),
    )
    return _in_parts(whole, _MOST_SLOTS)


def _in_parts(whole: Room, most: int) -> Iterator[Room]:
    """Yield a room as it is, or in parts of at most so many slots each."""
    parts = [whole.slots[start : start + most] for start in range(0, len(whole.slots), most)]
    for number, slots in enumerate(parts, 1):
        name = whole.name if len(parts) == 1 else f"{whole.name} ({number} of {len(parts)})"
        yield Room(
            name=name,
            namespace=whole.namespace,
            gang=whole.gang,
            requests=whole.requests,
            selector=whole.selector,
            slots=slots,
        )
