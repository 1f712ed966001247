"""Where the pods of queues are, and which nodes a queue with `held.fence: Node` keeps for itself.

It keeps the nodes on which its guarantee is: its slots, and the pods that took them. A node that a pod has left stays
fenced until the room there is a slot again, which is made for this node and no other. The status of the queue lists the
kept nodes, and an operator that takes over goes on from there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from berth_core import ResourceAmounts

_MAX_NODES: Final = 500
"""Maximum number of nodes of one queue, which has at most as many slots."""
_NOTHING: Final = ResourceAmounts.empty()
_FENCE: Final = ResourceAmounts({"pods": 2})
"""What a fence takes of a node, which is two pod slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePod:
    """The part of a pod that queues need."""

    uid: str
    namespace: str
    """The namespace for which it counts, which for a placeholder is that of its Reservation."""
    name: str
    version: int
    requests: ResourceAmounts
    node: str = ""
    priority: int = 0
    created: str = ""
    gate_index: int | None = None
    """Index of the gate of queues among its scheduling gates, None without it."""
    reservation: str = ""
    """Uid of the Reservation whose slot it holds or waits for; "" if there is none."""
    reservation_name: str = ""
    """Name of the Reservation of a placeholder."""
    slot: str = ""
    """Task and index of the slot that it holds or was given, such as web/0, of several web/0+3; "" for none.

    It is one text: anyone may write a note of thousands of slots.
    """
    promised: str = ""
    """The node of the slot that it was given; "" for none. Anyone may write that on a pod."""
    is_placeholder: bool = False
    is_of_node: bool = False
    """Whether it comes and goes with its node, as pods of DaemonSets do; no queue counts such a pod."""
    is_terminating: bool = False
    ends_at: str = ""
    """The time by which a terminating pod has to end."""

    @property
    def is_gated(self) -> bool:
        """Return whether it has the gate of queues."""
        return self.gate_index is not None

    @property
    def places(self) -> Iterator[tuple[str, str, str]]:
        """Yield what a pod and each placeholder whose place it takes have in common."""
        task, _, indices = self.slot.rpartition("/")
        for index in indices.split("+") if self.slot else ():
            yield self.namespace, self.reservation, f"{task}/{index}"

    @property
    def turn(self) -> tuple[int, str, str, str]:
        """Return the sort key of admission: priority, then age, then the name."""
        return -self.priority, self.created, self.namespace, self.name


