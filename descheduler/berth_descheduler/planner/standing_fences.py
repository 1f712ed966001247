"""Nodes that the operator's standing fences keep for others, except lent nodes."""

from dataclasses import replace

from berth_core import STANDING_FENCE_LABEL, Pod, Snapshot, is_lent_fence


def standing_fences(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes with a standing fence, except lent nodes."""
    fences = filter(_is_standing_fence, snapshot.pods)
    return frozenset(pod.spec.node_name for pod in fences if pod.spec.node_name and not pod.is_terminal)


def without_fences(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without standing fences, except those of lent nodes."""
    pods = tuple(pod for pod in snapshot.pods if not _is_standing_fence(pod))
    return snapshot if len(pods) == len(snapshot.pods) else replace(snapshot, pods=pods)


def _is_standing_fence(pod: Pod) -> bool:
    """Return whether a pod is a standing fence, and not that of a lent node."""
    return STANDING_FENCE_LABEL in pod.metadata.labels and not is_lent_fence(pod)
