"""Owns telling what happened as events, beside the work and in order, so that nobody waits for it.

It does not own what is told of a Reservation: `decisions.statuses` does.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from berth_core.reservations import ObjectReference
from berth_kube.client import KubeClient
from berth_kube.events import EventType, record_event
from berth_operator import log_keys

_KEPT: Final = 10_000
_LOOK_SECONDS: Final = 0.5
_BUSY_PAUSE_SECONDS: Final = 0.2
_LAST_WORDS_SECONDS: Final = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Announcement:
    """One event to be written."""

    regarding: ObjectReference
    type: EventType
    reason: str
    message: str


class Announcer:
    """Writes one event after the other; where thousands wait already, the next one is left out. Thread-safe.

    While much is to be done it writes few a second.
    """

    def __init__(self, client: KubeClient, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._client = client
        self._is_busy = is_busy
        self._waiting: queue.Queue[Announcement] = queue.Queue(_KEPT)

    def tell(self, announcement: Announcement) -> None:
        """Have an event written soon."""
        try:
            self._waiting.put_nowait(announcement)
        except queue.Full:
            log.warning(log_keys.EVENT_LEFT_OUT, **{log_keys.KEY_REASON: announcement.reason})

    def run(self, stop: threading.Event) -> None:
        """Write events until stopped, and then for two seconds what is left."""
        while not stop.is_set():
            if self.write_next(wait_seconds=_LOOK_SECONDS) and self._is_busy():
                stop.wait(_BUSY_PAUSE_SECONDS)
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while time.monotonic() < deadline and self.write_next():
            pass

    def write_next(self, *, wait_seconds: float = 0.0) -> bool:
        """Write the next event and tell whether there was one; waits for one if told so."""
        try:
            one = self._waiting.get(block=wait_seconds > 0, timeout=wait_seconds or None)
        except queue.Empty:
            return False
        record_event(
            self._client,
            regarding=one.regarding,
            reason=one.reason,
            message=one.message,
            type=one.type,
            reporting_component="berth-operator",
        )
        return True
