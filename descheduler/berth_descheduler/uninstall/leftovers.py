"""What Berth has put on nodes and pods, and the patches that take it off.

What people set stays: the label `berth.volcano.sh/evictions`, and everything of other API groups. A toleration stays
with its pod, as Kubernetes lets none be removed; without its taint it has no effect.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from berth_core import (
    EVICTIONS_LABEL,
    FENCE_LABEL,
    HANDOVER_GATE,
    PLACEHOLDER_LABEL,
    PREFIX,
    QUEUE_GATE,
    RELEASED_HASH,
    RESERVATION_LABEL,
    TEMPLATE_HASH_LABEL,
)
from berth_core.object_lists import RawObject
from berth_descheduler.migration.nodes.freed_marks import read_mark

_GATES: Final = frozenset({HANDOVER_GATE, QUEUE_GATE})
_SET_BY_PEOPLE: Final = frozenset({EVICTIONS_LABEL})


def is_own_pod(raw_pod: RawObject, own_namespace: str) -> bool:
    """Return whether a pod is a placeholder or a fence, which is deleted whole; both are in Berth's namespace only."""
    labels = _labels(raw_pod)
    return raw_pod["metadata"]["namespace"] == own_namespace and "true" in {
        labels.get(PLACEHOLDER_LABEL),
        labels.get(FENCE_LABEL),
    }


def is_released(raw_pod: RawObject) -> bool:
    """Return whether a surge move has taken a pod out of its ReplicaSet."""
    return _labels(raw_pod).get(TEMPLATE_HASH_LABEL) == RELEASED_HASH


def marks_of_node(raw_node: RawObject) -> tuple[str, ...]:
    """Return Berth's labels, annotations and taints on a node, each with its kind."""
    return (
        *(f"label {key}" for key in _own_keys(_labels(raw_node))),
        *(f"annotation {key}" for key in _annotations_to_remove(raw_node)),
        *(f"taint {taint['key']}" for taint in _taints(raw_node) if _is_own(taint["key"])),
    )


def build_node_patch(raw_node: RawObject) -> dict[str, Any]:
    """Return the merge patch that takes Berth's marks off a node, on the condition of the version that was read."""
    # A merge patch replaces a list as a whole (RFC 7386): without the version, which the API server compares, it would
    # take off a taint that came in between.
    kept_taints = [taint for taint in _taints(raw_node) if not _is_own(taint["key"])]
    metadata = {
        "resourceVersion": raw_node["metadata"]["resourceVersion"],
        "labels": dict.fromkeys(_own_keys(_labels(raw_node))),
        "annotations": dict.fromkeys(_annotations_to_remove(raw_node)),
    }
    return {"metadata": metadata, "spec": {"taints": kept_taints or None}}


def marks_of_pod(raw_pod: RawObject) -> tuple[str, ...]:
    """Return a pod's labels, annotations, gates and nomination that are Berth's, each with its kind."""
    return (
        *(f"label {key}" for key in _own_keys(_labels(raw_pod))),
        *((f"label {TEMPLATE_HASH_LABEL}={RELEASED_HASH}",) if is_released(raw_pod) else ()),
        *(f"annotation {key}" for key in _own_keys(_annotations(raw_pod))),
        *(f"gate {gate['name']}" for gate in _gates(raw_pod) if gate["name"] in _GATES),
        *(("nomination to a node",) if is_nominated(raw_pod) else ()),
    )


def is_nominated(raw_pod: RawObject) -> bool:
    """Return whether a pod that waits for a slot is still nominated to the node of a hand-over."""
    status, spec = raw_pod.get("status") or {}, raw_pod["spec"]
    return RESERVATION_LABEL in _labels(raw_pod) and bool(status.get("nominatedNodeName")) and not spec.get("nodeName")


def build_pod_patch(raw_pod: RawObject) -> dict[str, Any]:
    """Return the merge patch that takes Berth's marks off a pod, except its place in a ReplicaSet."""
    # Of a pod's spec this may be written at any time: gates can be taken off, though none be added (KEP-3521).
    kept_gates = [gate for gate in _gates(raw_pod) if gate["name"] not in _GATES]
    metadata = {
        "resourceVersion": raw_pod["metadata"]["resourceVersion"],
        "labels": dict.fromkeys(_own_keys(_labels(raw_pod))),
        "annotations": dict.fromkeys(_own_keys(_annotations(raw_pod))),
    }
    return {"metadata": metadata, **({"spec": {"schedulingGates": kept_gates}} if _gates(raw_pod) else {})}


def _annotations_to_remove(raw_node: RawObject) -> tuple[str, ...]:
    """Return Berth's annotations, and those for an autoscaler that are still as a plan set them."""
    annotations = _annotations(raw_node)
    mark = read_mark(annotations)
    for_autoscalers = {} if mark is None else mark.annotations
    return (
        *_own_keys(annotations),
        *(key for key, value in for_autoscalers.items() if not _is_own(key) and annotations.get(key) == value),
    )


def _own_keys(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(key for key in keys if _is_own(key)))


def _is_own(key: str) -> bool:
    return key.startswith(f"{PREFIX}/") and key not in _SET_BY_PEOPLE


def _labels(raw: RawObject) -> Mapping[str, str]:
    return raw["metadata"].get("labels") or {}


def _annotations(raw: RawObject) -> Mapping[str, str]:
    return raw["metadata"].get("annotations") or {}


def _taints(raw_node: RawObject) -> list[dict[str, str]]:
    return list(raw_node["spec"].get("taints") or ())


def _gates(raw_pod: RawObject) -> list[dict[str, str]]:
    return list(raw_pod["spec"].get("schedulingGates") or ())
