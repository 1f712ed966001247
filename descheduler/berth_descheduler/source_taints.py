"""Owns the draining taint on the source nodes of a running plan: that it is put on, and surely taken off again.

It does not own how a taint is changed (`berth_kube.taints`), nor the guards of hand-overs.
"""

from collections.abc import Iterable, Mapping

import structlog

from berth_core.errors import BerthError
from berth_core.labels import DRAINING_TAINT
from berth_core.migration_plans import PlannedMove
from berth_core.objects import Node
from berth_descheduler import log_keys
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import NODES
from berth_kube.taints import put_taint, remove_taint

_LOG = structlog.get_logger(__name__)


def nodes_to_empty(moves: Iterable[PlannedMove]) -> tuple[str, ...]:
    """Return the sources that no move goes to, sorted.

    A node that one pod leaves so that a larger one fits is source and target; tainted, it would take no placeholder.
    """
    sources, targets = set(), set()
    for move in moves:
        sources.add(move.source)
        targets.add(move.target)
    return tuple(sorted(sources - targets))


def taint_sources(client: KubeClient, nodes: Iterable[str], plan: str) -> None:
    """Keep new pods off the sources of a plan; a node that is gone is left out."""
    for node in nodes:
        try:
            put_taint(client, node, key=DRAINING_TAINT, value=plan, type=Node)
        except NotFoundError:
            continue
        _LOG.info(log_keys.TAINTED, **{log_keys.KEY_NODE: node, log_keys.KEY_PLAN: plan})


def untaint_nodes(client: KubeClient, nodes: Iterable[str]) -> tuple[str, ...]:
    """Take the draining taint off and return the nodes where that did not work; the next run tries them again."""
    failed = []
    for node in nodes:
        try:
            remove_taint(client, node, key=DRAINING_TAINT, type=Node)
        except NotFoundError:
            continue
        except BerthError as error:
            failed.append(node)
            _LOG.warning(log_keys.UNTAINT_FAILED, **{log_keys.KEY_NODE: node, log_keys.KEY_ERROR: str(error)})
            continue
        _LOG.info(log_keys.UNTAINTED, **{log_keys.KEY_NODE: node})
    return tuple(failed)


def draining_nodes(client: KubeClient) -> Mapping[str, str]:
    """Return the nodes that carry the draining taint, each with the plan that it names."""
    return {
        node.metadata.name: taint.value
        for node in client.list(NODES, type=Node).items
        for taint in node.spec.taints
        if taint.key == DRAINING_TAINT
    }
