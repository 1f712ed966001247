"""Which pods are on nodes."""

from collections.abc import Iterable
from typing import Final

from berth_core import Pod
from berth_kube import PODS, KubeClient


def is_free(pods: Iterable[Pod]) -> bool:
    """Return whether no pod occupies a node; DaemonSet, mirror and terminating pods do not count."""
    return not any(pod.occupies_node and not pod.is_terminating for pod in pods)


def pods_where(client: KubeClient, field_selector: str) -> tuple[Pod, ...]:
    return client.list(PODS, field_selector=field_selector, type=Pod).items


_FEW_NODES: Final = 20
"""For at most this many nodes, pods are listed node by node."""


def read_pods_on(client: KubeClient, names: frozenset[str]) -> list[Pod]:
    """Return the pods on nodes, also those that are being deleted."""
    if len(names) <= _FEW_NODES:
        return [pod for node in sorted(names) for pod in pods_where(client, f"spec.nodeName={node}")]
    # A field selector takes one node's name, and the watch cache of the API server has an index for it; for many nodes
    # one list of all pods costs less than a call for each.
    return [pod for pod in client.list(PODS, type=Pod).items if pod.spec.node_name in names]
