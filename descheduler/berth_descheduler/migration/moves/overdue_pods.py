"""Whether an evicted pod that has not ended still may, or what keeps it.

Its deletion names the time by which it should be gone, grace period included. A pod whose kubelet is away or that a
finalizer holds stays as long as that lasts, so a plan waits for it a while and no longer.
"""

from datetime import datetime, timedelta

from berth_core import Pod, read_timestamp


def is_overdue(pod: Pod, now: datetime, end_seconds: float) -> bool:
    """Return whether a pod is still there `end_seconds` after the end of its grace period."""
    # The API server sets it to the time of the request plus the grace period (`BeforeDelete`): that is not added again.
    due = read_timestamp(pod.metadata.deletion_timestamp)
    return due is not None and now >= due + timedelta(seconds=end_seconds)


def why_it_stays(pod: Pod, node_problem: str) -> str:
    """Return what keeps a pod that should have ended; `node_problem` says why its node is not Ready, "" if it is."""
    names = pod.metadata.finalizers
    finalizers_text = (
        f"the finalizer{'s' if len(names) > 1 else ''} {', '.join(names)} hold{'s' if len(names) == 1 else ''} it"
    )
    reasons = [*([finalizers_text] if names else []), *([node_problem] if node_problem else [])]
    return " and ".join(reasons) or f"the kubelet of node {pod.spec.node_name} has not ended it"
