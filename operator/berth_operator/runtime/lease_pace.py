"""How often the operator renews its Lease."""

import threading
from collections.abc import Callable
from typing import Final

from berth_core import OPERATOR_RENEWALS, PLAN_LABEL, Reservation

_AT_REST: Final = 2.5
"""Renewals within the Lease's duration while no plan holds a place. A holder gives up after two thirds of it, so one
renewal may take a quarter of the duration."""


class LeasePace:
    """Renews often while a plan holds a place: before each eviction the descheduler asks whether an operator is alive.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: set[str] = set()
        """Uids of the live Reservations of plans."""
        self._on_first: Callable[[], None] = lambda: None

    def on_first(self, call: Callable[[], None]) -> None:
        """Register a callback for the first live Reservation of a plan."""
        self._on_first = call

    def note(self, reservation: Reservation) -> None:
        """Record a version of a Reservation."""
        if PLAN_LABEL not in reservation.metadata.labels:
            return
        if not reservation.is_live:
            self.forget(reservation.metadata.uid)
            return
        with self._lock:
            is_first = not self._places
            self._places.add(reservation.metadata.uid)
        # A plan's place has to see a fresh Lease at once, not after the long interval that was chosen before.
        if is_first:
            self._on_first()

    def forget(self, uid: str) -> None:
        """Record that a Reservation is gone."""
        with self._lock:
            self._places.discard(uid)

    def renewals(self) -> float:
        """Return how often the Lease is renewed within its duration."""
        # Each renewal is a write to etcd, so a cluster at rest gets few of them.
        return OPERATOR_RENEWALS if self._places else _AT_REST
