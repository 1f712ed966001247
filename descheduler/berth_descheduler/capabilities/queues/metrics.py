"""The metric of guarantees."""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from berth_core import Snapshot
from berth_descheduler.capabilities.queues.guarantees import measure_queues

QUEUE_GUARANTEE: Final = "berth_queue_guarantee_amount"


class QueueMetrics:
    """Shows what of the guarantees of queues is placeable."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._guarantees = Gauge(
            QUEUE_GUARANTEE,
            "What a queue is guaranteed, holds and has left, and what of that its pods could use, or have room for.",
            ["source", "queue", "resource", "part"],
            registry=registry,
        )

    def show(self, snapshot: Snapshot) -> None:
        """Show the queues of a snapshot; drops those without a guarantee."""
        queues = measure_queues(snapshot)
        self._guarantees.clear()
        for capacity in queues:
            amounts_by_part = {
                "guaranteed": capacity.queue.guarantee,
                "held": capacity.held,
                "left": capacity.left,
                "usable": capacity.usable,
                "placeable": capacity.placeable,
            }
            for part, amounts in amounts_by_part.items():
                labels = {"source": capacity.queue.source.value, "queue": capacity.queue.name, "part": part}
                for resource_name in capacity.queue.guarantee:
                    self._guarantees.labels(**labels, resource=resource_name).set(amounts.get(resource_name))
