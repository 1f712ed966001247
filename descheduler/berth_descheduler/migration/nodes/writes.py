"""Writes nodes, again after a conflict."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from berth_kube import NODES, ConflictError, KubeClient

_TRIES: Final = 8


RawNode = Mapping[str, Any]


def change_node(client: KubeClient, name: str, change: Callable[[RawNode], dict[str, Any] | None]) -> bool:
    """Read a node and write the change, again after a conflict; return whether anything was written."""
    conflict: ConflictError | None = None
    for _ in range(_TRIES):
        raw_node = client.get(NODES, name)
        patch = change(raw_node)
        if patch is None:
            return False
        # A node's taints are one atomic list: without the condition the patch would undo what others wrote meanwhile.
        patch["metadata"]["resourceVersion"] = raw_node["metadata"]["resourceVersion"]
        try:
            client.merge_patch(NODES, name, patch)
        # Kubelets, the cloud's controller and autoscalers write the same object, so a conflict is usual and says
        # nothing about the patch.
        except ConflictError as error:
            conflict = error
            continue
        return True
    raise conflict or AssertionError("unreachable: at least one try is made")
