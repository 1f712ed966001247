"""Setting and removing one taint of a node, leaving others' taints as they are.

A node's taints are one atomic list, which any patch replaces whole: without a precondition two writers lose each
other's taints (kubernetes/kubernetes#128304). So each change is made on condition that the node is as it was read.
"""
# ruff: noqa: A002 - `type` is what a caller passes, as in the client

from collections.abc import Callable
from typing import Any, Final, Protocol

from berth_core import NodeSpec, ObjectMeta, Taint
from berth_kube.client import KubeClient
from berth_kube.decoding import AS_DICT, T
from berth_kube.errors import ConflictError, InvalidObjectError
from berth_kube.resources import NODES

_TRIES: Final = 8

RawTaints = list[dict[str, Any]]


class TaintedNode(Protocol):
    """A version of a node, as a watch brought it."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def spec(self) -> NodeSpec: ...


def put_taint(
    client: KubeClient,
    node: str,
    *,
    key: str,
    value: str,
    effect: str = "NoSchedule",
    known: TaintedNode | None = None,
    type: type[T] = AS_DICT,
) -> T:
    """Set a taint on a node and return the node.

    A taint with this key and effect gets the new value. A `known` version of the node is not read again unless it has
    changed. Raises NotFoundError if the node is gone, ConflictError if other writers change it all the time.
    """
    wanted_taint = {"key": key, "value": value, "effect": effect}

    def change(taints: RawTaints) -> RawTaints:
        # Key and effect together identify a taint: validation refuses a second one with both, and accepts one with
        # another effect.
        other_taints = [taint for taint in taints if (taint["key"], taint.get("effect")) != (key, effect)]
        return [*other_taints, wanted_taint]

    patched_node = _change_known(
        client, known, lambda taint: (taint.key, taint.effect) == (key, effect), wanted_taint, type
    )
    return patched_node if patched_node is not None else _change_taints(client, node, change, type)


def remove_taint(
    client: KubeClient, node: str, *, key: str, known: TaintedNode | None = None, type: type[T] = AS_DICT
) -> T:
    """Remove all taints of a key from a node and return the node.

    A `known` version is used, and errors are raised, as by `put_taint`.
    """
    patched_node = _change_known(client, known, lambda taint: taint.key == key, None, type)
    if patched_node is not None:
        return patched_node
    return _change_taints(client, node, lambda taints: [taint for taint in taints if taint["key"] != key], type)


def _change_known(
    client: KubeClient,
    known: TaintedNode | None,
    is_old: Callable[[Taint], bool],
    wanted: dict[str, str] | None,
    type_: type[T],
) -> T | None:
    """Replace taints of a node that a watch brought; None if it has changed since or needs no change.

    Its resourceVersion is the precondition, because the patch names taints by their index in that version.
    """
    old_indexes = [index for index, taint in enumerate(known.spec.taints) if is_old(taint)] if known is not None else []
    if known is None or (wanted is None and not old_indexes):
        return None
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": known.metadata.resource_version}
    ]
    # From the last to the first: each removal shifts the indexes behind it.
    operations += [{"op": "remove", "path": f"/spec/taints/{index}"} for index in reversed(old_indexes)]
    if wanted is not None and known.spec.taints:
        operations.append({"op": "add", "path": "/spec/taints/-", "value": wanted})
    elif wanted is not None:
        operations.append({"op": "add", "path": "/spec/taints", "value": [wanted]})
    try:
        return client.json_patch(NODES, known.metadata.name, operations, type=type_)
    # 422 is the answer where the test of the version fails, and for a node that the patch would make invalid; the
    # caller reads the node then.
    except (ConflictError, InvalidObjectError):
        return None


def _change_taints(client: KubeClient, node: str, change: Callable[[RawTaints], RawTaints], type_: type[T]) -> T:
    """Read, change and write a node's taints, again after conflicts; unchanged taints are not written."""
    # `spec.taints` is an atomic list for merge patches, and the kubelet, the node controller and autoscalers write it
    # as well: hence the version as precondition.
    conflict: ConflictError | None = None
    for _ in range(_TRIES):
        body = client.get(NODES, node)
        taints: RawTaints = body["spec"].get("taints") or []
        changed_taints = change(taints)
        if changed_taints == taints:
            return client.get(NODES, node, type=type_)
        precondition = {"resourceVersion": body["metadata"]["resourceVersion"]}
        # null removes the field (RFC 7386): a node without taints has none, and an empty list would be another value to
        # compare.
        patch = {"metadata": precondition, "spec": {"taints": changed_taints or None}}
        try:
            return client.merge_patch(NODES, node, patch, type=type_)
        except ConflictError as error:
            conflict = error
    raise conflict or AssertionError("unreachable: at least one try is made")
