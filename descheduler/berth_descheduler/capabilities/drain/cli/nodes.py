"""Cordons nodes for a drain as `kubectl cordon` does, and takes back only what the drain itself did."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from berth_core import BerthError, Pod
from berth_descheduler import telemetry
from berth_descheduler.migration.nodes.pods import read_pods_on
from berth_descheduler.migration.nodes.writes import change_node
from berth_kube import KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)


def cordon_nodes(client: KubeClient, nodes: Iterable[str]) -> Iterator[str]:
    """Cordon nodes, and yield those that were open; raises `BerthError` for the first that cannot be cordoned."""
    for node in nodes:
        if change_node(client, node, partial(_build_cordon, closed=True)):
            yield node


def uncordon_nodes(client: KubeClient, nodes: Iterable[str]) -> tuple[str, ...]:
    """Uncordon nodes, and return those where that failed; a node that is gone is skipped."""
    failed_nodes = []
    for node in nodes:
        try:
            change_node(client, node, partial(_build_cordon, closed=False))
        except NotFoundError:
            continue
        except BerthError as error:
            failed_nodes.append(node)
            _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
    return tuple(failed_nodes)


def read_pods_to_drain(client: KubeClient, nodes: Collection[str]) -> tuple[Pod, ...]:
    """Return the pods on nodes that keep these from being empty, also those that are being deleted."""
    return tuple(pod for pod in read_pods_on(client, frozenset(nodes)) if pod.occupies_node)


def _build_cordon(raw: Mapping[str, Any], *, closed: bool) -> dict[str, Any] | None:
    if bool(raw["spec"].get("unschedulable")) is closed:
        return None
    return {"metadata": {}, "spec": {"unschedulable": closed or None}}
