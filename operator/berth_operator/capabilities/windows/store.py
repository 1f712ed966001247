"""The ReservationWindows that the operator knows, and the Reservations that they control."""

from collections.abc import Callable
from typing import Final

from berth_core import ReservationWindow, window_of
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.listed_objects import ListedObjects
from berth_operator.runtime.workqueue import Key

WINDOW: Final = "window"
"""The kind of key whose name is the uid of a window."""


class WindowStore(ListedObjects[ReservationWindow]):
    """All known windows, with their Reservations. Thread-safe."""

    def __init__(self, cache: Cache, enqueue: Callable[[Key], None]) -> None:
        super().__init__(WINDOW, enqueue)
        self.reservations_of = cache.index_controlled(WINDOW, window_of)
        """Returns the Reservations that the window with a uid controls."""
