"""A drain cordons nodes as `kubectl cordon` does, and takes that back only where it was its own."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from berth_core import BerthError
from berth_descheduler import telemetry
from berth_descheduler.migration.nodes.writes import change_node
from berth_kube import KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)


def cordon_nodes(client: KubeClient, nodes: Iterable[str]) -> Iterator[str]:
    """Close nodes to new pods, and yield those that were open.

    Raises `BerthError` for the first that cannot be closed.
    """
    for node in nodes:
        if change_node(client, node, partial(_cordoned, closed=True)):
            yield node


def uncordon_nodes(client: KubeClient, nodes: Iterable[str]) -> tuple[str, ...]:
    """Open nodes again; return those where that failed.

    Skips a node that is gone.
    """
    failed_nodes = []
    for node in nodes:
        try:
            change_node(client, node, partial(_cordoned, closed=False))
        except NotFoundError:
            continue
        except BerthError as error:
            failed_nodes.append(node)
            _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
    return tuple(failed_nodes)


def _cordoned(raw: Mapping[str, Any], *, closed: bool) -> dict[str, Any] | None:
    if bool(raw["spec"].get("unschedulable")) is closed:
        return None
    return {"metadata": {}, "spec": {"unschedulable": closed or None}}
