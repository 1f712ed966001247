"""What the metrics say of guarantees."""

from prometheus_client import CollectorRegistry

from berth_core.queues import QueueSource
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.queues.metrics import QUEUE_GUARANTEE
from berth_descheduler.metrics import CapacityMetrics
from builders import gated_queue, node, pod, queue

SNAPSHOT = Snapshot(nodes=(node("a"), node("b")), pods=(pod("web-0", node="a", cpu="10", memory="8Gi"),))


def test_the_parts_of_a_guarantee_are_shown_until_the_queue_has_none() -> None:
    registry = CollectorRegistry()
    made = CapacityMetrics(registry)
    waits = pod("waits", cpu="8", annotations={"scheduling.volcano.sh/queue-name": "ml"})
    snapshot = Snapshot(
        nodes=SNAPSHOT.nodes, pods=(*SNAPSHOT.pods, waits), queue_objects=(queue(guarantee={"cpu": 24}),)
    )

    made.show_snapshot(snapshot)

    def part(name: str) -> float | None:
        labels = {"source": "Volcano", "queue": "ml", "resource": "cpu", "part": name}
        return registry.get_sample_value(QUEUE_GUARANTEE, labels)

    assert {name: part(name) for name in ("guaranteed", "left", "usable", "placeable")} == {
        "guaranteed": 24_000,
        "left": 24_000,
        "usable": 24_000,
        "placeable": 16_000,
    }

    made.show_snapshot(SNAPSHOT)
    assert part("left") is None


def test_queues_of_one_name_in_both_kinds_are_shown_apart() -> None:
    registry = CollectorRegistry()
    several = Snapshot(
        nodes=SNAPSHOT.nodes,
        queue_objects=(queue(guarantee={"cpu": 24}),),
        gated_queues=(gated_queue(guarantee={"cpu": 16}),),
    )

    CapacityMetrics(registry).show_snapshot(several)

    labels = {"queue": "ml", "resource": "cpu", "part": "guaranteed"}
    guaranteed = {
        source: registry.get_sample_value(QUEUE_GUARANTEE, {"source": source, **labels}) for source in QueueSource
    }
    assert guaranteed == {QueueSource.VOLCANO: 24_000, QueueSource.BERTH: 16_000}
