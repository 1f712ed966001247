"""What the pods of queues use and ask for, with each pod and the slot that it takes counted once."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_core import QueueUse, ResourceAmounts
from berth_operator.capabilities.queues.places import QueuePod, Sum
from berth_operator.capabilities.queues.slot_reservations import QueueSlots
from berth_operator.capabilities.queues.view import QueueView

_NOTHING: Final = ResourceAmounts.empty()


@dataclass(slots=True)
class _SlotUse:
    """One Reservation: what its placeholders hold, and what its pods request that were admitted but have no place yet.

    A pod takes the place of a placeholder, so the larger of the two counts. A pod whose placeholder is deleted already,
    while its gate is still on, counts beside them. A slot that holds the queue's own guarantee counts only once a pod
    takes it.
    """

    queue: str
    is_of_guarantee: bool = False
    held: Sum = field(default_factory=Sum)
    coming: Sum = field(default_factory=Sum)

    @property
    def counted(self) -> ResourceAmounts:
        if self.is_of_guarantee and not self.coming.amounts:
            return _NOTHING
        return self.held.total.largest(self.coming.total)


class Tally:
    """What the pods of each queue use and request, and what pods of no queue use."""

    def __init__(self, view: QueueView, queue_of: Mapping[str, str], slots: Mapping[str, QueueSlots], end: str) -> None:
        """`end` is the time by which a terminating pod has to be gone for its place to be held again already."""
        self.queue_of = queue_of
        self._end = end
        self._takers = {pod: uid for queue_slots in slots.values() for pod, uid in queue_slots.takers.items()}
        self._of_guarantees = {
            (pod.namespace, pod.reservation)
            for pod in (view.pods if slots else ())
            if pod.is_placeholder and _holds_slot(pod, slots.get(queue_of.get(pod.namespace, "")))
        }
        self.waiting: list[QueuePod] = []
        self.admitted: Counter[str] = Counter()
        self._allocated: defaultdict[str, Sum] = defaultdict(Sum)
        self._elsewhere: defaultdict[str, Sum] = defaultdict(Sum)
        self._waiting: defaultdict[str, Sum] = defaultdict(Sum)
        self._ending: defaultdict[str, Sum] = defaultdict(Sum)
        self._unplaced: defaultdict[str, Sum] = defaultdict(Sum)
        """What admitted pods request that are on no node and have no slot yet."""
        self._others = Sum()
        self._slots: dict[tuple[str, str], _SlotUse] = {}
        """By namespace and uid: any user may write the uid of another namespace's Reservation into a label."""
        self._held = {place for pod in view.pods if pod.is_placeholder for place in pod.places}
        for pod in view.pods:
            queue = "" if pod.is_of_node else queue_of.get(pod.namespace, "")
            counts = not pod.node or pod.node in view.nodes
            if queue:
                self._add(pod, queue, counts=counts)
            elif pod.node and counts:
                self._others.add(pod.requests)

    def _add(self, pod: QueuePod, queue: str, *, counts: bool) -> None:
        if pod.is_gated:
            if not pod.is_terminating:
                self.waiting.append(pod)
                self._waiting[queue].add(pod.requests)
            return
        self.admitted[queue] += not pod.is_placeholder
        key = self._slots_of(pod)
        if not counts and not (pod.is_placeholder and key in self._of_guarantees):
            self._elsewhere[queue].add(pod.requests)
        elif key is not None:
            slots = self._slots.setdefault(key, _SlotUse(queue, key in self._of_guarantees))
            if pod.is_placeholder and slots.is_of_guarantee:
                # Two placeholders of one slot are the old and the new one, which takes over when the end is put off.
                slots.held = Sum(dict(slots.held.total.largest(pod.requests).amounts))
            else:
                (slots.held if pod.is_placeholder else slots.coming).add(pod.requests)
        else:
            self._allocated[queue].add(pod.requests)
            if self.ends_soon(pod):
                self._ending[queue].add(pod.requests)
            elif not pod.node and not pod.promised:
                self._unplaced[queue].add(pod.requests)

    def ends_soon(self, pod: QueuePod) -> bool:
        return pod.is_terminating and pod.ends_at <= self._end

    def is_held(self, pod: QueuePod) -> bool:
        """Return whether placeholders hold all places that a pod was given."""
        return bool(pod.slot) and self._held.issuperset(pod.places)

    def _slots_of(self, pod: QueuePod) -> tuple[str, str] | None:
        """Return namespace and uid of the Reservation of a placeholder, or of the slot that a pod takes; None for none.

        The placeholder of such a slot may still have to come. A pod that was given one which is gone counts by itself,
        also while others of several are held: for a moment these count beside it.
        """
        if pod.reservation and (pod.is_placeholder or not pod.slot or self.is_held(pod)):
            return pod.namespace, pod.reservation
        # A pod that waited without the gate of hand-overs, created while the webhook was away, takes a slot as well.
        key = (pod.namespace, self._takers.get(pod.uid, ""))
        return key if key in self._of_guarantees else None

    @property
    def coming(self) -> frozenset[str]:
        """Return the uids of Reservations whose slots admitted pods are about to take."""
        return frozenset(uid for (_, uid), queue_slots in self._slots.items() if queue_slots.coming.amounts)

    @property
    def used_by_others(self) -> ResourceAmounts:
        return self._others.total

    def use(self, queue: str) -> QueueUse:
        """Return what a queue uses now."""
        slot_amounts = [counts.counted for counts in self._slots.values() if counts.queue == queue]
        allocated = ResourceAmounts.total([self._allocated[queue].total, *slot_amounts])
        elsewhere = self._elsewhere[queue].total
        return QueueUse(allocated, elsewhere, allocated.plus(elsewhere).plus(self._waiting[queue].total))

    def staying(self, queue: str, *, is_fenced: bool) -> ResourceAmounts:
        """Return what a queue uses without the pods that end soon, so that slots for what they leave are made early.

        If others are kept off the queue's nodes, pods without a place do not count either: the room that they might
        take becomes a slot first, and a pod that takes no slot has to find room elsewhere.
        """
        amounts_staying = self.use(queue).allocated.minus(self._ending[queue].total)
        return amounts_staying.minus(self._unplaced[queue].total) if is_fenced else amounts_staying

    def cost(self, pod: QueuePod) -> ResourceAmounts:
        """Return what the admission of a pod adds: less if a placeholder holds its place already."""
        slots = self._slots.get(self._slots_of(pod) or ("", ""))
        if slots is None:
            return pod.requests
        return slots.held.total.largest(slots.coming.total.plus(pod.requests)).minus(slots.counted)

    def take(self, pod: QueuePod) -> None:
        """Count a pod that takes a slot as admitted; one without a slot counts in `QueueRoom` alone."""
        slots = self._slots.get(self._slots_of(pod) or ("", ""))
        if slots is not None:
            slots.coming.add(pod.requests)


def _holds_slot(pod: QueuePod, slots: QueueSlots | None) -> bool:
    return slots is not None and slots.holds(pod.reservation, pod.reservation_name, pod.requests)
