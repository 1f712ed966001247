"""Whether targets have room for moves although earlier moves that should have made it did not take place."""

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
    moves_by_target: defaultdict[str, list[int]] = defaultdict(list)
    for index in sorted(moves):
        if not moves[index].is_eviction:
            moves_by_target[moves[index].target].append(index)
    lacking_by_move: dict[int, tuple[str, ...]] = {}
    for target, indices in sorted(moves_by_target.items()):
        try:
            free_amounts = _read_free(client.within(_READ_SECONDS), target)
            lacking_per_move = _lacking_by_move(free_amounts, [moves[index] for index in indices])
        except BerthError:
            continue
        lacking_by_move |= {index: names for index, names in zip(indices, lacking_per_move, strict=True) if names}
    return lacking_by_move


def _lacking_by_move(free: ResourceAmounts, moves: Sequence[PlannedMove]) -> list[tuple[str, ...]]:
    """Return what each move to one node lacks; earlier moves that fit use up free space."""
    lacking_names = []
    for move in moves:
        move_requests = _with_slot(ResourceAmounts.from_quantities(move.requests))
        lacking_names.append(move_requests.lacking(free))
        if not lacking_names[-1]:
            free = free.minus(move_requests)
    return lacking_names


def _read_free(client: KubeClient, name: str) -> ResourceAmounts:
    """Return the free resources of a node; raises `BerthError`."""
    node = client.get(NODES, name, type=Node)
    pods = client.list(PODS, field_selector=f"spec.nodeName={name}", type=Pod).items
    taken = (_with_slot(occupied_requests(pod)) for pod in pods if not pod.is_terminal)
    return ResourceAmounts.from_quantities(node.status.allocatable).minus(ResourceAmounts.total(taken))


def _with_slot(asked: ResourceAmounts) -> ResourceAmounts:
    return asked.largest(ResourceAmounts({POD_SLOTS: 1}))
