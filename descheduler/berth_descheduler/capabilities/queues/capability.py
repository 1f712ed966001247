"""What the descheduler asks of its part in queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from berth_core import DeschedulerPolicy, Snapshot
from berth_descheduler.capabilities.queues.guarantees import room_of_guarantee
from berth_descheduler.capability import Advice, Capability, CapacitySection
from berth_descheduler.planner.rooms import GuaranteedRoom, RoomOwners

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from berth_kube import KubeClient
    from berth_sandbox.invariants import ClusterState, Invariant, Violation


class QueuesCapability(Capability):
    """What queues of Volcano and of Berth are guaranteed."""

    capacity_sections: ClassVar[tuple[CapacitySection, ...]] = (
        CapacitySection(
            "For queues with a guarantee, show how much of its unused part pods of the queue's own shapes could use "
            "now.",
            "berth_descheduler.capabilities.queues.cli.fragmentation:QueueSection",
        ),
    )
    paths: ClassVar[str] = "berth_descheduler.capabilities.queues.api.paths:PATHS"

    def room_of_guarantee(self, snapshot: Snapshot, name: str, owners: RoomOwners | None) -> GuaranteedRoom:
        return room_of_guarantee(snapshot, name, owners)

    def capacity_gauges(self, registry: CollectorRegistry) -> Callable[[Snapshot], None]:
        from berth_descheduler.capabilities.queues.metrics import QueueMetrics  # noqa: PLC0415 - for the service only

        return QueueMetrics(registry).show

    def findings(
        self, client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
    ) -> Iterator[Violation]:
        from berth_descheduler.capabilities.queues.findings import find_queue_troubles  # noqa: PLC0415 - for doctor only

        del client, policies
        return find_queue_troubles(state)

    def advice(self) -> Mapping[Invariant, Advice]:
        from berth_descheduler.capabilities.queues.findings import ADVICE  # noqa: PLC0415 - for doctor only

        return ADVICE
