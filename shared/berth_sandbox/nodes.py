"""Owns how the sandbox's nodes look when they join.

It does not own their readiness: kwok plays the kubelet of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth_kube.client import KubeClient
from berth_kube.resources import LEASES

_WIDTH: Final = 3
_LEASE_NAMESPACE: Final = "kube-node-lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What a new node offers and carries."""

    cpu: str = "16"
    memory: str = "64Gi"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    extended: Mapping[str, str] = field(default_factory=dict)
    """Further allocatable resources, such as `{"example.com/gpu": "8"}`."""


def node_names(prefix: str, first: int, count: int) -> tuple[str, ...]:
    """Return the names of nodes numbered from `first`, of one width so that they sort."""
    return tuple(f"{prefix}{number:0{_WIDTH}d}" for number in range(first, first + count))


def build_node(name: str, shape: NodeShape) -> dict[str, Any]:
    """Return a node as a kubelet registers it."""
    amounts = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods), **shape.extended}
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "type": "kwok",
        **shape.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [dict(taint) for taint in shape.taints]},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "kwok",
                "kernelVersion": "kwok",
                "kubeProxyVersion": "",
                "kubeletVersion": "kwok",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "kwok",
                "systemUUID": "",
            },
        },
    }


def remove_leases(client: KubeClient) -> None:
    """Remove every node's lease, which kwok makes anew.

    A kubelet that starts again takes up its own lease; kwok calls itself something else at each start and would wait
    until the leases run out.
    """
    for lease in client.list(LEASES, namespace=_LEASE_NAMESPACE).items:
        client.delete(LEASES, lease["metadata"]["name"], namespace=_LEASE_NAMESPACE)
