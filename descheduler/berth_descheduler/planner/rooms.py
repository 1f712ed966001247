"""Room for pods: whom it is for, made and recorded by plans."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from berth_core import (
    PODS,
    InputError,
    LabelSelector,
    ResourceAmounts,
    Room,
    RoomSlot,
    Snapshot,
    parse_selector,
    read_whole_number,
    why_not_whole,
)

_COUNT: Final = "count"
_LARGEST_COUNT: Final = 1_000_000
_SHAPE_EXPECTED: Final = "amounts such as cpu=16 or cpu=12,memory=48Gi,count=3"
_OWNERS_EXPECTED: Final = "a mapping with namespace and selector, such as {namespace: ml, selector: app=train}"


MOST_ROOMS: Final = 500
"""The most rooms of a plan; room beyond that is not kept."""

_MOST_OWNERS: Final = 32
"""The most owners of a Reservation: the room of a larger gang is kept in parts."""

_MOST_SLOTS: Final = 1000
"""The most slots of a Reservation."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The requests of pods that do not exist yet, and how many of them must fit."""

    amounts: ResourceAmounts
    count: int | None
    """None: as many as the moves allow."""

    text: str
    """As it was written, without the count."""

    @classmethod
    def parse(cls, text: object, form: str = _SHAPE_EXPECTED) -> "Shape":
        """Return the shape that a text such as `cpu=12,memory=48Gi,count=3` means.

        Raises `InputError`, which names the expected `form` where the text has another one.
        """
        pairs = [part.partition("=") for part in text.split(",")] if isinstance(text, str) else []
        quantities = {name.strip(): amount.strip() for name, equals, amount in pairs if equals}
        if not quantities or len(quantities) != len(pairs) or PODS in quantities or not all(quantities.keys()):
            raise InputError("shape", text, form)
        count = _read_count(text, quantities.pop(_COUNT, None))
        try:
            amounts = ResourceAmounts.from_quantities(quantities)
        except InputError as error:
            raise InputError("shape", text, form) from error
        if not amounts:
            raise InputError("shape", text, form)
        if fraction := why_not_whole(quantities):
            raise InputError("shape", text, f"amounts that a pod can have: {fraction}")
        if excess := amounts.why_too_large():
            raise InputError("shape", text, f"amounts that a node can have: {excess}")
        return cls(amounts, count, ",".join(f"{name}={amount}" for name, amount in quantities.items()))

    def written(self) -> str:
        """Return what `parse` reads."""
        return self.text if self.count is None else f"{self.text},{_COUNT}={self.count}"


@dataclass(frozen=True, slots=True)
class RoomOwners:
    """Whose pods may take the room that is made for shapes."""

    namespace: str
    selector: str
    """The pods' labels, as a label selector."""

    @classmethod
    def parse(cls, raw: object) -> "RoomOwners | None":
        """Return the owners of a mapping with `namespace` and `selector`, None for None; raises `InputError`."""
        if raw is None:
            return None
        if not isinstance(raw, Mapping) or set(raw) != {"namespace", "selector"}:
            raise InputError("room.owners", raw, _OWNERS_EXPECTED)
        namespace, selector = raw["namespace"], raw["selector"]
        if not isinstance(namespace, str) or not namespace:
            raise InputError("room.owners.namespace", namespace, "the name of a namespace")
        try:
            selects_all = parse_selector(selector) == LabelSelector()
        except InputError as error:
            raise InputError("room.owners.selector", selector, error.expected) from error
        if selects_all:
            raise InputError("room.owners.selector", selector, "a label selector such as app=train")
        return cls(namespace, str(selector))

    def to_mapping(self) -> dict[str, str]:
        """Return what `parse` reads."""
        return {"namespace": self.namespace, "selector": self.selector}


@dataclass(frozen=True, slots=True)
class GuaranteedRoom:
    """What is left of a guarantee, as what room can be made for."""

    pods: tuple[tuple[str, str], ...]
    """Namespaces and names of pods that wait."""

    shapes: tuple[Shape, ...]
    queue: str
    namespace: str
    """As `RoomMade` has them."""


