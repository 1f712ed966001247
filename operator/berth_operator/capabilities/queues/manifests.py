"""The patch that lets a pod of a queue go."""

from berth_core import QUEUE_GATE
from berth_operator.reservation.pod_patches import Operations


def build_queue_ungating(uid: str, index: int | None) -> Operations:
    """Return the patch that takes the gate of queues off a pod; it fails for one whose gates have changed."""
    path = f"/spec/schedulingGates/{index}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{path}/name", "value": QUEUE_GATE},
        {"op": "remove", "path": path},
    ]
