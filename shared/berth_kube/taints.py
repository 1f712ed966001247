"""Owns putting one taint on a node and taking it off again, leaving those of others as they are.

It does not own which taints: keys are in `berth_core.labels`.

The API server treats a node's taints as one atomic list (a strategic merge patch replaces it whole), so that each
change reads the list and writes it back on the condition that the node is as it was read.
"""
# ruff: noqa: A002 - `type` is what a caller passes: the type of what comes back

from collections.abc import Callable
from typing import Any, Final

from berth_kube.client import KubeClient
from berth_kube.decoding import AS_DICT, T
from berth_kube.errors import ConflictError
from berth_kube.resources import NODES

_TRIES: Final = 8

RawTaints = list[dict[str, Any]]


def put_taint(
    client: KubeClient, node: str, *, key: str, value: str, effect: str = "NoSchedule", type: type[T] = AS_DICT
) -> T:
    """Put a taint on a node, or change the value of the one that is there; return the node.

    Raises NotFoundError where the node is gone, ConflictError where others change it all the time.
    """
    wanted = {"key": key, "value": value, "effect": effect}

    def change(taints: RawTaints) -> RawTaints:
        others = [taint for taint in taints if (taint["key"], taint["effect"]) != (key, effect)]
        return [*others, wanted]

    return _change_taints(client, node, change, type)


def remove_taint(client: KubeClient, node: str, *, key: str, type: type[T] = AS_DICT) -> T:
    """Take all taints of a key off a node; return the node. Raises as `put_taint` does."""
    return _change_taints(client, node, lambda taints: [taint for taint in taints if taint["key"] != key], type)


def _change_taints(client: KubeClient, node: str, change: Callable[[RawTaints], RawTaints], type_: type[T]) -> T:
    """Read, change and write back a node's taints until nobody wrote in between; nothing is written for no change."""
    conflict: ConflictError | None = None
    for _ in range(_TRIES):
        body = client.get(NODES, node)
        taints: RawTaints = body["spec"].get("taints") or []
        changed = change(taints)
        if changed == taints:
            return client.get(NODES, node, type=type_)
        precondition = {"resourceVersion": body["metadata"]["resourceVersion"]}
        patch = {"metadata": precondition, "spec": {"taints": changed or None}}
        try:
            return client.merge_patch(NODES, node, patch, type=type_)
        except ConflictError as error:
            conflict = error
    raise conflict or AssertionError("unreachable: at least one try is made")
