"""Owns what can be said of a running sandbox at a glance.

It does not own waiting until it is well: that is `readiness`.
"""

from dataclasses import dataclass

from berth_core.objects import Node
from berth_kube.client import KubeClient
from berth_kube.errors import KubeError
from berth_kube.resources import NODES
from berth_sandbox.components import Component

CONTROLLERS_TAINT = "node.kubernetes.io/"
"""How the taints begin that the node controllers set and take off by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxHealth:
    """The live components and their pids, those that should live, and the nodes."""

    components: dict[Component, int]
    expected: frozenset[Component]
    nodes: int
    ready_nodes: int

    @property
    def complete(self) -> bool:
        """Tell whether every component is alive."""
        return self.expected <= self.components.keys()


def count_nodes(client: KubeClient) -> tuple[int, int]:
    """Return how many nodes there are and how many of them pods can go to; no answer counts as none."""
    try:
        nodes = client.list(NODES, type=Node).items
    except KubeError:
        return 0, 0
    return len(nodes), sum(is_usable(node) for node in nodes)


def usable_nodes(client: KubeClient) -> set[str]:
    """Return the names of the nodes that pods can be scheduled to."""
    return {node.metadata.name for node in client.list(NODES, type=Node).items if is_usable(node)}


def is_usable(node: Node) -> bool:
    """Tell whether a node is ready and no longer carries a taint of the node controllers."""
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return ready and not any(taint.key.startswith(CONTROLLERS_TAINT) for taint in node.spec.taints)
