"""The guards of nodes, which keep other pods off while slots change hands: who relies on each, and for how long."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

from berth_core import PLACEHOLDER_LABEL, SlotState
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.fitting import slots_by_key, trusted_assignment
from berth_operator.reservation.store.nodes import NodeIndex
from berth_operator.reservation.store.pods import PodStore, reservation_key, reservation_uid
from berth_operator.reservation.store.reservations import ReservationStore
from berth_operator.runtime.workqueue import Key, KeyKind

_SETTLED = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


class HandoverGuards:
    """Thread-safe look-ups by node; hand-overs on a node are queued when its guard counts again."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        enqueue: Callable[[Key], None],
        reservations: ReservationStore,
        pods: PodStore,
        nodes: NodeIndex,
    ) -> None:
        self._lock = lock
        self._enqueue = enqueue
        self._reservations = reservations
        self._pods = pods
        self._nodes = nodes

    def users(self, node: str) -> tuple[Assignment, ...]:
        """Return a node's slots that living pods were given and wait for; a bound pod waits no more."""
        with self._lock:
            pods = self._pods.targets.on(node)
            reservations = {reservation_uid(pod): self._reservations.get(reservation_uid(pod)) for pod in pods}
        users_by_slot: dict[tuple[str, str, int], Assignment] = {}
        for pod in pods:
            reservation = reservations[reservation_uid(pod)]
            if reservation is None or pod.is_terminating or pod.spec.node_name:
                continue
            is_placeholder = PLACEHOLDER_LABEL in pod.metadata.labels
            slots = slots_by_key(reservation)
            assignment = Assignment.from_pod(pod) if is_placeholder else trusted_assignment(reservation, pod, slots)
            if assignment is not None and (
                is_placeholder or slots[assignment.task, assignment.index].state not in _SETTLED
            ):
                slot = (reservation.metadata.uid, assignment.task, assignment.index)  # several pods may claim one
                users_by_slot[slot] = max(
                    assignment, users_by_slot.get(slot, assignment), key=lambda claim: claim.deadline
                )
        return tuple(users_by_slot.values())

    def idle_seconds(self, node: str) -> float:
        """Return how long ago a node's guard was first seen or, if that is later, a pod was last bound there."""
        with self._lock:
            idle_since = max(self._nodes.guarded_since(node), self._pods.targets.last_bound(node))
            return self._pods.seconds() - idle_since

    def begin_unguarding(self, node: str) -> bool:
        """Stop relying on a node's guard for new hand-overs; return False if one is under way already."""
        # The check and the mark are one step: a hand-over that began between them would lose its guard.
        with self._lock:
            if self.users(node):
                return False
            self._nodes.disregard_guard(node)
            return True

    def end_unguarding(self, node: str) -> None:
        """Rely on a node's guard for hand-overs again."""
        with self._lock:
            self._nodes.regard_guard(node)
        self.queue_handovers(node)

    def put_fenced(self, node: str, *, is_fenced: bool) -> None:
        """Record whether a fence of a node's hand-overs stands."""
        with self._lock:
            self._nodes.put_fenced(node, is_fenced=is_fenced)

    def is_fenced(self, node: str) -> bool:
        """Return whether a fence of a node's hand-overs stands, as far as this process knows."""
        with self._lock:
            return self._nodes.is_fenced(node)

    def stands_on(self, node: str) -> bool:
        """Return whether a node's guard stands, and is not being taken off."""
        with self._lock:
            return bool(self._nodes.guards({node}))

    def handovers(self) -> Counter[str]:
        """Count by namespace the slots that pods in a hand-over wait for; costs as much as there are such pods."""
        # A pod whose note cannot be trusted counts once: anyone may write a note of thousands of slots.
        slots_by_namespace: Counter[str] = Counter()
        with self._lock:
            for pod, claimed in self._pods.targets.waiting():
                reservation = self._reservations.get(reservation_uid(pod)) if claimed.further else None
                note = None
                if reservation is not None:
                    note = trusted_assignment(reservation, pod, slots_by_key(reservation))
                slots_by_namespace[pod.metadata.namespace] += 1 if note is None else len(note.slots)
        return slots_by_namespace

    def deadline(self, node: str) -> str | None:
        """Return the value of a node's guard, None without one."""
        with self._lock:
            known_node = self._nodes.get(node)
        return known_node.guard_deadline if known_node else None

    def queue_handovers(self, node: str) -> None:
        """Queue a node and the Reservations that hand over slots there."""
        with self._lock:
            pods = self._pods.targets.on(node)
        for key in (Key(KeyKind.NODE, node), *map(reservation_key, pods)):
            self._enqueue(key)