RoomOfGuarantee: TypeAlias = Callable[[Snapshot, str, RoomOwners | None], GuaranteedRoom | None]
"""Returns what is left of the guarantee of a name; owners, if given, must be allowed to use it.

None where nothing knows guarantees. Raises `InputError` for a name that is not known, or has no guarantee.
"""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that room is made for."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RoomMade:
    """The result for one shape or pod of a room request."""

    name: str
    """A shape as it was written, or namespace and name of a pod."""

    wanted: int | None
    """None: as many as the moves allow."""

    fitted: int
    """How many of it have room at the end, beside everything else that was asked for."""

    fits_before: int
    """How many of it alone would fit now, and after the plan."""
    fits_after: int

    nodes: tuple[str, ...]
    """Where what has room has it, a name as often as it has."""

    unused_before: tuple[tuple[str, Fraction], ...] = ()
    """Per resource the share of what is free that it could not use: the fragmentation by this measure."""
    unused_after: tuple[tuple[str, Fraction], ...] = ()

    pods: tuple[WaitingPod, ...] = ()
    """The pods that were meant, none for a shape; the first `fitted` of them have the room."""

    gang: str = ""
    """The name of the group that they belong to."""

    requests: tuple[tuple[str, str], ...] = ()
    """Of a shape: what each of its pods would ask for, quantities by resource."""

    queue: str = ""
    """The queue of Volcano whose guarantee the room is a part of."""

    namespace: str = ""
    """Where a shape without owners is held, so that it counts in a queue of Berth; "" for Berth's own namespace."""


def _read_count(text: object, raw: str | None) -> int | None:
    if raw is None:
        return None
    count = read_whole_number(raw, most=_LARGEST_COUNT)
    if not count:
        raise InputError("shape", text, f"a count from 1 to {_LARGEST_COUNT}")
    return count


def planned_rooms(
    made: Sequence[RoomMade], emptied: Collection[str], *, own_namespace: str, owners: RoomOwners | None = None
) -> tuple[Room, ...]:
    """Return the rooms of a plan that takes pods off the `emptied` nodes.

    Pods of one gang share a room. A shape without owners is held in `own_namespace`. A shape without a count fits as
    often as possible, but not all of that is kept free: nothing without owners, with owners what the moves made.
    """
    gangs: dict[tuple[str, str], list[RoomSlot]] = {}
    rooms: list[Room] = []
    for room_made in made:
        if not room_made.pods:
            rooms += _of_shape(room_made, emptied, own_namespace, owners)
            continue
        for waiting_pod, node in zip(room_made.pods, room_made.nodes, strict=False):  # the first ones have the room
            slot = RoomSlot(node=node, pod=waiting_pod.name, pod_uid=waiting_pod.uid)
            if room_made.gang:
                gangs.setdefault((waiting_pod.namespace, room_made.gang), []).append(slot)
            else:
                key = f"{waiting_pod.namespace}/{waiting_pod.name}"
                rooms.append(Room(name=key, namespace=waiting_pod.namespace, slots=(slot,), queue=room_made.queue))
    queue = made[0].queue if made else ""
    for (namespace, gang), slots in gangs.items():
        gang_room = Room(name=f"{namespace}/{gang}", namespace=namespace, gang=gang, slots=tuple(slots), queue=queue)
        rooms += _in_parts(gang_room, _MOST_OWNERS)
    return tuple(rooms[:MOST_ROOMS])


def _of_shape(
    made: RoomMade, emptied: Collection[str], own_namespace: str, owners: RoomOwners | None
) -> Iterable[Room]:
    nodes: Sequence[str] = made.nodes
    if made.wanted is None:
        nodes = [node for node in nodes if node in emptied] if owners else ()
    if not nodes:
        return ()
    shape_room = Room(
        name=made.name,
        namespace=owners.namespace if owners else made.namespace or own_namespace,
        requests=dict(made.requests),
        selector=owners.selector if owners else "",
        slots=tuple(RoomSlot(node=node) for node in nodes),
        queue=made.queue,
    )
    return _in_parts(shape_room, _MOST_SLOTS)


def _in_parts(whole: Room, max_slots: int) -> Iterator[Room]:
    """Yield a room in parts of at most `max_slots` slots each."""
    parts = [whole.slots[start : start + max_slots] for start in range(0, len(whole.slots), max_slots)]
    for number, slots in enumerate(parts, 1):
        name = whole.name if len(parts) == 1 else f"{whole.name} ({number} of {len(parts)})"
        yield Room(
            name=name,
            namespace=whole.namespace,
            gang=whole.gang,
            requests=whole.requests,
            selector=whole.selector,
            slots=slots,
            queue=whole.queue,
        )
