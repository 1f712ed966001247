"""Owns whether targets have room for moves although others, which were to make that room, did not take place.

It does not own what follows from it: the executor skips a move without room instead of waiting for its place in vain.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from berth_core.errors import BerthError
from berth_core.migration_plans import PlannedMove
from berth_core.objects import Node, Pod
from berth_core.pod_requests import occupied_requests
from berth_core.resources import PODS as POD_SLOTS
from berth_core.resources import ResourceAmounts
from berth_kube.client import KubeClient
from berth_kube.resources import NODES, PODS

_READ_SECONDS: Final = 5.0


def who_lacks_room(client: KubeClient, moves: Mapping[int, PlannedMove]) -> dict[int, tuple[str, ...]]:
    """Return what resources the target of each move lacks now, of those that lack any.

    Moves to the same target are looked at in their order, each with those before it in place. A node that cannot be
    read is taken to have room: then the reservation tells.
    """
    to_target: defaultdict[str, list[int]] = defaultdict(list)
    for index in sorted(moves):
        to_target[moves[index].target].append(index)
    lacking: dict[int, tuple[str, ...]] = {}
    for target, indices in sorted(to_target.items()):
        try:
            free = _read_free(client.within(_READ_SECONDS), target)
            found = _first_come(free, [moves[index] for index in indices])
        except BerthError:
            continue
        lacking |= {index: names for index, names in zip(indices, found, strict=True) if names}
    return lacking


def _first_come(free: ResourceAmounts, moves: Sequence[PlannedMove]) -> list[tuple[str, ...]]:
    """Return what each of some moves to one node lacks if those before it that fit take their part."""
    found = []
    for move in moves:
        asked = _with_slot(ResourceAmounts.from_quantities(move.requests))
        found.append(asked.lacking(free))
        if not found[-1]:
            free = free.minus(asked)
    return found


def _read_free(client: KubeClient, name: str) -> ResourceAmounts:
    """Return what nothing takes of a node; raises `BerthError`."""
    node = client.get(NODES, name, type=Node)
    pods = client.list(PODS, field_selector=f"spec.nodeName={name}", type=Pod).items
    taken = (_with_slot(occupied_requests(pod)) for pod in pods if not pod.is_terminal)
    return ResourceAmounts.from_quantities(node.status.allocatable).minus(ResourceAmounts.total(taken))


def _with_slot(asked: ResourceAmounts) -> ResourceAmounts:
    return asked.largest(ResourceAmounts({POD_SLOTS: 1}))
