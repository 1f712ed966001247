"""Chooses the Reservation for a pod that needs a slot, which is the oldest with a spare one."""

from collections.abc import Callable, Iterable
from typing import Final

from berth_core import ObjectMeta, ObjectReference, Pod, Reservation, Slot, SlotState
from berth_operator.reservation.fitting import FreeSlots
from berth_operator.reservation.store.cache import Cache


def has_name_of(earlier: ObjectMeta | ObjectReference, pod: Pod) -> bool:
    """Return whether an earlier pod has the name of a new one, and so is gone or was never created."""
    meta = pod.metadata
    return bool(meta.name) and (earlier.namespace, earlier.name) == (meta.namespace, meta.name)


def _was_for_its_name(slot: Slot, pod: Pod) -> bool:
    """Return whether an earlier pod of that name is getting the slot."""
    if slot.state is not SlotState.HANDING_OVER or slot.owner is None:
        return False
    return has_name_of(slot.owner, pod) and slot.owner.uid != pod.metadata.uid


_MAY_BE_HELD: Final = frozenset({SlotState.PENDING, SlotState.HELD, SlotState.HANDING_OVER})
"""HELD as well: a search may have ended just before the event arrived."""


def _no_promises(_uid: str) -> Iterable[Pod]:
    return ()


class SlotFinder:
    """Finds free slots in the cache."""

    def __init__(self, cache: Cache, promised: Callable[[str], Iterable[Pod]] = _no_promises) -> None:
        """`promised` returns pods sent to a Reservation and not cached yet."""
        self._cache = cache
        self._promised = promised

    def find(self, pod: Pod, *, besides: str = "", is_over: Callable[[], bool] = lambda: False) -> Reservation | None:
        """Return the oldest live Reservation with a spare slot for the pod.

        The Reservation with the uid `besides` is left out. Returns None, too, if the search `is_over` before its end.
        All candidates are of the pod's own namespace.
        """
        for reservation in self._cache.candidates(pod):
            if is_over():
                return None
            if reservation.metadata.uid != besides and self.has_slot_for(reservation, pod, is_over=is_over):
                return reservation
        return None

    def unsure(self, pod: Pod, *, is_over: Callable[[], bool]) -> list[Reservation]:
        """Return live Reservations that may now hold a slot for the pod.

        The oldest comes first. Only the writer of a status knows it at once; a replica that does not lead learns it a
        moment later.
        """
        candidates = self._cache.candidates(pod)
        return [reservation for reservation in candidates if not is_over() and self._may_hold_by_now(reservation, pod)]

    def _may_hold_by_now(self, reservation: Reservation, pod: Pod) -> bool:
        """Return whether another replica's status has a slot for the pod."""
        if self._cache.is_own(reservation.metadata.uid):
            return False
        slots = self._cache.published_status(reservation).slots
        changing = FreeSlots(slot for slot in slots if slot.state in _MAY_BE_HELD)
        if not slots:
            changing = FreeSlots(
                Slot(task=task.name, index=index, state=SlotState.PENDING)
                for task in reservation.spec.tasks
                for index in range(task.replicas)
            )
        return bool(changing) and changing.may_suffice(reservation, pod)

    def has_slot_for(self, reservation: Reservation, pod: Pod, *, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Return whether a held slot for the pod remains.

        Slots that earlier gated pods need do not count. A slot on its way to an earlier pod of the same name counts:
        that pod is gone, because no two pods have one name at once.
        """
        slots = self._cache.published_status(reservation).slots
        free = FreeSlots(slot for slot in slots if slot.state is SlotState.HELD or _was_for_its_name(slot, pod))
        if not free or free.choose(reservation, pod) is None:
            return False
        earlier_pods = [
            earlier_pod
            for earlier_pod in self._waiting(reservation, slots)
            if not has_name_of(earlier_pod.metadata, pod)
        ]
        for earlier in earlier_pods:
            if is_over():
                return False
            choice = free.choose(reservation, earlier)
            if choice is not None:
                free.take(choice)
        return not earlier_pods or free.choose(reservation, pod) is not None

    def _waiting(self, reservation: Reservation, slots: Iterable[Slot]) -> list[Pod]:
        """Return pods sent to a Reservation that have no slot yet."""
        uid = reservation.metadata.uid
        promised_pods = list(self._promised(uid))
        served_uids = {slot.owner.uid for slot in slots if slot.owner is not None}
        _, owners = self._cache.pods_of(uid)
        return [pod for pod in owners if not pod.is_terminating and pod.metadata.uid not in served_uids] + promised_pods
