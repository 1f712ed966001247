"""The metrics of queues."""

from typing import Final

from prometheus_client import Counter, Gauge

from berth_operator.metrics import REGISTRY

QUEUES: Final = Gauge("berth_queues", "Queues by state", ["state"], registry=REGISTRY)
PODS: Final = Gauge("berth_queue_pods", "Pods of a queue: admitted or waiting", ["queue", "state"], registry=REGISTRY)
AMOUNTS: Final = Gauge(
    "berth_queue_amount",
    "What a queue is guaranteed, deserves and has allocated, in cores, bytes or pieces",
    ["queue", "resource", "kind"],
    registry=REGISTRY,
)
SLOTS: Final = Gauge(
    "berth_queue_slots", "Slots of a queue's guarantee: held or waiting", ["queue", "state"], registry=REGISTRY
)
ADMISSIONS: Final = Counter("berth_queue_admissions", "Pods that queues admitted", registry=REGISTRY)
