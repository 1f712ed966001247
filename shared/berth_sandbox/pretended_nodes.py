"""The sandbox's pretended nodes, which kwok plays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth_kube import CSI_NODES, LEASES, NODES, KubeClient

PRETENDED_NODE_LABEL: Final = "type=kwok"
"""Label of the nodes that kwok plays."""

_WIDTH: Final = 3
_LEASE_NAMESPACE: Final = "kube-node-lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """Capacity and labels of a new node."""

    cpu: str = "16"
    memory: str = "64Gi"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    extended: Mapping[str, str] = field(default_factory=dict)
    """Further allocatable resources, such as `{"example.com/gpu": "8"}`."""


def node_names(prefix: str, first: int, count: int) -> tuple[str, ...]:
    """Return the names of nodes numbered from `first`, padded so that names sort."""
    return tuple(f"{prefix}{number:0{_WIDTH}d}" for number in range(first, first + count))


def build_node(name: str, shape: NodeShape) -> dict[str, Any]:
    """Return a node as a kubelet registers it."""
    amounts = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods), **shape.extended}
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        **dict((PRETENDED_NODE_LABEL.split("="),)),
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


def create_node(client: KubeClient, name: str, shape: NodeShape) -> None:
    """Create a node with its CSINode, as a kubelet without a CSI driver does; the node takes it along.

    The API server serves such a CSINode with `drivers: null`.
    """
    node = client.create(NODES, build_node(name, shape))
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": name, "uid": node["metadata"]["uid"]}
    metadata = {"name": name, "ownerReferences": [owner]}
    csi_node = {
        "apiVersion": CSI_NODES.api_version,
        "kind": CSI_NODES.kind,
        "metadata": metadata,
        "spec": {"drivers": []},
    }
    client.create(CSI_NODES, csi_node)


def remove_leases(client: KubeClient) -> None:
    """Remove every node's lease, which kwok recreates.

    A restarted kubelet resumes its own lease. kwok has another identity at each start, and would wait until the leases
    expire.
    """
    for lease in client.list(LEASES, namespace=_LEASE_NAMESPACE).items:
        client.delete(LEASES, lease["metadata"]["name"], namespace=_LEASE_NAMESPACE)
