"""Search for pods that waited before their Reservation had a slot.

Such pods lack our gate.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from berth_core import RESERVATION_LABEL, BerthError, Pod, Reservation, SlotState, is_unschedulable
from berth_kube import PODS
from berth_operator.cache import OwnerIndex, age_order
from berth_operator.executor.context import WITHOUT_NODE, Context
from berth_operator.reconcile import choose_task
from berth_operator.workqueue import WAITING_KEY, Key

_PAUSE_SECONDS: Final = 1.0
"""Between two searches, however many Reservations request one."""
_MOST_NAMESPACES: Final = 5


class PendingOwners:
    """Lists pods without a node for the Reservations that requested it.

    One list serves all of them. Thread-safe.
    """

    def __init__(
        self,
        context: Context,
        enqueue: Callable[[Key, float], None],
        consider: Callable[[Iterable[Pod]], None] = lambda _: None,
    ) -> None:
        """`consider` gets the waiting pods without a slot."""
        self._client = context.client
        self._consider = consider
        self._cache = context.cache
        self._enqueue = enqueue
        self._lock = threading.Lock()
        self._asking: set[str] = set()
        self._searched_at = 0.0

    def request(self, uid: str) -> None:
        with self._lock:
            self._asking.add(uid)
            pause = self._searched_at + _PAUSE_SECONDS - time.monotonic()
        self._enqueue(WAITING_KEY, max(0.0, pause))

    def request_all(self) -> None:
        """Request a search for every Reservation with a held slot."""
        for reservation in self._cache.reservations():
            if reservation.is_live and any(slot.state is SlotState.HELD for slot in reservation.status.slots):
                self.request(reservation.metadata.uid)

    def search(self) -> None:
        """Run all requested searches.

        Searches with pods that no scheduler has tried are repeated.
        """
        with self._lock:
            asking, self._asking = self._asking, set()
            self._searched_at = time.monotonic()
        known = [r for r in map(self._cache.reservation, asking) if r is not None and r.is_live]
        if not known:
            return
        try:
            waiting = self._list_waiting({reservation.metadata.namespace for reservation in known})
        except BerthError:
            with self._lock:
                self._asking |= asking
            raise
        found, untried = distribute(known, waiting)
        for reservation in known:
            self._cache.put_waiting(reservation.metadata.uid, found.get(reservation.metadata.uid, ()))
        for uid in untried:
            self.request(uid)
        served = {pod.metadata.uid for pods in found.values() for pod in pods}
        self._consider(pod for pod in waiting if pod.metadata.uid not in served)

    def _list_waiting(self, namespaces: set[str]) -> tuple[Pod, ...]:
        """List the pods without a node in these namespaces.

        For many namespaces, one list of the whole cluster replaces theirs.
        """
        places = sorted(namespaces) if len(namespaces) <= _MOST_NAMESPACES else [None]
        unsent = f"!{RESERVATION_LABEL}"
        listings = (
            self._client.list(PODS, namespace=place, field_selector=WITHOUT_NODE, label_selector=unsent, type=Pod)
            for place in places
        )
        return tuple(pod for listing in listings for pod in listing.items)


def distribute(reservations: list[Reservation], pods: tuple[Pod, ...]) -> tuple[dict[str, list[Pod]], set[str]]:
    """Return pods by Reservation uid, and the uids to search again.

    The oldest pods come first. A pod waits if the scheduler found it unschedulable; an untried pod may still get a
    place.
    """
    if not pods:
        return {}, set()
    index = OwnerIndex(reservations)
    free: dict[str, Counter[str]] = {}
    found: dict[str, list[Pod]] = {}
    untried: set[str] = set()
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.uid)):
        if pod.spec.scheduling_gates or pod.is_terminating or RESERVATION_LABEL in pod.metadata.labels:
            continue
        for reservation in sorted(index.candidates(pod), key=age_order):
            uid = reservation.metadata.uid
            if uid not in free:
                free[uid] = Counter(s.task for s in reservation.status.slots if s.state is SlotState.HELD)
            task = choose_task(reservation, pod, free[uid])
            if task is None:
                continue
            if not is_unschedulable(pod):
                untried.add(uid)
                continue
            free[uid][task.name] -= 1
            found.setdefault(uid, []).append(pod)
            break
    return found, untried
