"""The patch that removes the gate of queues from a pod."""

from berth_core import QUEUE_GATE
from berth_operator.reservation.pod_patches import Operations


def build_queue_ungating(uid: str, index: int | None) -> Operations:
    """Return the patch that removes the gate of queues from a pod, which fails if the pod's gates have changed."""
    # The tests protect a new pod of the same name, and the gates of other controllers: the removal of another gate
    # moves ours to a lower index.
    path = f"/spec/schedulingGates/{index}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{path}/name", "value": QUEUE_GATE},
        {"op": "remove", "path": path},
    ]