@dataclass(slots=True)
class Sum:
    """Amounts that are added up in place: a new `ResourceAmounts` for each of a hundred thousand pods would be slow."""

    amounts: dict[str, int] = field(default_factory=dict)

    def add(self, more: ResourceAmounts) -> None:
        for resource, amount in more.amounts.items():
            self.amounts[resource] = self.amounts.get(resource, 0) + amount

    @property
    def total(self) -> ResourceAmounts:
        return ResourceAmounts(self.amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlaces:
    """The nodes of a queue that keeps others off them."""

    own: Mapping[str, ResourceAmounts]
    """What its pods and slots request, by node."""
    rooms: Mapping[str, ResourceAmounts]
    """What is free on each node, counting as free what the queue's waiting slots and ending pods request."""
    admitting: frozenset[str]
    """The nodes on which a slot may run."""
    before: tuple[str, ...]
    """The nodes that were kept so far."""
    fenced: frozenset[str]
    """The nodes that have a fence."""
    unfenced: Mapping[str, str]
    """The kept nodes without a fence, each with the reason."""
    away: frozenset[str] = frozenset()
    """The nodes that do not count, as they are cordoned or not ready."""


@dataclass(frozen=True, slots=True)
class KeptNodes:
    """The nodes that others are kept off, and which slots are made or ended for that."""

    nodes: tuple[str, ...] = ()
    vacancies: tuple[str, ...] = ()
    """A node with room for each slot that is lacking, as far as there is one."""
    misplaced: frozenset[str] = frozenset()
    """Uids of the slots that wait for a node without room, or for any node while a kept one has room."""


def keep_nodes(
    places: QueuePlaces,
    guarantee: ResourceAmounts,
    slot: ResourceAmounts,
    lacking: int,
    pins: Mapping[str, str],
    *,
    unpinned: Sequence[str] = (),
    is_placed: bool = True,
) -> KeptNodes:
    """Return the nodes to keep: as many as together hold what is guaranteed, first those that are kept already.

    While slots are `lacking`, kept nodes with room for a slot stay kept as well, since one of the queue's pods has left
    that room. They also stay until each other node has its fence, since a pod that took a slot elsewhere may end before
    that. `pins` has the nodes of slots that wait for one, by uid, and `unpinned` the uids of slots that wait for any.

    With `is_placed` slots are made for further nodes as well, those with the most room first. If the node of each were
    chosen by itself, every slot would go to the emptiest node then, and each node that has one is kept.
    """
    nodes_before, guarantee_left, kept_nodes = frozenset(places.before), guarantee, list[str]()
    slots_by_node = {node: slot.times_within(own_room) for node, own_room in places.own.items()}
    for node in sorted(slots_by_node, key=lambda node: (node not in nodes_before, -slots_by_node[node], node)):
        guarantee_rest = ResourceAmounts(
            {resource: max(0, amount - places.own[node][resource]) for resource, amount in guarantee_left.items()}
        )
        # A node with only smaller pods has no slot on it: one such pod on each node must not have all nodes fenced.
        if guarantee_rest != guarantee_left and (slots_by_node[node] or node in nodes_before):
            kept_nodes.append(node)
            guarantee_left = guarantee_rest
    if lacking > 0 or any(node not in places.fenced and node not in places.unfenced for node in kept_nodes):
        nodes_there = frozenset(kept_nodes)
        kept_nodes += [
            node for node in places.before if node not in nodes_there and _may_have_room(places, node, slot, lacking)
        ]
    kept_nodes = kept_nodes[:_MAX_NODES]
    rooms = {node: _room(places, node) for node in kept_nodes if node in places.admitting}
    own_nodes = tuple(rooms)
    if is_placed and lacking > 0:
        rooms |= _other_rooms(places, slot, kept_nodes)
    misplaced = set[str]()
    for reservation_uid, node in sorted(pins.items()):
        if slot.fits_within(rooms.get(node, _NOTHING)):
            rooms[node] = rooms[node].minus(slot)
        else:
            misplaced.add(reservation_uid)
    if is_placed:
        idle_slots = sum(slot.times_within(rooms[node]) for node in own_nodes)
        slots_not_made = max(0, lacking - len(pins.keys() - misplaced) - len(unpinned))
        misplaced |= {*unpinned[: max(0, idle_slots - slots_not_made)]}
    vacancies = (node for node, room in rooms.items() for _ in range(min(lacking, slot.times_within(room))))
    return KeptNodes(tuple(sorted(kept_nodes)), tuple(vacancies), frozenset(misplaced))


def _may_have_room(places: QueuePlaces, node: str, slot: ResourceAmounts, lacking: int) -> bool:
    """Return whether a node has room for a slot, or may have it once it is ready and schedulable again."""
    return slot.fits_within(_room(places, node)) or (lacking > 0 and node in places.away)


def _other_rooms(places: QueuePlaces, slot: ResourceAmounts, kept: Iterable[str]) -> dict[str, ResourceAmounts]:
    """Return the room that a fence leaves on nodes that are not kept, those with room for the most slots first."""
    rooms = {node: _room(places, node).minus(_FENCE) for node in places.admitting - frozenset(kept)}
    slots_by_node = {node: number for node, room in rooms.items() if (number := slot.times_within(room))}
    return {node: rooms[node] for node in sorted(slots_by_node, key=lambda node: (-slots_by_node[node], node))}


def _room(places: QueuePlaces, node: str) -> ResourceAmounts:
    return places.rooms.get(node, _NOTHING)
