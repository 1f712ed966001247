"""Whether targets have room for moves although earlier moves, which should have made it, did not take place."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from berth_core import PODS as POD_SLOTS
from berth_core import BerthError, Node, PlannedMove, Pod, ResourceAmounts, occupied_requests
from berth_kube import NODES, PODS, KubeClient

_READ_SECONDS: Final = 5.0


def insufficient_targets(client: KubeClient, moves: Mapping[int, PlannedMove]) -> dict[int, tuple[str, ...]]:
    """Return the resources that the targets lack, by move.

    Moves to the same target count in their order, each after the ones before it. An unreadable node is assumed to have
    room: the Reservation will show.
    """
    to_target: defaultdict[str, list[int]] = defaultdict(list)
    for index in sorted(moves):
        if not moves[index].is_eviction:
            to_target[moves[index].target].append(index)
    lacking: dict[int, tuple[str, ...]] = {}
    for target, indices in sorted(to_target.items()):
        try:
            free = _read_free(client.within(_READ_SECONDS), target)
            found = _lacking_by_move(free, [moves[index] for index in indices])
        except BerthError:
            continue
        lacking |= {index: names for index, names in zip(indices, found, strict=True) if names}
    return lacking


def _lacking_by_move(free: ResourceAmounts, moves: Sequence[PlannedMove]) -> list[tuple[str, ...]]:
    """Return what each move to one node lacks.

    Earlier moves that fit use up free space.
    """
    found = []
    for move in moves:
        asked = _with_slot(ResourceAmounts.from_quantities(move.requests))
        found.append(asked.lacking(free))
        if not found[-1]:
            free = free.minus(asked)
    return found


def _read_free(client: KubeClient, name: str) -> ResourceAmounts:
    """Return the free resources of a node; raises `BerthError`."""
    node = client.get(NODES, name, type=Node)
    pods = client.list(PODS, field_selector=f"spec.nodeName={name}", type=Pod).items
    taken = (_with_slot(occupied_requests(pod)) for pod in pods if not pod.is_terminal)
    return ResourceAmounts.from_quantities(node.status.allocatable).minus(ResourceAmounts.total(taken))


def _with_slot(asked: ResourceAmounts) -> ResourceAmounts:
    return asked.largest(ResourceAmounts({POD_SLOTS: 1}))
