"""Which components of a sandbox are alive, and how many nodes are usable."""

from dataclasses import dataclass
from typing import Final

from berth_core import Node
from berth_kube import NODES, KubeClient, KubeError
from berth_sandbox.components import Component

_CONTROLLERS_TAINT: Final = "node.kubernetes.io/"
"""Prefix of the taints that node controllers set and remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxHealth:
    """Live and expected components, and the nodes; `components` maps each live one to its pid."""

    components: dict[Component, int]
    expected: frozenset[Component]
    node_programs: dict[str, int]
    """The live processes of real nodes and their pids."""
    expected_node_programs: frozenset[str]
    nodes: int
    ready_nodes: int

    @property
    def complete(self) -> bool:
        """Return whether every component and every program of a real node is alive."""
        return self.expected <= self.components.keys() and self.expected_node_programs <= self.node_programs.keys()


def count_nodes(client: KubeClient) -> tuple[int, int]:
    """Return the numbers of nodes and of usable ones, 0 for an unreachable server."""
    try:
        nodes = client.list(NODES, type=Node).items
    except KubeError:
        return 0, 0
    return len(nodes), sum(_is_usable(node) for node in nodes)


def usable_nodes(client: KubeClient) -> set[str]:
    """Return the names of the nodes that pods can be scheduled to."""
    return {node.metadata.name for node in client.list(NODES, type=Node).items if _is_usable(node)}


def _is_usable(node: Node) -> bool:
    """Return whether a node is ready and without node controllers' taints."""
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    # The node lifecycle controller takes the taint not-ready off only some time after a node is Ready, and until then
    # the scheduler puts no pod there (`pkg/controller/nodelifecycle`).
    return ready and not any(taint.key.startswith(_CONTROLLERS_TAINT) for taint in node.spec.taints)
