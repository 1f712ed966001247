"""The capability that answers Volcano's scheduler, if an address is given at which to ask."""

from typing import Final

import structlog

from berth_core import RESERVATION_LABEL, Capacity, Pod, SlotState, read_timestamp, volcano_group_of
from berth_operator import telemetry
from berth_operator.capabilities.extender import logs
from berth_operator.capabilities.extender.held_places import HeldPlaces
from berth_operator.capabilities.extender.server import VolcanoExtender
from berth_operator.capabilities.extender.settings import COMMAND, ExtenderSettings
from berth_operator.capabilities.extender.verbs import Held, JobWithoutPods, uncounted_by_queue
from berth_operator.runtime.capability import Capability, Kernel
from berth_operator.runtime.loop_threads import LoopThread

_HELD_SECONDS: Final = 0.5
"""How long sums of what queues hold are kept: Volcano asks for each job of a session, and begins one every second."""

_LOG = structlog.get_logger(__name__)


class Extender(Capability):
    """Runs the extender's server in a thread of its own, and answers from the cache."""

    command = COMMAND

    def __init__(self, kernel: Kernel) -> None:
        settings = kernel.context.settings
        self._cache = kernel.context.cache
        self._clock = kernel.context.clock
        address = settings.of(ExtenderSettings).address
        self._enqueue_after = settings.of(ExtenderSettings).enqueue_after
        namespace = settings.placeholders.namespace
        self._server = (
            VolcanoExtender(
                address,
                namespace,
                has_slot=self._has_slot,
                awaits=self._awaits,
                held_in=self._held_in,
                has_waited=self._has_waited,
                holds=self._holds_for,
            )
            if address
            else None
        )
        self._places = HeldPlaces(self._clock)
        self._held: dict[str, Held] = {}
        self._held_until = 0.0
        self._loop: LoopThread | None = None

    async def start(self) -> None:
        if self._server is None:
            return
        self._loop = LoopThread("volcano-extender")  # a pod's creation must not wait for requests of megabytes
        self._loop.start()
        await self._loop.run(self._server.start())
        _LOG.info(logs.LISTENING, **{telemetry.KEY_ADDRESS: self._server.address})

    async def stop(self) -> None:
        if self._server is not None and self._loop is not None:
            await self._loop.run(self._server.stop())
            self._loop.stop()

    def _has_slot(self, reservation: str, pod: str) -> bool:
        """Return whether a slot of a Reservation is being handed to a pod, both by uid."""
        known_reservation = self._cache.reservation(reservation)
        slots = self._cache.published_status(known_reservation).slots if known_reservation is not None else ()
        return any(
            slot.state is SlotState.HANDING_OVER and slot.owner is not None and slot.owner.uid == pod for slot in slots
        )

    def _awaits(self, reservation: str) -> bool:
        """Return whether a Reservation waits on chosen nodes for pods there to end, by uid."""
        known_reservation = self._cache.reservation(reservation)
        return known_reservation is not None and known_reservation.spec.capacity is Capacity.WHEN_FREE

    def _has_waited(self, created: str) -> bool:
        """Return whether a job was created so long ago that it is let in without pods."""
        moment = read_timestamp(created)
        return (
            self._enqueue_after is not None and moment is not None and self._clock.now() - moment > self._enqueue_after
        )

    def _holds_for(self, job: JobWithoutPods) -> bool:
        """Return whether places are held for the pods of a job, which come once it is let in."""
        return self._places.hold_for(job, self._cache.reservations())

    def _held_in(self, queue: str) -> Held:
        """Return what is held in the name of a queue."""
        now = self._clock.monotonic()
        if now >= self._held_until:
            amounts = uncounted_by_queue(self._cache.placeholders())
            queues_entering = {self._queue_of_slot(pod) for pod in self._cache.owners() if volcano_group_of(pod)}
            self._held = {
                queue_name: Held(amounts[queue_name], queue_name in queues_entering) for queue_name in amounts
            }
            self._held_until = now + _HELD_SECONDS
        return self._held.get(queue, Held())

    def _queue_of_slot(self, pod: Pod) -> str:
        """Return the queue of the slot that is being handed to a pod without a node, "" for none."""
        uid = pod.metadata.labels.get(RESERVATION_LABEL, "")
        reservation = self._cache.reservation(uid) if uid and not pod.spec.node_name else None
        return reservation.spec.queue if reservation is not None and self._has_slot(uid, pod.metadata.uid) else ""
