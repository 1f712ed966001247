"""Events on objects, written in order by a thread of their own, so that no other work waits for them."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from berth_core import RESERVATION_API_VERSION, RESERVATION_KIND, ObjectReference, Reservation
from berth_kube import EventType, KubeClient, record_event
from berth_operator import telemetry

_LOG = structlog.get_logger(__name__)

_KEPT: Final = 10_000
_WAIT_SECONDS: Final = 0.5
_BUSY_PAUSE_SECONDS: Final = 0.2
_DRAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event to write."""

    regarding: ObjectReference
    type: EventType
    reason: str
    message: str

    @classmethod
    def of(cls, reservation: Reservation, type_: EventType, reason: str, message: str) -> "RecordedEvent":
        regarding = ObjectReference.of(RESERVATION_API_VERSION, RESERVATION_KIND, reservation.metadata)
        return cls(regarding, type_, reason, message)


class EventRecorder:
    """Writes events one by one, and few per second while the operator is busy; thread-safe.

    Events are dropped while 10,000 wait.
    """

    def __init__(self, client: KubeClient, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._client = client
        self._is_busy = is_busy
        self._waiting: queue.Queue[RecordedEvent] = queue.Queue(_KEPT)

    def record(self, event: RecordedEvent) -> None:
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            _LOG.warning(telemetry.EVENT_LEFT_OUT, **{telemetry.KEY_REASON: event.reason})

    def run(self, stop: threading.Event) -> None:
        """Write events until stopped, then drain the queue for two seconds."""
        while not stop.is_set():
            # Placeholders and hand-overs share the connection and the API server's priority level with events.
            if self.write_next(wait_seconds=_WAIT_SECONDS) and self._is_busy():
                stop.wait(_BUSY_PAUSE_SECONDS)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < deadline and self.write_next():
            pass

    def write_next(self, *, wait_seconds: float = 0.0) -> bool:
        """Write the next event; return whether there was one."""
        try:
            event = self._waiting.get(block=wait_seconds > 0, timeout=wait_seconds or None)
        except queue.Empty:
            return False
        record_event(
            self._client,
            regarding=event.regarding,
            reason=event.reason,
            message=event.message,
            type=event.type,
            reporting_component="berth-operator",
        )
        return True
