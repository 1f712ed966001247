"""Nodes that are kept for others by the operator's standing fences, lent nodes left out."""

from dataclasses import replace

from berth_core import STANDING_FENCE_LABEL, Snapshot, is_lent_fence


def standing_fences(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes with a standing fence, lent nodes left out."""
    standing = (pod for pod in snapshot.pods if STANDING_FENCE_LABEL in pod.metadata.labels)
    fences = (pod for pod in standing if not is_lent_fence(pod))
    return frozenset(pod.spec.node_name for pod in fences if pod.spec.node_name and not pod.is_terminal)


def without_fences(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without standing fences but those of lent nodes."""
    pods = tuple(pod for pod in snapshot.pods if STANDING_FENCE_LABEL not in pod.metadata.labels or is_lent_fence(pod))
    return snapshot if len(pods) == len(snapshot.pods) else replace(snapshot, pods=pods)
