"""The capacity that is idle at the start of an occurrence: which nodes are chosen by it, and how many slots it holds.

Idle is what is unused now or left by pods that end before the start. The nodes with the most come first: few large
pieces are favoured over many small ones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from berth_core import INDEX_ANNOTATION, TASK_ANNOTATION, Pod, Reservation, ResourceAmounts, SlotState, read_timestamp
from berth_operator.capabilities.windows.status import start_of
from berth_operator.reservation.store.pods import reservation_uid
from berth_operator.reservation.surveys import slot_requests

SlotKey = tuple[str, str, str]
"""Reservation's uid, task and index of a slot."""

_MAX_NODES: Final = 1000
"""As many as a task may name."""


@dataclass(slots=True)
class NodeOccupancy:
    """What a node offers, and what each of its pods takes and until when."""

    name: str
    allocatable: ResourceAmounts
    taken: list[tuple[ResourceAmounts, datetime | None]] = field(default_factory=list)
    """The requests and the expected end of each pod, None for one that stays."""

    def idle_at(self, moment: datetime) -> ResourceAmounts:
        staying_amounts = [amount for amount, end in self.taken if end is None or end > moment]
        return self.allocatable.minus(ResourceAmounts.total(staying_amounts))


@dataclass(frozen=True, slots=True)
class AwaitedSlots:
    """The slots of an occurrence that are neither held nor taken."""

    requests: ResourceAmounts
    """Requests of one slot, including the pod that a node counts for it."""
    by_node: Mapping[str, int]
    """The number of slots that await each node; "" for slots without one yet."""
    nodes: tuple[str, ...]
    """The nodes that slots without one may get."""
    start: datetime
    end: datetime | None
    keys: frozenset[SlotKey] = frozenset()

    @classmethod
    def of(cls, reservation: Reservation) -> "AwaitedSlots":
        """Return the slots that the Reservation of a window still awaits."""
        (task, *_) = reservation.spec.tasks
        uid = reservation.metadata.uid
        settled = {slot.index for slot in reservation.status.slots if slot.state is not SlotState.PENDING}
        nodes = {slot.index: slot.node for slot in reservation.status.slots if slot.index not in settled}
        awaited = [index for index in range(task.replicas) if index not in settled]
        return cls(
            requests=slot_requests(task.template.spec),
            by_node=Counter(nodes.get(index, "") for index in awaited),
            nodes=tuple(task.node_names),
            start=start_of(reservation),
            end=read_timestamp(reservation.spec.expires),
            keys=frozenset((uid, task.name, str(index)) for index in awaited),
        )


def slot_of(placeholder: Pod) -> SlotKey:
    """Return the slot that a placeholder is for."""
    notes = placeholder.metadata.annotations
    return reservation_uid(placeholder), notes.get(TASK_ANNOTATION, ""), notes.get(INDEX_ANNOTATION, "")


def choose_window_nodes(
    nodes: Iterable[NodeOccupancy], requests: ResourceAmounts, slots: int, start: datetime
) -> tuple[str, ...]:
    """Return the nodes whose idle capacity at the start holds all slots, the most idle first.

    `requests` are those of one slot, including its pod. If all nodes together are not idle enough, return the most idle
    ones whose allocatable amounts suffice. Nodes on which no slot ever fits are left out.
    """
    ranked_nodes = sorted(
        (
            (requests.times_within(node.idle_at(start)), requests.times_within(node.allocatable), node.name)
            for node in nodes
        ),
        key=lambda candidate: (-candidate[0], -candidate[1], candidate[2]),
    )
    # By slots and not by amounts: cpu that is idle on a node without memory holds no pod.
    usable_nodes = [candidate for candidate in ranked_nodes if candidate[1] > 0][:_MAX_NODES]
    has_idle = sum(free for free, _, _ in usable_nodes) >= slots
    chosen_nodes: list[str] = []
    slots_free = 0
    for free_at_start, free_when_empty, node_name in usable_nodes:
        if slots_free >= slots and (has_idle or not free_at_start):
            break
        chosen_nodes.append(node_name)
        slots_free += free_at_start if has_idle else free_when_empty
    return tuple(chosen_nodes)


def take_awaited(nodes: Mapping[str, NodeOccupancy], awaited: AwaitedSlots) -> int:
    """Count the slots as taken, and return how many are idle at their start.

    `nodes` are those that its pods may enter now; what another node has is not idle. The other slots are counted where
    they are awaited, or on nodes that hold them when they are empty, so that nothing else is given that room.
    """
    idle_slots = 0
    slots_left = dict(awaited.by_node)
    # First what is idle at the start; only what then still lacks room is counted on whole nodes.
    for of_whole in (False, True):
        for node_name in (*awaited.by_node, *awaited.nodes):
            node = nodes.get(node_name)
            key = node_name if slots_left.get(node_name) else ""
            if node is None or not slots_left.get(key):
                continue
            room = node.allocatable if of_whole else node.idle_at(awaited.start)
            taken = min(slots_left[key], awaited.requests.times_within(room))
            if taken:
                node.taken.append((awaited.requests.times(taken), awaited.end))
                slots_left[key] -= taken
                idle_slots += 0 if of_whole else taken
    return idle_slots
