"""The taints of running plans, which keep new pods off the nodes to empty and off the nodes of rooms."""

from collections.abc import Collection, Iterable
from typing import Final

import structlog

from berth_core import (
    DRAINING_TAINT,
    ROOM_TAINT,
    BerthError,
    MigrationPlan,
    Node,
    PlannedMove,
    Taint,
    is_room_taint_of,
    room_taint_value,
)
from berth_descheduler import telemetry
from berth_kube import KubeClient, NotFoundError, UnaddressableError, put_taint, remove_taint

_LOG = structlog.get_logger(__name__)

PLAN_TAINTS: Final = (DRAINING_TAINT, ROOM_TAINT)
"""The first keeps off all new pods, the second all but those with a slot of the plan's Reservations."""


def nodes_to_empty(moves: Iterable[PlannedMove]) -> tuple[str, ...]:
    """Return the sources that no move goes to, sorted.

    A node that one pod leaves so that a larger one fits is source and target; tainted, it would take no placeholder.
    """
    sources, targets = set(), set()
    for move in moves:
        if not move.is_eviction:  # its node has a fence
            sources.add(move.source)
            targets.add(move.target)
    return tuple(sorted(sources - targets))


def nodes_of_open_rooms(plan: MigrationPlan) -> tuple[str, ...]:
    """Return the nodes of the rooms that moves have yet to make, sorted."""
    pairs = zip(plan.spec.rooms, plan.room_statuses, strict=True)
    open_rooms = (room for room, status in pairs if not room.waits and not status.has_ended(room))
    return tuple(sorted({node for room in open_rooms for node in room.nodes}))


def nodes_of_ended_rooms(plan: MigrationPlan) -> tuple[str, ...]:
    """Return the nodes of rooms that were made, or never will be, sorted; none of an open room."""
    nodes = {node for room in plan.spec.rooms if not room.waits for node in room.nodes}
    return tuple(sorted(nodes.difference(nodes_of_open_rooms(plan))))


def taint_nodes(client: KubeClient, nodes: Iterable[str], plan: str, key: str = DRAINING_TAINT) -> None:
    """Put `key`, one of the plan taints, on nodes to keep new pods off them; a node that is gone is skipped."""
    for node in nodes:
        # A room's taint is tolerated by the pods of its Reservation, with this very value: one value for all nodes
        # would let them onto the nodes of other rooms.
        taint_value = room_taint_value(plan, node) if key == ROOM_TAINT else plan
        try:
            put_taint(client, node, key=key, value=taint_value, type=Node)
        # A plan written by hand may name anything as a node, also what no path of the API can hold.
        except (NotFoundError, UnaddressableError):
            continue
        _LOG.info(telemetry.TAINTED, **{telemetry.KEY_NODE: node, telemetry.KEY_PLAN: plan})


def untaint_nodes(client: KubeClient, nodes: Iterable[str], *keys: str) -> tuple[str, ...]:
    """Remove the plan taints of these keys, or all plan taints, from nodes; return the nodes where that failed."""
    failed_nodes = []
    for node in nodes:
        try:
            for key in keys or PLAN_TAINTS:
                remove_taint(client, node, key=key, type=Node)
        except NotFoundError:
            continue
        except BerthError as error:
            failed_nodes.append(node)
            _LOG.warning(telemetry.UNTAINT_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
            continue
        _LOG.info(telemetry.UNTAINTED, **{telemetry.KEY_NODE: node})
    return tuple(failed_nodes)


def left_over_nodes(nodes: Iterable[Node], plans: Collection[str]) -> tuple[str, ...]:
    """Return the names of the nodes with a taint of any other plan, sorted."""
    return tuple(
        sorted(node.metadata.name for node in nodes if any(_is_left_over(taint, plans) for taint in node.spec.taints))
    )


def is_taint_of(plan: str, taint: Taint) -> bool:
    """Return whether a taint was put on for a plan."""
    if taint.key == ROOM_TAINT:
        return is_room_taint_of(plan, taint.value)
    return taint.key == DRAINING_TAINT and taint.value == plan


def _is_left_over(taint: Taint, plans: Collection[str]) -> bool:
    return taint.key in PLAN_TAINTS and not any(is_taint_of(plan, taint) for plan in plans)
