"""Owns the taints of a running plan, on its sources and where it makes room: put on, and surely taken off again.

It does not own how a taint is changed (`berth_kube.taints`), nor the guards of hand-overs.
"""

from collections.abc import Collection, Iterable
from typing import Final

import structlog

from berth_core.errors import BerthError
from berth_core.labels import DRAINING_TAINT, ROOM_TAINT
from berth_core.migration_plans import MigrationPlan, PlannedMove
from berth_core.names import is_room_taint_of, room_taint_value
from berth_core.objects import Node, Taint
from berth_descheduler import log_keys
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import NODES, UnaddressableError
from berth_kube.taints import put_taint, remove_taint

_LOG = structlog.get_logger(__name__)

PLAN_TAINTS: Final = (DRAINING_TAINT, ROOM_TAINT)
"""The first keeps all new pods off, the second all but those with a slot of the plan's own Reservations there."""


def nodes_to_empty(moves: Iterable[PlannedMove]) -> tuple[str, ...]:
    """Return the sources that no move goes to, sorted.

    A node that one pod leaves so that a larger one fits is source and target; tainted, it would take no placeholder.
    """
    sources, targets = set(), set()
    for move in moves:
        sources.add(move.source)
        targets.add(move.target)
    return tuple(sorted(sources - targets))


def nodes_of_open_rooms(plan: MigrationPlan) -> tuple[str, ...]:
    """Return the nodes of the rooms that are still to be made or taken, sorted."""
    pairs = zip(plan.spec.rooms, plan.room_statuses, strict=True)
    return tuple(sorted({node for room, status in pairs if not status.has_ended(room) for node in room.nodes}))


def taint_nodes(client: KubeClient, nodes: Iterable[str], plan: str, key: str = DRAINING_TAINT) -> None:
    """Keep new pods off nodes of a plan by one of its taints; a node that is gone is left out."""
    for node in nodes:
        value = room_taint_value(plan, node) if key == ROOM_TAINT else plan
        try:
            put_taint(client, node, key=key, value=value, type=Node)
        except (NotFoundError, UnaddressableError):
            continue
        _LOG.info(log_keys.TAINTED, **{log_keys.KEY_NODE: node, log_keys.KEY_PLAN: plan})


def untaint_nodes(client: KubeClient, nodes: Iterable[str], *keys: str) -> tuple[str, ...]:
    """Take taints of plans off, all if no keys are given; return the nodes where that failed, for the next run."""
    failed = []
    for node in nodes:
        try:
            for key in keys or PLAN_TAINTS:
                remove_taint(client, node, key=key, type=Node)
        except NotFoundError:
            continue
        except BerthError as error:
            failed.append(node)
            _LOG.warning(log_keys.UNTAINT_FAILED, **{log_keys.KEY_NODE: node, log_keys.KEY_ERROR: str(error)})
            continue
        _LOG.info(log_keys.UNTAINTED, **{log_keys.KEY_NODE: node})
    return tuple(failed)


def left_over_nodes(client: KubeClient, plans: Collection[str]) -> tuple[str, ...]:
    """Return the nodes that carry a taint of a plan, and of none of those named; sorted."""
    nodes = client.list(NODES, type=Node).items
    return tuple(sorted(node.metadata.name for node in nodes if any(_is_left_over(t, plans) for t in node.spec.taints)))


def is_taint_of(plan: str, taint: Taint) -> bool:
    """Tell whether a taint was put on for a plan."""
    if taint.key == ROOM_TAINT:
        return is_room_taint_of(plan, taint.value)
    return taint.key == DRAINING_TAINT and taint.value == plan


def _is_left_over(taint: Taint, plans: Collection[str]) -> bool:
    return taint.key in PLAN_TAINTS and not any(is_taint_of(plan, taint) for plan in plans)
